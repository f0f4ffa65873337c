#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python on Paceline: `paceline horovod` in a separate virtual environment, and programs for torch with 2 ranks. With the
word `long`: with 1, 3 and 4 ranks, more ways to begin with other weights, other communicators, and other ways in which a rank fails.

Needs a Python with torch, Python.h at build time, mpirun, and PyPI for Horovod's package, which is not compiled; skips without.
"""
import glob
import json
import os
import re
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from horovod_python import pip, ranks, run, skip  # noqa: E402
from python_with import python_with  # noqa: E402

PACELINE = f"{BUILD}/entrypoint/paceline"

OPERATIONS = r'''
import json, os, sys, warnings
import torch
import horovod.torch as hvd
hvd.init(process_sets="dynamic")
n, r = hvd.size(), hvd.rank()
assert hvd.is_initialized() and hvd.local_size() == n and hvd.local_rank() == r and hvd.cross_size() == 1
assert hvd.mpi_built() and not hvd.gloo_built() and not hvd.nccl_built()

x = torch.arange(6.).reshape(2, 3) + r
total = torch.arange(6.).reshape(2, 3) * n + n * (n - 1) / 2
for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64):
    assert hvd.allreduce(x.to(dtype), op=hvd.Sum, name=f"sum.{dtype}").equal(total.to(dtype)), dtype
assert torch.allclose(hvd.allreduce(x), total / n) and x[0, 0] == r
assert hvd.allreduce(x, op=hvd.Max).equal(torch.arange(6.).reshape(2, 3) + n - 1)
assert hvd.allreduce(x, op=hvd.Min).equal(torch.arange(6.).reshape(2, 3))
assert hvd.allreduce(torch.tensor(2.), op=hvd.Product) == 2 ** n
assert torch.allclose(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), total * 2)
y = x.clone()
assert hvd.allreduce_(y, op=hvd.Sum) is y and y.equal(total)
handles = [hvd.allreduce_async(x * i, op=hvd.Sum, name=f"many.{i}") for i in (range(50) if r % 2 else reversed(range(50)))]
while not all(map(hvd.poll, handles)):
    pass
for i, handle in zip(range(50) if r % 2 else reversed(range(50)), handles):
    assert hvd.synchronize(handle).equal(total * i)
if n & (n - 1) == 0:  # Adasum against a model
    def pair(a, b):
        dot = (a * b).sum()
        return a * (1 - dot / (2 * (a * a).sum())) + b * (1 - dot / (2 * (b * b).sum()))
    def tree(vectors):
        return vectors[0] if len(vectors) == 1 else tree([pair(a, b) for a, b in zip(vectors[::2], vectors[1::2])])
    for elems in (6, 70001):
        of = [torch.sin(torch.arange(elems, dtype=torch.float64) * (i + 1)) * (i + 1) for i in range(n)]
        for dtype, near in ((torch.float16, 2e-3), (torch.float32, 1e-6), (torch.float64, 1e-12)):
            for name, got in (("one", hvd.allreduce(of[r].to(dtype), op=hvd.Adasum)), ("group", hvd.grouped_allreduce([of[r].to(dtype)] * 2, op=hvd.Adasum)[1])):
                assert got.dtype == dtype and (got.double() - tree(of)).norm() <= near * tree(of).norm(), (name, dtype, elems)
h = torch.arange(-20., 28.).half() / 7  # halves, as Horovod rounds them: after each factor, and after the sum
scaled, total_of_h = (h.float() * 0.3).half(), (h.float() * n).half()
for factors, right in (({"prescale_factor": 0.3}, (scaled.float() * n).half()), ({"postscale_factor": 0.3}, (total_of_h.float() * 0.3).half())):
    every = [hvd.allreduce(h, op=hvd.Sum, **factors), hvd.allreduce_(h.clone(), op=hvd.Sum, **factors)]
    every += hvd.grouped_allreduce([h, h], op=hvd.Sum, **factors)
    for got in every:
        assert got.equal(right), (factors, got, right)
    for got in (hvd.reducescatter(h.reshape(12, 4), op=hvd.Sum, **factors), *hvd.grouped_reducescatter([h.reshape(12, 4)] * 2, op=hvd.Sum, **factors)):
        assert hvd.allgather(got).equal(right.reshape(12, 4)), (factors, got, right)
    assert h.equal(torch.arange(-20., 28.).half() / 7)
g = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
assert g[0].equal(total) and g[1].equal(total * 2)

# Of a group Horovod's Python looks at the first tensor alone: the others may lie in any order, which is kept, be of other types and on another device.
def strided():
    matrix = torch.arange(6.).reshape(3, 2) + r
    return matrix, {"column": matrix[:, 0], "transposed": matrix.t(), "steps": torch.arange(9.)[::2] + r, "view": (torch.arange(8.) + r).as_strided((2, 2), (1, 3)),
                    "empty": torch.empty(4, 0).t(), "channels": (torch.arange(24.) + r).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)}
first = torch.ones(2)
sum_of = lambda tensor: (tensor - r) * n + n * (n - 1) / 2
matrix, views = strided()
wanted = [sum_of(view) for view in views.values()]
got = hvd.grouped_allreduce([first, *views.values()], op=hvd.Sum)
assert all(a.equal(b) for a, b in zip(got[1:], wanted)) and all(a.equal(b) for a, b in zip(views.values(), strided()[1].values())), got
assert all(a is b for a, b in zip(hvd.grouped_allreduce_([first.clone(), *views.values()], op=hvd.Sum)[1:], views.values()))
matrix, views = strided()
hvd.grouped_allreduce_([first.clone(), views["column"], views["steps"], views["channels"]], op=hvd.Sum)
assert matrix[:, 0].equal(wanted[0]) and matrix[:, 1].equal(strided()[0][:, 1]), matrix  # the other column is not touched
assert views["steps"].equal(wanted[2]) and views["channels"].equal(wanted[5]) and not views["channels"].is_contiguous()
matrix, views = strided()
hvd.grouped_allreduce_([first.clone(), views["transposed"]], op=hvd.Sum)
assert matrix.equal(wanted[1].t())
parameter = torch.nn.Parameter(matrix.clone())[:, 1].detach().requires_grad_()
hvd.grouped_allreduce_([first.clone(), parameter], op=hvd.Sum)
assert parameter.equal(wanted[1][1] * n)
wide, mixed = torch.full((1,), float(r)).expand(1000), torch.arange(6, dtype=torch.int64).reshape(3, 2)[:, 1]
got = hvd.grouped_allreduce([first, wide, mixed, torch.ones(4, dtype=torch.float64)[::2]], op=hvd.Sum)
assert got[1].tolist() == [sum(range(n))] * 1000 and got[2].tolist() == [i * n for i in (1, 3, 5)] and got[3].tolist() == [n] * 2, got
matrix, views = strided()
got = hvd.grouped_allgather([first, views["column"], views["transposed"]])
assert got[1].equal(torch.cat([torch.arange(0., 6, 2) + i for i in range(n)])) and got[2].equal(torch.cat([views["transposed"] - r + i for i in range(n)])), got
got = hvd.grouped_reducescatter([torch.ones(n), (torch.arange(2. * n).reshape(2, n) + r).t()], op=hvd.Sum)
assert got[1].tolist() == [[r * n + n * (n - 1) / 2, (n + r) * n + n * (n - 1) / 2]], got
for shared in (torch.ones(1).expand(3), torch.ones(1).expand(1000000), torch.ones(3).as_strided((2, 2), (1, 1)), torch.ones(1).expand(2, 1)):
    try:
        hvd.grouped_allreduce_([first, first.clone(), shared], op=hvd.Sum)
        raise SystemExit("elements that share their memory were reduced in place")
    except ValueError as error:
        assert "grouped_allreduce: several elements of tensor 2 share their memory" in str(error) and "clone()" in str(error), error
for refused in (lambda: hvd.allreduce(strided()[0][:, 0]), lambda: hvd.grouped_allreduce([strided()[0][:, 0], first])):
    try:
        refused()
        raise SystemExit("Horovod's own Python refuses these")
    except ValueError as error:
        assert str(error) == "Tensor is required to be contiguous.", error

rows = hvd.allgather(torch.full((r + 1, 2), r))
assert rows.equal(torch.cat([torch.full((i + 1, 2), i) for i in range(n)])) and rows.dtype == torch.int64
a, b = hvd.grouped_allgather([torch.full((r,), r), torch.full((1, 1), r, dtype=torch.uint8)])
assert len(a) == n * (n - 1) // 2 and b.flatten().tolist() == list(range(n))
assert hvd.broadcast(torch.tensor([r, r]), n - 1).tolist() == [n - 1] * 2
z = torch.full((3,), r)
assert hvd.broadcast_(z, 0) is z and z.tolist() == [0, 0, 0]
assert hvd.alltoall(torch.full((2 * n,), r)).tolist() == [i // 2 for i in range(2 * n)]
got, came = hvd.alltoall(torch.full((sum(range(n)), 2), r), splits=torch.arange(n, dtype=torch.int32))
assert came.tolist() == [r] * n and got.tolist() == [[i, i] for i in range(n) for _ in range(r)]
for dtype in (torch.int32, torch.int64):  # a column of a matrix of numbers
    counts = torch.stack([torch.arange(n) + 1, torch.full((n,), 99)], 1).to(dtype)[:, 0]
    got, came = hvd.alltoall(torch.cat([torch.full((i + 1,), float(i)) for i in range(n)]), splits=counts)
    assert came.tolist() == [r + 1] * n and came.dtype == dtype and got.tolist() == [r] * (n * (r + 1)), (got, came)
# More rows than Horovod's int32 tells, of no elements.
try:
    hvd.alltoall(torch.empty(n * 2 ** 31, 0))
    raise SystemExit("2 ** 31 rows were told in an int32")
except hvd.HorovodInternalError as error:
    assert "2147483648 rows came from rank 0" in str(error) and "int64" in str(error), error
many = torch.full((n,), 2 ** 31)
assert hvd.alltoall(torch.empty(n * 2 ** 31, 0), splits=many)[1].equal(many)
part = hvd.reducescatter(torch.ones(n * 2 + 1, 2), op=hvd.Sum)
assert part.shape == ((3 if r == 0 else 2), 2) and (part == n).all()
hvd.barrier()

# Tensors that say they are on a GPU: copied to host memory and back.
class Far:
    def __init__(self, tensor):
        self.tensor = tensor
        self.size, self.stride, self.resize_, self.dtype, self.detach = tensor.size, tensor.stride, tensor.resize_, tensor.dtype, lambda: tensor
    def cpu(self):
        return self.tensor.clone()
    def data_ptr(self):
        raise SystemExit("a pointer into a GPU's memory was used")
def far(function, *arguments):
    lib = hvd.mpi_ops.mpi_lib
    lib.horovod_torch_wait_and_clear(getattr(lib, f"horovod_torch_{function}_async_torch_cuda_FloatTensor")(*arguments))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    a, b = Far(x.clone()), Far(torch.zeros(2, 3))
    far("allreduce", a, b, 1, b"far", hvd.Sum, 1.0, 1.0, 0)
    assert a.tensor.equal(x) and b.tensor.equal(total)
    far("allreduce", a, a, 1, b"far", hvd.Sum, 1.0, 1.0, 0)
    assert a.tensor.equal(total)
    a, b = [Far(x.clone()), Far(x * 2)], [Far(torch.zeros(2, 3)), Far(torch.zeros(2, 3))]
    far("grouped_allreduce", a, b, 1, b"far group", hvd.Sum, 1.0, 1.0, 0)
    assert b[0].tensor.equal(total) and b[1].tensor.equal(total * 2)
    a, b = [x, Far(x * 2), x.t()], [torch.zeros(2, 3), Far(torch.zeros(2, 3)), torch.zeros(3, 2)]  # one of them
    lib = hvd.mpi_ops.mpi_lib
    lib.horovod_torch_wait_and_clear(lib.horovod_torch_grouped_allreduce_async_torch_FloatTensor(a, b, 1, b"near and far", hvd.Sum, 1.0, 1.0, 0))
    assert b[0].equal(total) and b[1].tensor.equal(total * 2) and b[2].equal(total.t())
    a = [x.clone(), Far((x * 2).t())]
    lib.horovod_torch_wait_and_clear(lib.horovod_torch_grouped_allreduce_async_torch_FloatTensor(a, a, 1, b"near and far", hvd.Sum, 1.0, 1.0, 0))
    assert a[0].equal(total) and a[1].tensor.equal(total.t() * 2)
    a, b = Far(torch.full((r + 1, 2), float(r))), Far(torch.empty(0))
    far("allgather", a, b, b"far rows", 0)
    assert b.tensor.equal(torch.cat([torch.full((i + 1, 2), float(i)) for i in range(n)]))
    a, b, came = Far(torch.full((2 * n,), float(r))), Far(torch.empty(0)), Far(torch.empty(0, dtype=torch.int32))
    far("alltoall", a, Far(torch.full((n,), 2, dtype=torch.int32)), b, came, b"far parts", 0)
    assert b.tensor.tolist() == [i // 2 for i in range(2 * n)] and came.tensor.tolist() == [2] * n
    a = Far(torch.full((3,), float(r)))
    far("broadcast", a, a, n - 1, b"far root", 0)
    assert a.tensor.tolist() == [n - 1] * 3
    assert [str(warning.message) for warning in caught] == ["tensors on a GPU are copied to host memory and back: the setting device is off"]
w = torch.ones(3, requires_grad=True)
(hvd.allreduce(w, op=hvd.Sum) * (r + 1)).sum().backward()
assert w.grad.tolist() == [n * (n + 1) / 2] * 3
assert hvd.broadcast_object({"rank": r}, n - 1) == {"rank": n - 1} and hvd.allgather_object(r) == list(range(n))

# A timeline that starts and stops, on rank 0.
timeline = os.path.join(sys.argv[1], "timeline.json")
for marks in (True, False):
    hvd.start_timeline(timeline, mark_cycles=marks)
    hvd.allreduce(x, name="shown")
    hvd.stop_timeline()
    hvd.allreduce(x, name="hidden")
    if r == 0:
        text = open(timeline).read()
        names = [event.get("name") for event in json.loads(text)]
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} < set(names) and marks == ("CYCLE_START" in names), names
        assert "allreduce.shown" in text and "hidden" not in text, text
if r == 0:
    try:
        hvd.start_timeline(timeline + "/none")
        raise SystemExit("a timeline was made below a file")
    except ValueError as error:
        assert timeline in str(error), error

# What is refused, and where.
try:
    hvd.allreduce(x.to(torch.int8))
    raise SystemExit("int8 was taken")
except ValueError:
    pass
if n > 1:
    try:
        hvd.allreduce(torch.ones(r + 1), name="shapes")
        raise SystemExit("shapes that differ were taken")
    except hvd.HorovodInternalError as error:
        assert "'allreduce.shapes'" in str(error), error
    try:
        hvd.add_process_set(list(range(n)))
        raise SystemExit("the whole world was added")
    except ValueError:
        pass
    for bad, words in (([0, n], f"{n} is not a rank"), ([0, 0], "twice"), ([], f"1 to {n} ranks")):
        try:
            hvd.add_process_set(bad)
            raise SystemExit(f"{bad} was added")
        except ValueError as error:
            assert words in str(error), error
    import ctypes
    lib = hvd.mpi_ops._basics.MPI_LIB_CTYPES  # a set that is added meanwhile has no room
    told, numbers = lib.horovod_number_of_process_sets(), (ctypes.c_int * 2)(-1, -1)
    last = hvd.add_process_set([n - 1])
    lib.horovod_process_set_ids(numbers)
    assert told == 1 and list(numbers) == [0, -1], list(numbers)
    ranks_of = (ctypes.c_int * n)(*[-1] * n)
    assert lib.horovod_process_set_size(1) == 1 and lib.horovod_process_set_ranks(0, ranks_of) == -3 and ranks_of[0] == -1, list(ranks_of)
    assert last.size() == 1 and last.included() == (r == n - 1) and last.process_set_id == 1
    if last.included():
        assert last.rank() == 0 and hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=last) == 1
        assert hvd.broadcast(torch.tensor([5]), n - 1, process_set=last) == 5
    assert hvd.remove_process_set(last) and last.process_set_id is None

    # Strict join: sums go on, gathering fails.
    if r == 0:
        assert hvd.join() != 0
    else:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="joined") == n - 1
        try:
            hvd.allgather(torch.ones(1), name="gather")
            raise SystemExit("an allgather went on after a join")
        except hvd.HorovodInternalError:
            pass
        hvd.join()
for _ in range(2):  # a shutdown is not an end
    hvd.shutdown()
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == n and len(hvd.mpi_ops._basics._get_process_set_ids_and_ranks()) == 1
print("rank", r, "is right")
'''

TRAINING = r'''
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
first = last = None
for step in range(30):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    last = hvd.allreduce(loss.detach(), name="loss").item()
    first = first or last
assert last < first / 2, (first, last)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
every = hvd.allgather(weights.unsqueeze(0), name="weights")
assert all(row.equal(weights) for row in every)
print("rank", hvd.rank(), "is right")
'''

# The properties of DistributedOptimizer() with torch's optimizers.
OPTIMIZERS = r'''
import copy
import torch
import horovod.torch as hvd
hvd.init()
n, r = hvd.size(), hvd.rank()

def fresh(**keywords):
    """A model and its optimizer as a program made for Horovod has them, and the gradient that every rank should see."""
    torch.manual_seed(r)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0 + r, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **keywords)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return model, optimizer

def loss_of(model):
    return model(torch.full((1, 3), float(r))).sum()  # its gradient: r, and 1 for the bias

mean = (n - 1) / 2
model, optimizer = fresh()
assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
assert optimizer.param_groups[0]["lr"] == 1.0, "rank 0's options are everybody's"
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
before = copy.deepcopy(model.state_dict())
for _ in range(2):
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert (model.weight.grad == mean).all() and (model.bias.grad == 1).all(), model.weight.grad
    scheduler.step()
assert scheduler.get_last_lr() == [0.25]
# 1 * mean, then 0.5 * (0.5 * mean + mean)
assert torch.allclose(before["weight"] - model.weight, torch.full((2, 3), 1.75 * mean)), (before, model.weight)

optimizer.zero_grad()
loss_of(model).backward()
try:
    optimizer.zero_grad()
    raise SystemExit("gradients under way were cleared")
except AssertionError:
    pass
optimizer.synchronize()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
with optimizer.skip_synchronize():
    optimizer.step()
assert model.bias.grad.norm() < 2e-3

model, optimizer = fresh(op=hvd.Sum, backward_passes_per_step=2)
for _ in range(2):
    loss_of(model).backward()
optimizer.step()
assert (model.weight.grad == 2 * n * mean).all() and (model.bias.grad == 2 * n).all()
optimizer.set_backward_passes_per_step(1)
optimizer.zero_grad()
loss_of(model).backward()
optimizer.step()
assert (model.bias.grad == n).all()

optimizer.zero_grad()
loss_of(model).backward()
try:
    loss_of(model).backward()
    raise SystemExit("a backward pass too many")
except AssertionError as error:
    assert "more than backward_passes_per_step times" in str(error), error
optimizer.synchronize()

# State of every kind of optimizer: numbers, tensors and options that differ by rank become the root's.
def flat(state):
    return [(key, index, value.tolist() if torch.is_tensor(value) else value) for index, slots in state["state"].items() for key, value in slots.items()
            ] + state["param_groups"]
for kind in (torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adamax,
             torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD, torch.optim.Rprop):
    torch.manual_seed(r)
    model = torch.nn.Linear(3, 2)
    optimizer = kind(model.parameters(), lr=0.1 * (r + 1), **({"momentum": 0.5} if kind is torch.optim.SGD else {}))
    for _ in range(r + 1):
        (model(torch.randn(5, 3)) ** 2).sum().backward()
        optimizer.step()
    own = flat(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, root_rank=n - 1)
    everywhere = hvd.allgather_object(flat(optimizer.state_dict()))
    assert all(state == everywhere[n - 1] for state in everywhere) and (own == everywhere[n - 1]) == (r == n - 1), (kind, own, everywhere)

for scale, expected in ((1 + 2**-12, 1.0), (2.0, 2.0)):  # the first has more digits than float16
    model, optimizer = fresh(compression=hvd.Compression.fp16, gradient_predivide_factor=4.0)
    (scale * loss_of(model)).backward()
    optimizer.step()
    assert model.weight.grad.dtype == torch.float32 and (model.weight.grad == expected * mean).all()
table = torch.nn.Embedding(n + 1, 2, sparse=True)
hvd.broadcast_parameters(table.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), named_parameters=table.named_parameters())
before = table.weight.detach().clone()
table(torch.tensor([0, r + 1, r + 1])).sum().backward()
optimizer.step()
before[0] -= 1
before[1:] -= 2 / n
assert torch.allclose(table.weight, before), (table.weight, before)
print("rank", r, "is right")
'''

# Ranks that begin with the same weights, or with others, of which rank 0 warns; one that has no data and joins, one that calls the operations by itself,
# and ranks that are not in the optimizer's process set, keep nobody waiting.
WEIGHTS = r'''
import sys
import torch
import horovod.torch as hvd
how = sys.argv[1]
hvd.init(process_sets="dynamic")
r, last = hvd.rank(), hvd.rank() == hvd.size() - 1
if how == "compiled":  # as if Horovod's own modules had been put there since
    class Compiled:
        def __init__(self, library):
            self._library = library
        def __getattr__(self, name):
            return getattr(self._library, name.replace("horovod_paceline", "none"))
    hvd.mpi_ops._basics.MPI_LIB_CTYPES = Compiled(hvd.mpi_ops._basics.MPI_LIB_CTYPES)
members = hvd.add_process_set([1, 2]) if how == "set" else hvd.global_process_set
torch.manual_seed(0 if how == "same" or how == "one" and r != 1 else r)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).to(torch.float64 if how == "one" else torch.float32)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), process_set=members)
if how == "broadcast":
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
for _ in range(5 if not last or how not in ("join", "alone") else 0):
    optimizer.zero_grad()
    model(torch.randn(16, 4, dtype=model[0].weight.dtype)).sum().backward()
    optimizer.step()
if how == "alone" and last:
    for _ in range(5):
        handles = [hvd.allreduce_async(torch.zeros_like(value), name=name) for name, value in model.named_parameters()]
        for handle in handles:
            hvd.synchronize(handle)
if how == "join":
    hvd.join()
if how == "set":
    hvd.remove_process_set(members)
hvd.shutdown()
print("rank", r, "is right")
'''

# Communicators: all ranks backwards, and process sets of odd and even ones; or lists of ranks.
COMMUNICATORS = r'''
import sys
import torch
import horovod.torch as hvd
ranks, rank = int(sys.argv[2]), None
if sys.argv[1] == "mpi4py":
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    rank = world.rank
    every, halves = world.Split(0, -rank), world.Split(rank % 2, rank)
    for _ in range(2):
        sets = [hvd.ProcessSet(halves), hvd.ProcessSet([0, 1])]
        hvd.init(every, process_sets=sets)
        assert hvd.rank() == ranks - 1 - rank and hvd.size() == ranks and hvd.global_process_set.mpi_comm is every
        assert len(hvd.mpi_ops._basics._get_process_set_ids_and_ranks()) == 4 and sets[1].process_set_id == 3
        assert sets[0].mpi_comm is halves and sets[0].size() == halves.size and sets[0].rank() == halves.rank and sets[0].included()
        got = hvd.allreduce(torch.tensor([rank]), op=hvd.Sum, process_set=sets[0], name="half")
        assert got.item() == sum(range(rank % 2, ranks, 2)), got
        try:
            hvd.mpi_ops._basics._comm_process_set_id(world)
            raise SystemExit("a communicator that was not given has a set")
        except ValueError:
            pass
        hvd.shutdown()
    world.Barrier()
else:
    import os
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    members = [i for i in reversed(range(ranks)) if i % 2 == rank % 2]
    if sys.argv[1] == "foreign":
        members = [i for i in range(ranks) if i != rank]
    try:
        hvd.init(comm=members)
    except ValueError:
        print("refused")
        raise SystemExit(0)
    assert hvd.size() == len(members) and hvd.rank() == members.index(rank)
    assert hvd.allreduce(torch.tensor([rank]), op=hvd.Sum).item() == sum(members)
print("is right")
'''

# Rank 0 fails in one of several ways; the others wait for it, or do something else for longer than the test lasts.
FAILING = r'''
import sys, threading
import torch
import horovod.torch as hvd
how, others = sys.argv[1:]
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 0:
    if how == "raise":
        raise KeyError("rank 0 raises")
    sys.exit(int(how))
if others == "busy":
    threading.Event().wait()
try:
    hvd.allreduce(torch.ones(1), name="never")
except hvd.HorovodInternalError as error:
    print("rank", hvd.rank(), "got", type(error).__name__, error, flush=True)
    threading.Event().wait(0 if how == "0" else None)  # mpirun ends the job with rank 0's status
'''


# Rank 1 stops in the middle of a long message, which MPI cannot take back: what rank 0 gave up may still be read, and stays.
LEAKING = r'''
import gc, os, signal, weakref
import torch
import horovod.torch as hvd
hvd.init()
other = hvd.allgather(torch.tensor([os.getpid()])).tolist()[1]
for _ in range(50):
    data = torch.full((1 << 25,), float(1 - hvd.rank()))
    handle = hvd.broadcast_async_(data, 0, name="large")
    while hvd.rank() == 1 and not hvd.poll(handle):
        if data[0] == 1 and data[-1] == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
    tensor = weakref.ref(data)
    del data
    try:
        hvd.synchronize(handle)
    except hvd.HorovodInternalError as error:
        print(error, flush=True)
        break
gc.collect()
print("rank", hvd.rank(), "keeps it" if tensor() is not None else "has let go of it", flush=True)
if hvd.rank() == 0:
    os.kill(other, signal.SIGKILL)
os._exit(0)
'''

# Whoever joins says so; started by itself, with what a launcher by Gloo, on Ray or in Spark sets, it must not train alone.
ALONE = r'''
import torch
import horovod.torch as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size())
'''


# hvd.elastic.run in a job that is started again: rank 1 is killed in the first attempt, in which rank 0 has committed twice.
ELASTIC = r'''
import os, signal, sys
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), named_parameters=model.named_parameters())

@hvd.elastic.run
def train(state):
    print("rank", hvd.rank(), "begins after step", state.step, flush=True)
    while state.step < 20:
        if state.step == 10 and hvd.rank() == 1 and sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(2 * state.step + hvd.rank()))
        optimizer.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()
        state.step += 1
        if state.step % 4 == 0:
            state.commit()

class Own(hvd.elastic.TorchState):
    pass

state = Own(model, optimizer, step=0)
state.register_reset_callbacks([lambda: print("rank", hvd.rank(), "is reset", flush=True)])
train(state)
print("weights", hvd.allgather(torch.cat([p.detach().flatten() for p in model.parameters()]).unsqueeze(0)).tolist(), flush=True)
'''


def elastic_state_outlives_ranks(python):
    memory_fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    memory = {"PACELINE_KEPT": f"/proc/{os.getpid()}/fd/{memory_fd}"}
    straight = ranks(python, 2, ELASTIC, "whole")
    assert straight.count("begins after step 0") == 2 and "is reset" not in straight, straight
    text = ranks(python, 2, ELASTIC, "killed", expect=None, PACELINE_RESTART="0", **memory)
    assert "weights" not in text, text
    again = ranks(python, 2, ELASTIC, "whole", PACELINE_RESTART="1", **memory)
    assert again.count("begins after step 8") == again.count("is reset") == 2, again
    weights = [re.findall("weights .*", words) for words in (straight, again)]
    assert len(weights[0]) == 2 and weights[0] == weights[1], f"the weights differ: {weights}"
    again = ranks(python, 2, ELASTIC.replace("step=0", "epoch=0, step=0"), "whole", PACELINE_RESTART="1", **memory)
    assert again.count("begins after step 0") == 2 and again.count("the kept state is of another program") == 1 and "is reset" not in again, again
    other = ELASTIC.replace("(hvd.elastic.TorchState)", "(__import__('horovod.common.elastic').common.elastic.State)").replace("    pass", OWN_STATE)
    again = ranks(python, 2, other, "whole", PACELINE_RESTART="1", **memory)
    assert again.count("warning: Own is none of ObjectState, TorchState") == 1 and again.count("weights [[") == 2, again
    os.close(memory_fd)


OWN_STATE = """    def __init__(self, *_, step):
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.step = step
    save = restore = sync = lambda self: None"""


def train(python, folder, requirements, expect):
    """`paceline train` of two ranks of TRAINING, with this requirements.txt; returns the whole output."""
    base = tempfile.mkdtemp(dir=folder)
    hyperparameters = {"sagemaker_program": "train.py", "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
    for path, text in {"code/train.py": TRAINING, "code/requirements.txt": requirements, "input/config/hyperparameters.json": json.dumps(hyperparameters),
                       "input/config/resourceconfig.json": '{"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}'}.items():
        os.makedirs(os.path.dirname(f"{base}/{path}"), exist_ok=True)
        with open(f"{base}/{path}", "w") as file:
            file.write(text)
    return run(PACELINE, "train", expect=expect, env={**os.environ, "SAGEMAKER_BASE_DIR": base, "PACELINE_PYTHON": python, "OMP_NUM_THREADS": "1"})


def requirements_start_no_compiler(base, folder):
    """A line `horovod` in requirements.txt is served by the modules; one that asks for another version is refused by pip, which says so."""
    python = f"{folder}/required/bin/python"
    run(base, "-m", "venv", "--system-site-packages", f"{folder}/required")
    text = train(python, folder, "horovod\n", 0)
    assert text.count("is right") == 2 and "runs on Paceline" in text, text
    module = run(python, "-c", "import horovod, os, sysconfig; print(os.path.dirname(horovod.__file__) + '/torch/mpi_lib_v2' + "
                 "sysconfig.get_config_var('EXT_SUFFIX'))").strip()
    for wanted in ("horovod==0.27.0", "horovod[torch]<0.28"):
        text = train(python, folder, f"{wanted}\n", 1)
        assert "names Horovod: version 0.28.1" in text and ("onflict" in text or "No matching distribution" in text) and "is right" not in text, text
        assert os.path.islink(module)
    text = train(python, folder, "horovod[torch]>=0.20\n", 0)
    assert text.count("is right") == 2 and os.path.islink(module), text
    os.unlink(module)
    with open(module, "w") as file:  # a compiled one
        file.write("compiled")
    text = train(python, folder, "horovod\n", 1)  # Python refuses the file
    assert "was compiled and stays" in text and open(module).read() == "compiled", text


def what_is_not_there_is_said(python):
    """Each use that docs/horovod.md says is not there and that can be tried without Ray or Spark."""
    bin = os.path.dirname(python)
    environment = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    gloo = {**environment, "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}
    assert "horovodrun --mpi" in run(python, "-c", ALONE, expect=1, env=gloo)
    assert "rank 0 of 1" in run(python, "-c", ALONE, env={**gloo, "HOROVOD_SIZE": "1"})
    for words, said in {("--gloo", "-np", "2", python, "-c", ALONE): "Gloo support has not been built",
                        ("--min-np", "1", "-np", "2", "--host-discovery-script", "/bin/true", python): "Gloo support is required"}.items():
        assert said in run(f"{bin}/horovodrun", *words, expect=1, env=environment)
    for module, said in {"mxnet": "horovod.mxnet has not been built", "spark": "No module named 'pyspark'", "ray": "No module named 'ray'"}.items():
        assert said in run(python, "-c", f"import horovod.{module}", expect=1), module


def others_and_failures(python, base):
    assert "DistributedOptimizer:" not in ranks(python, 2, WEIGHTS, "every", PACELINE_CHECK_WEIGHTS="0")
    assert ranks(python, 4, COMMUNICATORS, "ranks", "4").count("is right") == 4
    text = ranks(python, 2, COMMUNICATORS, "foreign", "2")
    assert text.count("refused") == 2 and "init(comm=...) without this process, which is rank 0 of MPI_COMM_WORLD" in text, text
    if python_with("torch", "mpi4py") == base:
        assert ranks(python, 4, COMMUNICATORS, "mpi4py", "4").count("is right") == 4
    ranks(python, 2, FAILING, "raise", "busy", expect=1)
    ranks(python, 2, FAILING, "3", "busy", expect=3)
    text = ranks(python, 2, FAILING, "0", "wait")
    assert re.search("got HorovodInternalError rank 0 on host .+ shut", text), text
    for _ in range(9):  # until it does not stop between two messages
        text = ranks(python, 2, LEAKING, expect=None, PACELINE_BACKEND="p2p", PACELINE_SEGMENT_BYTES="64KiB", PACELINE_TIMEOUT_S="3")
        if "broadcast 'broadcast.large', did not end" in text:
            break
    assert "rank 0 keeps it" in text, text


def main():
    base = python_with("torch", "venv")
    if not base:
        skip("no Python here has torch and venv")
    if not os.path.exists(f"{BUILD}/libexec/paceline/libpaceline-horovod-torch.so"):
        skip("built without Python.h")
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/venv/bin/python"
        run(base, "-m", "venv", "--system-site-packages", f"{folder}/venv")
        missing = run(PACELINE, "horovod", "--python", python, expect=None)
        if "pip install horovod" not in missing and "horovod" not in missing:
            sys.exit(f"without Horovod: {missing}")
        pip(python, "horovod==0.28.1")

        assert "not there: paceline horovod" in run(PACELINE, "horovod", "--check", "--python", python, expect=1)
        assert "runs on Paceline" in run(PACELINE, "horovod", "--python", python)
        assert "horovod.torch works" in run(PACELINE, "horovod", "--check", "--python", python)
        module = run(python, "-c", "import horovod, os, sysconfig; print(os.path.dirname(horovod.__file__) + '/torch/mpi_lib_v2' + "
                     "sysconfig.get_config_var('EXT_SUFFIX'))").strip()
        os.unlink(module)
        with open(module, "w") as file:  # a compiled one is a file
            file.write("compiled")
        assert "was compiled" in run(PACELINE, "horovod", "--python", python, expect=1)
        assert open(module).read() == "compiled"
        run(PACELINE, "horovod", "install", "--force", "--python", python)
        assert "no longer runs on Paceline" in run(PACELINE, "horovod", "remove", "--python", python)
        assert not glob.glob(f"{os.path.dirname(module)}/*paceline*") and not glob.glob(f"{folder}/venv/lib/*/site-packages/paceline_horovod*") and not os.path.lexists(module)
        assert "has no module of Paceline's" in run(PACELINE, "horovod", "remove", "--python", python, expect=1)
        assert "not there: paceline horovod" in run(PACELINE, "horovod", "check", "--python", python, expect=1)
        run(PACELINE, "horovod", "--python", python)  # without a word it is install

        is_long = sys.argv[1:] == ["long"]
        for count in (1, 3, 4) if is_long else (2,):
            text = ranks(python, count, (OPERATIONS, TRAINING), folder, HOROVOD_TIMELINE=f"{folder}/whole.json", PACELINE_DEVICE="off")
            assert text.count("is right") == 2 * count, text
            assert "without effect" not in text and not glob.glob(f"{folder}/*.ring"), text
        if is_long:
            with open(f"{folder}/whole.json") as file:  # TRAINING's, on four ranks
                assert sum(event.get("name") == "NEGOTIATE_ALLREDUCE" for event in json.load(file)) > 30
        cure, differ = "call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before the first step", "DistributedOptimizer: the weights of {} differ from those of rank 0"
        short = {"same": None, "one": "rank 1"}
        rest = {"every": "ranks 1, 2", "broadcast": None, "join": None, "alone": None, "compiled": None, "set": "rank 1 of process set 1"}
        for how, who in (rest if is_long else short).items():
            text = ranks(python, 3, WEIGHTS, how)
            assert text.count("is right") == 3 and (text.count(differ.format(who)) == text.count(cure) == 1 if who else "DistributedOptimizer:" not in text), text
        if is_long:
            others_and_failures(python, base)
            return
        assert ranks(python, 2, OPTIMIZERS).count("is right") == 2

        horovodrun = f"{folder}/venv/bin/horovodrun"
        said = run(horovodrun, "--check-build")
        assert "[X] PyTorch" in said and "[X] MPI" in said and "[ ] Gloo" in said, said
        said = run(horovodrun, "--mpi", "-np", "2", python, "-c", "import sys, torch, horovod.torch as hvd; hvd.init(); "
                   "sys.stdout.write(f'sum {hvd.allreduce(torch.ones(1), op=hvd.Sum).item()}\\n')")
        assert said.count("sum 2.0") == 2, said

        # No rank waits for a rank that fails, and the job ends with its status.
        text = ranks(python, 2, FAILING, "raise", "wait", expect=1)
        assert "rank 0 raises" in text and re.search("rank 0 on host .+ has given up: its process ends with exit status 1|the process of rank 0 on host .+ has ended", text), text
        what_is_not_there_is_said(python)
        elastic_state_outlives_ranks(python)
        requirements_start_no_compiler(base, folder)
    print("horovod.torch: as it should be")


main()
