#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples on a GPU learn what they learn on the CPU, from the same weights; several ranks share one GPU. Skips without a GPU.

    gpu_examples.py [--json FILE]

FILE gets an accuracy a line: {"model", "ranks", "words", "accuracy", "cpu"}.
Where an MNIST set is next to the checkout it is used, made-up digits otherwise; CIFAR-10's pictures are made up.
"""
import array
import functools
import json
import math
import operator
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cifar10  # noqa: E402  (its pictures)

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
PROGRAMS = {name: BUILD / "libexec/paceline" / name for name in ("mnist", "cifar10")}
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LINE = re.compile(r"train_loss=([0-9.]+) test_accuracy=([0-9.]+)")


def run(program, ranks, *words, check=True):
    """(train_loss, test_accuracy) of each epoch."""
    command = [PROGRAMS[program], *words] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), PROGRAMS[program], *words]
    command = ["timeout", "--foreground", "-k", "3", "90", *command]  # a run that hangs is stopped with its ranks, and its output is kept
    done = subprocess.run([str(word) for word in command], env=ENVIRONMENT, text=True, stdin=subprocess.DEVNULL, capture_output=True)
    print("$", *command)
    print(done.stdout + done.stderr, end="", flush=True)
    if not check:
        return done
    assert done.returncode == 0, f"{program}, {ranks} ranks: exit status {done.returncode}"
    return [tuple(map(float, found)) for found in LINE.findall(done.stdout)]


def read_model(folder):
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return {name: array.array("f", data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def length(values):
    return math.sqrt(sum(value * value for value in values))


def apart(one, other, initial):
    """How far the weights are from each other, as a share of what training has changed; the tensor that is furthest."""
    assert one.keys() == other.keys() == initial.keys()
    return max((length(map(operator.sub, one[name], other[name])) / max(length(map(operator.sub, other[name], initial[name])), 1e-30), name) for name in one)


def digits(folder):
    for channel, prefix in (("training", "train"), ("testing", "t10k")):
        (folder / channel).mkdir(parents=True)
        for file in (SOURCE / "tests/data/mnist").glob(prefix + "-*"):
            shutil.copy(file, folder / channel)
    return folder


def same_weights(program, data, work, words):
    """
    A few steps, with dropout: the weights stay together, more loosely where products are rounded. With the factors of the CPU's products rounded to
    tf32's 10 bits or bf16's 7, its own are 0.06 to 0.08 and 0.11 to 0.22 apart from those without, most in biases, in whose sums much cancels out.
    """
    def trained(name, *more):
        folder = work / f"{program}-{name}"
        run(program, 1, "--data", data, *words, *more, "--model-dir", folder)
        return read_model(folder)

    initial = trained("initial", "--device", "cpu", "--learning-rate", 0)
    cpu, cuda = (trained(device, "--device", device) for device in ("cpu", "cuda"))
    wrong = [] if trained("again", "--device", "cuda") == cuda else ["two runs on the GPU differ"]
    for precision, limit in (("float32", 1e-2), ("tf32", 0.25), ("bf16", 0.5)):
        distance, name = apart(cuda if precision == "float32" else trained(precision, "--device", "cuda", "--precision", precision), cpu, initial)
        print(f"{program} {precision}: {distance:.2e} from the CPU's weights ({name}), at most {limit:g}")
        wrong += [] if 0 < distance <= limit else [f"{precision}: {distance:.2e} from the CPU's weights ({name}), not above 0 and at most {limit:g}"]
    assert not wrong, (program, *wrong)


def same_bits(data, work):
    """Gradients as named tensors, and a run that goes on from a checkpoint, end with the bits of a plan that runs through."""
    words = ["--data", data, "--device", "cuda", "--warmup-epochs", 0, "--model-dir", work / "bits"]
    half = ["--checkpoint-dir", work / "checkpoints", "--checkpoint-steps", 5]
    run("mnist", 1, *words, "--max-steps", 10)
    wanted = read_model(work / "bits")
    run("mnist", 1, *words, "--max-steps", 10, "--named", 1)
    assert read_model(work / "bits") == wanted, "named tensors"
    run("mnist", 1, *words, "--max-steps", 5, *half)
    run("mnist", 1, *words, "--max-steps", 10, *half)
    assert read_model(work / "bits") == wanted, "from a checkpoint"


def learnt(data, ranks, *more):
    """All ranks of a run see together what one rank sees: the batch is divided."""
    return run("mnist", ranks, "--data", data, "--epochs", 2, "--batch-size", 32 // ranks, "--learning-rate", 0.02, "--scale-learning-rate", 0, *more)[-1][1]


@functools.cache
def learnt_on_the_cpu(data):
    return learnt(data, 1, "--device", "cpu")


def same_accuracy(data, figures, ranks, *more):
    if ranks > 1 and not shutil.which("mpirun"):
        print(f"no mpirun: {ranks} ranks on one GPU were left out")
        return
    expected = learnt_on_the_cpu(data)
    found = learnt(data, ranks, *more, "--device", "cuda:0")
    figure = json.dumps({"model": "mnist", "ranks": ranks, "words": more, "accuracy": found, "cpu": expected})
    print(figure, file=figures, flush=True)
    assert abs(found - expected) <= 0.02, figure


def main():
    figures = open(sys.argv[2], "w") if sys.argv[1:2] == ["--json"] else sys.stdout
    with tempfile.TemporaryDirectory(prefix="paceline-gpu-") as name:
        work = pathlib.Path(name)
        data = digits(work / "digits")
        probe = run("mnist", 1, "--data", data, "--epochs", 0, "--device", "cuda", check=False)
        if probe.returncode and re.search(r"no GPU is used|not installed next to", probe.stderr):
            print(probe.stderr.strip().splitlines()[-1])
            return 77
        cifar10.make_pictures(work / "pictures")
        parts = [lambda: same_accuracy(data, figures, 1), lambda: same_accuracy(data, figures, 2), lambda: same_accuracy(data, figures, 4),
                 lambda: same_weights("mnist", data, work, ["--max-steps", 10, "--warmup-epochs", 0]),
                 lambda: same_weights("cifar10", work / "pictures", work, ["--max-steps", 6, "--batch-size", 32, "--warmup-steps", 0]),
                 lambda: same_bits(data, work), lambda: same_accuracy(data, figures, 1, "--precision", "bf16")]
        return max([tried(part) for part in parts])


def tried(part):
    """Returns 1 if it failed; the others still run."""
    try:
        part()
    except (AssertionError, subprocess.SubprocessError) as error:
        print("ERROR:", error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
