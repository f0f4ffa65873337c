#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module for torch with tensors on GPUs, on the tests' driver, whose memory the host cannot touch without NCCL: what waits, follows and ends. The
types and the bits of each operation are horovod_gpu_torch.py's.

    horovod_gpu.py           starts 2 ranks, on a shared GPU, and with a GPU each and NCCL
    horovod_gpu.py long      starts 1 rank, and 2 with a GPU each without NCCL; a rank is killed, or lost after a wait has returned
    horovod_gpu.py --killed  one rank of two of which the second dies, under mpirun
    horovod_gpu.py --follows one rank with HOROVOD_ENABLE_ASYNC_COMPLETION=1: a wait returns before the end
    horovod_gpu.py --lost    one rank of two with it, of which the second dies after the wait has returned
    horovod_gpu.py --ends    one rank whose program ends without shutdown(), as TEST_END says

A tensor is a plain object here: the module needs no torch, only what it asks a tensor. What the program's stream makes comes late.
"""
import array
import atexit
import ctypes
import importlib.machinery
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import types
import warnings
import weakref

BUILD = os.environ["PACELINE_BUILD"]
LIBRARY = f"{BUILD}/programs/libpaceline-horovod.so"
MODULE = f"{BUILD}/programs/libpaceline-horovod-torch.so"
SUM = 1  # Horovod's number


class HostTensor:
    """Integers in host memory, as splits are."""
    is_cuda, dtype = False, "torch.int32"

    def __init__(self, values):
        self.host = array.array("i", values)

    def data_ptr(self):
        return self.host.buffer_info()[0]

    def size(self):
        return (len(self.host),)

    def resize_(self, shape):
        self.host = array.array("i", [0] * shape[0])
        return self

    def contiguous(self):
        return self

    cpu = contiguous


class Driver:
    """Device 0's or 1's memory and one stream, by the driver's own functions."""

    def __init__(self, ordinal):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.ordinal = ordinal
        self.stream, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def memory(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def copy(self, to, source, size):
        self.call("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)

    def wait(self):
        while self.cuda.cuStreamQuery(self.stream):
            pass


class Tensor:
    """What the module asks of a tensor of float32 on a GPU. A way to host memory is none of it."""
    is_cuda, dtype = True, "torch.float32"

    def __init__(self, driver, values=()):
        self.driver, self.shape, self.host = driver, (len(values),), array.array("f", values)
        self.room = len(self.host) * self.host.itemsize
        self.address = driver.memory(self.room)
        if values:
            driver.copy(self.address, self.host.buffer_info()[0], self.room)

    def data_ptr(self):
        return self.address

    def size(self):
        return self.shape

    def get_device(self):
        return self.driver.ordinal

    def contiguous(self):
        return self

    def resize_(self, shape):
        self.shape = tuple(shape)
        size = math.prod(shape) * self.host.itemsize
        if size > self.room:
            self.room, self.address = size, self.driver.memory(size)
        return self

    def values(self):
        host = array.array("f", [0] * math.prod(self.shape))
        self.driver.copy(host.buffer_info()[0], self.address, len(host) * host.itemsize)
        self.driver.wait()
        return list(host)


def begin():
    """The library, initialised; the module; the driver; the number of ranks and this one's."""
    library = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
    loader = importlib.machinery.ExtensionFileLoader("mpi_lib_v2", MODULE)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("mpi_lib_v2", MODULE, loader=loader))
    loader.exec_module(module)
    atexit.register(library.horovod_shutdown)  # as Horovod's Python does
    assert library.horovod_init(None, 0, None, None, 0) in (0, 1), "init"
    n, r = library.horovod_size(), library.horovod_rank()
    driver = Driver(r % int(os.environ["TEST_GPUS"]))
    pretend_torch(driver, raw=os.environ["TEST_RAW"] == "1")
    return library, module, driver, n, r


def pretend_torch(driver, raw):
    """Modules of torch's names with the current stream, in the newer form or in the one that all versions have."""
    torch, c, cuda = types.ModuleType("torch"), types.ModuleType("torch._C"), types.ModuleType("torch.cuda")
    torch.__path__ = []
    if raw:
        c._cuda_getCurrentRawStream = lambda gpu: driver.stream.value
    cuda.current_stream = lambda gpu: types.SimpleNamespace(cuda_stream=driver.stream.value)
    sys.modules.update({"torch": torch, "torch._C": c, "torch.cuda": cuda})


def start(what, ranks, gpus, nccl, options, **more):
    fakes = f"{BUILD}/tests/fakes"
    environment = {**os.environ, **more, "TEST_GPUS": str(gpus), "TEST_NCCL": str(int(nccl)), "TEST_RAW": str(int(nccl)),
                   "FAKE_CUDA": f"devices={gpus},delay_us=20{',unguarded' * nccl}", "LD_LIBRARY_PATH": f"{fakes}/{'nccl' if nccl else 'no_nccl'}:{fakes}"}
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *options, sys.executable, __file__, what]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


