# SPDX-License-Identifier: Apache-2.0
"""Paceline from Python: one file on top of ctypes, without a build. Operations have the same names and parameters as in Horovod.

Server and ServerOptimizer are for workers of parameter servers, which need no init().

Arrays must be contiguous, and in host memory; torch tensors may also be on this rank's GPU. Operations match by name, in any order (runtime/named.h).
The library is libpaceline.so next to this file, in $PACELINE_LIBRARY, or where the system's loader finds it.
Only one thread may use this module. It is one file, longer than others, so that it can be copied next to programs.
"""

import atexit
import ctypes
import functools
import math
import operator
import os
import pickle
import sys

import numpy

Sum, Average, Min, Max, Product, Adasum = "sum", "average", "min", "max", "product", "adasum"

_MAX_DIMS = 8
_DIVIDE_BY_SIZE = 1  # enum pl_named_divisor: an average divides by the number of all ranks, joined ranks included
_ON_DEVICE = 2  # enum pl_memory
_OPS = [Sum, Average, Min, Max, Product, Adasum]  # enum pl_op
_KINDS = ["allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "reduce", "barrier"]  # enum pl_kind
_DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int16": 5, "int32": 6, "int64": 7, "uint8": 8, "bool": 9}


class PacelineError(RuntimeError):
    """An error that the library reported; `status` is the name of its status, for example "MISMATCH"."""

    def __init__(self, status, text):
        super().__init__(f"{text} [{status}]")
        self.status = status


class InvalidError(PacelineError, ValueError):
    """An error that one rank can detect by itself; no operation was started."""

    def __init__(self, text):
        super().__init__("INVALID", text)


def _struct(name, /, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_Error = _struct("_Error", status=ctypes.c_int, domain=ctypes.c_int, code=ctypes.c_int64, retryable=ctypes.c_bool, cause=ctypes.c_char * 600,
                 context=ctypes.c_char * 400)
_Op = _struct("_Op", name=ctypes.c_char_p, kind=ctypes.c_int, dtype=ctypes.c_int, op=ctypes.c_int, flags=ctypes.c_uint, scaled=ctypes.c_bool,
              prescale=ctypes.c_double, postscale=ctypes.c_double, root=ctypes.c_int, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS,
              memory=ctypes.c_int, splits=ctypes.POINTER(ctypes.c_uint64), send=ctypes.c_void_p, recv=ctypes.c_void_p,
              stream=ctypes.c_void_p)
_Result = _struct("_Result", data=ctypes.c_void_p, rows=ctypes.c_uint64, bytes=ctypes.c_uint64, rows_of_rank=ctypes.POINTER(ctypes.c_uint64),
                  buffer=ctypes.c_void_p)
_PlanTensor = _struct("_PlanTensor", name=ctypes.c_char_p, count_elems=ctypes.c_uint64, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS,
                      offset_elems=ctypes.c_uint64, value=ctypes.c_void_p, gradient=ctypes.c_void_p)
_Optimizer = _struct("_Optimizer", kind=ctypes.c_int, momentum=ctypes.c_double, nesterov=ctypes.c_bool, weight_decay=ctypes.c_double,
                     beta1=ctypes.c_double, beta2=ctypes.c_double, epsilon=ctypes.c_double, clip_norm=ctypes.c_double, loss_scale=ctypes.c_double,
                     growth_steps=ctypes.c_uint)
_ServerOptions = _struct("_ServerOptions", optimizer=_Optimizer, socket=ctypes.c_char_p, worker=ctypes.c_int, staleness=ctypes.c_char_p,
                         wire_type=ctypes.c_char_p, trace=ctypes.c_void_p)
_Table = _struct("_Table", name=ctypes.c_char_p, columns=ctypes.c_uint64, initial=ctypes.c_int, bound=ctypes.c_double, seed=ctypes.c_uint64, kind=ctypes.c_int,
                 rate=ctypes.c_double, epsilon=ctypes.c_double)
_Options = _struct("_Options", start_bytes=ctypes.c_uint64, join_divisor=ctypes.c_int, strict_join=ctypes.c_bool,
                   observer=ctypes.c_void_p)
_Completion = _struct("_Completion", call=ctypes.c_void_p, lost=ctypes.c_void_p, results=ctypes.c_void_p, ranks=ctypes.c_int, status=ctypes.c_int,
                      error=_Error, last_joined_rank=ctypes.c_int, has_leaked=ctypes.c_bool, done=ctypes.c_bool, is_launched=ctypes.c_bool,
                      is_followed=ctypes.c_bool, launched=ctypes.c_void_p)


def _load():
    local = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpaceline.so")
    path = os.environ.get("PACELINE_LIBRARY") or (local if os.path.exists(local) else "libpaceline.so.0")
    # Open MPI's plug-ins look for its symbols among the global ones.
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.pl_abi_struct_bytes.restype = ctypes.c_size_t
    for name, struct in (("pl_error", _Error), ("pl_named_op", _Op), ("pl_named_result", _Result), ("pl_named_options", _Options),
                         ("pl_completion", _Completion), ("pl_plan_tensor", _PlanTensor), ("pl_server_options", _ServerOptions), ("pl_server_table", _Table)):
        bytes_there = library.pl_abi_struct_bytes(name.encode())
        if bytes_there != ctypes.sizeof(struct):
            raise ImportError(f"{path}: struct {name} has {bytes_there} bytes, this file expects {ctypes.sizeof(struct)}: "
                              "take paceline.py and libpaceline.so from the same build")
    library.pl_error_text.restype = library.pl_status_name.restype = ctypes.c_char_p
    library.pl_runtime_world.restype = library.pl_runtime_device.restype = ctypes.c_void_p
    library.pl_world_is_homogeneous.restype = library.pl_world_any_thread.restype = library.pl_service_poll.restype = ctypes.c_bool
    library.pl_device_info.restype = ctypes.POINTER(ctypes.c_int)
    library.pl_server_plan.restype = library.pl_runtime_trace.restype = ctypes.c_void_p
    library.pl_plan_tensor.restype = ctypes.POINTER(_PlanTensor)
    return library


_library = None
_runtime, _world, _service = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
_gpu = None  # the number that CUDA gives this rank's GPU

_error = ctypes.byref(_Error())  # one for all calls: filled in by those that fail


def _failed(status):
    text = ctypes.create_string_buffer(1100)
    _library.pl_error_text(_error, text, len(text))
    name, text = _library.pl_status_name(status).decode(), text.value.decode(errors="replace")
    raise InvalidError(text) if name == "INVALID" else PacelineError(name, text)


def _call(function, *arguments):
    status = function(*arguments, _error)
    if status:
        _failed(status)


_left = []  # arrays of operations that may still be in flight; they are kept until the process ends


class ProcessSet:
    """A set of ranks. Operations among them are possible once the set was given to add_process_set() or init(). A root is its rank in the whole job."""

    def __init__(self, ranks):
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

    def included(self):
        return rank() in self.ranks

    def size(self):
        return len(self.ranks)

    def rank(self):
        """This rank's number in the set, None if it is not in the set."""
        return self.ranks.index(rank()) if self.included() else None


global_process_set = ProcessSet([])
_open_sets = []


def init(comm=None, process_sets=None):
    """Join the job: mpirun's ranks, or one rank alone. Further calls have no effect. A program that succeeds leaves the job by itself.
    `process_sets` are the first sets, or "dynamic" as in Horovod, which means that sets will be added: that is always possible.

    Each rank gets a GPU as PACELINE_DEVICE says; without that variable, if torch was imported before and finds a GPU."""
    global _library, _gpu
    if _service:
        return
    if comm:
        raise ValueError("init() takes all of mpirun's ranks, not comm; make a ProcessSet of some")
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f"process_sets is a list of sets or 'dynamic', not {process_sets!r}")
    atexit.unregister(_leave)
    atexit.register(_leave, os.getpid())
    sys.exit = _exit
    _library = _library or _load()
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


def shutdown():
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


def add_process_set(process_set):
    """Make a set of the ranks in a list (or in a ProcessSet). All ranks call it, also those outside the set."""
    process_set = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    number = ctypes.c_int()
    _call(_library.pl_service_add_set, _service, (ctypes.c_int * process_set.size())(*process_set.ranks), process_set.size(), ctypes.byref(number))
    process_set.process_set_id = number.value
    _open_sets.append(process_set)
    return process_set


def remove_process_set(process_set):
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


def is_initialized():
    return bool(_service)


def _running():
    if not _service:
        raise InvalidError("call paceline.init() first")


def _asking(name):
    return lambda: _running() or getattr(_library, name)(_world)  # _running() returns None or raises


rank, size = _asking("pl_world_rank"), _asking("pl_world_size")
local_rank, local_size = _asking("pl_world_local_rank"), _asking("pl_world_local_size")  # among the ranks of a host
cross_rank, cross_size = _asking("pl_world_cross_rank"), _asking("pl_world_cross_size")  # among the hosts
is_homogeneous = _asking("pl_world_is_homogeneous")  # as many ranks on each host
mpi_threads_supported = _asking("pl_world_any_thread")  # whether the program may call MPI from any thread

_HOROVOD = "a program for horovod.torch runs with Horovod's own package: HOROVOD_SKIP_COMPILE=1 pip install horovod==0.28.1 && paceline horovod"
_ABSENT = {  # names that only Horovod has
    "SyncBatchNorm": "reduce the statistics of a batch with allreduce(), which gradients pass through",
    "elastic": "a job ends when a rank fails, and continues from its checkpoint when it is started again",
    **dict.fromkeys(("DistributedOptimizer", "broadcast_optimizer_state", "sparse_allreduce_async"), _HOROVOD),
    **dict.fromkeys(("start_timeline", "stop_timeline"), "PACELINE_TRACE=PATH in the environment writes a trace of the whole run"),
}


def __getattr__(name):
    raise AttributeError(f"paceline has no '{name}'" + (f": {_ABSENT[name]}" if name in _ABSENT else ""))


def _is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _gpu_of(array):
    """The number of the GPU that holds the array, None in host memory."""
    return array.device.index if _is_torch(array) and array.is_cuda else None


def _view(array, written=False):
    """Address, shape and type name of a contiguous array."""
    if _is_torch(array):
        if array.layout is not sys.modules["torch"].strided:
            raise ValueError("expected a dense torch tensor, found a sparse one: use .to_dense()")
        if not (array.is_cpu or array.is_cuda) or not array.is_contiguous():
            raise ValueError("a torch tensor must be contiguous, and on the CPU or a GPU: .contiguous()")
        if _gpu_of(array) not in (None, _gpu):
            advice = f"{_gpu}: torch.cuda.set_device({_gpu})" if _gpu is not None else "none: import torch before init(), and see `paceline info`"
            raise ValueError(f"a tensor on GPU {_gpu_of(array)}, and this rank's is {advice}")
        return array.data_ptr(), tuple(array.shape), str(array.dtype).replace("torch.", "")
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"{type(array).__name__} is neither a numpy array nor a torch tensor")
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError("a numpy array must be contiguous: numpy.ascontiguousarray()")
    if not array.dtype.isnative:
        raise ValueError("a numpy array must have the machine's byte order: array.astype(array.dtype.newbyteorder('='))")
    if written and not array.flags["WRITEABLE"]:
        raise ValueError("a numpy array that takes the result must be writeable: array.copy()")
    return array.ctypes.data, array.shape, array.dtype.name


