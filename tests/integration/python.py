#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python binding: operations on two ranks, errors by name, and a torch program that trains under `paceline train`.

Runs with a Python that has numpy; the training needs torch too; without torch it is left out with a message.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from python_with import python_with  # noqa: E402
from ranks import mpirun  # noqa: E402

WITH_TORCH = python_with("numpy", "torch")
PYTHON = WITH_TORCH or python_with("numpy")
FULL = sys.argv[1:] == ["full"]  # on the other numbers of ranks, and with the other ends
SKIP = 77

OPERATIONS = r'''
import gc
import weakref
import numpy
import paceline as pl
pl.init(process_sets="dynamic")
pl.init()
n, r = pl.size(), pl.rank()
assert pl.local_size() == n and pl.local_rank() == r and pl.cross_size() == 1

for dtype in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8"):
    a = numpy.arange(10).astype(dtype)
    assert (pl.allreduce(a, name=dtype, op=pl.Sum) == a * n).all(), dtype
    assert (a == numpy.arange(10)).all()
assert pl.allreduce(numpy.array([2**53 + 1]), name="wide")[0] == 2**53 + 1
assert pl.allreduce(numpy.float32([r]), name="most", op=pl.Max)[0] == n - 1
assert abs(pl.allreduce(numpy.float64([r]), name="mean")[0] - (n - 1) / 2) < 1e-12

first, second = numpy.ones(3), numpy.ones((2, 2)) * r
handles = [pl.allreduce_async(first, name="first", op=pl.Sum), pl.allreduce_async(second, False, "second")]
if r:
    handles.reverse()
for handle in handles:
    handle.wait()

rows = pl.allgather(numpy.full((r + 1, 2), r, numpy.int32), "rows")
assert rows.shape == (n * (n + 1) // 2, 2) and rows[-1, 0] == n - 1
spread = numpy.full(4, r)
pl.broadcast_(spread, root_rank=n - 1, name="spread")
assert (spread == n - 1).all()
assert (pl.alltoall(numpy.full(n, r), name="exchange") == numpy.arange(n)).all()
rows, came = pl.alltoall(numpy.full(n + 1, r), splits=[1] * (n - 1) + [2], name="uneven exchange")
assert list(came) == [2 if r == n - 1 else 1] * n and (rows == numpy.repeat(numpy.arange(n), came)).all()
assert pl.broadcast(numpy.array([r]), root_rank=0, name="fresh")[0] == 0
assert pl.synchronize(pl.allreduce_async(numpy.ones(2), name="scaled", op=pl.Sum, prescale_factor=0.5))[0] == n / 2
assert pl.broadcast_object({"epoch": r}, root_rank=n - 1) == {"epoch": n - 1}
assert (pl.reducescatter(numpy.ones(n), name="scatter", op=pl.Sum) == n).all()
assert pl.allgather_object({"rank": r, "text": "x" * r}) == [{"rank": i, "text": "x" * i} for i in range(n)]

# Groups: members of different types and shapes, the same list in place, and nothing at all.
group = [numpy.full((2, 2), r, numpy.float32), numpy.array([r, 1])]
most, count = pl.grouped_allreduce(group, op=pl.Max)
assert most.dtype == numpy.float32 and (most == n - 1).all() and list(count) == [n - 1, 1] and (group[0] == r).all()
pl.grouped_allreduce_(group, name="group", op=pl.Sum)
assert (group[0] == n * (n - 1) / 2).all() and group[1][1] == n
rows, more = pl.grouped_allgather([numpy.full(r + 1, r), numpy.full((1, 2), r)])
assert (rows == numpy.repeat(numpy.arange(n), numpy.arange(n) + 1)).all() and more.shape == (n, 2)
assert [len(part) for part in pl.grouped_reducescatter([numpy.ones(n), numpy.ones(2 * n)], op=pl.Sum)] == [1, 2]
assert pl.synchronize(pl.grouped_allreduce_async([numpy.ones(1), numpy.ones(2)]))[1][1] == 1 and pl.grouped_allreduce([]) == []

# What travels as float16 is float16's precision and range; integers stay as they are.
small = pl.allreduce(numpy.float32([1 + 2**-12, 2.0]), name="half", compression=pl.Compression.fp16)
assert small.dtype == numpy.float32 and list(small) == [1.0, 2.0]
assert pl.allreduce(numpy.array([2**40]), average=False, compression=pl.Compression.fp16)[0] == n * 2**40

# A set of ranks has its own names and places, and the job's numbers for roots.
assert pl.global_process_set.size() == n and pl.global_process_set.rank() == r
if n > 2:  # of two ranks, the ends are all
    ends = pl.add_process_set([n - 1, 0])
    assert ends.size() == 2 and ends.included() == (r in (0, n - 1)) and ends.rank() == {0: 0, n - 1: 1}.get(r)
    if ends.included():
        assert pl.allreduce(numpy.array([r]), name="wide", op=pl.Sum, process_set=ends)[0] == n - 1
        assert list(pl.allgather(numpy.array([r]), process_set=ends)) == [0, n - 1]
        assert pl.broadcast(numpy.array([r]), n - 1, process_set=ends)[0] == n - 1
        assert pl.broadcast_object(r, root_rank=n - 1, process_set=ends) == n - 1
        assert list(pl.alltoall(numpy.array([r, r]), [1, 1], process_set=ends)[0]) == [0, n - 1]
        pl.barrier(ends)
    else:
        try:
            pl.allreduce(numpy.ones(1), process_set=ends)
            raise AssertionError("an operation of a set that this rank is not in")
        except pl.PacelineError as error:
            assert f"rank {r} is not in ProcessSet(process_set_id=1, ranks=[0, {n - 1}])" in str(error), error
    try:
        pl.add_process_set([0, n - 1])
        raise AssertionError("a set was made twice")
    except ValueError as error:
        assert "process set 1 already" in str(error), error
    late = pl.allreduce_async(numpy.ones(1), name="late", process_set=ends) if ends.included() else None
    if late:
        late.wait()
    assert pl.remove_process_set(ends) and not pl.remove_process_set(ends) and not pl.remove_process_set(pl.global_process_set)
    if late:
        try:
            late.poll()
            raise AssertionError("the set is gone")
        except pl.PacelineError as error:
            assert "was not added" in str(error), error

try:
    pl.allreduce(numpy.ones(3 + r), name="different")
    assert n == 1
except pl.PacelineError as error:
    assert error.status == "MISMATCH" and "'different': rank 0: allreduce average of float64 [3]" in str(error), error

def refuses(call, what):
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"{what} was taken")

refuses(lambda: pl.allreduce(numpy.ones((4, 4))[:, ::2], name="strided"), "a strided array")
refuses(lambda: pl.alltoall(numpy.ones(n + 1), [1] * (n + 1)), "more splits than ranks")
refuses(lambda: pl.alltoall(numpy.ones(n), [1] * (n - 1)), "fewer splits than ranks")
refuses(lambda: pl.alltoall(numpy.ones(n), [0.5] * n), "splits that are not whole numbers")
refuses(lambda: pl.alltoall(numpy.ones(n), [n + 1] + [-1] * (n - 1) if n > 1 else [-1]), "a negative split")
refuses(lambda: pl.broadcast(numpy.ones(1), n), "a root beyond the ranks")
refuses(lambda: pl.allreduce(numpy.ones(1), average=True, op=pl.Sum), "two reductions for one")
refuses(lambda: pl.allreduce(numpy.ones(1), op="most"), "an unknown reduction")
twice = pl.allreduce_async(numpy.ones(1), name="twice")
refuses(lambda: pl.allreduce_async(numpy.ones(1), name="twice"), "a name that is under way")
twice.wait()
try:
    pl.allreduce(numpy.ones(1), "a name")
    raise AssertionError("a name in average's place")
except TypeError as error:
    assert "name='a name'" in str(error), error
for absent, instead in (("elastic", "checkpoint"), ("SyncBatchNorm", "allreduce()"), ("start_timeline", "PACELINE_TRACE"),
                        ("DistributedOptimizer", "pip install horovod==0.28.1 && paceline horovod")):
    try:
        getattr(pl, absent)
        raise AssertionError(f"{absent} is there")
    except AttributeError as error:
        assert absent in str(error) and instead in str(error), error
refuses(lambda: pl.allreduce(numpy.ones(3, ">f4"), name="swapped"), "an array in the other byte order")
frozen = numpy.ones(3)
frozen.flags.writeable = False
refuses(lambda: pl.allreduce_(frozen, name="frozen"), "a read-only array")
assert (pl.allreduce(frozen, name="frozen", op=pl.Sum) == n).all()

given = numpy.ones(1000)
held = weakref.ref(given)
pl.allreduce_async_(given, name="dropped")
del given
gc.collect()
assert held() is not None, "the library still uses the array of a handle that was dropped"
pl.allreduce(numpy.ones(1), name="after it")
if r or n == 1:  # rank 0 has no more data; an average divides by all ranks nevertheless, as Horovod's does
    assert abs(pl.allreduce(numpy.ones(1), name="uneven")[0] - max(n - 1, 1) / n) < 1e-12
assert pl.join() in range(n)
late = pl.allreduce_async(numpy.ones(1), name="late")
pl.barrier()
pl.shutdown()
assert not pl.is_initialized()
gc.collect()
assert held() is not None, "nobody has waited for the operation: a message may still come to its array"
for call in (late.wait, late.poll, pl.join, pl.rank):
    try:
        call()
        raise AssertionError("there is nothing to ask any more")
    except pl.PacelineError as error:
        assert "init()" in str(error)
print("operations fine on rank", r)
'''