def first_sum():
    """begin(), two tensors of which a sum is there, and the function that begins the next one."""
    _, hvd, driver, n, r = begin()
    group = [Tensor(driver, [1.0] * 100) for _ in range(2)]  # one alone would not be packed, and so need no kernel

    def add(name):
        return hvd.horovod_torch_grouped_allreduce_async_torch_cuda_FloatTensor(group, group, 1, name, SUM, 1.0, 1.0, 0)

    hvd.horovod_torch_wait_and_clear(add(b"first"))
    return hvd, driver, n, r, group, add


def killed():
    """A sum whose part of the last rank never comes, because its device hangs: that rank dies in it, and the others are told."""
    hvd, driver, n, r, _, add = first_sum()
    if r == n - 1:
        driver.cuda.fake_cuda_order(f"kernel_hangs={driver.ordinal}".encode())
    handle = add(b"second")
    if r == n - 1:
        for _ in range(1000):
            assert not hvd.horovod_torch_poll(handle), "a sum without this rank's part has ended"
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.horovod_torch_wait_and_clear(handle)
    except RuntimeError as error:
        assert f"rank {n - 1}" in str(error) and "second" in str(error), f"the error does not name the rank and the operation: {error}"
        print("the error names the rank", flush=True)
        os._exit(0)
    raise AssertionError("a sum without a dead rank's part was taken")


