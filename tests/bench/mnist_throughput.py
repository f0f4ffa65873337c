#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures images per second of the digit classifier: two ranks compared with two independent processes, and with PyTorch.

    mnist_throughput.py DATA [--build build] [--rounds 5] [--steps 40] [--batch 64] [--cpus 0,1] [--torch PYTHON]

DATA holds MNIST's four files, or the same below training/. Every process has one thread and a CPU of its own. The ways take turns. A ratio
compares two neighbouring runs, and the median of all rounds is printed with the smallest and the largest. --torch names a Python with torch
(Debian's python3-torch: /usr/bin/python3); without it PyTorch's lines are left out.

    alone     two processes of one rank each, at the same time; their rates added
    plan      two ranks
    named     two ranks, gradients as named tensors
    torch 1   one PyTorch process
    torch 2   two under DistributedDataParallel over gloo

One JSON object per way: {"way", "images_per_s", "low", "high", "share_of_alone"}; for PyTorch "share_of_torch" is our rate divided by PyTorch's: one rank
of ours over torch 1, two over torch 2. The line of "alone" has "share_in_step": the share of its rate that would be left if each of its steps ended with the
longer of the two, by the times in its traces. No library that waits for all gradients can have a larger share, however fast it is, but by luck.
"""
import argparse
import gzip
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
RATE = re.compile(r"images_per_second=([0-9.]+)")


def torch_rank(data, rank, ranks, port, steps, batch):
    """Does in PyTorch what `mnist --batch-size BATCH --max-steps STEPS` does; prints images per second of all ranks."""
    import numpy
    import torch
    import torch.distributed
    from torch import nn
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if ranks > 1:
        torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    raw = [numpy.frombuffer(gzip.open(next(pathlib.Path(data).glob(f"train-{kind}*"))).read(), numpy.uint8) for kind in ("images", "labels")]
    images, labels = raw[0][16:].reshape(-1, 1, 28, 28), raw[1][8:].astype(numpy.int64)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
                          nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    order = numpy.random.default_rng(1).permutation(len(labels))[rank::ranks]
    began = time.monotonic()
    for step in range(steps):
        chosen = order[step * batch:(step + 1) * batch]
        x = torch.from_numpy(images[chosen]).float() / 255
        optimizer.zero_grad()
        loss_of(model(x), torch.from_numpy(labels[chosen])).backward()
        optimizer.step()
    seconds = time.monotonic() - began
    if rank == 0:
        print(f"images_per_second={steps * batch * ranks / seconds}", flush=True)


def together(commands, traces=()):
    """Run the commands at the same time, each with its trace file of `traces`; return the sum of the rates that they print, at most one each."""
    running = [subprocess.Popen([str(word) for word in command], env=dict(ENVIRONMENT, PACELINE_TRACE=str(trace)), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True)
               for command, trace in itertools.zip_longest(commands, traces, fillvalue="")]
    texts = [process.communicate()[0] for process in running]
    rates = [RATE.findall(text) for text in texts]
    assert all(process.returncode == 0 for process in running) and any(rates), (commands, texts)
    assert all(len(found) <= 1 for found in rates), f"{rates}: --steps are more than an epoch"
    return sum(float(found[0]) for found in rates if found)


def share_in_step(traces):
    """The share of the rate of processes with these traces that is left if each step takes as long as the slowest process's."""
    steps = []
    for trace in traces:
        ends = sorted(event["ts"] + event["dur"] for event in json.loads(trace.read_text())["traceEvents"]
                      if event["name"] == "allreduce gradients.0")
        steps.append([end - begin for begin, end in zip(ends, ends[1:])])
    assert len(steps[0]) > 1 and len({len(times) for times in steps}) == 1, "the processes' traces have different numbers of steps"
    return sum(map(sum, steps)) / len(steps) / sum(map(max, zip(*steps)))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--cpus", default="0,1")
    parser.add_argument("--torch", default="")
    return parser.parse_args()


def main():
    words = arguments()
    files = words.data / "training" if (words.data / "training").is_dir() else words.data
    cpus = words.cpus.split(",")
    with tempfile.TemporaryDirectory(prefix="paceline-throughput-") as scratch:
        channel = pathlib.Path(scratch, "training")
        channel.mkdir()
        for file in files.glob("train-*"):
            (channel / file.name).symlink_to(file.resolve())
        mnist = [words.build.resolve() / "libexec/paceline/mnist", "--data", scratch, "--batch-size", words.batch, "--max-steps", words.steps,
                 "--model-dir", pathlib.Path(scratch, "model")]

        def alone(count):
            traces = [pathlib.Path(scratch, f"trace{cpu}.json") for cpu in cpus[:count]]
            rate = together([["taskset", "-c", cpu, *mnist[:-1], pathlib.Path(scratch, "model" + cpu)] for cpu in cpus[:count]], traces)
            if count > 1:
                in_step.append(share_in_step(traces))
            return rate

        def ranks(*more):
            command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
            for cpu in cpus:
                command += ["-n", "1", "taskset", "-c", cpu, *mnist, *more, ":"]
            return together([command[:-1]])

        def torch(count):
            port = 20000 + os.getpid() % 20000
            return together([["taskset", "-c", cpus[i], words.torch, __file__, "--torch-rank", channel, i, count, port, words.steps, words.batch]
                             for i in range(count)])

        ways = {"alone": lambda: alone(2), "plan": ranks, "named": lambda: ranks("--named", "1")}
        if words.torch:
            ways.update({"alone 1": lambda: alone(1), "torch 1": lambda: torch(1), "torch 2": lambda: torch(2)})
        in_step = []
        rates = {way: [] for way in ways}
        for _ in range(words.rounds):
            for way, run in ways.items():
                rates[way].append(run())
        for way, found in rates.items():
            line = {"way": way, "images_per_s": round(statistics.median(found), 1), "low": round(min(found), 1), "high": round(max(found), 1)}
            if way == "alone":
                line["share_in_step"] = round(statistics.median(in_step), 3)
            if way in ("plan", "named"):
                line["share_of_alone"] = round(statistics.median(mine / other for mine, other in zip(found, rates["alone"])), 3)
            if way.startswith("torch"):
                ours = rates["plan" if way == "torch 2" else "alone 1"]
                line["share_of_torch"] = round(statistics.median(mine / other for mine, other in zip(ours, found)), 3)
            print(json.dumps(line), flush=True)


if sys.argv[1:2] == ["--torch-rank"]:
    torch_rank(sys.argv[2], *map(int, sys.argv[3:]))
else:
    main()