class Handle:
    """An operation in flight. wait() ends it and returns its result; poll() says whether wait() would block."""

    def __init__(self, process_set, completion, results, finish, given, recv):
        self._set, self._completion, self._results, self._finish, self._recv = process_set, completion, results, finish, recv
        process_set._under_way[id(completion)] = completion, results, given, recv

    def _under_way(self):
        self._set._number()
        if self._completion is None:
            raise InvalidError("the operation is not under way: waited for already")
        return self._completion

    def poll(self):
        return _library.pl_service_poll(_service, ctypes.byref(self._under_way()))

    def wait(self):
        completion, self._completion = self._under_way(), None
        status = _library.pl_service_wait(_service, ctypes.byref(completion), _error)
        if status:
            _failed(status)
        del self._set._under_way[id(completion)]
        return self._finish(self._results) if self._results else self._recv  # without results it is in the caller's array already


poll, synchronize = Handle.poll, Handle.wait


def _waiting(start):
    """Returns a function that calls `start` and waits for its result."""
    return functools.wraps(start)(lambda *arguments, **keywords: start(*arguments, **keywords).wait())


def _describe(request, kind, send, recv, op=Sum, root=0, splits=None, scales=(1.0, 1.0)):
    if op not in _OPS:
        raise ValueError(f"op is Average, Sum, Min, Max, Product or Adasum, not {op!r}")
    request.kind, request.op, request.root = _KINDS.index(kind), _OPS.index(op), root
    if send is not None:
        address, shape, dtype = _view(send)
        if dtype not in _DTYPES:
            raise TypeError(f"{dtype} is not a type that can be exchanged: {', '.join(_DTYPES)}")
        if len(shape) > _MAX_DIMS:
            raise ValueError(f"{len(shape)} dimensions, at most {_MAX_DIMS} can be exchanged")
        request.send, request.dtype, request.dims = address, _DTYPES[dtype], len(shape)
        if _gpu_of(send) is not None:  # the operation starts after the work of the current stream
            request.memory, request.stream = _ON_DEVICE, sys.modules["torch"].cuda.current_stream(_gpu).cuda_stream
        request.shape[:len(shape)] = shape
    if recv is not None:
        request.recv = _view(recv, written=True)[0]
    if splits is not None:
        request.splits = (ctypes.c_uint64 * len(splits))(*splits)
    if scales != (1.0, 1.0):
        request.scaled, (request.prescale, request.postscale) = True, scales


