#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same program for horovod.torch on Paceline's modules and on a compiled Horovod, in processes that take turns.

    tests/bench/peer_horovod_torch.py --python PYTHON --peer PYTHON [--ranks 2] [--rounds 5]

Both have torch and Horovod 0.28.1, the first as `paceline horovod` makes it, the second compiled (peer_horovod.py says how). What is timed, a call or a step, is
the slowest rank's, the median of some within a run: one blocking sum of one element; 161 of them at a time; the gradients of ResNet-50, 161 tensors, in
place; and a step of hvd.DistributedOptimizer over 161 parameters of one element, less the same step of the bare optimizer.

One JSON object a case: {"case", "ranks", "us", "peer_us", "ratio", "low", "high"}: medians over the rounds, the ratios of the peer's time to ours of the
same round with the lowest and the highest.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
GRADIENTS = pathlib.Path(__file__).resolve().parents[2] / "examples/synthetic/resnet50.json"
REPEATS, TINY = 5, 161


def rank_main():
    """One rank: {case: microseconds} from rank 0."""
    import torch
    import horovod.torch as hvd
    hvd.init()
    torch.set_num_threads(1)
    found = {}

    def timed(function, count):
        hvd.allreduce(torch.zeros(1), name="start")
        begin = time.perf_counter()
        for _ in range(count):
            function()
        seconds = torch.tensor([(time.perf_counter() - begin) / count], dtype=torch.float64)
        return hvd.allgather(seconds, name="slowest").max().item() * 1e6

    def median(function, count):
        timed(function, 3)
        return statistics.median(timed(function, count) for _ in range(REPEATS))

    def reduce_all(tensors):
        for handle in [hvd.allreduce_async_(tensor, name=f"gradient.{i}", op=hvd.Sum) for i, tensor in enumerate(tensors)]:
            hvd.synchronize(handle)

    def optimizer_step(optimizer, loss_of):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    one = torch.zeros(1)
    found["one element"] = median(lambda: hvd.allreduce_(one, name="one", op=hvd.Sum), 200)
    tiny = [torch.zeros(1) for _ in range(TINY)]
    found[f"{TINY} elements"] = median(lambda: reduce_all(tiny), 30)
    large = [torch.zeros(entry["count"]) for entry in reversed(json.loads(GRADIENTS.read_text())["tensors"])]
    found["ResNet-50"] = median(lambda: reduce_all(large), 5)
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(TINY)]
    bare = torch.optim.SGD(parameters, lr=0.0)
    alone = median(lambda: optimizer_step(bare, lambda: torch.cat(parameters).sum()), 30)
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named_parameters=[(f"p{i}", p) for i, p in enumerate(parameters)])
    found["optimizer"] = median(lambda: optimizer_step(wrapped, lambda: torch.cat(parameters).sum()), 30) - alone
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)


def run(ranks, python):
    done = subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), python, __file__, "--rank"], env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    words = parser.parse_args()
    rounds = [(run(words.ranks, words.python), run(words.ranks, words.peer)) for _ in range(words.rounds)]
    for case in rounds[0][0]:
        ratios = [theirs[case] / ours[case] for ours, theirs in rounds]
        print(json.dumps({"case": case, "ranks": words.ranks, "us": round(statistics.median(ours[case] for ours, _ in rounds), 1),
                          "peer_us": round(statistics.median(theirs[case] for _, theirs in rounds), 1),
                          "ratio": round(statistics.median(ratios), 2), "low": round(min(ratios), 2), "high": round(max(ratios), 2)}), flush=True)


if sys.argv[1:] == ["--rank"]:
    rank_main()
else:
    main()
