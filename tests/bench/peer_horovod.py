#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the communication of one training step with Horovod's, on the gradients of real models, in processes that take turns.

    tests/bench/peer_horovod.py --python PYTHON [--build build] [--ranks 2] [--rounds 5] [--small] MODEL.json...

PYTHON has torch and horovod with MPI operations over the same Open MPI as ours. Horovod 0.28.1 builds against Debian's python3-torch in a
virtual environment with its packages and a torch package whose include folder leads to libtorch-dev's headers (in addition it needs those of
libgoogle-glog-dev, libgflags-dev, libprotobuf-dev and pybind11-dev):

    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \\
    HOROVOD_CPU_OPERATIONS=MPI pip install --no-build-isolation --no-deps horovod==0.28.1

Each round runs step_mpi and then Horovod, each as processes of their own. Both write every gradient in backward order, hand it over as soon
as it is written, wait for all, and read all sums; the same loop without communication is timed next to it and subtracted. A time is that of
the slowest rank. Horovod runs with its defaults (cycle time, fusion threshold, response cache) and reduces in place. A ratio is Horovod's
time divided by ours in the same round; the median is printed, with the lowest and the highest.

One JSON object per model and way (plan; named: tensors on the heap; named_arena: in the world's arena): {"model", "ranks", "way", "us", "horovod_us",
"ratio", "low", "high"}. --small adds one blocking operation of four bytes ("one element") and ten of them, each of which waits for the one before
("ten dependent": ten times one).
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
SMALL = "one element"
REPEATS = 5


def horovod_rank(models):
    """One rank of Horovod: a JSON object {name: microseconds} from rank 0."""
    import torch
    import horovod.torch as hvd
    hvd.init()
    torch.set_num_threads(1)
    found = {}

    def slowest(seconds):
        return max(hvd.allgather(torch.tensor([seconds], dtype=torch.float64), name="slowest").tolist())

    def step(tensors, value, reduce):
        handles = []
        for name, tensor in tensors:
            tensor.fill_(value)
            if reduce:
                handles.append(hvd.allreduce_async_(tensor, name=name, op=hvd.Average))
        for handle in handles:
            hvd.synchronize(handle)
        return sum(tensor.sum() for _, tensor in tensors)

    def timed(function, count):
        hvd.allreduce(torch.zeros(1), name="start")
        begin = time.perf_counter()
        for i in range(count):
            function(i)
        return slowest((time.perf_counter() - begin) / count) * 1e6

    for path in models:
        if path == SMALL:
            value = torch.ones(1)

            def call(_):
                value.copy_(hvd.allreduce(value, name="small", op=hvd.Average))
            timed(call, 50)
            found[SMALL] = statistics.median(timed(call, 200) for _ in range(REPEATS))
            continue
        model = json.loads(pathlib.Path(path).read_text())
        tensors = [(entry["name"], torch.empty(entry["count"])) for entry in reversed(model["tensors"])]
        once = timed(lambda i: step(tensors, i, True), 3)
        count = 1 + int(60e3 / once)
        found[model["model"]] = statistics.median(timed(lambda i: step(tensors, i, True), count) - timed(lambda i: step(tensors, i, False), count)
                                                  for _ in range(REPEATS))
        for _, tensor in tensors:
            tensor.fill_(float(hvd.rank()))
        step(tensors, float(hvd.rank()), True)
        assert all(abs(tensor[0].item() - (hvd.size() - 1) / 2) < 1e-6 for _, tensor in tensors)
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)


def mpirun(ranks, command):
    done = subprocess.run([str(word) for word in ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, *command]], env=ENVIRONMENT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ours(build, ranks, models):
    """{(model, way): microseconds}"""
    words = ["--rounds", REPEATS] + ["--small" if model == SMALL else model for model in models]
    found = {}
    for line in mpirun(ranks, [build / "tests/bench/step_mpi", *words]):
        if line["model"] == SMALL:
            found[SMALL, "named"] = line["call_us"]
        elif line["way"] != "packed":
            found[line["model"], line["way"]] = line["step_us"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--python", required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true")
    words = parser.parse_args()
    models = words.models + ([SMALL] if words.small else [])
    rounds = []
    for _ in range(words.rounds):
        mine = ours(words.build.resolve(), words.ranks, models)
        theirs = mpirun(words.ranks, [words.python, __file__, "--rank", *models])[0]
        rounds.append({key: (us, theirs[key[0]]) for key, us in mine.items()})
    for model, way in rounds[0]:
        pairs = [found[model, way] for found in rounds]
        ratios = [other / us for us, other in pairs]
        line = {"model": model, "ranks": words.ranks, "way": way, "us": statistics.median(us for us, _ in pairs),
                "horovod_us": round(statistics.median(other for _, other in pairs), 1), "ratio": round(statistics.median(ratios), 1),
                "low": round(min(ratios), 1), "high": round(max(ratios), 1)}
        print(json.dumps(line), flush=True)
        if model == SMALL:
            print(json.dumps({**line, "model": "ten dependent", "us": round(10 * line["us"], 1), "horovod_us": round(10 * line["horovod_us"], 1)}),
                  flush=True)


if sys.argv[1:2] == ["--rank"]:
    horovod_rank(sys.argv[2:])
else:
    main()