def _submit(kind, name, process_set, send, recv=None, finish=lambda send, recv, result: recv, grouped=False, combine=None, **settings):
    """Start an operation, or with `grouped` one per array; `combine` turns the results of `finish` into the handle's result."""
    number = process_set._number()
    send = list(send)
    if recv is None:  # the result is new memory, which the library allocates in host memory
        given, recv = [array if _gpu_of(array) is None else array.cpu() for array in send], [None] * len(send)
    else:
        given, recv = send, list(recv)
    requests = (_Op * len(send))()
    for request, *arrays in zip(requests, given, recv):
        _describe(request, kind, *arrays, **settings)
    name = name.encode() if name else None
    results = (_Result * len(send))()
    completion = _Completion(results=ctypes.addressof(results))
    if grouped:
        _call(_library.pl_service_submit_group, _service, number, name, requests, ctypes.c_size_t(len(send)), ctypes.byref(completion))
    else:
        requests[0].name = name
        _call(_library.pl_service_submit, _service, number, requests, ctypes.byref(completion))
    combine = combine or (list if grouped else next)
    return Handle(process_set, completion, results, lambda results: combine(map(finish, send, recv, results)), given, recv)


def _submit_sum(name, process_set, send, recv, op, scales):
    """An allreduce of `send` into `recv`, which has the same shape and type. For a torch tensor in host memory the request is kept, so that the next
    one of its name only sets the addresses: the whole call then takes 2 us of Python."""
    kept = process_set._kept.get((name, op, scales))
    if not (kept and type(send) is kept[2] and send.is_cpu and send.dtype is kept[3] and send.layout is kept[4] and send.shape == kept[5] and
            send.is_contiguous()):
        if not _is_torch(send) or not send.is_cpu:
            return _submit("allreduce", name, process_set, [send], [recv], op=op, scales=scales)
        request = _Op(name=name and name.encode())
        _describe(request, "allreduce", send, recv, op=op, scales=scales)
        if len(process_set._kept) > 1 << 14:  # the program uses new names all the time
            process_set._kept.clear()
        kept = process_set._kept[name, op, scales] = request, ctypes.byref(request), type(send), send.dtype, send.layout, send.shape
    request, completion = kept[0], _Completion()
    request.send = send.data_ptr()
    request.recv = request.send if recv is send else recv.data_ptr()
    status = _library.pl_service_submit(_service, process_set._number(), kept[1], ctypes.byref(completion), _error)
    if status:
        _failed(status)
    return Handle(process_set, completion, None, None, send, recv)


