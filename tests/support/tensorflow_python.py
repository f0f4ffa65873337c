# SPDX-License-Identifier: Apache-2.0
"""A Python with TensorFlow from PyPI and Horovod's package, for all tests that want that version: made once for a build folder, of which it takes 1.3 GB.

`tensorflow_python.py VERSION` prints its path; where there is none, why the test is skipped, with exit code 77.
"""
import os
import shutil
import sys

from horovod_python import pip, run, skip
from python_with import python_with

MORE = {"2.15.1": ["numpy<2"], "2.21.0": ["tf-keras==2.21.*"]}


def tensorflow_python(version):
    """Its path; the test is skipped where it cannot be. 2.15.1 also has Debian's torch, where that is there."""
    base = python_with("torch", "venv") or python_with("venv")
    if not base:
        skip("no Python here has venv")
    folder = f"{os.environ['PACELINE_BUILD']}/tensorflow-{version}"
    python = f"{folder}/bin/python"
    if not os.path.exists(f"{folder}/complete"):
        shutil.rmtree(folder, ignore_errors=True)
        run(base, "-m", "venv", *(["--system-site-packages"] if version == "2.15.1" else []), folder)
        pip(python, "setuptools", "wheel")
        pip(python, f"tensorflow-cpu=={version}", *MORE[version], "horovod==0.28.1")
        with open(f"{folder}/complete", "w", encoding="ascii"):
            pass
    return python


if __name__ == "__main__":
    print(tensorflow_python(sys.argv[1]))