TORCH = r'''
import contextlib
import os
import numpy
import torch
import paceline as hvd
at_start = [hvd.ProcessSet([1])] if os.environ["OMPI_COMM_WORLD_SIZE"] == "2" else []
try:
    hvd.init(process_sets="static")
    raise AssertionError("a word for sets")
except ValueError as error:
    assert "'static'" in str(error), error
hvd.init(process_sets=at_start)
n, r = hvd.size(), hvd.rank()
for process_set in at_start:
    assert process_set.process_set_id == 1 and process_set.included() == (r == 1) and hvd.remove_process_set(process_set)

def loss_of(model):
    return model(torch.full((1, 3), float(r))).sum()  # its gradient: r, and 1 for the bias

# Layouts other than row by row, and parameters in a list.
model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
everywhere = hvd.allgather(model.weight.detach().contiguous().reshape(1, -1), "layout")
assert (everywhere == everywhere[0]).all()
parameters = [torch.full((2,), float(r)), torch.full((3,), float(r))]
hvd.broadcast_parameters(parameters, root_rank=n - 1)
assert all((parameter == n - 1).all() for parameter in parameters)

# A training loop averages gradients itself; torch's own optimizers and schedulers are not touched.
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
loss_of(model).backward()
hvd.grouped_allreduce_([parameter.grad for parameter in model.parameters()])
optimizer.step()
assert (model.weight.grad == (n - 1) / 2).all() and (model.bias.grad == 1).all()

# A sum's request is kept by its name; what comes under the name may be another tensor, of another shape, type, layout or kind.
for i, tensor in enumerate((torch.ones(3), torch.ones(3) * 2, torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64), torch.ones(3), numpy.ones(3),
                            torch.nn.Parameter(torch.ones(3)), torch.ones(3))):
    with torch.no_grad():
        given = tensor + 0 * i
        assert (hvd.synchronize(hvd.allreduce_async(tensor, name="kept", op=hvd.Sum)) == n * given).all() and (tensor == given).all(), i
        assert (hvd.synchronize(hvd.allreduce_async(tensor, name="kept", op=hvd.Sum, prescale_factor=2.0)) == 2 * n * given).all(), i
        assert hvd.synchronize(hvd.allreduce_async_(tensor, name="kept", op=hvd.Sum)) is tensor and (tensor == n * given).all(), i
for wrong in (torch.ones(3, 2).t(), torch.ones(3).to_sparse()):
    try:
        hvd.allreduce_async_(wrong, name="kept", op=hvd.Sum)
        raise AssertionError("another layout")
    except ValueError:
        pass
assert hvd.allreduce(torch.ones(3), name="kept", op=hvd.Sum).tolist() == [n] * 3
negated = torch.complex(torch.ones(1), torch.ones(1)).conj().imag  # torch negates it when it is read
assert negated.is_neg() and hvd.allreduce(negated.resolve_neg(), name="kept one", op=hvd.Sum).tolist() == [-n]
for call, words in ((lambda: hvd.allreduce(negated, name="kept one", op=hvd.Sum), "resolve_neg()"), (lambda: hvd.broadcast(negated, 0), "resolve_neg()"),
                    (lambda: hvd.allreduce(None), "NoneType"), (lambda: hvd.grouped_allreduce_(x for x in [torch.ones(1), None]), "NoneType"),
                    (lambda: hvd.broadcast_parameters([None]), "NoneType")):
    try:
        call()
        raise AssertionError(words)
    except (TypeError, ValueError) as error:
        assert words in str(error), error
for values in hvd.grouped_allreduce_(torch.ones(2) for _ in range(2)), hvd.synchronize(hvd.grouped_allreduce_async(torch.ones(2) for _ in range(2))):
    assert [tensor.tolist() for tensor in values] == [[1.0, 1.0]] * 2

if n in (1, 2, 4):  # what all ranks say alike is averaged
    assert torch.allclose(hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Adasum), torch.tensor([1.0, 2.0]))
try:
    hvd.reducescatter(torch.ones(n), op=hvd.Adasum)
    raise AssertionError("an adasum in parts")
except (ValueError, hvd.PacelineError):
    pass
assert hvd.is_homogeneous() is True and hvd.mpi_threads_supported() in (True, False)
with contextlib.suppress(ImportError):
    import cloudpickle
    assert hvd.broadcast_object(lambda x: x + r, n - 1)(1) == n and [f(1) for f in hvd.allgather_object(lambda x: x + r)] == list(range(1, n + 1))

# Gradients pass through operations that wait.
def gradient(operation, rows=n):
    x = torch.arange(float(rows)).requires_grad_()
    y = operation(x)
    (y * (r + 1)).sum().backward()
    return x.grad
places = n * (n + 1) / 2  # the sum of r + 1
assert (gradient(lambda x: hvd.allreduce(x)) == places / n).all()
assert (gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=3.0)) == 3 * places).all()
assert (gradient(lambda x: hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)[1]) == 2 * places).all()
assert (gradient(lambda x: hvd.allgather(x, "gathered"), r + 1) == places / n).all()
numbers = torch.arange(places)  # of all rows; those of this rank begin at r * (r + 1) / 2
assert torch.equal(gradient(lambda x: hvd.allgather(x, "numbered") * numbers, r + 1), places / n * numbers[r * (r + 1) // 2:][:r + 1])
assert (gradient(lambda x: hvd.broadcast(x, n - 1)) == (places / n if r == n - 1 else 0)).all()
assert (gradient(lambda x: hvd.alltoall(x)) == torch.arange(1.0, n + 1)).all()
assert (gradient(lambda x: hvd.alltoall(x, torch.tensor([1] * (n - 1) + [2]))[0], n + 1)[:n] == torch.arange(1.0, n + 1)).all()
assert (gradient(lambda x: hvd.reducescatter(x)) == torch.arange(1.0, n + 1)).all()
assert (gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum)) == n * torch.arange(1.0, n + 1)).all()
if n > 1:
    alone = hvd.add_process_set([n - 1])
    if alone.included():
        assert (gradient(lambda x: hvd.allreduce(x, process_set=alone)) == r + 1).all()
        assert (gradient(lambda x: hvd.broadcast(x, n - 1, process_set=alone)) == r + 1).all()
    hvd.remove_process_set(alone)
with torch.no_grad():
    assert not hvd.allreduce(torch.ones(1, requires_grad=True)).requires_grad
try:
    gradient(lambda x: hvd.allreduce(x, op=hvd.Max))
    raise AssertionError("a gradient of a maximum")
except ValueError as error:
    assert "not through max" in str(error), error
# While a rank has joined the others' sums go on; what gathers fails on them.
if n > 1:
    if r:
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name="joined") == n - 1
        for gather in (hvd.allgather, lambda rows: hvd.broadcast(rows, 1)):
            try:
                gather(torch.ones(1))
                raise AssertionError("gathered although rank 0 has joined")
            except hvd.PacelineError as error:
                assert "join" in str(error), error
    assert hvd.join() in range(n)
print("tensors of torch are fine on rank", r)  # and no shutdown(): the interpreter's end is one
'''

