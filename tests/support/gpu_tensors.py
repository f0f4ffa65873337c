# SPDX-License-Identifier: Apache-2.0
"""torch's tensors in the memory of the tests' driver, which the host cannot touch, with a torch that was built without CUDA.

An operation of torch on such a tensor runs as the device's work, in the order of the current stream. What it makes is copied into memory of the device
late: who reads it without following the stream gets other bits. As in torch's own allocator, tensors are parts of larger pieces, and memory is used again
on the stream for which it was made, as soon as its tensor is gone.
"""
import contextlib
import ctypes
import threading
import weakref

import torch
from torch.utils._pytree import tree_map

SEGMENT = 4 << 20
WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool)
NAMES = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.int32: "Int", torch.int64: "Long", torch.uint8: "Byte", torch.int8: "Char",
         torch.int16: "Short"}


class Gpu:
    """One device of the tests' driver, and the program's streams there."""

    def __init__(self, ordinal):
        self.cuda, self.ordinal = ctypes.CDLL("libcuda.so.1"), ordinal
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.call("cuCtxSetCurrent", context)
        self.released, self.first, self.end, self.left, self.host = {}, None, 0, 0, {}
        self.began, self.may_end, self.runs = threading.Semaphore(0), threading.Semaphore(0), False
        self.work = WORK(self.hold)
        self.stream = self.new_stream()

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def new_stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value

    @contextlib.contextmanager
    def on_stream(self, stream):
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def hold(self, _, runs):
        """The stream's work: the device's memory is open until run() has ended. In the stream's thread."""
        self.runs = runs
        self.began.release()
        self.may_end.acquire()

    def run(self, work):
        """Returns work(), which runs when the stream has done all that it was given."""
        self.call("fake_cuda_run", ctypes.c_void_p(self.stream), self.work, None)
        self.began.acquire()
        try:
            assert self.runs, "the device has failed"
            self.host.pop(self.stream, None)
            return work()
        finally:
            self.may_end.release()

    def memory(self, size):
        """Bytes that go back to the current stream when nothing refers to them."""
        size = max(512, 1 << (size - 1).bit_length()) if size else 512
        free = self.released.setdefault((self.stream, size), [])
        if not free and self.left < size:
            pointer = ctypes.c_uint64()
            segment = max(SEGMENT, size)
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(segment))
            self.first, self.end, self.left = min(self.first or pointer.value, pointer.value), pointer.value + segment, segment
        if not free:
            free.append(self.end - self.left)
            self.left -= size
        address = free.pop()
        memory = (ctypes.c_char * size).from_address(address)
        weakref.finalize(memory, free.append, address).atexit = False
        return memory

    def holds(self, tensor):
        return self.first is not None and self.first <= tensor.data_ptr() < self.end

    def empty(self, shape, dtype):
        count = torch.Size(shape).numel()
        memory = self.memory(count * torch.empty((), dtype=dtype).element_size())
        return torch.frombuffer(memory, dtype=dtype, count=max(count, 1))[:count].view(shape)

    def take(self, tensor):
        """A GPU's tensor with what a tensor in host memory has now."""
        host, found = tensor.detach().contiguous().clone(), self.empty(tensor.shape, tensor.dtype)
        if host.numel():
            self.call("cuMemcpyAsync", ctypes.c_uint64(found.data_ptr()), ctypes.c_uint64(host.data_ptr()), ctypes.c_size_t(host.numel() * host.element_size()),
                      ctypes.c_void_p(self.stream))
            self.host.setdefault(self.stream, []).append(host)
        return torch.Tensor._make_subclass(GpuTensor, found)


gpu = None  # this process's


@contextlib.contextmanager
def inside():
    """torch's own work, which asks no subclass."""
    guard = torch._C._DisableTorchDispatch()  # until it is deleted
    try:
        yield
    finally:
        del guard