def _like(array):
    return sys.modules["torch"].empty_like(array) if _is_torch(array) else numpy.empty_like(array)


def _rows_like(array, _, result):
    """Copy the library's memory into an array of `array`'s kind, type and inner shape."""
    shape = (int(result.rows),) + tuple(array.shape[1:])
    out = sys.modules["torch"].empty(shape, dtype=array.dtype) if _is_torch(array) else numpy.empty(shape, array.dtype)
    if result.bytes:
        ctypes.memmove(_view(out)[0], result.data, result.bytes)
    _library.pl_named_result_done(ctypes.byref(result))
    return out if _gpu_of(array) is None else out.to(array.device)


def _op(average, op):
    """The reduction that Horovod's older parameter `average` or its newer `op` names."""
    if isinstance(average, str):
        raise TypeError(f"the second parameter is average, as in Horovod; give the name by keyword, name={average!r}")
    if average is not None and op is not None:
        raise ValueError("average and op have the same meaning; give only one of them")
    return (Average if average is None or average else Sum) if op is None else op


def _differentiable(forward, backward, *tensors):
    """Returns the list of forward(*tensors). If torch records the tensors for gradients, backward(*gradients of the results) computes their gradients."""
    torch = sys.modules.get("torch")
    if not torch or not torch.is_grad_enabled() or not any(_is_torch(tensor) and tensor.requires_grad for tensor in tensors):
        return list(forward(*tensors))

    class Operation(torch.autograd.Function):
        forward = staticmethod(lambda _, *given: tuple(forward(*given)))
        backward = staticmethod(lambda _, *gradients: tuple(backward(*(gradient.contiguous() for gradient in gradients))))
    return list(Operation.apply(*tensors))


class Compression:
    """The form in which an array is exchanged. A program may give its own class with these two methods."""

    class none:
        compress, decompress = staticmethod(lambda tensor: (tensor, None)), staticmethod(lambda tensor, context: tensor)

    class fp16:
        @staticmethod
        def compress(tensor):
            if _is_torch(tensor):
                return tensor.half() if tensor.dtype.is_floating_point else tensor, tensor.dtype
            return tensor.astype(numpy.float16) if tensor.dtype.kind == "f" else tensor, tensor.dtype

        decompress = staticmethod(lambda tensor, dtype: tensor.to(dtype) if _is_torch(tensor) else tensor.astype(dtype))


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Replace `tensor` by the reduction over all ranks, the average unless `op` says otherwise; returns a Handle."""
    return _submit_sum(name, process_set, tensor, tensor, _op(average, op), (prescale_factor, postscale_factor))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    return _submit_sum(name, process_set, tensor, _like(tensor), _op(average, op), (prescale_factor, postscale_factor))


allreduce_ = _waiting(allreduce_async_)


def _reduce(kind, tensors, compression, name, process_set, grouped, op, scales):
    """New arrays with this rank's results of an allreduce or a reduce_scatter."""
    def forward(*tensors):
        pairs = [compression.compress(tensor) for tensor in tensors]
        small, more = [tensor for tensor, _ in pairs], {"finish": _rows_like}
        if kind == "allreduce":
            more = {"recv": map(_like, small)}
        reduced = _submit(kind, name, process_set, small, grouped=grouped, combine=list, op=op, scales=scales, **more).wait()
        return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, pairs)]

    def backward(*gradients):
        if op not in (Sum, Average):
            raise ValueError(f"gradients pass through a sum or an average, not through {op}")
        if kind == "allreduce":
            return _reduce(kind, gradients, compression, name and f"{name}.backward", process_set, grouped, op, scales)
        factor = scales[0] * scales[1] * (process_set.size() if op == Sum else 1)
        return _allgather([gradient * factor for gradient in gradients], name and f"{name}.backward", process_set, grouped)
    return _differentiable(forward, backward, *tensors)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0,
              process_set=global_process_set):
    """The reduction of `tensor` over all ranks, as a new one of the same kind."""
    return _reduce("allreduce", [tensor], compression, name, process_set, False, _op(average, op), (prescale_factor, postscale_factor))[0]


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """As allreduce_async_() with a list: if one array fails, no array is reduced."""
    return _submit("allreduce", name, process_set, tensors, tensors, grouped=True, op=_op(average, op), scales=(prescale_factor, postscale_factor))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    return _submit("allreduce", name, process_set, tensors, map(_like, tensors), grouped=True, op=_op(average, op),
                   scales=(prescale_factor, postscale_factor))


