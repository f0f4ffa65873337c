#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wheel in a bare environment of Python: the command with its verbs, without Python in its way; `import paceline` alone and with numpy; C programs by
`paceline info --cflags --libs`; two wheels are equal; uninstalling leaves nothing.

The wheel is packed of this build, with Debian's own shared libraries. With the word `full` it is the one of tests/support/wheel.sh, built twice, whose size and
libraries are compared with docs/own-image.md, and each Python of pyenv installs it. bases.sh makes an image with it.
"""
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = pathlib.Path(os.environ["PACELINE_SOURCE"]), pathlib.Path(os.environ["PACELINE_BUILD"])
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402

FULL = sys.argv[1:] == ["full"]
SKIP = 77


def run(*command, code=0, **keywords):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500,
                          check=False, **keywords)
    assert done.returncode == code, f"exit status {done.returncode}, not {code}, of {' '.join(map(str, command))[:300]}: {done.stdout[-4000:]}"
    return done.stdout


def bare(folder, *path, **variables):
    """The environment of a container that has only that folder's commands and the system's."""
    return {"PATH": ":".join([f"{folder}/bin", *path, "/usr/bin", "/bin"]), "HOME": str(folder), "TMPDIR": str(folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}


def pack_this_build(folder):
    """Two wheels of what `meson install` installs."""
    out = folder / "out"
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--strip", env={**os.environ, "DESTDIR": str(folder / "installed")})
    (prefix,) = (path.parent.parent for path in (folder / "installed").rglob("bin/paceline"))
    (out / "opt").mkdir(parents=True)
    prefix.rename(out / "opt/paceline")
    (folder / "foreign/copyright").mkdir(parents=True)
    for name, text in (("libarchive", "License: none\n"), ("libarchive.version", "0\n")):
        (folder / "foreign/copyright" / name).write_text(text)
    run(SOURCE / "tests/support/image.sh", "pack",
        env={**os.environ, "FOREIGN": str(folder / "foreign"), "BUILD": str(folder / "build"), "OUT": str(out), "EXAMPLES": "no"})
    return [pathlib.Path(run(SOURCE / "tests/support/wheel.sh", out, folder / name).split()[-1]) for name in ("first", "second")]


def build_twice(folder):
    wheels = []
    for name in ("first", "second"):
        shutil.rmtree(SOURCE / "build-wheel", ignore_errors=True)
        wheels.append(pathlib.Path(run(SOURCE / "tests/support/wheel.sh", folder / name).split()[-1]))
    return wheels


def files_below(folder):
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def the_wheel_works(wheel, python, folder):
    run(python, "-m", "venv", "--without-pip", folder)
    next(folder.glob("lib/python3*/site-packages")).joinpath("other.py").touch()  # pip removes a directory that it leaves empty
    before = files_below(folder)

    def pip(*words):
        return run(sys.executable, "-m", "pip", "--python", folder / "bin/python", *words)
    pip("install", "-q", "--no-index", "--no-deps", wheel)
    environment = bare(folder)
    version = run("paceline", "--version", env=environment, cwd="/")
    assert f"-{version.split()[1]}-" in wheel.name, (version, wheel.name)
    assert run("sh", "-c", "ln -s $(command -v paceline) link && ./link --version", env=environment, cwd=folder) == version
    (prefix,) = folder.glob("lib/python3*/site-packages/paceline/_prefix")
    loaded = run("ldd", prefix / "libexec/paceline/paceline-s3", env=environment)
    assert re.search(rf"libcurl\.so\.4 => {re.escape(str(prefix))}/\S*lib/carried/", loaded) and "not found" not in loaded, loaded
    assert "accuracy 0.9" in run("paceline", "demo", "--processes", "2", env=environment, cwd=folder)
    said = run(folder / "bin/python", "-c", "import sys, paceline\nassert not {'numpy', 'torch', 'ssl'} & set(sys.modules)\ntry: paceline.rank()\n"
               "except paceline.PacelineError as error: print(error)", env=environment, cwd=folder)
    assert "call paceline.init() first" in said, said
    (folder / "train.c").write_text('#include "runtime/paceline.h"\n#include <stdio.h>\nint main(void) { puts(pl_status_name(PL_OK)); return 0; }\n')
    flags = run("paceline", "info", "--cflags", "--libs", env=environment).split()
    run("cc", folder / "train.c", "-o", folder / "train", *flags)
    for name in ("train.c", "train", "link"):
        (folder / name).unlink()
    for path in folder.glob("paceline-demo-*"):
        shutil.rmtree(path)
    pip("uninstall", "-q", "-y", "paceline")
    assert files_below(folder) == before, sorted(files_below(folder) ^ before)[:10]
    print(f"the wheel works with {python}")


def arrays_are_summed(wheel, python, folder):
    """The package in a folder of its own, by a Python that has numpy."""
    run(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, wheel)
    code = "import numpy, paceline\npaceline.init()\nassert paceline.allreduce(numpy.ones(3), op=paceline.Sum).tolist() == [paceline.size()] * 3\nprint('summed', end='')\n"
    for launcher in ([], ["mpirun", "--oversubscribe", "-n", "2"]):
        said = run(*launcher, python, "-c", code, env=bare(folder, PYTHONPATH=str(folder)), cwd="/")
        assert said.count("summed") == (2 if launcher else 1), said
    (absent,) = folder.glob("paceline/_prefix/lib/without-mpi/libmpi.so.40")  # the name of the library is taken then, as on a machine without Open MPI
    assert "summed" in run(python, "-c", f"import ctypes\nctypes.CDLL({str(absent)!r})\n{code}", env=bare(folder, PYTHONPATH=str(folder)), cwd="/")
    assert run("paceline", "--version", env=bare(folder)).startswith("paceline ")
    print(f"arrays of numpy are summed with {python}, on one rank and on two")


def check_libraries(wheel, folder):
    """The page lists the libraries that are carried, and the wheel is as small as it says."""
    run(sys.executable, "-m", "zipfile", "-e", wheel, folder)
    carried = {path.name for path in (folder / "paceline/_prefix/lib/carried").iterdir()}
    table = (SOURCE / "docs/own-image.md").read_text().partition("## Libraries of others")[2].partition("## ")[0]
    listed = set(re.findall(r"`(lib[\w.-]+\.so\.[\d.]+)`", table))
    assert carried == listed, sorted(carried ^ listed)
    assert "manylinux_2_34_" in wheel.name and wheel.stat().st_size < 12e6, wheel
    print(f"{len(carried)} libraries of others, as the page lists them")


def imports(wheel, python, folder):
    if run(python, "-c", "import sys; print(sys.version_info >= (3, 8))").strip() != "True":
        return
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, wheel)
    said = run(python, "-c", "import sys, paceline; print(sys.version.split()[0], len(paceline.__all__))", env=bare(folder, PYTHONPATH=str(folder)), cwd="/")
    assert run(folder / "bin/paceline", "--version", env=bare(folder)).startswith("paceline "), folder
    print(f"imported by Python {said.split()[0]}")


def main():
    if subprocess.run([sys.executable, "-m", "pip", "--python", sys.executable, "--version"], capture_output=True, check=False).returncode != 0:
        print("skipped: this Python has no pip that installs for another one (22.3 or later)")
        sys.exit(SKIP)
    if not shutil.which("patchelf"):
        print("skipped: no patchelf (tests/support/packages.sh install prefix)")
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory(prefix="paceline-wheel-") as scratch:
        folder = pathlib.Path(scratch).resolve()
        first, second = build_twice(folder) if FULL else pack_this_build(folder)
        assert first.name == second.name and filecmp.cmp(first, second, shallow=False), "two wheels of one tree differ: other bytes"
        print(f"{first.name}: {first.stat().st_size / 1e6:.1f} MB, twice the same bytes")
        the_wheel_works(first, sys.executable, folder / "bare")
        if FULL:
            check_libraries(first, folder / "unpacked")
            for python in sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3")):
                imports(first, python, folder / python.parts[-3])
        python = python_with("numpy")
        if python:
            arrays_are_summed(first, python, folder / "target")
        else:
            print("left out: arrays, no Python here has numpy")


main()
