#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The synthetic step on 1, 2 and 4 ranks, and on the fake driver: every average is checked by the program itself, figures belong together, wrong input is
refused."""
import json
import os
import pathlib
import subprocess

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
PROGRAM = BUILD / "libexec/paceline/synthetic"
FAKES = BUILD / "tests/fakes"
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PACELINE_DEVICE="off")


def run(ranks, *words, code=0, stdout=subprocess.PIPE, **environment):
    command = [PROGRAM, *words] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), PROGRAM, *words]
    done = subprocess.run([str(word) for word in command], env=dict(ENVIRONMENT, **environment), text=True, timeout=100, stdin=subprocess.DEVNULL, stdout=stdout,
                          stderr=subprocess.PIPE)
    print("$", *command, done.stdout, done.stderr)
    assert done.returncode == code, f"exit status {done.returncode}"
    return done.stderr if code else done.stdout


for ranks in (1, 2, 4):
    for work in ("busy", "timer"):
        found = json.loads(run(ranks, "--json", 1, "--steps", 5, "--warmup", 1, "--backward-ms", 8, "--work", work))
        assert (found["model"], found["ranks"], found["hosts"], found["tensors"], found["bytes"]) == ("digits", ranks, 1, 8, 4 * 1199882), found
        assert found["backward_ms"] >= 8 and found["step_ms"] >= 8 and 0 <= found["overlap"] <= 1, found
        bytes_on_bus = found["busbw_gb_s"] * 1e6 * found["communication_ms"]
        rounding = 0.0006e6 * found["communication_ms"]  # of a bandwidth with three digits after the point
        assert abs(bytes_on_bus - 2 * (ranks - 1) / ranks * found["bytes"]) <= 0.02 * found["bytes"] + rounding, found
if (FAKES / "nccl/libnccl.so.2").exists():
    for ranks, nccl, device in ((1, "no_nccl", "auto"), (2, "no_nccl", "cuda"), (2, "nccl", "cuda"), (2, "nccl", "cuda:1")):
        found = json.loads(run(ranks, "--json", 1, "--steps", 3, "--warmup", 1, "--backward-ms", 8, "--work", "timer", "--device", device,
                               PACELINE_DEVICE="auto", FAKE_CUDA="devices=2,delay_us=20,leaks", LD_LIBRARY_PATH=f"{FAKES / nccl}:{FAKES}"))
        assert found["device"] == ("Fake GPU 1" if device == "cuda:1" else "Fake GPU 0") and found["ranks"] == ranks, found
        assert found["backward_ms"] >= 7.9 and found["step_ms"] >= 7.9 and 0 <= found["overlap"] <= 1, found
assert json.loads(run(1, "--json", 1, "--steps", 1))["device"] == "cpu"
found = json.loads(run(2, "--gradients", SOURCE / "examples/synthetic/resnet50.json", "--json", 1, "--steps", 2, "--warmup", 0))
assert (found["model"], found["tensors"], found["bytes"]) == ("resnet50", 161, 102228128) and found["buckets"] > 1, found
text = run(1, "--steps", 1, "--backward-ms", 1)
assert "digits: 1 rank(s) on 1 host(s), 8 tensors, 4.8 MB" in text and "bus bandwidth            0.000 GB/s" in text, text
assert "--work is 'hard', expected busy or timer" in run(1, "--work", "hard", code=1)
assert "--late-as is 'tired', expected compute, data or save" in run(1, "--late-as", "tired", code=1)
assert "list.json" in run(1, "--gradients", "/nowhere/list.json", code=1)
with open("/dev/full", "w", encoding="utf-8") as full:
    assert "write the result: No space left on device" in run(1, "--steps", 1, code=1, stdout=full)