grouped_allreduce_ = _waiting(grouped_allreduce_async_)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0,
                      process_set=global_process_set):
    return _reduce("allreduce", tensors, compression, name, process_set, True, _op(average, op), (prescale_factor, postscale_factor))


def allgather_async(tensor, name=None, process_set=global_process_set):
    return _submit("allgather", name, process_set, [tensor], finish=_rows_like)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    return _submit("allgather", name, process_set, tensors, finish=_rows_like, grouped=True)


def _allgather(tensors, name, process_set, grouped):
    begins = []  # where this rank's rows begin in each result

    def finish(send, recv, result):
        begins.append(sum(result.rows_of_rank[:process_set.rank()]))
        return _rows_like(send, recv, result)

    def forward(*tensors):
        return _submit("allgather", name, process_set, tensors, finish=finish, grouped=grouped, combine=list).wait()

    def backward(*gradients):
        means = _reduce("allreduce", gradients, Compression.none, name and f"{name}.backward", process_set, grouped, Average, (1.0, 1.0))
        return [mean[begin:begin + len(tensor)] for mean, begin, tensor in zip(means, begins, tensors)]
    return _differentiable(forward, backward, *tensors)


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' rows one after the other; the number of rows may differ between ranks."""
    return _allgather([tensor], name, process_set, False)[0]


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    return _allgather(tensors, name, process_set, True)


def _broadcast_async(tensor, out, root_rank, name, process_set):
    _running()
    if root_rank not in process_set.ranks:
        raise InvalidError(f"root {root_rank} is not among the ranks {process_set.ranks}")
    return _submit("broadcast", name, process_set, [tensor], [out], root=process_set.ranks.index(root_rank))


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Replace `tensor` on every rank by the tensor of `root_rank`; returns a Handle."""
    return _broadcast_async(tensor, tensor, root_rank, name, process_set)


broadcast_ = _waiting(broadcast_async_)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    return _broadcast_async(tensor, _like(tensor), root_rank, name, process_set)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The tensor of `root_rank`, as a new one."""
    def backward(gradient):
        mean = allreduce(gradient, name=name and f"{name}.backward", process_set=process_set)
        return [mean if rank() == root_rank else mean * 0]
    return _differentiable(lambda tensor: [broadcast_async(tensor, root_rank, name, process_set).wait()], backward, tensor)[0]


def _alltoall_async(tensor, splits, name, process_set, combine):
    """The result is combine(rows, number of rows from each rank)."""
    if splits is not None:
        try:
            splits = [operator.index(rows) for rows in splits]
        except TypeError as error:
            raise InvalidError("expected whole numbers as splits") from error
        if len(splits) != process_set.size():
            raise InvalidError(f"{len(splits)} splits for {process_set.size()} ranks")

    def finish(send, recv, result):
        came = result.rows_of_rank[:process_set.size()]
        return combine(_rows_like(send, recv, result), came)
    return _submit("alltoall", name, process_set, [tensor], finish=finish, splits=splits)


def _alltoall_result(tensor, splits, rows, came):
    if splits is None:
        return rows
    if not _is_torch(tensor):
        return rows, numpy.array(came, numpy.int32)
    torch = sys.modules["torch"]
    return rows, torch.tensor(came, **{"dtype": splits.dtype, "device": splits.device} if _is_torch(splits) else {"dtype": torch.int32})


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    return _alltoall_async(tensor, splits, name, process_set, lambda rows, came: _alltoall_result(tensor, splits, rows, came))


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Send equal parts of the rows to every rank. With `splits`, send splits[r] rows to rank r; the result is (rows, number of rows from each rank)."""
    came = []

    def forward(tensor):
        rows, came[:] = _alltoall_async(tensor, splits, name, process_set, lambda *result: result).wait()
        return [rows]

    def backward(gradient):
        return [alltoall(gradient, came, name and f"{name}.backward", process_set)[0]]
    return _alltoall_result(tensor, splits, *_differentiable(forward, backward, tensor), came)


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    return _submit("reduce_scatter", name, process_set, [tensor], finish=_rows_like, op=op, scales=(prescale_factor, postscale_factor))


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    return _submit("reduce_scatter", name, process_set, tensors, finish=_rows_like, grouped=True, op=op, scales=(prescale_factor, postscale_factor))


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    """This rank's rows of the reduction over all ranks."""
    return _reduce("reduce_scatter", [tensor], compression, name, process_set, False, op, (prescale_factor, postscale_factor))[0]


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average, process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    return _reduce("reduce_scatter", tensors, compression, name, process_set, True, op, (prescale_factor, postscale_factor))


def barrier(process_set=global_process_set):
    _submit("barrier", None, process_set, [None]).wait()


def join(device=-1):
    """Call it when this rank has no more data: it contributes nothing until all ranks have joined. Returns the last rank to join. `device` has no effect."""
    completion = _Completion()
    global_process_set._number()
    _call(_library.pl_service_submit_join, _service, ctypes.byref(completion))
    _call(_library.pl_service_wait, _service, ctypes.byref(completion))
    return completion.last_joined_rank


