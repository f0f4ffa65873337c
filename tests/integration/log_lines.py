#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A line that a rank writes is a line in the log, also a last one without an end: under mpirun, also when that has been stopped and finds all of it at once,
under a stand-in of torchrun whose ranks share one pipe, and in both with lines that come in pieces. And a log that nobody reads keeps neither ranks' shims nor
process 1 from a signal.
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

PACELINE = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint/paceline"
RANKS, SHIMS, LINES, SHORT_LINES = 4, 8, 100, 500
MOST_S = 120  # for what comes in a second on a machine that has time

# A line is in the log as a whole, however long a loaded machine halts its rank in the middle; one in which the rank has waited for anything else, such as a
# disk, is not counted. In some all ranks meet. What a rank prints at once while mpirun is stopped is more than mpirun reads at a time, and with tags more than it
# has room for; `paceline rank` holds it.
PROGRAM = f"""
RANKS, LINES, SHORT_LINES = {RANKS}, {LINES}, {SHORT_LINES}
""" + """
import os, resource, sys, time
rank, folder = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"], os.path.dirname(os.environ["SAGEMAKER_BASE_DIR"])
assert os.isatty(1) == ("OMPI_COMM_WORLD_RANK" in os.environ)
assert "PACELINE_RANK_PIPES" not in os.environ and all(map(os.isatty, os.openpty()))  # which is refused to mpirun alone
def meet(number):
    open(f"{folder}/met-{number}-{rank}", "w").close()
    end = time.monotonic() + 0.03
    while time.monotonic() < end and not all(os.path.exists(f"{folder}/met-{number}-{other}") for other in range(RANKS)):
        pass
def waits():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
def line(number):
    begin = waits()
    for piece in ("rank", " ", rank, " step", " ", str(number), " loss =", " ", "0.5", " accuracy =", " ", str(number / 8), "\\n"):
        os.write(1, piece.encode())
        if piece == " step" and number % 5 == 0:
            meet(number)
    return waits() == begin
counted = [number for number in range(LINES) if line(number)]
open(f"{folder}/ready-{rank}", "w").close()
while not os.path.exists(f"{folder}/go"):
    time.sleep(0.01)
for number in range(LINES, 2 * LINES):
    os.write(1, f"rank {rank} step {number} loss = 0.5 accuracy = {number / 8}\\n".encode())
for number in range(SHORT_LINES):
    os.write(1, f"{rank}v{number}\\n".encode())
counted += range(LINES, 2 * LINES)
with open(f"{folder}/counted-{rank}", "w") as file:
    file.write("\\n".join(map(str, counted)))
os.rename(file.name, f"{folder}/done-{rank}")
with open(f"{folder}/shim-{rank}", "w") as file:
    file.write(str(os.getppid()))
os.rename(file.name, f"{folder}/below-{rank}")
if rank != "0":  # the shim of the rank before has written all
    while not os.path.exists(f"{folder}/below-{int(rank) - 1}"):
        time.sleep(0.01)
    shim = open(f"{folder}/below-{int(rank) - 1}").read()
    while os.path.exists(f"/proc/{shim}"):
        time.sleep(0.01)
os.write(1 + int(rank) % 2, f"rank {rank} ends without a newline".encode())
os._exit(0)
"""

TORCHRUN = """#!/bin/sh
for last; do :; done # the script
for rank in $(seq 0 $(({ranks} - 1))); do RANK=$rank LOCAL_RANK=$rank "$PYTHON_EXEC" -u "$last" & done
wait
"""

BUSY = """
import os, signal, sys
def save(number, frame):
    open(sys.argv[1], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
open(sys.argv[1] + ".ready", "w").close()
while True:
    os.write(2, b"x" * 99 + b"\\n")
"""


