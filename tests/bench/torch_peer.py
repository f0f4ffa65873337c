#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares images per second of the examples' networks on one GPU with PyTorch's: same layers, batch, optimizer and GPU.

    torch_peer.py [--build build] [--batch 64,1024] [--steps 300] [--rounds 3] [--precision float32,bf16] [--libraries PATHS] [--json FILE]

PATHS is our programs' LD_LIBRARY_PATH. Run by a Python that has torch with CUDA; without one it says so and exits 77. Both sides take samples
from the host's memory in every step, as training does: ours as its program does, PyTorch's from tensors that are made beforehand and pinned, so
that no reader of its is in the way. The two take turns; a line has the median of the rounds. cifar10 reads its pictures from TFRecord shards,
PyTorch's side has them decoded already.
One JSON object a line: {"model", "batch", "precision", "ours", "torch", "ratio"}.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

RATE = re.compile(r"images_per_second=([0-9.]+)")
ENVIRONMENT = dict(os.environ)  # of our programs


def network(name, nn):
    if name == "mnist":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
                             nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)), (1, 28, 28)
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2),
                         nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(),
                         nn.Linear(1600, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10)), (3, 32, 32)


def torch_rate(torch, name, batch, steps, precision):
    nn = torch.nn
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    model, shape = network(name, nn)
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    batches = [(torch.rand(batch, *shape).contiguous(memory_format=torch.channels_last).pin_memory(), torch.randint(0, 10, (batch,)).pin_memory())
               for _ in range(8)]

    def train(count):
        for step in range(count):
            images, labels = (part.cuda(non_blocking=True) for part in batches[step % len(batches)])
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    train(20)
    began = time.monotonic()
    train(steps)
    return steps * batch / (time.monotonic() - began)


def our_rate(build, name, data, batch, steps, precision):
    """Time of the second of two epochs, so that neither the start nor the choice of algorithms counts."""
    command = [build / "libexec/paceline" / name, "--data", data, "--batch-size", batch, "--epochs", 2, "--max-steps", 2 * steps,
               "--device", "cuda", "--precision", precision]
    done = subprocess.run([str(word) for word in command], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
                          timeout=60)
    rates = RATE.findall(done.stdout)
    if not rates:
        raise RuntimeError(f"no rate in what {name} printed")
    return float(rates[-1])


def make_data(build, name, folder, count):
    """About `count` samples; they need not be different, since nothing is learnt here."""
    if name == "mnist":
        subprocess.run([build / "libexec/paceline/make_digits", folder, str(count), "100", "1"], env=ENVIRONMENT, check=True)
        return
    os.environ.setdefault("PACELINE_BUILD", str(build))
    os.environ.setdefault("PACELINE_SOURCE", str(pathlib.Path(__file__).resolve().parents[2]))
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
    import cifar10
    cifar10.make_pictures(folder)
    shards = sorted((folder / "training").iterdir())
    for i in range(count // (len(shards) * cifar10.RECORDS)):
        for shard in shards:
            (folder / "training" / f"more-{i:05}-{shard.name}").symlink_to(shard)


def compare(torch, words, name, data, batch, steps, precision):
    ours, peers = [], []
    for _ in range(words.rounds):
        ours.append(our_rate(words.build, name, data, batch, steps, precision))
        peers.append(torch_rate(torch, name, batch, steps, precision))
    return {"model": name, "batch": batch, "precision": precision, "ours": round(statistics.median(ours)), "torch": round(statistics.median(peers)),
            "ratio": round(statistics.median(a / b for a, b in zip(ours, peers)), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--batch", default="64,1024")
    parser.add_argument("--precision", default="float32,bf16")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--libraries")
    parser.add_argument("--json", type=argparse.FileType("w"))
    words = parser.parse_args()
    words.build = words.build.resolve()
    if words.libraries is not None:
        ENVIRONMENT["LD_LIBRARY_PATH"] = words.libraries
    try:
        import torch
    except ImportError:
        print("no torch in this Python")
        return 77
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} has no GPU")
        return 77
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    failed = 0
    for name in ("mnist", "cifar10"):
        for batch in map(int, words.batch.split(",")):
            steps = max(20, min(words.steps, 60000 // batch))
            with tempfile.TemporaryDirectory(prefix="paceline-peer-") as scratch:
                make_data(words.build, name, pathlib.Path(scratch), steps * batch)
                for precision in words.precision.split(","):
                    try:
                        line = json.dumps(compare(torch, words, name, scratch, batch, steps, precision))
                    except (subprocess.SubprocessError, RuntimeError) as error:  # the other figures are still useful
                        print(f"ERROR: {name}, batch {batch}, {precision}: {error}", flush=True)
                        failed = 1
                        continue
                    print(line, flush=True)
                    if words.json:
                        print(line, file=words.json, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
