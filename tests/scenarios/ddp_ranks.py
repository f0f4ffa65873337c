# SPDX-License-Identifier: Apache-2.0
"""One rank of tests/integration/ddp_hook.py: ddp_ranks.py SCENE. Every check is an assertion with the case's name; the last line is "rank R of N: ok"."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import paceline.torch as pt

for name in ("RANK", "WORLD_SIZE"):
    os.environ.setdefault(name, os.environ.get(f"OMPI_COMM_WORLD_{name.split('_')[-1]}", ""))
SCENE, TIMEOUT_S = sys.argv[1], float(os.environ.get("GROUP_TIMEOUT_S", "120"))
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Net(torch.nn.Module):
    """With `branches` a step uses one of two layers, on each rank another one."""

    def __init__(self, branches=False, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = torch.nn.Linear(40, 200, dtype=dtype), torch.nn.Linear(200, 1, dtype=dtype)
        self.middle = torch.nn.ModuleList(torch.nn.Linear(200, 200, dtype=dtype) for _ in range(2 if branches else 1))
        self.never = torch.nn.Linear(40, 8, dtype=dtype) if branches else None

    def forward(self, x, branch=0):
        return self.last(torch.relu(self.middle[branch % len(self.middle)](torch.relu(self.first(x)))))


def batch(step, rank, dtype=torch.float32):
    x = torch.rand(16, 40, generator=torch.Generator().manual_seed(1000 * step + rank), dtype=dtype)
    return x, x.sum(dim=1, keepdim=True).sin()


def is_shared(tensor):
    """Whether the tensor lies in memory that Paceline's ranks share."""
    at = tensor.data_ptr()
    for line in open("/proc/self/maps"):
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= at < end:
            return "memfd:paceline" in line
    return False


