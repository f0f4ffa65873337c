#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own tests of torch, unmodified, under Horovod's own Python on Paceline's modules.

    horovod_own.py [--device cuda|fake|cpu] [--ranks N] [--source DIR] [--seconds N]

DIR is a copy of Horovod's repository, from which test/parallel/test_torch.py and test/utils/common.py are used; without one the tests are fetched with git,
into the build folder. They are not part of this tree. `fake` is the tests' driver, with a GPU for each rank and NCCL. On a GPU (`cuda`, which tests/gpu.sh runs)
the ranks share those that there are, and python3 has torch and Horovod; otherwise the test makes a Python. Prints how many tests pass, what is skipped and
why, and what fails; exits 77 without these tests.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path[0] = str(SUPPORT)  # not this folder, which has a horovod.py
from fetched import fetched  # noqa: E402
FILES = ("test/parallel/test_torch.py", "test/utils/common.py")
# With tensors on a GPU these ask for what docs/horovod.md says is otherwise here: they are left out.
OTHERWISE = {
    "tensors of one group may lie in host memory and on a GPU": ("test_horovod_grouped_allreduce_cpu_gpu_error",),
    "float16 is multiplied by a factor in float32 and rounded once, where Horovod rounds the factor and each product":
        tuple(f"test_horovod_{kind}_{factor}" for kind in ("allreduce", "reducescatter", "grouped_reducescatter") for factor in ("prescale", "postscale")),
}


def python_of(device):
    if device == "cuda":
        return "python3"
    from horovod_python import pip, python_for
    python = python_for("torch")
    if subprocess.run([python, "-c", "import pytest, mock, cloudpickle"], stderr=subprocess.DEVNULL).returncode != 0:
        pip(python, "pytest", "mock", "cloudpickle")
    subprocess.run([f"{os.environ['PACELINE_BUILD']}/entrypoint/paceline", "horovod", "install", "--python", python], check=True, stdout=subprocess.DEVNULL)
    return python


def environment_of(args, results):
    environment = {**os.environ, "TEST_DEVICE": args.device, "TEST_RESULTS": results, "TEST_GPUS": str(args.ranks), "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if args.device == "fake":
        fakes = f"{os.environ['PACELINE_BUILD']}/tests/fakes"
        environment |= {"FAKE_CUDA": f"devices={args.ranks},delay_us=20", "LD_LIBRARY_PATH": f"{fakes}/nccl:{fakes}"}
    elif args.device == "cuda":
        environment |= {"PACELINE_SHARE_DEVICE": "1"}
    return environment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "fake", "cpu"), default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--source", type=pathlib.Path, default=os.environ.get("HVD_SOURCE") or None)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--only", help="pytest's -k")
    args = parser.parse_args()
    folder, python = args.source or fetched("https://github.com/horovod/horovod", "v0.28.1", FILES), python_of(args.device)
    missing = [name for name in FILES if not (pathlib.Path(folder) / name).is_file()]
    if missing:
        sys.exit(f"{folder} has no {missing[0]}")
    with tempfile.TemporaryDirectory() as results:
        left_out = [name for names in OTHERWISE.values() for name in names if args.device != "cpu" and not args.only]
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks), python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p",
                   "horovod_plugin", *(["-k", args.only] if args.only else []), *(f"--deselect={FILES[0]}::TorchTests::{name}" for name in left_out),
                   "--rootdir", str(pathlib.Path(folder).resolve()), str(pathlib.Path(folder).resolve() / FILES[0])]
        try:
            done = subprocess.run(command, env=environment_of(args, results), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.seconds,
                                  stdin=subprocess.DEVNULL)
            output = done.stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace") + f"\nthe tests took more than {args.seconds} s"
        ends = []
        for rank in range(args.ranks):
            path = pathlib.Path(results, f"{rank}.json")
            ends.append(json.loads(path.read_text()) if path.exists() else None)
    if None in ends:
        sys.exit(f"{output}\nrank {ends.index(None)} of Horovod's tests has not come to its end")
    failed, skipped = {}, {}
    for rank, of_rank in enumerate(ends):
        for name, (end, text) in of_rank.items():
            if end == "failed":
                failed.setdefault(name, (rank, text))
            elif end == "skipped" and rank == 0:
                skipped.setdefault("no reason is given" if text in ("", "Skipped") else text, []).append(name)
    passed = [name for name in ends[0] if all(of_rank.get(name, ("",))[0] == "passed" for of_rank in ends)]
    print(f"Horovod's test_torch.py, {args.device}, {args.ranks} ranks: {len(passed)} pass, {len(failed)} fail, {sum(map(len, skipped.values()))} are skipped")
    for why, names in skipped.items():
        print(f"  skipped, {why}: {', '.join(names)}")
    for why, names in OTHERWISE.items() if left_out else ():
        print(f"  left out, {why}: {', '.join(names)}")
    for name, (rank, text) in failed.items():
        print(f"  FAILED {name}, rank {rank}:\n{text}")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
