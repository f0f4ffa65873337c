#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's Python with torch's tensors on a real GPU: right values, training, figures, and ends.

    horovod_device.py [--device cpu] [--json FILE] [--seconds N]   all cases, each as ranks of mpirun; exits 77 without torch, Horovod or a GPU
    horovod_device.py --rank CASE ...                              one rank of a case

tests/gpu.sh runs it; ranks share the one GPU. With --device cpu the same programs run without one, at small sizes and with a Python that the test
makes, so that they stay in order where no GPU is: their figures then mean nothing.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77
sys.path.pop(0)  # this folder has a horovod.py


def rank_of(args):
    import torch
    import horovod.torch as hvd
    hvd.init()
    cuda = args.device == "cuda"
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    if cuda:
        assert hvd.cuda_built(), "horovod.torch's module was built without CUDA"
    return torch, hvd, device


def wait_for(torch, device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def say(args, hvd, **figures):
    if hvd.rank() == 0:
        print(json.dumps({"case": args.rank, "ranks": hvd.size(), **figures}), flush=True)


def operations(args):
    """Every operation of every type has the values that the host's tensors have."""
    torch, hvd, device = rank_of(args)
    n, r = hvd.size(), hvd.rank()
    types = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
    for step in range(3):
        for dtype in types:
            def give(count, q):
                return ((torch.arange(count) * 3 + q * 5 + step) % 7).to(dtype)

            def near(found, wanted, what):
                assert found.device == device and torch.equal(found.cpu(), wanted), f"{what} of {dtype}: {found} differ from {wanted}"

            for count in (1, 1000, 100003):
                parts = [give(count, q) for q in range(n)]
                mine = parts[r].to(device)
                if dtype not in (torch.uint8, torch.int8):
                    near(hvd.allreduce(mine, op=hvd.Sum, name="sum"), sum(parts), "the sum")
                    near(hvd.grouped_allreduce([mine, mine], op=hvd.Sum, name="sums")[1], sum(parts), "the grouped sum")
                near(hvd.broadcast(mine, n - 1, name="broadcast"), parts[n - 1], "the broadcast")
                near(hvd.allgather(mine[:count - r % count], name="gather"), torch.cat([part[:count - q % count] for q, part in enumerate(parts)]), "the allgather")
                table = give(count * n, r).to(device)
                near(hvd.alltoall(table, name="alltoall"), torch.cat([give(count * n, q)[r * count:(r + 1) * count] for q in range(n)]), "the alltoall")
                if dtype in (torch.float32, torch.int64):
                    near(hvd.reducescatter(table, op=hvd.Sum, name="scatter"), sum(give(count * n, q) for q in range(n))[r * count:(r + 1) * count], "the reducescatter")
    if device.type == "cuda":  # an operation follows what its stream has been given
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(5):
                slow = torch.ones(4096, 4096, device=device)
                for _ in range(10):
                    slow = slow @ slow / 4096
                found = hvd.allreduce(slow, op=hvd.Sum, name=f"slow.{i}")
                assert torch.allclose(found, torch.full_like(found, n)), "a sum differs: it ran before its input was there"
    say(args, hvd, right=True)
    hvd.shutdown()


def optimizer(args):
    """DistributedOptimizer ends with the weights of one process on all batches."""
    torch, hvd, device = rank_of(args)
    batches = torch.randn(20, 4 * hvd.size(), 16, generator=torch.Generator().manual_seed(3))

    def trained(shards, wrap):
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).double().to(device)
        descent = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if wrap:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            descent = hvd.DistributedOptimizer(descent, named_parameters=model.named_parameters())
        for batch in shards:
            descent.zero_grad()
            model(batch.double().to(device)).square().mean().backward()
            descent.step()
        return [value.detach().cpu() for value in model.parameters()]

    mine = trained([batch[4 * hvd.rank():4 * hvd.rank() + 4] for batch in batches], wrap=True)
    alone = trained(batches, wrap=False)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(mine, alone)), "the weights differ from those of one process"
    say(args, hvd, right=True)
    hvd.shutdown()