def start_job(folder, parameters, words, log):
    base = folder / "ml"
    (base / "input/config").mkdir(parents=True)
    (base / "code").mkdir()
    (base / "code/train.py").write_text(PROGRAM)
    (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}))
    (base / "input/config/hyperparameters.json").write_text(json.dumps(parameters))
    environment = dict(os.environ, SAGEMAKER_BASE_DIR=str(base), PACELINE_PYTHON=sys.executable, PYTHON_EXEC=sys.executable, PATH=f"{folder}/bin:{os.environ['PATH']}",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.Popen([str(PACELINE), *words], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def descendant(pid, name):
    """The process `name` below process `pid`."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = re.match(r"(\d+) \((.*)\) \S (\d+)", stat.read_text())
        except OSError:
            continue
        parents[int(words[1])] = (words[2], int(words[3]))
    for child, (found, parent) in parents.items():
        while found == name and parent != pid and parent in parents:
            parent = parents[parent][1]
        if found == name and parent == pid:
            return child
    return None


def lines_are_lines(folder, launcher):
    """Checks that the lines of all ranks are whole, each with the tag that the launcher or the setting gives it. One that was not counted may have left its piece
    in front of another rank's line and that one's tag."""
    launcher, _, tags = launcher.partition(" ")
    tag = r"\[1,{}\]<stdout>: ?" if launcher == "mpirun" and not tags else r"\[rank{}\]: "
    (folder / "bin").mkdir()
    if launcher == "torchrun":
        (folder / "bin/torchrun").write_text(TORCHRUN.format(ranks=RANKS))
        (folder / "bin/torchrun").chmod(0o755)
        parameters = {"sagemaker_torch_distributed_enabled": "true"}
    else:
        parameters = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": str(RANKS), "sagemaker_mpi_custom_mpi_options": "--oversubscribe"}
    if tags:
        parameters["paceline_rank_tags"] = tags
    with open(folder / "log", "w") as log:
        job = start_job(folder, {"sagemaker_program": "train.py", **parameters}, ["train"], log)
    try:
        wait_until(lambda: len(list(folder.glob("ready-*"))) == RANKS or job.poll() is not None, "all ranks are there")
        stopped = descendant(job.pid, "mpirun") if launcher == "mpirun" else None
        if stopped:
            os.kill(stopped, signal.SIGSTOP)
        (folder / "go").touch()
        wait_until(lambda: len(list(folder.glob("done-*"))) == RANKS or job.poll() is not None, "all ranks have written all")
        if stopped:
            os.kill(stopped, signal.SIGCONT)
        assert job.wait(timeout=MOST_S) == 0, (folder / "log").read_text()[-2000:]
    finally:
        job.kill()
    text = (folder / "log").read_text()
    found, missing, counted_lines = set(text.splitlines()), [], 0
    for rank in range(RANKS):
        mine = {re.sub(".*" + tag.format(rank), "", line) for line in found if re.match(".*" + tag.format(rank), line)}
        counted = [int(word) for word in (folder / f"done-{rank}").read_text().split()]
        assert len(counted) >= LINES
        counted_lines += len(counted)
        missing += [line for line in (f"rank {rank} step {number} loss = 0.5 accuracy = {number / 8}" for number in counted) if line not in mine]
        missing += [line for line in (f"{rank}v{number}" for number in range(SHORT_LINES)) if line not in mine]
    assert not missing, f"{launcher}: {len(missing)} lines are not in the log as they were written, such as {missing[:3]}; of {RANKS} ranks {counted_lines} and {RANKS * SHORT_LINES}"
    for rank in range(RANKS):
        line = tag.format(rank).replace("stdout", "stderr" if rank % 2 else "stdout") + f"rank {rank} ends without a newline"
        assert any(re.match(line, found_line) for found_line in found), f"{launcher}: no line begins with '{line}': {[line for line in found if 'without a newline' in line]}"
    print(f"{launcher}: {counted_lines} lines in pieces or at once, {RANKS * SHORT_LINES} short ones, all whole")


@contextlib.contextmanager
def silent_log(kind):
    """Both ends of a pipe or terminal without a reader, the reader's end first."""
    ends = os.pipe() if kind == "pipe" else pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def is_full(write_fd):
    """A terminal polls as writable for one byte, which no line's end fits into."""
    if not select.select([], [write_fd], [], 0)[1]:
        return True
    fd = os.open(f"/proc/self/fd/{write_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        os.write(fd, b"\n")
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def shims_pass_signals(folder, kind):
    """Ranks of one host share a pipe: the moment that there is room for one line, all find it writable. A terminal has room for a part of a line."""
    (folder / "busy.py").write_text(BUSY)
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PACELINE_", "OMPI_"))}
    ranks = []
    with silent_log(kind) as (read_fd, write_fd):
        try:
            for number in range(SHIMS):
                ranks.append(subprocess.Popen([str(PACELINE), "rank", sys.executable, str(folder / "busy.py"), str(folder / f"told-{number}"), "--"],
                                              env=environment, stdout=write_fd, stderr=write_fd))
            wait_until(lambda: len(list(folder.glob("*.ready"))) == SHIMS, "all programs run")
            for _ in range(100):
                wait_until(lambda: is_full(write_fd), "the log is full")
                os.read(read_fd, 4096)
            wait_until(lambda: is_full(write_fd), "the log is full")
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
            wait_until(lambda: len(list(folder.glob("told-?"))) == SHIMS, f"all programs with a {kind} as log have got SIGTERM")
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    print(f"{SHIMS} shims with a {kind} as log that nobody reads: all passed SIGTERM on")


def process_1_passes_signals(folder, kind):
    (folder / "busy.py").write_text(BUSY)
    with silent_log(kind) as (_, write_fd):
        job = start_job(folder, {}, ["--", sys.executable, str(folder / "busy.py"), str(folder / "told")], write_fd)
        try:
            wait_until(lambda: (folder / "told.ready").exists() and is_full(write_fd), "the log is full")
            job.send_signal(signal.SIGTERM)
            wait_until((folder / "told").exists, f"the program with a {kind} as log has got SIGTERM")
            assert job.wait(timeout=MOST_S) == 0
            assert (folder / "ml/output/success").exists()
        finally:
            job.kill()
    print(f"process 1 with a {kind} as log that nobody reads: passed SIGTERM on and ended")


def main():
    parts = [(lines_are_lines, "torchrun")] + [(part, kind) for part in (shims_pass_signals, process_1_passes_signals) for kind in ("pipe", "terminal")]
    if shutil.which("mpirun") is not None:
        parts[:0] = [(lines_are_lines, "mpirun"), (lines_are_lines, "mpirun rank")]
    else:
        print("under mpirun: left out, there is none")
    for part, kind in parts:
        with tempfile.TemporaryDirectory(prefix="paceline-lines-") as folder:
            part(pathlib.Path(folder), kind)


main()