def broadcast_parameters(params, root_rank=0):
    """Give every rank the values of `root_rank`: a dict (for example a state_dict()), (name, array) pairs, or arrays in the same order on all ranks."""
    pairs = sorted(params.items()) if hasattr(params, "items") else [
        item if isinstance(item, tuple) else (i, item) for i, item in enumerate(params)]
    broadcasts = []
    for name, value in pairs:
        value = value.data if _is_torch(value) else value
        here = value.contiguous() if _is_torch(value) else value  # the tensor itself, except for layouts such as channels_last
        broadcasts.append((value, here, broadcast_async_(here, root_rank, f"parameter.{name}")))
    for value, here, handle in broadcasts:
        handle.wait()
        if here is not value:
            value.copy_(here)


def _dumps(obj):
    """Pickles by cloudpickle if it is installed, since it also takes functions and classes that the program defines."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(obj)
    return cloudpickle.dumps(obj)


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The object of `root_rank` on every rank."""
    name = name or "object"
    here = _dumps(obj) if rank() == root_rank else b""
    length = broadcast(numpy.array([len(here)], numpy.int64), root_rank, f"{name} length", process_set)
    data = numpy.frombuffer(here, numpy.uint8).copy() if rank() == root_rank else numpy.empty(int(length[0]), numpy.uint8)
    broadcast_(data, root_rank, name, process_set)
    return obj if rank() == root_rank else pickle.loads(data.tobytes())


def allgather_object(obj, name=None, process_set=global_process_set):
    """Every rank's object, in a list by rank."""
    name = name or "objects"
    here = numpy.frombuffer(_dumps(obj), numpy.uint8)
    lengths = allgather(numpy.array([len(here)], numpy.int64), f"{name} lengths", process_set)
    rows = allgather(here, name, process_set)
    return [pickle.loads(part.tobytes()) for part in numpy.split(rows, numpy.cumsum(lengths)[:-1])]


_SERVER_KINDS = ["sgd", "adam", "adamw", "adagrad"]  # enum pl_optimizer_kind


