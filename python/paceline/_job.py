# SPDX-License-Identifier: Apache-2.0
"""This process as a rank of the job: its start and end, and sets of ranks."""
from __future__ import annotations

import atexit
import ctypes
import os
import sys
from typing import Callable, Iterable, List, Optional, Union

from ._library import InvalidError, _Options, _call, _library

_DIVIDE_BY_SIZE = 1  # enum pl_named_divisor: an average divides by the number of all ranks, joined ranks included
_runtime, _world, _service = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
_gpu = None  # the number that CUDA gives this rank's GPU


_left = []  # arrays of operations that may still be in flight; they are kept until the process ends


class ProcessSet:
    """A set of ranks. Operations among them are possible once the set was given to add_process_set() or init(). A root is its rank in the whole job."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(ranks)
        self._under_way = {}
        self._close()

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def _close(self):
        self.process_set_id = None
        self._kept = {}  # requests by name and kind: see _submit_sum()
        if self._under_way:  # operations that failed or were not waited for: a message may still arrive in their arrays
            _left.append(self._under_way)
        self._under_way = {}  # what the library uses of an operation, by the completion's id, even if the program has released it

    def _number(self):
        _running()
        if self.process_set_id is None or not self.included():
            raise InvalidError(f"{self} was not added" if self.process_set_id is None else f"rank {rank()} is not in {self}")
        return self.process_set_id

    def included(self) -> bool:
        return rank() in self.ranks

    def size(self) -> int:
        return len(self.ranks)

    def rank(self) -> Optional[int]:
        """This rank's number in the set, None if it is not in the set."""
        return self.ranks.index(rank()) if self.included() else None


global_process_set = ProcessSet([])
_open_sets: List[ProcessSet] = []


def init(comm: None = None, process_sets: Union[Iterable[ProcessSet], str, None] = None) -> None:
    """Join the job: mpirun's ranks, or one rank alone. Further calls have no effect. A program that succeeds leaves the job by itself.
    `process_sets` are the first sets, or "dynamic" as in Horovod, which means that sets will be added: that is always possible.

    Each rank gets a GPU as PACELINE_DEVICE says; without that variable, if torch was imported before and finds a GPU."""
    global _gpu
    if _service:
        return
    if comm:
        raise ValueError("init() takes all of mpirun's ranks, not comm; make a ProcessSet of some")
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f"process_sets is a list of sets or 'dynamic', not {process_sets!r}")
    atexit.unregister(_leave)
    atexit.register(_leave, os.getpid())
    sys.exit = _exit
    torch = sys.modules.get("torch")
    setting = None if "PACELINE_DEVICE" in os.environ or torch and torch.cuda.is_available() else b"off"
    _call(_library.pl_runtime_start_on_device, None, setting, ctypes.byref(_runtime))
    _world.value = _library.pl_runtime_world(_runtime)
    device = ctypes.c_void_p(_library.pl_runtime_device(_runtime))
    _gpu = _library.pl_device_info(device)[0] if device else None  # struct pl_device_info begins with the number
    _call(_library.pl_service_new, _world, ctypes.byref(_Options(join_divisor=_DIVIDE_BY_SIZE, strict_join=True)), ctypes.byref(_service))
    global_process_set.ranks = list(range(size()))
    global_process_set.process_set_id = 0
    _open_sets.append(global_process_set)
    for process_set in [] if isinstance(process_sets, str) else process_sets or []:
        add_process_set(process_set)


def shutdown() -> None:
    """Leave the job; operations in flight on all ranks end. Collective. A program that reaches its end need not call it: the interpreter's exit does."""
    if not _service:
        return
    atexit.unregister(_leave)
    _call(_library.pl_service_shutdown, _service)
    _library.pl_service_free(_service)
    _library.pl_runtime_stop(_runtime)
    _service.value = _world.value = _runtime.value = None
    while _open_sets:
        _open_sets.pop()._close()


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Make a set of the ranks in a list (or in a ProcessSet). All ranks call it, also those outside the set."""
    process_set = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    number = ctypes.c_int()
    _call(_library.pl_service_add_set, _service, (ctypes.c_int * process_set.size())(*process_set.ranks), process_set.size(), ctypes.byref(number))
    process_set.process_set_id = number.value
    _open_sets.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set that has no operation in flight. All ranks call it. False if the set was not added."""
    if process_set not in _open_sets[1:]:
        return False
    _call(_library.pl_service_remove_set, _service, process_set.process_set_id)
    _open_sets.remove(process_set)
    process_set._close()
    return True


_sys_exit = sys.exit
_exit_status = None


def _exit(status=None):
    """Replaces sys.exit() and keeps its status, which is not known at the interpreter's exit; see _leave()."""
    global _exit_status
    _exit_status = status
    _sys_exit(status)


def _leave(pid):
    """Runs at the interpreter's exit, but not in a child of fork(). A rank that failed exits at once, so that the job's error names it."""
    if os.getpid() != pid or not _service:  # init() may have failed
        return
    if "mpi4py.MPI" not in sys.modules:  # the library's exit handler gets the exit status; what is under way must be kept until then
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_open_sets))
        _call(_library.pl_abi_leave_at_exit, _runtime, _service)
    elif getattr(sys, "last_type", None) is None and not _exit_status:  # mpi4py ends MPI with the interpreter, so decide now, by what is known
        shutdown()


def is_initialized() -> bool:
    return bool(_service)


def _running():
    if not _service:
        raise InvalidError("call paceline.init() first")


def _asking(name) -> Callable[[], int]:
    return lambda: _running() or getattr(_library, name)(_world)  # _running() returns None or raises


rank, size = _asking("pl_world_rank"), _asking("pl_world_size")
local_rank, local_size = _asking("pl_world_local_rank"), _asking("pl_world_local_size")  # among the ranks of a host
cross_rank, cross_size = _asking("pl_world_cross_rank"), _asking("pl_world_cross_size")  # among the hosts
is_homogeneous = _asking("pl_world_is_homogeneous")  # as many ranks on each host
mpi_threads_supported = _asking("pl_world_any_thread")  # whether the program may call MPI from any thread
