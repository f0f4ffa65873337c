# SPDX-License-Identifier: Apache-2.0
"""Paceline from Python, on top of ctypes. Operations have the same names and parameters as in Horovod.

Server and ServerOptimizer are for workers of parameter servers, which need no init().

Arrays must be contiguous, and in host memory; torch tensors may also be on this rank's GPU. Operations match by name, in any order (runtime/named.h).
Importing the package needs Python alone. The library is loaded by init() or Server(), numpy where arrays are first used. Only one thread may use this module.
"""
from ._job import (ProcessSet, add_process_set, cross_rank, cross_size, global_process_set, init, is_homogeneous, is_initialized, local_rank, local_size,
                   mpi_threads_supported, rank, remove_process_set, shutdown, size)
from ._library import InvalidError, PacelineError
from ._operations import (Adasum, Average, Compression, Handle, Max, Min, Product, Sum, allgather, allgather_async, allgather_object, allreduce, allreduce_,
                          allreduce_async, allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_, broadcast_async, broadcast_async_,
                          broadcast_object, broadcast_parameters, grouped_allgather, grouped_allgather_async, grouped_allreduce, grouped_allreduce_,
                          grouped_allreduce_async, grouped_allreduce_async_, grouped_reducescatter, grouped_reducescatter_async, join, poll, reducescatter,
                          reducescatter_async, synchronize)
from ._server import Server, ServerOptimizer

__all__ = [name for name in dir() if not name.startswith("_")]

_HOROVOD = "a program for horovod.torch runs with Horovod's own package: HOROVOD_SKIP_COMPILE=1 pip install horovod==0.28.1 && paceline horovod"
_ABSENT = {  # names that only Horovod has
    "SyncBatchNorm": "reduce the statistics of a batch with allreduce(), which gradients pass through",
    "elastic": "a job ends when a rank fails, and continues from its checkpoint when it is started again",
    **dict.fromkeys(("DistributedOptimizer", "broadcast_optimizer_state", "sparse_allreduce_async"), _HOROVOD),
    **dict.fromkeys(("start_timeline", "stop_timeline"), "PACELINE_TRACE=PATH in the environment writes a trace of the whole run"),
}


def __getattr__(name):
    raise AttributeError(f"paceline has no '{name}'" + (f": {_ABSENT[name]}" if name in _ABSENT else ""))