class Server:
    """This process as a worker of Paceline's parameter servers (docs/parameter-servers.md), one of which has started it. A process joins once, without init().

    `arrays` are initial values by name, float32, in the order of the forward pass, with the same names and shapes in all workers. Worker 0's values are used.
    Arrays of the same kinds are in `values`, which step() updates, and in `gradients`, where a program may compute in place.
    The servers apply `optimizer` (one of _SERVER_KINDS, with torch's options) at the rate `lr`, which may be set before each step.
    `staleness` is "none" or a number; None means the setting ps_staleness. `tables` describe rows by id that only the servers hold: {"users": dict(columns=64,
    bound=0.05, seed=1, optimizer="adagrad", lr=0.1, eps=1e-8)}. Initial values are drawn from -bound to bound by seed and id; without bound they are
    zeros. The optimizer is "adagrad" or "sgd"."""

    def __init__(self, arrays, optimizer="sgd", lr=0.01, staleness=None, momentum=0.0, nesterov=False, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, tables=None):
        global _library
        if optimizer not in _SERVER_KINDS or not min(eps, *betas) > 0:
            raise ValueError(f"optimizer is one of {', '.join(_SERVER_KINDS)}, eps and betas are above 0; not {optimizer!r}, {eps}, {betas}")
        for name, array in arrays.items():
            if _gpu_of(array) is not None or _view(array)[2] != "float32":
                raise TypeError(f"'{name}': a parameter server has float32 in host memory, not {array.dtype}{'' if _gpu_of(array) is None else ' on a GPU'}")
        _library = _library or _load()
        self.lr, self._indices, self._tables, self._runtime, self._server = lr, {}, {}, ctypes.c_void_p(), ctypes.c_void_p()
        options = _ServerOptions(_Optimizer(_SERVER_KINDS.index(optimizer), momentum, nesterov, weight_decay, *betas, eps),
                                 staleness=None if staleness is None else str(staleness).encode())
        _call(_library.pl_runtime_start, ctypes.byref(self._runtime))
        options.trace = _library.pl_runtime_trace(self._runtime)
        world = ctypes.c_void_p(_library.pl_runtime_world(self._runtime))
        _call(_library.pl_server_new, world, ctypes.byref(options), ctypes.byref(self._server))
        self._plan = ctypes.c_void_p(_library.pl_server_plan(self._server))
        for name, array in arrays.items():
            self._indices[name], dims = ctypes.c_size_t(), len(array.shape)
            _call(_library.pl_plan_add, self._plan, name.encode(), dims, (ctypes.c_uint64 * dims)(*array.shape), ctypes.byref(self._indices[name]))
        for name, options in (tables or {}).items():
            self._add_table(name, **options)
        _call(_library.pl_server_join, self._server)
        self.worker, self.workers = _library.pl_server_worker(self._server), _library.pl_server_workers(self._server)
        self.local_worker, self.local_workers = _library.pl_server_local_worker(self._server), _library.pl_server_local_workers(self._server)
        self.values, self.gradients = ({name: self._array(name, what, array) for name, array in arrays.items()} for what in ("value", "gradient"))
        for name, array in arrays.items():
            self._put(self.values[name], array)
        _call(_library.pl_server_start, self._server)
        _call(_library.pl_abi_leave_servers_at_exit, self._runtime, self._server)  # the library keeps the arrays until then

    def _array(self, name, what, like):
        """The library's memory of a tensor, as an array of the same kind as `like`."""
        tensor = _library.pl_plan_tensor(self._plan, self._indices[name]).contents
        array = numpy.frombuffer((ctypes.c_float * tensor.count_elems).from_address(getattr(tensor, what)), numpy.float32).reshape(like.shape)
        return sys.modules["torch"].from_numpy(array) if _is_torch(like) else array

    @staticmethod
    def _put(target, source):
        if _is_torch(source):
            source = (source if source.layout is sys.modules["torch"].strided else source.to_dense()).detach().float().numpy()
        (target.numpy() if _is_torch(target) else target)[...] = source

    def push(self, gradients):
        """Hand over gradients by name, each once per step, as soon as they are computed: they are sent in the background. wait() ends the step."""
        _library.pl_server_set_rate(self._server, ctypes.c_double(self.lr))  # the rate may change until the step's first piece is sent
        for name, gradient in gradients.items():
            own = self.gradients.get(name)
            if own is None or numpy.shape(gradient) != numpy.shape(own):
                raise InvalidError(f"'{name}': a gradient of shape {tuple(numpy.shape(gradient))}, and " +
                                   ("there is no such array" if own is None else f"the array has {tuple(own.shape)}"))
            if gradient is not own:
                self._put(own, gradient)
            _call(_library.pl_plan_ready, self._plan, self._indices[name])

    def wait(self):
        """End the step: gradients that were not pushed count as zeros. On return the servers have applied the step, and `values` are the newest."""
        self.push({})
        _call(_library.pl_server_step, self._server)

    def step(self, gradients):
        """push() and wait()."""
        self.push(gradients)
        self.wait()

    def pull(self):
        """Get the newest values without a step, to evaluate them."""
        _call(_library.pl_server_pull, self._server)

    def assign(self):
        """Copy `values`, which the program has changed, to the servers."""
        _call(_library.pl_server_assign, self._server)

    def sum(self, values=()):
        """The sums of `values` over all workers, as float64; without values it is a barrier. All workers that have not left call it."""
        total = numpy.array(values, numpy.float64, order="C")
        _call(_library.pl_server_sum, self._server, ctypes.c_void_p(total.ctypes.data), ctypes.c_size_t(total.size))
        return total if total.ndim else float(total)

    def _add_table(self, name, columns, bound=0.0, seed=0, optimizer="sgd", lr=0.01, eps=1e-8):
        if optimizer not in ("sgd", "adagrad"):
            raise ValueError(f"'{name}': a table's optimizer is sgd or adagrad, not {optimizer!r}")
        number, kind = ctypes.c_size_t(), _SERVER_KINDS.index(optimizer)
        table = _Table(name.encode(), columns, int(bound > 0), bound, seed, kind, lr, eps if optimizer == "adagrad" else 0.0)
        _call(_library.pl_server_rows_add, self._server, ctypes.byref(table), ctypes.byref(number))
        self._tables[name] = number, columns

    def _table(self, name):
        if name not in self._tables:
            raise InvalidError(f"'{name}': there is no such table")
        return self._tables[name]

    def _list_rows(self, call, table, ids, rows):
        _call(call, self._server, self._table(table)[0], ctypes.c_void_p(_view(ids)[0]), ctypes.c_uint64(math.prod(ids.shape)), ctypes.c_void_p(_view(rows)[0]))

    def pull_rows(self, table, ids):
        """The rows of `ids`, which are whole numbers in an array or tensor of any shape. The result is of the same kind, float32, and has the columns as one
        more dimension."""
        ids = ids.detach().long().contiguous() if _is_torch(ids) else numpy.ascontiguousarray(ids, numpy.int64)
        shape = (*ids.shape, self._table(table)[1])
        rows = sys.modules["torch"].empty(shape) if _is_torch(ids) else numpy.empty(shape, numpy.float32)
        self._list_rows(_library.pl_server_rows_pull, table, ids, rows)
        return rows

    def push_rows(self, table, ids, gradients):
        """Take a step with the rows of `ids`; `gradients` have the shape that pull_rows() returns. Gradients of the same id are added up first."""
        ids, gradients = (array.detach().cpu().numpy() if _is_torch(array) else array for array in (ids, gradients))
        ids, gradients = numpy.ascontiguousarray(ids, numpy.int64), numpy.ascontiguousarray(gradients, numpy.float32)
        if gradients.shape != (*ids.shape, self._table(table)[1]):
            raise InvalidError(f"'{table}': gradients of shape {gradients.shape}, and ids and columns have {(*ids.shape, self._table(table)[1])}")
        self._list_rows(_library.pl_server_rows_push, table, ids, gradients)

    def count_rows(self, table):
        """The number of rows that the servers keep, since they were pushed."""
        count = ctypes.c_uint64()
        _call(_library.pl_server_rows_count, self._server, self._table(table)[0], ctypes.byref(count))
        return count.value

    def save_rows(self, table, directory):
        """Each server writes its part of the table to that directory. One worker calls it, after sum() as a barrier."""
        _call(_library.pl_server_rows_save, self._server, self._table(table)[0], os.fspath(directory).encode())

    def load_rows(self, table, directory):
        """Replace the table by what was saved in that directory. One worker calls it, between two barriers."""
        _call(_library.pl_server_rows_load, self._server, self._table(table)[0], os.fspath(directory).encode())

    def leave(self):
        """Leave the job; the other workers continue. A program that succeeds leaves by itself."""
        _call(_library.pl_server_leave, self._server)

    __enter__ = lambda self: self

    def __exit__(self, kind, *_):
        if kind is None:  # a worker that failed does not leave: the servers treat it as lost
            self.leave()


