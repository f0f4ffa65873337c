#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline trace --summary` names the rank that held up the others, on two hosts whose clocks are 3 s apart.

Two ranks that compute and eight that only wait, of the synthetic step: one computes longer, waits for data, saves, or is stopped once; or none is late.
`culprits.py TIMES` repeats each TIMES times (1). A machine whose cores are busy makes other ranks late, truly: this is for an idle one.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
PACELINE = BUILD / "entrypoint/paceline"
TIMES = int(sys.argv[1]) if len(sys.argv) > 1 else 1
# Of runtime/trace_ring.h. In the head: the number of records that there is room for, what takes the monotonic clock to the wall clock, the number of records
# that were written, the newest collective that was posted. In a record: its kind, the part of its world, the number of the collective.
ROOM_AT, CLOCK_AT, WRITTEN_AT, POSTED_AT, HEAD_BYTES = 12, 32, 40, 48, 128
KIND_AT, PART_AT, SEQUENCE_AT, RECORD_BYTES = 36, 39, 56, 64
PROGRAM_KIND = 65535
NUMBER_BYTES = 8
APART_NS = 3 * 10**9
DEADLINE_S = 120

LATE = {
    "compute": r"Rank {rank} \(algo-2\) was waited for in \d+ of \d+ collectives, \d+ % of the time: it computes 1\.[234] times as long as the others\.",
    "data": r"Rank {rank} \(algo-2\) was waited for in \d+ of \d+ collectives, \d+ % of the time: it waits for data, [\d.]+ % of the time more",
    "save": r"Rank {rank} \(algo-2\) was waited for in \d+ of \d+ collectives, \d+ % of the time: it saves, [\d.]+ % of the time more",
    "stopped": r"Rank {rank} \(algo-2\) was late once: the others waited [\d.]+ s for it in collective \d+ ",
    "nobody": r"(No rank held up the others|The ranks were late in turn, no one rank): they waited [\d.]+ % of the time",
}


def number(path, at):
    return int.from_bytes(path.read_bytes()[at:at + NUMBER_BYTES], "little", signed=True)


def is_between(path):
    """Tells whether the rank has ended all collectives that it posted."""
    ring = path.read_bytes()
    room = int.from_bytes(ring[ROOM_AT:ROOM_AT + 4], "little")
    for at in range(number(path, WRITTEN_AT) - 1, -1, -1):
        record = ring[HEAD_BYTES + at % room * RECORD_BYTES:][:RECORD_BYTES]
        if int.from_bytes(record[KIND_AT:KIND_AT + 2], "little") != PROGRAM_KIND and record[PART_AT] == 0:
            return int.from_bytes(record[SEQUENCE_AT:], "little") == number(path, POSTED_AT)
    return False


def set_back(path):
    """Makes the ring that of a host whose clock is behind."""
    with path.open("r+b") as ring:
        ring.seek(CLOCK_AT)
        clock_ns = int.from_bytes(ring.read(NUMBER_BYTES), "little", signed=True)
        ring.seek(CLOCK_AT)
        ring.write((clock_ns - APART_NS).to_bytes(NUMBER_BYTES, "little", signed=True))


def summary(rings):
    done = subprocess.run([PACELINE, "trace", "--summary", *rings], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def process_of(rank, ring):
    """Returns the process of the rank that has the ring mapped."""
    at = ring.stat()
    mapped = f" {os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x} {at.st_ino} "
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mapped in (folder / "maps").read_text():
                return int(folder.name)
        except OSError:
            pass
    raise AssertionError(f"no process of rank {rank}")


def stop_once(rank, ring, rings):
    """Stops a rank between two collectives, until the summary tells that the others are in one without it."""
    wait_until(lambda: ring.exists() and number(ring, WRITTEN_AT) > 50, f"50 records of rank {rank}")
    pid = process_of(rank, ring)

    def stop_between():
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: "(stopped)" in pathlib.Path(f"/proc/{pid}/status").read_text(), f"the stop of rank {rank}")
        if is_between(ring):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_until(stop_between, f"rank {rank} between two collectives")
    try:
        wait_until(lambda: re.search(rf"has not ended\. In it: rank [\d, ]+\. Not in it: rank {rank}\.", summary(rings)), f"the summary of a hang at rank {rank}")
        time.sleep(1)  # the length of the fault: longer than all else that the others wait for
    finally:
        os.kill(pid, signal.SIGCONT)


def run(folder, late, ranks_per_host, work):
    ranks = 2 * ranks_per_host
    rank = ranks - 1
    words = [] if late in ("stopped", "nobody") else ["--late-rank", str(rank), "--late-percent", "30", "--late-as", late]
    name = f"{late}-{ranks}"
    rings = [folder / f"paceline-local/{name}/algo-{1 + each // ranks_per_host}/output/data/trace.json.rank{each}.ring" for each in range(ranks)]
    for ring in rings:
        ring.unlink(missing_ok=True)
    command = [PACELINE, "local", "--name", name, "--keep", "--hosts", "2", "--processes-per-host", str(ranks_per_host), "--environment",
               "PACELINE_TRACE=/opt/ml/output/data/trace.json", "--", BUILD / "libexec/paceline/synthetic", "--backward-ms", "30", "--work", work, *words]
    with (folder / "log").open("w+") as log:
        job = subprocess.Popen([str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            if late == "stopped":
                stop_once(rank, rings[rank], rings)
            code = job.wait(DEADLINE_S)
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait(DEADLINE_S)
        log.seek(0)
        assert code == 0, log.read()
    for ring in rings[ranks_per_host:]:
        set_back(ring)
    text = summary(rings)
    right = re.search(LATE[late].format(rank=rank), text) is not None
    assert re.search(r"The clock of algo-2 is (2\.99|3\.00)\d s behind that of algo-1; this is corrected here\.", text), text
    if not right:
        print(text)
    return right


def main():
    if os.geteuid() != 0:
        print("SKIP: hosts in namespaces need root")
        sys.exit(77)
    right = {}
    with tempfile.TemporaryDirectory(prefix="paceline-culprits-") as folder:
        for ranks_per_host, work in ((1, "busy"), (4, "timer")):
            for late in LATE:
                results = [run(pathlib.Path(folder), late, ranks_per_host, work) for _ in range(TIMES)]
                right[late, 2 * ranks_per_host] = sum(results)
                print(f"{2 * ranks_per_host} ranks, {late}: the right sentence {sum(results)} times of {TIMES}", flush=True)
    assert all(count == TIMES for count in right.values()), right


main()
