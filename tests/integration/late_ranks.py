#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a running job is killed or stopped at a random moment: the job ends, a message names the rank, and no process is left.

    late_ranks.py [TRIALS]     number of each kind, by default 2

The digit classifier on three ranks, with a deadline of ten seconds for each operation.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from ranks import rank_of, running, survivors  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
MNIST = BUILD / "libexec/paceline/mnist"
DEADLINE_S = 10
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   PACELINE_TIMEOUT_S=str(DEADLINE_S))


def trial(data, number):
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3", MNIST, "--data", data, "--epochs", "1000", "--batch-size", "10", "--device", "cpu"]
    process = subprocess.Popen([str(word) for word in command], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    first = next((line for line in process.stdout if line.startswith("epoch=1 ")), None)  # after any messages of MPI; the job runs
    assert first, "the job ended before its first epoch was over"
    time.sleep(random.uniform(0, 1))
    pid = random.choice(running(MNIST, data))
    victim = rank_of(pid)
    os.kill(pid, number)
    began = time.monotonic()
    out, _ = process.communicate(timeout=100)
    seconds = time.monotonic() - began
    print(f"{number.name} to rank {victim}: the job ended after {seconds:.1f} s with status {process.returncode}")
    # mpirun itself reports a killed rank, and may be faster than the others' own message.
    assert process.returncode != 0
    assert re.search(rf"\brank {victim}\b", out), out
    assert seconds < DEADLINE_S + 30, out
    assert not survivors(MNIST, data), "a rank survived"


def main():
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory(prefix="paceline-late-") as scratch:
        data = pathlib.Path(scratch) / "data"
        subprocess.run([BUILD / "libexec/paceline/make_digits", data, "120", "10", "7"], check=True)
        for number in [signal.SIGKILL, signal.SIGSTOP] * trials:
            trial(data, number)


main()