class _Served:
    """The base class that ServerOptimizer() puts before an optimizer's own class."""

    def _serve(self, kind, named, staleness, overlap):
        self._kind, self._options, self._sent, self._hooks, self._problem = kind, None, {}, [], None
        self._options = self._wanted()
        self._served = {name: parameter for name, parameter in named if parameter.requires_grad}
        if {id(parameter) for parameter in self._served.values()} != {id(p) for group in self.param_groups for p in group["params"] if p.requires_grad}:
            raise ValueError("named_parameters are not the parameters of the optimizer; model.named_parameters() gives them")
        self.server = Server({name: parameter.detach().contiguous() for name, parameter in self._served.items()}, kind, staleness=staleness, **self._options)
        for name, parameter in self._served.items():
            parameter.data = self.server.values[name]
            if overlap:
                self._hooks.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])  # its hook runs when the gradient of this pass is complete
                self._hooks[-1].register_hook(functools.partial(self._passed, name, parameter))

    def _wanted(self):
        """The options of the groups. They must be the same in all groups, and all but lr the same in all steps."""
        names = ["dampening", "amsgrad", "maximize", "lr_decay", "initial_accumulator_value"] + ["decoupled_weight_decay"] * (self._kind == "adam")
        refused = [name for name in names if any(group.get(name) for group in self.param_groups)]
        if refused:
            raise ValueError(f"parameter servers do not have {refused[0]}")
        names = ["lr", "momentum", "nesterov", "betas", "eps", "weight_decay"]
        wanted, *others = ({name: group[name] for name in names if name in group} for group in self.param_groups)
        if any(options != wanted for options in others):
            raise ValueError(f"the groups' options differ, {wanted} and {others}: parameter servers have one optimizer for all parameters")
        if {**(self._options or wanted), "lr": wanted["lr"]} != wanted:
            raise ValueError(f"options are {wanted} after {self._options}: lr alone may change")
        return {**wanted, "lr": float(wanted["lr"])}

    def _send(self, name, parameter):
        if not self._sent:
            self.server.lr = self._wanted()["lr"]
        self.server.push({name: parameter.grad})
        self._sent[name] = parameter.grad, parameter.grad._version

    def _passed(self, name, parameter, *_):
        """Runs in the backward pass. An exception there would keep torch's graph alive beyond the interpreter's exit, so step() raises it."""
        if self._problem is None and name not in self._sent:
            try:
                self._send(name, parameter)
            except Exception as error:
                self._problem = error

    def step(self, closure=None):
        with sys.modules["torch"].enable_grad():
            loss = closure() if closure else None
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        sent_at, self.server.lr = self.server.lr, self._wanted()["lr"]
        for name, parameter in self._served.items():
            sent, grad = self._sent.get(name), parameter.grad
            if sent and (sent_at != self.server.lr or grad is not sent[0] or grad._version != sent[1]):
                raise ValueError(f"lr or the gradient of '{name}' was changed between backward() and step(), when it had been sent; with overlap=False "
                                 "gradients are sent in step()")
            if not sent and grad is not None:
                self._send(name, parameter)
        self.server.wait()
        self._sent.clear()
        return loss

    step.hooked = True  # otherwise torch would run the optimizer's step hooks here too, before the gradients are complete

    def zero_grad(self, *arguments, **keywords):
        if self._sent:
            raise AssertionError("zero_grad() between backward() and step() would clear gradients that have been sent")
        return super().zero_grad(*arguments, **keywords)

    def add_param_group(self, param_group):
        raise ValueError("add_param_group(): a worker's parameters are those it joined with; add them before ServerOptimizer()")


def ServerOptimizer(optimizer, named_parameters, staleness=None, overlap=True):
    """Make parameter servers (see Server) do the step() of a torch.optim.SGD, Adam, AdamW or Adagrad; this call joins them. Returns the same object.

    The model's parameters become `values` of its `server`. Gradients are sent as soon as the backward pass has computed them; step() waits for the newest
    values. Schedulers work: they set the lr of param_groups, which must be equal in all groups. With `overlap` False gradients are sent in step(), for
    programs that change them after backward() or call backward() several times. Frozen parameters are not changed, nor are values that are not parameters,
    such as the statistics of a BatchNorm."""
    torch = sys.modules["torch"]
    kinds = dict(zip((torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad), _SERVER_KINDS))
    if type(optimizer) not in kinds:
        raise ValueError(f"parameter servers have SGD, Adam, AdamW and Adagrad, not {type(optimizer).__name__}")
    vars(optimizer).pop("step", None)  # a scheduler that was made before has replaced the class's step() by its own
    kind = kinds[type(optimizer)]
    optimizer.__class__ = type(type(optimizer).__name__, (_Served, type(optimizer)), {})
    optimizer._serve(kind, named_parameters, staleness, overlap)
    return optimizer