# How programs without a call of shutdown() end: with success, or with a failure of the last rank while the others wait for it.
ENDINGS = r'''
import sys
import numpy
import paceline as hvd
hvd.init()
hvd.allreduce(numpy.ones(1), name="first")
if hvd.rank() == hvd.size() - 1 and sys.argv[1] != "well":
    if sys.argv[1] == "sys.exit":
        sys.exit(3)
    if sys.argv[1] == "exit":
        exit("no more data")
    raise {"SystemExit": SystemExit, "RuntimeError": RuntimeError}[sys.argv[1]]("no more data")
hvd.allreduce(numpy.ones(1), name="second")
print("to the end")
'''


def output_of(result):
    if result.returncode != 0:
        print(result.stdout)
        sys.exit(f"exit status {result.returncode}: {' '.join(map(str, result.args))[:200]}")
    return result.stdout


def run(command, **keywords):
    return output_of(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False, **keywords))


def main():
    if not PYTHON:
        print("skipped: no Python here has numpy (python3-numpy)")
        sys.exit(SKIP)
    environment = dict(os.environ, PYTHONPATH=f"{SOURCE}/python", PACELINE_LIBRARY=f"{BUILD}/runtime/libpaceline.so",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for ranks in (1, 3) if FULL else (2,):
        output = output_of(mpirun(ranks, PYTHON, "-c", OPERATIONS, env=environment))
        assert output.count("operations fine") == ranks, output
    assert "operations fine on rank 0" in run([PYTHON, "-c", OPERATIONS], env=environment)
    print(f"operations: fine on {'1 and 3 ranks' if FULL else '2 ranks'}, and without mpirun")
    for how in ("exit", "SystemExit") if FULL else ("well", "sys.exit", "RuntimeError"):
        result = mpirun(2, PYTHON, "-c", ENDINGS, how, env=environment)
        assert (result.returncode == 0) == (how == "well") and result.stdout.count("to the end") == (2 if how == "well" else 0), (how, result)
        assert how in ("well", "sys.exit") or "no more data" in result.stdout, result.stdout
        assert "shut the named tensors down" not in result.stdout, result.stdout
    result = subprocess.run([PYTHON, "-c", ENDINGS, "well"], env=dict(environment, PACELINE_TIMEOUT_S="soon"), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=120)
    assert result.returncode == 1 and "PACELINE_TIMEOUT_S is 'soon': expected a number" in result.stdout, result
    print("endings: well without shutdown(), badly with an exit status, a text, an exception or a bad setting")
    if not WITH_TORCH:
        print("left out: training, no Python here has torch and numpy (python3-torch)")
        return
    for ranks in (1,) if FULL else (2,):
        output = output_of(mpirun(ranks, PYTHON, "-c", TORCH, env=environment))
        assert output.count("tensors of torch are fine") == ranks, output
    print(f"torch's tensors: fine on {1 if FULL else 2} rank(s)")
    fakes = f"{BUILD}/tests/fakes"
    if os.path.exists(f"{fakes}/libcuda.so.1"):
        for folder, ranks in (("nccl", 1), ("no_nccl", 1), ("no_nccl", 2)) if FULL else (("nccl", 2),):
            fake = dict(environment, FAKE_CUDA="devices=2,delay_us=20", LD_LIBRARY_PATH=f"{fakes}/{folder}:{fakes}")
            output = output_of(mpirun(ranks, PYTHON, f"{SOURCE}/tests/integration/python_gpu.py", "--pretend", env=fake))
            assert output.count("tensors on a GPU are fine") == ranks, output
            print(f"tensors on GPUs: sums, broadcasts and training on {ranks} rank(s) of the tests' driver, {folder}")
    if FULL:
        return
    with tempfile.TemporaryDirectory() as base:
        data = os.path.join(base, "input", "data")
        os.makedirs(os.path.join(base, "input", "config"))
        run([f"{BUILD}/libexec/paceline/make_digits", data, "2000", "500", "1"])
        files = {
            "hyperparameters.json": {"epochs": "4", "batch-size": "32", "sagemaker_program": "train_mnist.py", "sagemaker_mpi_enabled": "true",
                                     "sagemaker_mpi_num_of_processes_per_host": "2"},
            "resourceconfig.json": {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"},
            "inputdataconfig.json": {channel: {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
                                     for channel in ("training", "testing")},
        }
        for name, content in files.items():
            with open(os.path.join(base, "input", "config", name), "w") as file:
                json.dump(content, file)
        os.makedirs(os.path.join(base, "code"))
        shutil.copy(f"{SOURCE}/examples/python/train_mnist.py", os.path.join(base, "code"))
        shutil.copytree(f"{SOURCE}/python/paceline", os.path.join(base, "code", "paceline"))
        environment["SAGEMAKER_BASE_DIR"] = base
        environment["PACELINE_PYTHON"] = PYTHON
        output = run([f"{BUILD}/entrypoint/paceline", "train"], env=environment)
        accuracy = float(re.search(r"test_accuracy=([0-9.]+)", output).group(1))
        assert accuracy >= 0.9, output
        assert os.path.exists(os.path.join(base, "model", "model.pt"))
        print(f"training under paceline train with two ranks: test accuracy {accuracy}")


main()
