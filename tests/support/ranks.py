# SPDX-License-Identifier: Apache-2.0
"""The ranks of a test's job, as processes of this machine."""
import os
import pathlib
import subprocess
import tempfile
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


def mpirun(ranks, *command, options=(), timeout_s=240, **more):
    """Runs `command` as ranks under mpirun: its CompletedProcess, whose output is all that rank 0 wrote, then all that rank 1 wrote, and so on, and mpirun's own
    words at the end. On its own output mpirun joins the lines of ranks that write at once."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), "--output-filename", folder + ":nocopy",
                               *options, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout_s, check=False, **more)
        written = sorted(pathlib.Path(folder).rglob("std*"), key=lambda path: (int(path.parent.name.split(".")[1]), path.name))
        done.stdout = "".join(path.read_text(errors="replace") for path in written) + done.stdout
    return done
