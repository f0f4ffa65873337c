# SPDX-License-Identifier: Apache-2.0
"""The ranks of a test's job, as processes of this machine."""
import os
import pathlib
import time


def running(program, *words):
    """Ids of the processes that run `program` with all of `words` among their arguments, in ascending order."""
    wanted = {os.fsencode(word) for word in words}
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:  # the process has ended
            continue
        if arguments[0] == os.fsencode(program) and wanted <= set(arguments):
            found.append(int(path.parent.name))
    return sorted(found)


def rank_of(pid):
    """The rank in its job of a process that mpirun has started."""
    variables = dict(variable.split(b"=", 1) for variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in variable)
    return int(variables[b"OMPI_COMM_WORLD_RANK"])


def survivors(program, *words, most_s=30):
    """The processes of a job that still run at most that many seconds after its mpirun has ended: mpirun does not wait for processes that it has killed."""
    end = time.monotonic() + most_s
    while running(program, *words) and time.monotonic() < end:
        time.sleep(0.05)
    return running(program, *words)