def speed(args):
    """64 MiB in 16 tensors; 161 gradients; one tensor of 64 MiB beside a copy on the device."""
    torch, hvd, device = rank_of(args)
    scale = 1 if device.type == "cuda" else 1024

    def median_ms(work, rounds=21):
        times = []
        for _ in range(rounds + 3):
            wait_for(torch, device)
            hvd.barrier()
            begin = time.perf_counter()
            work()
            wait_for(torch, device)
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times[3:])

    def reduce_all(tensors):
        handles = [hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"{len(tensors)}.{i}") for i, tensor in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    sixteen = [torch.zeros((4 << 20) // 4 // scale, device=device) for _ in range(16)]
    model = json.loads((SOURCE / "examples/synthetic/resnet50.json").read_text())
    gradients = [torch.zeros(max(1, tensor["count"] // scale), device=device) for tensor in model["tensors"]]
    one, other = torch.zeros((64 << 20) // 4 // scale, device=device), torch.zeros((64 << 20) // 4 // scale, device=device)
    hosts = [tensor.cpu() for tensor in sixteen]
    figures = {"sixteen_ms": median_ms(lambda: reduce_all(sixteen)), "through_host_ms": median_ms(lambda: through_host(sixteen, hosts, reduce_all)),
               "gradients_ms": median_ms(lambda: reduce_all(gradients)), "tensors": len(gradients),
               "whole_ms": median_ms(lambda: hvd.allreduce(one, op=hvd.Sum, name="whole")), "copy_ms": median_ms(lambda: other.copy_(one))}
    say(args, hvd, **figures)
    hvd.shutdown()


def through_host(tensors, hosts, reduce_all):
    """What a module without device memory does: copies, the sums on the host, copies."""
    for host, tensor in zip(hosts, tensors):
        host.copy_(tensor)
    reduce_all(hosts)
    for host, tensor in zip(hosts, tensors):
        tensor.copy_(host)


def backward(args):
    """A training step with and without DistributedOptimizer, in turn: the share that it adds."""
    torch, hvd, device = rank_of(args)
    width, layers = (4096, 12) if device.type == "cuda" else (64, 3)
    steps = {}
    for wrapped in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).to(device)
        descent = torch.optim.SGD(model.parameters(), lr=1e-6)
        if wrapped:
            descent = hvd.DistributedOptimizer(descent, named_parameters=model.named_parameters())
        steps[wrapped] = (model, descent)
    batch = torch.randn(512 if device.type == "cuda" else 8, width, device=device)
    times = {False: [], True: []}
    for _ in range(30):
        for wrapped, (model, descent) in steps.items():
            wait_for(torch, device)
            hvd.barrier()
            begin = time.perf_counter()
            descent.zero_grad()
            model(batch).square().mean().backward()
            descent.step()
            wait_for(torch, device)
            times[wrapped].append((time.perf_counter() - begin) * 1e3)
    alone, with_horovod = (statistics.median(times[wrapped][5:]) for wrapped in (False, True))
    say(args, hvd, step_alone_ms=alone, step_ms=with_horovod, added=with_horovod / alone - 1, async_completion=os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION", "0"))
    hvd.shutdown()


def killed(args):
    """The last rank dies by SIGKILL while the others wait for its part of a sum: each gets an error with its name."""
    torch, hvd, device = rank_of(args)
    hvd.allreduce(torch.ones(1000, device=device), op=hvd.Sum, name="first")
    if hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.allreduce(torch.ones(1000, device=device), op=hvd.Sum, name="second")
    except Exception as error:  # Horovod's class is internal to it
        assert f"rank {hvd.size() - 1}" in str(error), f"the error does not name the rank: {error}"
        print("the error names the rank", flush=True)
        os._exit(0)
    raise AssertionError("a sum without a dead rank's part was taken")


def leaves(args):
    """The program ends without shutdown()."""
    torch, hvd, device = rank_of(args)
    assert hvd.allreduce(torch.ones(1000, device=device), op=hvd.Sum, name="first")[0] == hvd.size()
    say(args, hvd, right=True)


def again(args):
    """init() after shutdown() uses the GPU again."""
    for _ in range(3):
        torch, hvd, device = rank_of(args)
        assert hvd.allreduce(torch.ones(1000, device=device), op=hvd.Sum, name="first")[0] == hvd.size()
        hvd.shutdown()
    print("again is right", flush=True)


CASES = {case.__name__: case for case in (operations, optimizer, speed, backward, killed, leaves, again)}
# case -> numbers of ranks, and more of the environment
PLAN = [("operations", 1, {}), ("operations", 2, {}), ("operations", 4, {}), ("optimizer", 2, {}), ("leaves", 2, {}), ("again", 2, {}), ("killed", 2, {}), ("speed", 1, {}),
        ("speed", 2, {}), ("backward", 1, {"HOROVOD_ELASTIC": "1"}), ("backward", 1, {"HOROVOD_ELASTIC": "1", "HOROVOD_ENABLE_ASYNC_COMPLETION": "1"})]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", choices=CASES)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=60, help="limit of a case (%(default)s)")
    args = parser.parse_args()
    if args.rank:
        CASES[args.rank](args)
        return
    if args.device == "cpu" and "PACELINE_MADE" not in os.environ:
        sys.path.insert(0, str(SOURCE / "tests/support"))
        from horovod_python import python_for
        python = python_for("torch")
        subprocess.run([f"{os.environ['PACELINE_BUILD']}/entrypoint/paceline", "horovod", "install", "--python", python], check=True)
        os.execve(python, [python, *sys.argv], {**os.environ, "PACELINE_MADE": "1"})
    for package, text in (("torch", "torch"), ("horovod.torch", "Horovod's Python with Paceline's module")):
        done = subprocess.run([sys.executable, "-c", f"import {package}" + ("; assert torch.cuda.is_available()" if package == "torch" and args.device == "cuda" else "")],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"skipped: {sys.executable} has no {text} for this: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            sys.exit(SKIP)
    failed = []
    for case, ranks, variables in PLAN:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, __file__, "--rank", case, "--device", args.device]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PACELINE_SHARE_DEVICE": "1", "OMP_NUM_THREADS": "1", **variables}
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=args.seconds, stdin=subprocess.DEVNULL)
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            output, code = (late.stdout or b"").decode(errors="replace"), "none: it took too long"
        lines = [line for line in output.splitlines() if line.startswith("{")]
        right = "the error names the rank" in output if case == "killed" else code == 0  # mpirun's status is the dead rank's
        print(f"{case}, {ranks} ranks{''.join(f', {name}={value}' for name, value in variables.items())}: {'right' if right else 'FAILED'} {' '.join(lines)}", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write("".join(line + "\n" for line in lines))
        if not right:
            failed.append(case)
            print(f"exit {code}\n{output}", flush=True)
    print(f"FAILED: {', '.join(failed)}" if failed else "Horovod's tensors: each case was right")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
