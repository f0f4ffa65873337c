# SPDX-License-Identifier: Apache-2.0
"""How the tests in Python wait."""
import os
import pathlib
import time


def wait_until(condition, what, process=None, most_s=120):
    """Returns the first value of condition() that is true. The test fails after `most_s` seconds, or when `process` has ended, with `what` (a text, or a
    function that returns it)."""
    end = time.monotonic() + most_s
    while not (found := condition()):
        if time.monotonic() > end or (process and process.poll() is not None):
            raise AssertionError(what() if callable(what) else what)
        time.sleep(0.02)
    return found


def wait_open(pids, path):
    """Waits until one of the processes has `path` open, such as a FIFO that nobody writes."""
    def is_open():
        for pid in pids:
            for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    if os.readlink(file) == str(path):
                        return True
                except FileNotFoundError:  # closed meanwhile
                    continue
        return False
    wait_until(is_open, f"nobody opened {path}")
