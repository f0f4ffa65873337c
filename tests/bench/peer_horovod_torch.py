#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one program for horovod.torch on Paceline's modules and on a compiled Horovod, in processes that take turns.

    tests/bench/peer_horovod_torch.py --python PYTHON --peer PYTHON [--ranks 2] [--rounds 5]

Both have torch and Horovod 0.28.1, the first as `paceline horovod` makes it, the second compiled (peer_horovod.py explains how). Times, of a call or a step, are
the slowest rank's, medians within a run: one blocking sum of one element; 161 of them at a time; the gradients of ResNet-50, 161 tensors, in
place; and a step of hvd.DistributedOptimizer over 161 parameters of one element, minus the same step of the bare optimizer.

One JSON object per case: {"case", "ranks", "us", "peer_us", "ratio", "low", "high"}: medians over the rounds, the ratios of the peer's time to ours of the
same round with the lowest and the highest.
"""
import json
import pathlib
import sys

from peer_turns import median_us, take_turns

GRADIENTS = pathlib.Path(__file__).resolve().parents[2] / "examples/synthetic/resnet50.json"
TINY = 161


def rank_main():
    """One rank: {case: microseconds} from rank 0."""
    import torch
    import horovod.torch as hvd
    hvd.init()
    torch.set_num_threads(1)
    found = {}

    def slowest(seconds):
        return hvd.allgather(torch.tensor([seconds], dtype=torch.float64), name="slowest").max().item()

    def median(function, count):
        return median_us(function, count, 3, slowest)

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


if sys.argv[1:] == ["--rank"]:
    rank_main()
else:
    take_turns(__file__, __doc__)