def follows():
    """A wait does not wait for the device: what is submitted here cannot begin before the waits have returned. Tensors are kept until the end."""
    warnings.simplefilter("error")  # a copy to host memory is a warning
    library, hvd, driver, n, r = begin()
    assert library.horovod_cuda_built() and not library.horovod_nccl_built()
    add, wait = hvd.horovod_torch_allreduce_async_torch_cuda_FloatTensor, hvd.horovod_torch_wait_and_clear
    scatter, gather = hvd.horovod_torch_reducescatter_async_torch_cuda_FloatTensor, hvd.horovod_torch_allgather_async_torch_cuda_FloatTensor
    group_gather, exchange = hvd.horovod_torch_grouped_allgather_async_torch_cuda_FloatTensor, hvd.horovod_torch_alltoall_async_torch_cuda_FloatTensor
    spread, group_add = hvd.horovod_torch_broadcast_async_torch_cuda_FloatTensor, hvd.horovod_torch_grouped_allreduce_async_torch_cuda_FloatTensor
    can_hold = n == 1 or os.environ["TEST_NCCL"] == "1"  # else the host takes part in the exchange
    host = ctypes.c_void_p()
    driver.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), 0)

    def give(count, rank, step):
        return [float((i * 3 + rank * 5 + step) % 7 + 1) for i in range(count)]

    def total(count, step):
        return [sum(column) for column in zip(*(give(count, q, step) for q in range(n)))]

    for step in range(6):
        held = can_hold and step % 2 == 1  # the first step makes worlds and memory
        if held:
            driver.cuda.fake_cuda_order(b"hold_copies")
        tensors = [Tensor(driver, [0.0] * 100) for _ in range(11)]
        sources = [Tensor(driver, give(100, r, step)) for _ in tensors]
        if held:
            driver.copy(host.value, tensors[0].address, 4)  # nothing of the stream's later work begins
        for tensor, source in zip(tensors, sources):
            driver.copy(tensor.address, source.address, 400)
        outputs = [Tensor(driver, [0.0] * 100) for _ in range(2)]
        part, gathered, gathers, exchanged = (Tensor(driver) for _ in range(4))
        splits, received = HostTensor([100 - 2 * (n - 1)] + [2] * (n - 1)), HostTensor([])
        handles = [add(tensors[0], outputs[0], 1, b"add", SUM, 1.0, 1.0, 0), add(tensors[1], tensors[1], 1, b"in place", SUM, 1.0, 1.0, 0),
                   group_add(tensors[2:5], tensors[2:5], 1, b"group", SUM, 1.0, 1.0, 0), spread(tensors[5], outputs[1], n - 1, b"spread", 0),
                   scatter(tensors[6], part, b"part", SUM, 0, 1.0, 1.0), gather(tensors[7], gathered, b"gather", 0),
                   group_gather([tensors[8]], [gathers], b"gathers", 0), exchange(tensors[9], splits, exchanged, received, b"exchange", 0)]
        watched = weakref.ref(tensors[0])
        for handle in handles:
            assert not held or not hvd.horovod_torch_poll(handle), "poll() tells of an end that was not reached"
            wait(handle)
        tensors[0] = None
        wait(add(outputs[0], outputs[0], 1, b"add", SUM, 1.0, 1.0, 0))  # the same name, before the end of the one before
        rows = [splits.host[r]] * n
        assert (gathered.size(), gathers.size(), exchanged.size(), list(received.host)) == ((100 * n,), (100 * n,), (sum(rows),), rows), "a size is not known"
        if held:
            assert watched(), "a tensor is freed although the device has not read it"
            driver.cuda.fake_cuda_order(b"let_copies_go")
        first, own = r * (100 // n) + min(r, 100 % n), 100 // n + (r < 100 % n)
        offset = sum(splits.host[:r])
        for found, expected in [(gathered, [value for q in range(n) for value in give(100, q, step)]), (gathers, [value for q in range(n) for value in give(100, q, step)]),
                                (exchanged, [value for q in range(n) for value in give(100, q, step)[offset:offset + rows[0]]]), (outputs[0], [n * value for value in total(100, step)]), (outputs[1], give(100, n - 1, step)), (part, total(100, step)[first:first + own]),
                                *((tensor, total(100, step)) for tensor in tensors[1:5])]:
            values = found.values()
            assert values == expected, ("step", step, values[:8], "differ from", expected[:8])
        output = Tensor(driver)
        wait(gather(tensors[10], output, b"gather", 0))
        assert output.values() == [value for q in range(n) for value in give(100, q, step)], "the gathered values differ"
        wait(add(outputs[0], outputs[0], 1, b"later", SUM, 1.0, 1.0, 0))
        while watched():  # each call frees what has ended by then
            wait(add(outputs[0], outputs[0], 1, b"later", SUM, 1.0, 1.0, 0))
    if n == 1:
        captured, graph = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuStreamCreate", ctypes.byref(captured), 1)
        driver.cuda.fake_cuda_order(b"hold_copies")
        driver.copy(host.value, outputs[0].address, 4)
        handle, kept = add(outputs[0], outputs[0], 1, b"captured", SUM, 1.0, 1.0, 0), driver.stream
        driver.call("cuStreamBeginCapture_v2", captured, 0)
        driver.stream = captured
        try:
            wait(handle)
        except RuntimeError as error:
            assert "captured into a CUDA graph" in str(error), error
        else:
            raise AssertionError("a captured stream follows an operation")
        driver.stream = kept
        driver.call("cuStreamEndCapture", captured, ctypes.byref(graph))
        wait(handle)
        driver.cuda.fake_cuda_order(b"let_copies_go")
    driver.wait()
    other = Tensor(driver, [1.0])
    other.get_device = lambda: driver.ordinal + 1
    try:
        add(other, other, 1, b"elsewhere", SUM, 1.0, 1.0, 0)
    except ValueError as error:
        assert f"GPU {driver.ordinal + 1}" in str(error) and f"GPU {driver.ordinal}" in str(error), error
    else:
        raise AssertionError("a tensor on a second GPU was taken")
    library.horovod_shutdown()
    assert library.horovod_init(None, 0, None, None, 0) in (0, 1), "init after shutdown"
    tensor = Tensor(driver, give(10, r, 0))
    wait(add(tensor, tensor, 1, b"again", SUM, 1.0, 1.0, 0))
    assert tensor.values() == total(10, 0), "after shutdown() and init() a sum differs"
    print("rank", r, "is right", flush=True)


def lost():
    """A sum that never ends, because a rank dies after its wait has returned: the other process ends, and its program does not go on with the sum.
    With FAKE_NCCL_FAULT it is NCCL that fails on this rank, and both processes end."""
    nccl = "FAKE_NCCL_FAULT" in os.environ
    hvd, driver, n, r, group, add = first_sum()
    driver.wait()
    if r == n - 1 and not nccl:
        driver.cuda.fake_cuda_order(f"kernel_hangs={driver.ordinal}".encode())
    if nccl:  # the stream stands still until the wait has returned
        pinned = ctypes.c_void_p()
        driver.call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(4), 0)
        driver.cuda.fake_cuda_order(b"hold_copies")
        driver.call("cuMemcpyAsync", ctypes.c_uint64(pinned.value), ctypes.c_uint64(group[0].address), ctypes.c_size_t(4), driver.stream)
    hvd.horovod_torch_wait_and_clear(add(b"second"))
    print("the wait has returned", flush=True)
    driver.cuda.fake_cuda_order(b"let_copies_go")
    if r == n - 1 and not nccl:
        os.kill(os.getpid(), signal.SIGKILL)
    group[0].values()
    print("the program goes on", flush=True)


