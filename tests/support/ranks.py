# SPDX-License-Identifier: Apache-2.0
"""The ranks of a test's job, as processes of this machine."""
import os
import pathlib
import time


def running(program, *words):
    """Process ids of those that run `program` with all of `words` among their arguments, from the lowest."""
    wanted = {os.fsencode(word) for word in words}
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:  # it has gone
            continue
        if arguments[0] == os.fsencode(program) and wanted <= set(arguments):
            found.append(int(path.parent.name))
    return sorted(found)


def rank_of(pid):
    """Which of its job's ranks a process is that mpirun has started."""
    variables = dict(variable.split(b"=", 1) for variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in variable)
    return int(variables[b"OMPI_COMM_WORLD_RANK"])


def survivors(program, *words, most_s=30):
    """What is running() of a job whose mpirun has ended, after so many seconds at the most: mpirun does not wait for whom it has killed."""
    end = time.monotonic() + most_s
    while running(program, *words) and time.monotonic() < end:
        time.sleep(0.05)
    return running(program, *words)