class GpuTensor(torch.Tensor):
    """A tensor of torch for the CPU that says that it is on a GPU."""
    __torch_function__ = torch._C._disabled_torch_function_impl
    is_cuda = property(lambda self: True)
    device = property(lambda self: torch.device("cuda", gpu.ordinal))

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), words=None):
        with inside():
            made = gpu.run(lambda: run_kernel(KERNELS.get(function.overloadpacket, function), arguments, words or {}))
            return tree_map(cls.of, made)

    @staticmethod
    def of(made):
        """What an operation has made, on the GPU."""
        if not isinstance(made, torch.Tensor) or isinstance(made, GpuTensor):
            return made
        is_there = made.is_sparse or gpu.holds(made)  # a sparse one is made of two others
        return torch.Tensor._make_subclass(GpuTensor, made) if is_there else gpu.take(made)

    def get_device(self):
        return gpu.ordinal

    def type(self, dtype=None):
        if dtype is None:
            return f"torch.cuda.{NAMES[self.dtype]}Tensor"
        return self.to(getattr(dtype, "dtype", dtype))

    def new(self, *shape):
        if self.is_sparse:
            with inside():  # of indices, values and a shape
                return self.of(gpu.run(lambda: torch.sparse_coo_tensor(*shape)))
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return torch.Tensor._make_subclass(GpuTensor, gpu.empty(tuple(shape) or (0,), self.dtype))

    def resize_(self, *shape):
        shape = tuple(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        with inside():
            if torch.Size(shape).numel() <= self.numel():
                self.set_(self.storage(), self.storage_offset(), shape)
            else:
                self.set_(gpu.empty(shape, self.dtype))
        return self

    def cpu(self):
        with inside():
            return gpu.run(lambda: self.detach().clone())

    def tolist(self):
        return self.cpu().tolist()

    def __repr__(self, **_):
        return f"on GPU {gpu.ordinal}: {self.cpu()}"


def rows_first(tensor):
    """[n, channels, ...] as [channels, elements]"""
    return tensor.transpose(0, 1).reshape(tensor.shape[1], -1)


def spread(values, like):
    return values.view(1, -1, *[1] * (like.dim() - 2))


def norm_stats(tensor, eps):
    rows = rows_first(tensor)
    return rows.mean(1), (rows.var(1, unbiased=False) + eps).rsqrt()


def norm_gather(tensor, means, invstds, running_mean, running_var, momentum, eps, counts):
    counts = counts.view(-1, 1)
    mean = (means * counts).sum(0) / counts.sum()
    variance = ((invstds ** -2 - eps + (means - mean) ** 2) * counts).sum(0) / counts.sum()
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        running_var.mul_(1 - momentum).add_(momentum * variance * counts.sum() / (counts.sum() - 1))
    return mean, (variance + eps).rsqrt()


def norm_apply(tensor, weight, bias, mean, invstd, eps):
    return (tensor - spread(mean, tensor)) * spread(invstd * weight, tensor) + spread(bias, tensor)


def norm_reduce(grad, tensor, mean, invstd, weight, *_):
    from_mean = tensor - spread(mean, tensor)
    sum_grad, sum_product = rows_first(grad).sum(1), rows_first(grad * from_mean).sum(1)
    return sum_grad, sum_product, sum_product * invstd, sum_grad.clone()


def norm_backward(grad, tensor, mean, invstd, weight, sum_grad, sum_product, counts):
    count = counts.sum()
    from_mean = tensor - spread(mean, tensor)
    return (grad - spread(sum_grad / count, grad) - from_mean * spread(invstd ** 2 * sum_product / count, grad)) * spread(invstd * weight, grad)


def run_kernel(kernel, arguments, words):
    """A kernel for the CPU; of float16, which many do not take, in float32. torch 1.13 takes it for a product, and gives zeros."""
    try:
        if getattr(kernel, "overloadpacket", None) is torch.ops.aten.prod and arguments[0].dtype == torch.float16:
            raise RuntimeError("no product of 'Half'")
        return kernel(*arguments, **words)
    except RuntimeError as error:
        if "'Half'" not in str(error):
            raise
        widen, narrow = (lambda one, here=here, there=there: one.to(there) if isinstance(one, torch.Tensor) and one.dtype == here else one
                         for here, there in ((torch.float16, torch.float32), (torch.float32, torch.float16)))
        made = tree_map(narrow, kernel(*tree_map(widen, arguments), **tree_map(widen, words)))
        return arguments[0].copy_(made) if kernel.overloadpacket.__name__.endswith("_") else made


# what torch has for GPUs alone
KERNELS = {torch.ops.aten.batch_norm_stats: norm_stats, torch.ops.aten.batch_norm_gather_stats_with_counts: norm_gather, torch.ops.aten.batch_norm_elemt: norm_apply,
           torch.ops.aten.batch_norm_backward_reduce: norm_reduce, torch.ops.aten.batch_norm_backward_elemt: norm_backward}


def start(ordinal):
    """Makes `ordinal` this process's GPU: cuda() and to() take tensors there, and torch tells the current stream."""
    global gpu
    gpu = Gpu(ordinal)
    torch._C._cuda_getCurrentRawStream = lambda _: gpu.stream
    host_to = torch.Tensor.to

    def to(self, *arguments, **words):
        device = next((torch.device(word) for word in (*arguments, words.get("device")) if isinstance(word, (str, torch.device))), self.device)
        rest = [word for word in arguments if not isinstance(word, (str, torch.device))]
        words = {name: word for name, word in words.items() if name != "device"}
        made = host_to(self, *rest, **words) if rest or words else self
        if device.type == made.device.type:
            return made
        return gpu.take(made) if device.type == "cuda" else made.cpu()

    torch.Tensor.to = to
    torch.Tensor.cuda = lambda self, *_, **__: self.to("cuda")
    return gpu


class GpuType:
    """torch.cuda.FloatTensor and its like."""
    is_cuda = True

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype

    def __repr__(self):
        return f"torch.cuda.{self.name}Tensor"

    def __call__(self, *arguments):
        return getattr(torch, f"{self.name}Tensor")(*arguments).cuda()


def pretend(devices):
    """torch.cuda has `devices` GPUs, for programs that ask."""
    host_type, host_tensor = torch.Tensor.type, torch.tensor
    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: devices
    for dtype, name in NAMES.items():
        setattr(torch.cuda, f"{name}Tensor", GpuType(name, dtype))

    def to_type(self, dtype=None, **words):
        return self.to(dtype.dtype).cuda() if isinstance(dtype, GpuType) else host_type(self, dtype, **words)

    def tensor(*arguments, device="cpu", **words):
        return host_tensor(*arguments, **words).to(device)

    torch.Tensor.type, torch.tensor = to_type, tensor
