# SPDX-License-Identifier: Apache-2.0
"""Makes an installed Horovod, whose Python files were installed without compiling, use Paceline, checks that, or undoes it.

    PYTHON install.py install|check|remove refused|replaced|kept PYTHON

`paceline horovod` (main.c) starts it by the Python whose Horovod is meant; PYTHON is its name in messages. The second word says what becomes of a
compiled Horovod.
Test  tests/integration/horovod.py, horovod_tensorflow.py, horovod_keras.py
"""
import os
import sys

sys.path.pop(0)  # this folder

import importlib.metadata  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sysconfig  # noqa: E402

VERSION = "0.28.1"
LIBRARY = "libpaceline-horovod.so"
PACELINE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder of Paceline's programs and modules

# TensorFlow writes much to standard error while it is imported.
QUIETLY = """import os, sys
def quietly(name):
    kept = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try: return __import__(name)
    finally: os.dup2(kept, 2)
"""
TORCH_TRIAL = """import torch, horovod.torch as hvd
hvd.init()
assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
print('horovod.torch works')
hvd.shutdown()
"""
TENSORFLOW_TRIAL = QUIETLY + """tf = quietly('tensorflow')
import horovod.tensorflow as hvd
hvd.init()
assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [hvd.size()] * 2
print('horovod.tensorflow works')
try: hvd.broadcast_([tf.Variable([1.0])], 0)
except tf.errors.UnimplementedError as error: print(error.message[error.message.find('broadcasting'):])
import horovod.tensorflow.keras as keras
print('Keras', getattr(tf.keras, '__version__', '2') + ':', keras.__name__)
hvd.shutdown()
"""

# Python looks into the package at its start: for example, Horovod's Python files for Keras do not support Keras 3. A link that leads nowhere has no
# effect.
START = "import sys; exec('try: import paceline_horovod.redirect\\nexcept ImportError: pass')\n"


class InstallError(Exception):
    """A reason for people."""


class Framework:
    def __init__(self, name, key, module, stem, ours, trial):
        self.name, self.key = name, key  # `key`: in Horovod's list of the versions that it was built for
        self.version, self.ours, self.trial = self.find_version(module), ours, trial
        self.path = f"{folder}/{module}/{stem}{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
        self.library = f"{folder}/{module}/{LIBRARY}"  # beside it
        self.exists, self.is_ours = os.path.lexists(self.path), is_link_to(self.path, ours)

    @staticmethod
    def find_version(module):
        try:
            return importlib.util.find_spec(module) and quietly(module).__version__
        except Exception as error:
            print(f"import {module}: {error}", file=sys.stderr)
            return None


def is_link_to(path, name):
    """Whether the path is a link to our library or module of this name."""
    return os.path.islink(path) and os.path.basename(os.readlink(path)) == name


def run(doing, function, *words):
    try:
        return function(*words)
    except OSError as error:
        raise InstallError(f"{doing}: {error.strerror}") from None


def link_to(path, name):
    """Replaces what the path was by a link."""
    target, before = f"{PACELINE}/{name}", f"{path}.paceline"
    if not os.access(target, os.R_OK):
        raise InstallError(f"{target}: Paceline was built without Python.h, or without a C++ compiler")
    if os.path.lexists(before):
        run(f"remove '{before}'", os.unlink, before)
    run(f"make the link '{path}'", os.symlink, target, before)
    run(f"make the link '{path}'", os.replace, before, path)


def write(path, text):
    def write_whole():
        with open(f"{path}.paceline", "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(f"{path}.paceline", path)
    run(f"write '{path}'", write_whole)


def install(compiled):
    for framework in frameworks:
        if compiled == "kept" and framework.exists and not framework.is_ours:
            print(f"Horovod {version} in {folder} was compiled and stays as it is")
            return
    if version != VERSION and compiled != "replaced":
        raise InstallError(f"Horovod in {folder} is {version}, not {VERSION}; --force uses it nevertheless")
    for framework in frameworks:
        if framework.exists and not framework.is_ours and compiled != "replaced":
            raise InstallError(f"Horovod in {folder} was compiled: {framework.path} is not a link to Paceline; --force replaces it")
    if not there:
        raise InstallError("neither torch nor TensorFlow is installed")
    for framework in there:
        link_to(framework.library, LIBRARY)
        link_to(framework.path, framework.ours)
    # Horovod compares the version of the framework that is loaded with that of the one that it was built for.
    write(f"{folder}/metadata.json", json.dumps({framework.key: framework.version for framework in there}))
    link_to(f"{folder}/../paceline_horovod", "horovod/paceline_horovod")
    write(f"{folder}/../paceline_horovod.pth", START)
    missing = [framework.name for framework in frameworks if framework not in there] + ["MXNet"]
    print(f"Horovod {version} in {folder} runs on Paceline; " + "".join(f"{framework.name} {framework.version}, " for framework in there) +
          f"not there: {', '.join(missing)}")


def check(python):
    """Prints what is installed, and tests each framework."""
    print(f"Horovod {version} in {folder}")
    for framework in frameworks:
        module = "Paceline's" if framework.is_ours else "Horovod's own, compiled" if framework.exists else "not there: paceline horovod install"
        print(f"{framework.name}: {framework.version or 'not there'}, module: {module}", flush=True)
    if not there or not all(framework.is_ours for framework in there):
        raise InstallError("this Horovod does not run on Paceline")
    for framework in there:
        if subprocess.run([sys.executable, "-c", framework.trial]).returncode != 0:
            raise InstallError(f"'{python}' has failed, see above")


def remove():
    """Removes what install() made. Files that it replaced with --force are not restored."""
    ours = [framework for framework in frameworks if framework.is_ours]
    if not ours:
        raise InstallError(f"Horovod in {folder} has no module of Paceline's")
    paths = [framework.path for framework in ours] + [framework.library for framework in ours if is_link_to(framework.library, LIBRARY)]
    for path in paths + [f"{folder}/{name}" for name in ("../paceline_horovod.pth", "../paceline_horovod", "metadata.json")]:
        if os.path.lexists(path):
            run(f"remove '{path}'", os.unlink, path)
    print(f"Horovod {version} in {folder} no longer runs on Paceline")


command, compiled, python = sys.argv[1:]
exec(QUIETLY)
try:
    try:
        version = importlib.metadata.version("horovod")
        folder = os.path.abspath(importlib.metadata.distribution("horovod").locate_file("horovod"))
    except importlib.metadata.PackageNotFoundError:
        raise InstallError(f"there is no Horovod for '{python}': HOROVOD_SKIP_COMPILE=1 {python} -m pip install horovod=={VERSION}") from None
    frameworks = [Framework("torch", "pytorch", "torch", "mpi_lib_v2", "libpaceline-horovod-torch.so", TORCH_TRIAL),
                  Framework("TensorFlow", "tensorflow", "tensorflow", "mpi_lib", "libpaceline-horovod-tensorflow.so", TENSORFLOW_TRIAL)]
    there = [framework for framework in frameworks if framework.version]
    if command == "install":
        install(compiled)
    elif command == "check":
        check(python)
    else:
        remove()
except InstallError as error:
    sys.stdout.flush()
    doing = {"install": "installing", "check": "checking", "remove": "removing"}[command]
    print(f"paceline horovod: error: {doing}: {error}", file=sys.stderr)
    sys.exit(1)
