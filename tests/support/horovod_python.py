# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python on Paceline, and programs that ranks run there.

`horovod_python.py WHAT` prints the path of python_for(WHAT); if there is none, it prints why the test is skipped and exits with 77.
"""
import fcntl
import os
import shutil
import subprocess
import sys

from python_with import python_with
from ranks import mpirun

SKIP = 77
SECONDS = 900  # a long time: only a hang reaches it

# Keras 2 or 3: ranks that step on batches of their shards come to what one process does with the whole dataset and batches as large as theirs together.
SHARDED = r'''
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
n, r = hvd.size(), hvd.rank()
x = np.random.RandomState(7).randn(96, 4).astype("float32")  # the same on every rank
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))

def trained(dataset, optimizer, callbacks=()):
    tf.keras.utils.set_random_seed(0)  # the same start: with Keras 2 rank 0's variables arrive after the first step
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
    model.build((None, 4))
    model.compile(optimizer=optimizer, loss="mse")
    before = model.get_weights()
    model.fit(dataset, epochs=3, verbose=0, callbacks=list(callbacks))
    return before, model.get_weights()

_, mine = trained(dataset.shard(n, r).batch(8), hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)),
                  [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
before, whole = trained(dataset.batch(8 * n), tf.keras.optimizers.SGD(0.1))
assert np.abs(before[0] - whole[0]).max() > 0.01
assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(mine, whole)), (mine, whole)
print("rank", r, "is right")
'''


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(SKIP)


def output(done, expect):
    if expect is not None and done.returncode != expect:
        sys.exit(f"{' '.join(done.args[:8])}: exit {done.returncode}, not {expect}\n{done.stdout}")
    return done.stdout


def run(*words, expect=0, **more):
    """Run `words` and return the output; the test fails if the exit code is not `expect` (None: any code)."""
    return output(subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False, **more), expect)


def pip(python, *packages):
    """Install `packages`, Horovod without compiling it; the test is skipped if that is not possible."""
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], env={**os.environ, "HOROVOD_SKIP_COMPILE": "1"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode != 0:
        skip(f"pip cannot install {' '.join(packages)} here: {(done.stdout.strip().splitlines() or ['no word'])[-1]}")


HOROVOD = "horovod==0.28.1"
PACKAGES = {"torch": [HOROVOD], "2.12.1": ["tensorflow-cpu==2.12.1"], "2.15.1": ["numpy<2", "tensorflow-cpu==2.15.1", HOROVOD], "2.21.0": ["tf-keras==2.21.*", "tensorflow-cpu==2.21.0", HOROVOD],
            "pytorch": ["torch", "numpy", "accelerate", "transformers", "lightning"]}


def python_for(what):
    """A Python with Horovod's package, made once per build folder; the test is skipped if that is not possible. `what`: torch, Debian's, or a version of
    TensorFlow, from PyPI (1.3 GB); 2.15.1 also has Debian's torch if that is installed. Without Horovod: 2.12.1, and pytorch, PyPI's torch and libraries for it."""
    base = python_with("torch", "venv") or what != "torch" and python_with("venv")
    if not base:
        skip("no Python here has venv" + (" and torch" if what == "torch" else ""))
    folder = f"{os.environ['PACELINE_BUILD']}/horovod-{what}"
    python = f"{folder}/bin/python"
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run at the same time
        if not os.path.exists(f"{folder}/complete"):
            shutil.rmtree(folder, ignore_errors=True)
            run(base, "-m", "venv", *([] if what in ("2.12.1", "2.21.0", "pytorch") else ["--system-site-packages"]), folder)
            pip(python, "setuptools", "wheel")
            pip(python, *PACKAGES[what])
            with open(f"{folder}/complete", "w", encoding="ascii"):
                pass
    return python


def ranks(python, count, program, *words, expect=0, flags=(), **variables):
    """What `count` ranks of `program` print, or of several, one after the other in one process; `flags` are Python's, `variables` come into the environment."""
    if not isinstance(program, str):
        program = f"for text in {program!r}:\n    exec(text, {{'__name__': '__main__'}})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return output(mpirun(count, python, *flags, "-c", program, *words, timeout_s=SECONDS, env=environment), expect)


if __name__ == "__main__":
    print(python_for(sys.argv[1]))
