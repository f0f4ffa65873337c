# SPDX-License-Identifier: Apache-2.0
"""Finds a Python with given modules for a test: the first python3 on PATH often lacks modules that Debian's has."""
import functools
import os
import subprocess
import sys


@functools.cache
def python_with(*modules):
    """The first Python among this one, those on PATH and Debian's that imports all of `modules`; None if there is none."""
    folders = [*os.get_exec_path(), "/usr/bin"]
    for python in dict.fromkeys([sys.executable, *(os.path.join(folder, "python3") for folder in folders)]):
        try:
            subprocess.run([python, "-c", f"import {', '.join(modules)}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            return python
        except (OSError, subprocess.CalledProcessError):
            continue
    return None
