#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what DistributedDataParallel adds to a step, by gloo and by paceline.torch's hook: a model's gradients without its computing.

    ddp_hook.py GRADIENTS.json [--build build] [--ranks 2] [--rounds 5] [--steps 10] [--python PYTHON]

GRADIENTS.json has {"model", "tensors": [{"name", "shape"}, ...]} in forward order. Started by a Python with torch, or with --python. Each rank has one thread and
a CPU of its own as long as there are enough. In a round the ways take turns, each on a module of its own that is dropped afterwards:

    alone          the step without DistributedDataParallel
    gloo           as it is, without a hook
    gloo views     gradient_as_bucket_view=True
    heap           allreduce_hook, buckets on the heap
    arena          allreduce_hook and gradient_as_bucket_view=True: buckets in memory that the ranks share

One JSON object a way: {"model", "ranks", "torch", "way", "ms", "beyond_ms", "of_gloo"}: medians of the rounds of the slowest rank's step, of that less the same
round's "alone", and of the quotient of the latter and the same round's "gloo".
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
WAYS = {"alone": None, "gloo": {}, "gloo views": {"gradient_as_bucket_view": True}, "heap": {}, "arena": {"gradient_as_bucket_view": True}}


def rank_main(options):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    import paceline.torch
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, cpus = dist.get_rank(), sorted(os.sched_getaffinity(0))
    if dist.get_world_size() <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
    gradients = json.loads(pathlib.Path(options.gradients).read_text())
    shapes = [tensor["shape"] for tensor in gradients["tensors"]]
    computed = [torch.full(shape, 1e-3 * (rank + 1)) for shape in shapes]

    class Emit(torch.autograd.Function):
        """What a backward pass leaves: every gradient in memory of its own."""

        @staticmethod
        def forward(context, *parameters):
            return parameters[0].new_zeros(())

        @staticmethod
        def backward(context, gradient):
            return tuple(computed)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.values = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(shape)) for shape in shapes)

        def forward(self):
            return Emit.apply(*self.values)

    def seconds(way):
        model = Model()
        if WAYS[way] is not None:
            model = DistributedDataParallel(model, **WAYS[way])
            if way in ("heap", "arena"):
                model.register_comm_hook(None, paceline.torch.allreduce_hook)
        for step in range(options.steps + 3):  # the first ones cut the buckets and allocate
            if step == 3:
                dist.barrier()
                began = time.monotonic()
            model.zero_grad(set_to_none=True)
            model().backward()
        took = torch.tensor((time.monotonic() - began) / options.steps)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()

    rounds = [{way: seconds(way) for way in WAYS} for _ in range(options.rounds)]
    for way in WAYS if rank == 0 else ():
        beyond = [times[way] - times["alone"] for times in rounds]
        of_gloo = [more / (times["gloo"] - times["alone"]) for more, times in zip(beyond, rounds)]
        print(json.dumps({"model": gradients["model"], "ranks": dist.get_world_size(), "torch": torch.__version__, "way": way,
                          "ms": round(1e3 * statistics.median(times[way] for times in rounds), 2), "beyond_ms": round(1e3 * statistics.median(beyond), 2),
                          "of_gloo": round(statistics.median(of_gloo), 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("gradients")
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(options)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = dict(os.environ, PYTHONPATH=str(SOURCE / "python"), PACELINE_LIBRARY=f"{pathlib.Path(options.build).resolve()}/runtime/libpaceline.so",
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(options.ranks), OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([options.python, __file__, *sys.argv[1:]], env=dict(variables, RANK=str(rank))) for rank in range(options.ranks)]
    sys.exit(max(rank.wait() for rank in ranks))


main()