def ends():
    """The program ends without a wait for its last sum, or by an exception, as TEST_END says; the driver goes before the process's last functions run."""
    how = os.environ["TEST_END"]
    hvd, driver, _, r, _, add = first_sum()
    print("the first sum is there", flush=True)
    if how == "idle":
        return
    if how == "raises" and r == 0:  # its part of the sum never comes
        driver.cuda.fake_cuda_order(f"kernel_hangs={driver.ordinal}".encode())
    handle = add(b"second")
    if how == "unwaited":
        return
    if r == 0:
        for _ in range(1000):  # it begins
            assert not hvd.horovod_torch_poll(handle), "a sum without this rank's part has ended"
        raise KeyError("a mistake")
    hvd.horovod_torch_wait_and_clear(handle)
    raise AssertionError("a sum without rank 0's part was taken")


def check_ends():
    for how, ranks, gpus, nccl in (("idle", 1, 1, False), ("idle", 2, 2, True), ("unwaited", 2, 2, True), ("unwaited", 2, 1, False), ("raises", 2, 2, True), ("raises", 2, 1, False)):
        done = start("--ends", ranks, gpus, nccl, ["--enable-recovery"] if how == "raises" else [], TEST_END=how)
        words = done.stdout
        good = "after the driver is gone" not in words and words.count("the first sum is there") == ranks
        if how == "raises":
            good = good and "KeyError: 'a mistake'" in words and re.search("RuntimeError: rank 0 on host .+ has given up: its process has raised an exception .*second", words)
        else:
            good = good and done.returncode == 0 and words.count("\n") == ranks
        if not good:
            sys.exit(f"the end of a program ({how}), {ranks} ranks, {gpus} GPUs, NCCL {nccl}: exit {done.returncode}\n{words}")


def check_lost(**fault):
    done = start("--lost", 2, 2, True, ["--enable-recovery"], HOROVOD_ENABLE_ASYNC_COMPLETION="1", **fault)
    words = done.stdout
    for expected in ("the wait has returned", "failed after hvd.synchronize() had returned", "second", "rank 1"):
        if expected not in words:
            sys.exit(f"an operation is lost after its wait: '{expected}' is missing\n{words}")
    if "the program goes on" in words:
        sys.exit(f"a program went on after an operation was lost\n{words}")


def main(is_long):
    for ranks, gpus, nccl in ((1, 1, False), (1, 1, True), (2, 2, False)) if is_long else ((2, 1, False), (2, 2, True)):
        done = start("--follows", ranks, gpus, nccl, [], HOROVOD_ENABLE_ASYNC_COMPLETION="1")
        if done.returncode != 0 or done.stdout.count("is right") != ranks:
            sys.exit(f"waits that return early, {ranks} ranks, {gpus} GPUs, NCCL {nccl}: exit {done.returncode}\n{done.stdout}")
    print("waits that return early are right")
    if not is_long:
        return
    check_ends()
    check_lost()
    check_lost(FAKE_NCCL_FAULT="async:1:2", FAKE_NCCL_ABORT_HANGS="1")  # the abort of NCCL would let the stream go on
    for gpus, nccl in ((1, False), (2, True)):
        done = start("--killed", 2, gpus, nccl, ["--enable-recovery"])  # else mpirun ends the other rank
        if done.stdout.count("the error names the rank") != 1:
            sys.exit(f"a rank is killed, {gpus} GPUs, NCCL {nccl}: exit {done.returncode}\n{done.stdout}")


if __name__ == "__main__":
    what = {"--killed": killed, "--follows": follows, "--lost": lost, "--ends": ends}.get(sys.argv[-1])
    what() if what else main(sys.argv[-1] == "long")
