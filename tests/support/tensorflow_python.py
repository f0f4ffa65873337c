# SPDX-License-Identifier: Apache-2.0
"""A Python with TensorFlow from PyPI and Horovod's package, for all tests that want that version: made once for a build folder, of which it takes 1.3 GB.

`tensorflow_python.py VERSION` prints its path, or why there is none, with exit code 77.
"""
import os
import shutil
import subprocess
import sys

from python_with import python_with

SECONDS = 900  # far away: what hangs is found by it
MORE = {"2.15.1": ["numpy<2"], "2.21.0": ["tf-keras==2.21.*"]}


def tensorflow_python(version):
    """(its path, None), or (None, why not). 2.15.1 also has Debian's torch, where that is there."""
    base = python_with("torch", "venv") or python_with("venv")
    if not base:
        return None, "no Python here has venv"
    folder = f"{os.environ['PACELINE_BUILD']}/tensorflow-{version}"
    python = f"{folder}/bin/python"
    if os.path.exists(f"{folder}/complete"):
        return python, None
    shutil.rmtree(folder, ignore_errors=True)
    site = ["--system-site-packages"] if version == "2.15.1" else []
    packages = ["setuptools", "wheel"], [f"tensorflow-cpu=={version}", *MORE[version], "horovod==0.28.1"]
    try:
        subprocess.run([base, "-m", "venv", *site, folder], stdout=sys.stderr, check=True, timeout=SECONDS)
        for some in packages:
            subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *some], env={**os.environ, "HOROVOD_SKIP_COMPILE": "1"},
                           stdout=sys.stderr, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"pip cannot install {' '.join(packages[1])} here: {error}"
    with open(f"{folder}/complete", "w", encoding="ascii"):
        return python, None


if __name__ == "__main__":
    found, why = tensorflow_python(sys.argv[1])
    print(found or why)
    sys.exit(0 if found else 77)
