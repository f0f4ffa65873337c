#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package paceline with torch's tensors on a GPU: every operation, and training that ends as with gradients in host memory.

    python_gpu.py             on a GPU, also as ranks of mpirun, which share one with PACELINE_SHARE_DEVICE=1; exits 77 without torch or a GPU
    python_gpu.py --pretend   torch's tensors in host memory count as those of a GPU: for the tests' driver, whose kernels work on any memory
"""
import ctypes
import os
import pathlib
import sys

if "PACELINE_BUILD" in os.environ:
    os.environ.setdefault("PACELINE_LIBRARY", f"{os.environ['PACELINE_BUILD']}/runtime/libpaceline.so")
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ("python", "tests/support")]
from python_with import python_with  # noqa: E402

try:
    import torch
    import paceline as hvd
    from paceline import _job as job, _operations as operations
except ImportError as error:
    python = python_with("torch")
    if python not in (None, sys.executable):
        os.execv(python, [python, *sys.argv])
    print(f"skipped: {error}")
    sys.exit(77)

PRETEND = sys.argv[1:] == ["--pretend"]


class Stream:
    """The part of torch's stream that the module uses: the driver's default stream. It records the streams of submitted operations."""
    asked = []

    def __init__(self, name):
        self.name = name

    @property
    def cuda_stream(self):
        self.asked.append(self.name)
        return 0


def copy_to_host(tensor):
    copy = tensor.clone()
    copy.is_copy = True
    return copy


def start():
    """Within it, tensors are made that the module treats as those of a GPU."""
    if PRETEND:
        torch.cuda.is_available = lambda: True
    elif not torch.cuda.is_available():
        print("skipped: torch finds no GPU")
        sys.exit(77)
    hvd.init()
    assert job._gpu is not None
    if not PRETEND:
        torch.cuda.set_device(job._gpu)
        return torch.device("cuda", job._gpu)
    operations._gpu_of = lambda array: job._gpu if operations._is_torch(array) and not hasattr(array, "is_copy") else None
    torch.Tensor.cpu = copy_to_host
    torch.cuda.current_stream = lambda device, stream=Stream("default"): stream
    return torch.device("cpu")


def check_operations(device):
    n, r = hvd.size(), hvd.rank()

    def full(shape, value, dtype=torch.float32):
        return torch.full(shape, value, dtype=dtype, device=device)

    def equal(found, expected):
        assert found.device == device and torch.equal(found, expected.to(device)), (found, expected)

    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        equal(hvd.allreduce(full((3,), r + 1, dtype), op=hvd.Sum), full((3,), n * (n + 1) // 2, dtype))
        equal(hvd.allreduce(full((3,), r + 1, dtype), op=hvd.Max), full((3,), n, dtype))
    equal(hvd.allreduce(full((1,), 2**53 + 1, torch.int64), op=hvd.Average), full((1,), 2**53 + 1, torch.int64))
    large = torch.arange(5000003.0, device=device) % 1000
    equal(hvd.allreduce_(large * (r + 1), op=hvd.Sum), large * (n * (n + 1) // 2))
    equal(hvd.broadcast(full((2, 2), float(r)), n - 1), full((2, 2), float(n - 1)))
    parts = [full((i,), float(r)) for i in range(1, 9)] + [full((1,), r, torch.int64)]
    for found, part in zip(hvd.grouped_allreduce(parts, op=hvd.Sum), parts):
        equal(found, torch.full_like(part, n * (n - 1) // 2))
    equal(hvd.allreduce(full((1,), 1.0), op=hvd.Sum, compression=hvd.Compression.fp16), full((1,), float(n)))
    # By way of host memory.
    equal(hvd.allgather(full((r + 1, 2), r, torch.int64)), torch.cat([torch.full((i + 1, 2), i) for i in range(n)]))
    equal(hvd.alltoall(full((n,), r, torch.int64)), torch.arange(n))
    equal(hvd.reducescatter(full((n,), 1.0), op=hvd.Sum), torch.full((1,), float(n)))


def check_streams(device):
    """Operations wait for results of a stream other than the default one."""
    if PRETEND:
        kept = torch.cuda.current_stream
        del Stream.asked[:]
        torch.cuda.current_stream = lambda device: Stream("another")
        hvd.allreduce(torch.ones(1))
        torch.cuda.current_stream = kept
        assert Stream.asked == ["another"], Stream.asked
        return
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(5):
            slow = torch.ones(4096, 4096, device=device)
            for _ in range(10):
                slow = slow @ slow / 4096
            found = hvd.allreduce(slow, op=hvd.Sum)
            assert torch.allclose(found, torch.full_like(found, hvd.size())), found


def train(device):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    batches = torch.randn(6, 5 * hvd.size(), 4)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for batch in batches:
        optimizer.zero_grad()
        (model(batch[hvd.rank()::hvd.size()].to(device)) ** 2).mean().backward()
        hvd.grouped_allreduce_([parameter.grad for parameter in model.parameters()])
        optimizer.step()
    return [parameter.detach().to("cpu") for parameter in model.parameters()]


def check_training(device):
    there, gpu_of = train(device), operations._gpu_of
    operations._gpu_of = lambda array: None
    here = train(torch.device("cpu"))
    operations._gpu_of = gpu_of
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(here, there)), (here, there)


def check_errors():
    operations._gpu_of, own = lambda array: 7, job._gpu
    for gpu, words in ((own, f"on GPU 7, and this rank's is {own}: torch.cuda.set_device({own})"), (None, "import torch before init()")):
        job._gpu = gpu
        try:
            hvd.allreduce(torch.ones(1))
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"a tensor on GPU 7 was taken by a rank of GPU {gpu}")


device = start()
calls = ctypes.CDLL("libcuda.so.1").fake_cuda_calls if PRETEND else None
before = calls(None) if calls else 0
check_operations(device)
assert not calls or calls(None) > before
check_streams(device)
check_training(device)
check_errors()
print(f"tensors on a GPU are fine on rank {hvd.rank()} of {hvd.size()}", flush=True)
