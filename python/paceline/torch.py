# SPDX-License-Identifier: Apache-2.0
"""Gradients of PyTorch's DistributedDataParallel summed by Paceline, by one line of a program:

    import paceline.torch
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    model.register_comm_hook(None, paceline.torch.allreduce_hook)

The process group, gloo or nccl, stays for everything else. A hook's first parameter is the process group, None for the default one: give the group that
DistributedDataParallel got. Every rank registers the same hook, and gets the averages, equal to the bit on all ranks.

Memory: with gradient_as_bucket_view=True the buckets, and so every `p.grad`, move into memory that the ranks of a host share, where sums need no copies.
Otherwise, and as long as a rank has parameters in a bucket that it has not used, they stay on the heap. A fork()ed child has no such memory: a worker of
a DataLoader must not read gradients.

Ranks: of one host through shared memory; they find each other by the process group's store. Of several hosts by MPI, if mpirun has started them; sums then
go on while the backward pass computes. Else the process group sums, and rank 0 says so once, as it does for tensors on a GPU, where NCCL is fastest.

Errors: backward() raises PacelineError, torch 1.13 a RuntimeError with its text, which names bucket, rank and host. No sum waits longer than the process group's timeout, or PACELINE_TIMEOUT_S
where that is set; that a rank of the same host has ended is noticed at once. After an error a program can only end.
"""
import concurrent.futures
import contextlib
import ctypes
import datetime
import logging
import os
import socket
import time
import weakref
from typing import Callable, Dict, List, Optional

import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ._library import PacelineError, _call_anywhere as _call, _check_structs, _DTYPES, _Error, _library, _struct
from ._operations import _KINDS, _OPS

__all__ = ["allreduce_hook", "bf16_hook", "compressed", "fp16_hook"]

_WIRE = {"fp16": 1 << 1, "bf16": 1 << 2, "int8": 1 << 4}  # PL_WIRE_FLOAT16, PL_WIRE_BFLOAT16, PL_WIRE_INT8
_DEFAULT_TIMEOUT_S = 600  # of PACELINE_TIMEOUT_S
_log = logging.getLogger("paceline")

_Span = _struct("_Span", bytes=ctypes.c_uint64, memory=ctypes.c_int, data=ctypes.c_void_p)
_Collective = _struct("_Collective", kind=ctypes.c_int, dtype=ctypes.c_int, op=ctypes.c_int, flags=ctypes.c_uint, scaled=ctypes.c_bool,
                      prescale=ctypes.c_double, postscale=ctypes.c_double, divisor=ctypes.c_uint32, root=ctypes.c_int, count=ctypes.c_uint64,
                      counts=ctypes.c_void_p, recv_counts=ctypes.c_void_p, send=ctypes.c_void_p, recv=ctypes.c_void_p, memory=ctypes.c_int,
                      stream=ctypes.c_void_p, ready=ctypes.c_void_p, name=ctypes.c_char_p, deadline_ns=ctypes.c_int64, about=ctypes.c_void_p * 3)
_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Error), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
                             ctypes.POINTER(_Error))
_Bootstrap = _struct("_Bootstrap", name=ctypes.c_char_p, context=ctypes.c_void_p, rank=ctypes.c_int, size=ctypes.c_int, exchange=_EXCHANGE,
                     split=ctypes.c_void_p, any_thread=ctypes.c_bool, finalized=ctypes.c_bool, transport=ctypes.c_void_p, free=ctypes.c_void_p)


def _after_ns(seconds):
    return time.monotonic_ns() + int(seconds * 1e9)


class _Store:
    """How the ranks of a group find each other: a struct pl_bootstrap whose exchange goes through the store of torch's process groups."""

    _made: Dict[str, int] = {}  # stores by the ranks' numbers: a program may destroy its groups and make new ones on one store

    def __init__(self, group, timeout_s):
        distributed = torch.distributed
        self.rank, self.size, self._timeout_s, self._round = distributed.get_rank(group), distributed.get_world_size(group), timeout_s, 0
        ranks = ".".join(map(str, distributed.get_process_group_ranks(group)))
        self._made[ranks] = self._made.get(ranks, 0) + 1
        self._store = distributed.PrefixStore(f"paceline/{ranks}/{self._made[ranks]}", distributed.distributed_c10d._get_default_store())
        self._numbers = {_library.pl_status_name(number): number for number in range(32)}  # of statuses
        self._exchange = _EXCHANGE(self._exchange_for_c)
        self.struct = _Bootstrap(name=b"store", rank=self.rank, size=self.size, exchange=self._exchange)
        self.interrupt: Optional[BaseException] = None  # what came while C waited

    def gather(self, message: bytes, deadline_ns: int) -> List[bytes]:
        """All ranks' messages, in rank order. TimeoutError names the first rank whose message did not come."""
        self._round += 1
        self._store.set(f"{self._round}/{self.rank}", message)
        messages = []
        for rank in range(self.size):
            key, left_s = f"{self._round}/{rank}", (deadline_ns - time.monotonic_ns()) / 1e9
            try:
                self._store.wait([key], datetime.timedelta(seconds=max(left_s, 0.001)))
                messages.append(self._store.get(key))
            except RuntimeError as error:
                raise TimeoutError(f"rank {rank} did not come: {str(error).splitlines()[0]}") from error
        with contextlib.suppress(RuntimeError):  # a FileStore cannot; all ranks have read that key, since all have come to this round
            self._store.delete_key(f"{self._round - 1}/{self.rank}")
        return messages

    def _exchange_for_c(self, _, failed, send, recv, size_bytes, deadline_ns, error):
        """A message is b"\\0" and the bytes, or the status and the text of what keeps a rank from taking part."""
        if failed and failed.contents.status:
            message = bytes([failed.contents.status]) + failed.contents.cause
        else:
            message = b"\0" + (ctypes.string_at(send, size_bytes) if size_bytes else b"")
        try:
            messages = self.gather(message, min(deadline_ns, _after_ns(self._timeout_s)))
            bad = next((message for message in messages if message[0]), None)
        except TimeoutError as problem:
            bad = bytes([self._numbers[b"TIMEOUT"]]) + str(problem).encode()
        except BaseException as problem:  # nothing may leave a function that C calls
            self.interrupt, bad = problem, bytes([self._numbers[b"CANCELLED"]]) + repr(problem).encode()
        if bad is None:
            ctypes.memmove(recv, b"".join(message[1:] for message in messages), size_bytes * self.size)
            return 0
        error.contents.status, error.contents.cause = bad[0], bad[1:600]
        return bad[0]