def train(hook, steps=8, branches=False, accumulate=False, zero=True, dtype=torch.float32, group=None, **options):
    """The parameters after some steps, as one tensor; and the module. `zero` is zero_grad()'s set_to_none."""
    model = DistributedDataParallel(Net(branches, dtype), bucket_cap_mb=0.1, process_group=group, **options)
    if hook:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=zero)
        for part in range(2 if accumulate else 1):
            x, wanted = batch(2 * step + part, RANK, dtype)
            if accumulate and part == 0:
                with model.no_sync():
                    torch.nn.functional.mse_loss(model(x), wanted).backward()
            else:
                torch.nn.functional.mse_loss(model(x, *([RANK + step // 3] if branches else [])), wanted).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), model


def check_equal(name, values, group=None):
    """The values have the same bits on all ranks."""
    everywhere = [torch.empty_like(values) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everywhere, values, group=group)
    assert all(torch.equal(values, other) for other in everywhere), f"{name}: the ranks' parameters differ"


def compare(name, hook=pt.allreduce_hook, shared=None, close=1e-5, **how):
    expected, _ = train(None, **how)
    values, model = train(hook, **how)
    begun = torch.cat([parameter.detach().flatten() for parameter in Net(how.get("branches", False), expected.dtype).parameters()])
    away = ((values - expected).norm() / (expected - begun).norm()).item()
    assert away <= close, f"{name}: parameters are other values, by {away} of what the training has changed"
    check_equal(name, values)
    if shared is not None:
        where = [is_shared(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
        assert where and all(here is shared for here in where), f"{name}: gradients in shared memory: {where}"
    return away


def several(name):
    """Two modules whose backward passes take turns, one of them twice a step."""
    def run(hook):
        models = [DistributedDataParallel(Net(), bucket_cap_mb=0.1, gradient_as_bucket_view=True) for _ in range(2)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
        for model in models:
            if hook:
                model.register_comm_hook(None, hook)
        for step in range(6):
            for turn in (0, 1, 0):
                optimizers[turn].zero_grad()
                x, wanted = batch(3 * step + turn, RANK)
                torch.nn.functional.mse_loss(models[turn](x), wanted).backward()
                optimizers[turn].step()
        return torch.cat([parameter.detach().flatten() for model in models for parameter in model.parameters()])
    expected, values = run(None), run(pt.allreduce_hook)
    assert torch.allclose(values, expected, rtol=0, atol=1e-5), f"{name}: parameters are other values"
    check_equal(name, values)


def spans():
    return sum("memfd:paceline" in line for line in open("/proc/self/maps"))


def halves():
    """Each half of the ranks has a module of its own."""
    mine = [dist.new_group(range(begin, SIZE, 2)) for begin in range(2)][RANK % 2]
    expected, _ = train(None, group=mine)
    values, _ = train(pt.allreduce_hook, group=mine)
    assert torch.allclose(values, expected, rtol=0, atol=1e-5), "half of the ranks: parameters are other values"
    check_equal("half of the ranks", values, mine)


class Turn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.angle = torch.nn.Parameter(torch.ones(3, dtype=torch.cfloat))

    def forward(self, x):
        return (self.angle * x).real.sum()


def complex_numbers():
    """The hook's bucket has floats, and the gradients are complex."""
    model = DistributedDataParallel(Turn(), gradient_as_bucket_view=True)
    model.register_comm_hook(None, pt.allreduce_hook)
    for _ in range(3):
        model.zero_grad()
        model(RANK + 1.0).backward()
        assert torch.equal(model.module.angle.grad, torch.full((3,), (SIZE + 1) / 2, dtype=torch.cfloat)), model.module.angle.grad


def right():
    """What gloo computes, within rounding, and equal bits on all ranks."""
    compare("default", shared=False)
    compare("views", shared=True, gradient_as_bucket_view=True)
    compare("views, gradients kept", shared=True, zero=False, gradient_as_bucket_view=True)
    compare("unused, views", branches=True, zero=False, find_unused_parameters=True, gradient_as_bucket_view=True)
    if SIZE > 2:
        return halves()
    compare("unused", branches=True, find_unused_parameters=True)
    compare("unused, views, no gradients kept", branches=True, find_unused_parameters=True, gradient_as_bucket_view=True)
    compare("static graph", shared=True, static_graph=True, gradient_as_bucket_view=True)
    compare("no_sync", shared=True, accumulate=True, gradient_as_bucket_view=True)
    compare("no_sync on the heap", accumulate=True)
    if not torch.__version__.startswith("1."):  # whose gloo has no complex numbers
        complex_numbers()
    compare("float64", shared=True, close=1e-12, dtype=torch.float64, gradient_as_bucket_view=True)
    for hook in (pt.fp16_hook, pt.bf16_hook, pt.compressed("int8")):  # inside a host nothing is compressed
        compare(hook.__name__, hook, shared=True, gradient_as_bucket_view=True)
    several("two modules")
    before = spans()
    for _ in range(4):  # memory of modules that are gone is used again
        compare("a module after others", steps=3, shared=True, gradient_as_bucket_view=True)
    assert spans() <= before + 4, f"{spans()} pieces of shared memory, and {before} before"
    try:
        pt.compressed("fp8")
    except ValueError as error:
        assert "fp16, bf16, int8" in str(error), error
    else:
        raise AssertionError("fp8 was taken")


class Slopes(torch.nn.Module):
    """Its gradients are the same numbers in every step, whatever the parameters are."""

    def __init__(self):
        super().__init__()
        self.values = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(count)) for count in (30000, 7, 50001))
        self.slopes = [torch.rand(len(value), generator=torch.Generator().manual_seed(10 * i + RANK)) for i, value in enumerate(self.values)]

    def forward(self):
        return sum((value * slope).sum() for value, slope in zip(self.values, self.slopes))


def wires():
    """Between hosts. In every step a gradient of at most 1 is rounded, in int8 by up to 1/254; what all steps add up to is less than a step's rounding off, since
    rounding errors are added to the next step."""
    compare("float32")
    steps = 40
    for hook, close in ((pt.allreduce_hook, 1e-6), (pt.fp16_hook, 3e-5), (pt.bf16_hook, 2.5e-4), (pt.compressed("int8"), 6e-4)):
        model = DistributedDataParallel(Slopes(), bucket_cap_mb=0.1, gradient_as_bucket_view=True)
        model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=1 / steps)
        for _ in range(steps):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
        for value, slope in zip(model.module.values, model.module.slopes):
            dist.all_reduce(slope)
            away = (value.detach() + slope / SIZE).abs().max().item()
            assert away <= close, f"{hook.__name__}: {len(value)} parameters are other values, by {away}"
            check_equal(hook.__name__, value.detach())
            rounded = (value.grad - slope / SIZE).abs().max().item()
            assert (rounded > 1e-5) == (hook is not pt.allreduce_hook), f"{hook.__name__}: {len(value)} gradients were rounded by {rounded}"


def alone():
    """Ranks of several hosts without MPI."""
    compare("by gloo", steps=3, close=1e-6)


def fail():
    """Rank 1 ends or hangs in step 3. The others' backward pass raises, with the words that this prints."""
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.1, gradient_as_bucket_view=True)
    model.register_comm_hook(None, pt.allreduce_hook)
    for step in range(4):
        x, wanted = batch(step, RANK)
        loss = torch.nn.functional.mse_loss(model(x), wanted)
        if step == 3 and RANK == 1:
            if SCENE == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3 * TIMEOUT_S)
            os._exit(3)
        began = time.monotonic()
        try:
            loss.backward()
        except Exception as error:
            print(f"rank {RANK} after {time.monotonic() - began:.1f} s: {type(error).__name__}: {error}", flush=True)
            os._exit(5)


if SCENE in ("killed", "late"):
    fail()
else:
    {"right": right, "wires": wires, "alone": alone}[SCENE]()
dist.destroy_process_group()  # else a thread of gloo's may drop a tensor when Python is gone
print(f"rank {RANK} of {SIZE}: ok", flush=True)
