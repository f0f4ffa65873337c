# SPDX-License-Identifier: Apache-2.0
"""Runs one program on Paceline's modules and on a compiled Horovod in processes that take turns. Shared by peer_horovod_torch.py and
peer_horovod_tensorflow.py."""
import argparse
import json
import os
import statistics
import subprocess
import time

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TF_CPP_MIN_LOG_LEVEL="3")
REPEATS = 5


def median_us(function, count, warm_up, slowest):
    """Microseconds of a call: the median of REPEATS loops of `count`. slowest(seconds) waits for all ranks and returns the largest of their numbers."""
    def timed(count):
        slowest(0.0)
        begin = time.perf_counter()
        for _ in range(count):
            function()
        return slowest((time.perf_counter() - begin) / count) * 1e6

    timed(warm_up)
    return statistics.median(timed(count) for _ in range(REPEATS))


def run(program, ranks, python):
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), python, program, "--rank"], env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def take_turns(program, description):
    """The program's main(): runs rounds of its ranks with both Pythons and prints one line per case."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    words = parser.parse_args()
    rounds = [(run(program, words.ranks, words.python), run(program, words.ranks, words.peer)) for _ in range(words.rounds)]
    for case in rounds[0][0]:
        ratios = [theirs[case] / ours[case] for ours, theirs in rounds]
        print(json.dumps({"case": case, "ranks": words.ranks, "us": round(statistics.median(ours[case] for ours, _ in rounds), 1),
                          "peer_us": round(statistics.median(theirs[case] for _, theirs in rounds), 1),
                          "ratio": round(statistics.median(ratios), 2), "low": round(min(ratios), 2), "high": round(max(ratios), 2)}), flush=True)