class _Bucket:
    """What is kept of a bucket from step to step."""

    def __init__(self, number, index, parameters):
        self.parameters = [weakref.ref(parameter) for parameter in parameters]
        self.memory: Optional[torch.Tensor] = None  # shared with the other ranks of the host
        self.calls = 0
        self.name = f"DDP bucket {index}, {number}".encode()  # compared between ranks, and rounding errors are kept by it


class _Sums:
    """The ranks of a process group as a world of Paceline's."""

    def __init__(self, group):
        setting = os.environ.get("PACELINE_TIMEOUT_S")
        self._timeout_s = None if setting else _timeout_s(group)
        self._buckets, self._count, self._spans = {}, 0, []
        self._said = set()
        self._runtime, self._world, self._shares = ctypes.c_void_p(), None, False
        self._thread: Optional[concurrent.futures.Executor] = None  # sums between hosts, one after the other
        _check_structs(_library.pl_abi_struct_bytes, pl_collective=_Collective, pl_bootstrap=_Bootstrap, pl_span=_Span)
        self._store = _Store(group, self._timeout_s or _DEFAULT_TIMEOUT_S)
        self._who = f"rank {self._store.rank} on host {socket.gethostname()}"
        try:
            self._start()
        except PacelineError as error:
            if self._store.interrupt:
                raise self._store.interrupt
            if error.status != "UNSUPPORTED":
                raise
            self._world = None
            self._why_not = "the ranks are on several hosts, and mpirun has not started them"

    def _start(self):
        rank = next((os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK") if name in os.environ), "")
        ranks = self._store.gather(rank.encode(), _after_ns(self._timeout_s or _DEFAULT_TIMEOUT_S))
        is_whole = self._store.size == torch.distributed.get_world_size() and ranks == [b"%d" % rank for rank in range(self._store.size)]
        _call(self._who, _library.pl_runtime_start_on_device, None if is_whole else ctypes.byref(self._store.struct), b"off", ctypes.byref(self._runtime))
        self._world = ctypes.c_void_p(_library.pl_runtime_world(self._runtime))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._store))  # the library reads its struct until the process has ended
        if is_whole or os.environ.get("PACELINE_TRACE"):  # MPI wants an end, and a trace is written there; else there is nothing to wait for
            _call(self._who, _library.pl_abi_leave_at_exit, self._runtime, None)
        self._shares = _library.pl_world_cross_size(self._world) == 1
        if not self._shares and _library.pl_world_any_thread(self._world):
            self._thread = concurrent.futures.ThreadPoolExecutor(1, "paceline")

    def reduce(self, group, bucket, flags):
        buffer = bucket.buffer()
        why_not = ("its tensors are on a GPU, where NCCL is fastest" if not buffer.is_cpu else "its gradients are sparse" if buffer.layout is not torch.strided
                   else None if self._world else self._why_not)
        if why_not:
            if self._store.rank == 0 and why_not not in self._said:
                _log.warning("paceline.torch: the process group %s sums gradients itself: %s", torch.distributed.get_backend(group), why_not)
            self._said.add(why_not)
            return default_hooks.allreduce_hook(group, bucket)
        kept = self._keep(bucket)
        if self._shares and kept.memory is None and kept.calls & (kept.calls - 1) == 0:  # ever more rarely, and on all ranks at the same time
            self._share(kept, bucket)
        future = torch.futures.Future()
        what = f"gradients' bucket {bucket.index()} ({buffer.numel() * buffer.element_size()} bytes), {self._who}"
        if self._thread:
            self._thread.submit(self._finish, future, buffer, what, "average", kept.name, flags)
        else:
            self._sum(buffer, what, "average", kept.name, flags)
            future.set_result(buffer)
        return future

    def _finish(self, future, buffer, *how):
        try:
            self._sum(buffer, *how)
            future.set_result(buffer)
        except Exception as error:
            future.set_exception(error)

    def _sum(self, buffer, what, op, name, flags=0):
        wire = flags if buffer.dtype is torch.float32 else 0
        collective = _Collective(kind=_KINDS.index("allreduce"), dtype=_DTYPES[str(buffer.dtype).replace("torch.", "")], op=_OPS.index(op), flags=wire,
                                 count=buffer.numel(), send=buffer.data_ptr(), recv=buffer.data_ptr(), name=name,
                                 deadline_ns=_after_ns(self._timeout_s) if self._timeout_s else 0)
        _call(what, _library.pl_collective_run, self._world, ctypes.byref(collective))

    def _keep(self, bucket):
        """What is kept of this bucket. DistributedDataParallel cuts its buckets again after the first step, and a new model's may have an old one's ids."""
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        kept = self._buckets.get(key)
        if kept is None or any(reference() is not parameter for reference, parameter in zip(kept.parameters, parameters)):
            others = set(key)
            self._buckets = {ids: old for ids, old in self._buckets.items()
                             if others.isdisjoint(ids) and all(reference() is not None for reference in old.parameters)}
            self._count += 1
            kept = self._buckets[key] = _Bucket(self._count, bucket.index(), parameters)
        kept.calls += 1
        return kept

    def _share(self, kept, bucket):
        """Move the bucket into memory that the host's ranks share, if all ranks can: DistributedDataParallel's own views of it are the `p.grad`."""
        buffer = bucket.buffer()
        size_bytes, item = buffer.numel() * buffer.element_size(), buffer.element_size()
        begin = buffer.data_ptr()
        views = [parameter.grad for parameter in bucket.parameters()]
        is_ready = size_bytes > 0 and all(view is not None and view.dtype is buffer.dtype and begin <= view.data_ptr() < begin + size_bytes for view in views)
        unused = [array() is None for _, array in self._spans]  # no tensor has that memory any more
        agreed = torch.tensor([is_ready, *unused], dtype=torch.uint8)
        self._sum(agreed, f"shared memory for {self._who}", "min", b"DDP shared memory")
        for (span, _), is_unused in zip(self._spans, agreed[1:].tolist()):
            if is_unused:
                _library.pl_arena_free(self._world, ctypes.byref(span))
        self._spans = [entry for entry, is_unused in zip(self._spans, agreed[1:].tolist()) if not is_unused]
        if not agreed[0]:
            return
        span = _Span()
        try:
            _call(self._who, _library.pl_arena_alloc, self._world, ctypes.c_uint64(size_bytes), 0, ctypes.byref(span))
        except PacelineError as error:
            if error.status != "MEMORY":
                raise self._store.interrupt or error
            self._shares = False
            return _log.warning("paceline.torch: gradients stay on the heap: %s", error)
        array = (ctypes.c_char * size_bytes).from_address(span.data)
        self._spans.append((span, weakref.ref(array)))
        kept.memory = torch.frombuffer(array, dtype=buffer.dtype)
        kept.memory.copy_(buffer)
        moved = [kept.memory.as_strided(view.shape, view.stride(), (view.data_ptr() - begin) // item) for view in views]
        buffer.set_(kept.memory)
        for view, place in zip(views, moved):
            view.set_(place)


def _timeout_s(group):
    """The process group's timeout, which newer versions of torch keep in the group's backend."""
    for find in (lambda: group._get_backend(torch.device("cpu")), lambda: group):
        with contextlib.suppress(AttributeError, RuntimeError):
            return find().options._timeout.total_seconds()
    return torch.distributed.distributed_c10d._get_default_store().timeout.total_seconds()


_sums: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()  # by process group


def _reduce(group, bucket, flags):
    group = group if group is not None else torch.distributed.distributed_c10d._get_default_group()
    if group not in _sums:
        _sums[group] = _Sums(group)
    return _sums[group].reduce(group, bucket, flags)


def allreduce_hook(state: Optional["torch.distributed.ProcessGroup"], bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The average of a bucket over the ranks of the process group `state`."""
    return _reduce(state, bucket, 0)


def compressed(wire: str) -> Callable:
    """A hook that sends float32 gradients between hosts as "fp16", "bf16" or "int8" (blocks of 256 with a scale), for slow links. A rounding error is added to
    the same bucket of the next step. Inside a host, and where the process group sums, nothing is compressed. ValueError: another `wire`."""
    if wire not in _WIRE:
        raise ValueError(f"gradients are sent as {', '.join(_WIRE)}, not as {wire!r}")

    def hook(state: Optional["torch.distributed.ProcessGroup"], bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return _reduce(state, bucket, _WIRE[wire])
    hook.__name__ = hook.__qualname__ = f"{wire}_hook"
    return hook


fp16_hook, bf16_hook = compressed("fp16"), compressed("bf16")
