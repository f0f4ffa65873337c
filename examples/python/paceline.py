# SPDX-License-Identifier: Apache-2.0
"""Paceline from Python: one file over ctypes, nothing to build. Names and keywords are Horovod's.

    import paceline as hvd
    hvd.init()
    mean = hvd.allreduce(array, name="loss")               # numpy array or torch tensor
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

Arrays must be contiguous and in host memory. Operations are matched by name, in any order on any rank (runtime/named.h).
The library is libpaceline.so beside this file, in $PACELINE_LIBRARY, or where the system's loader finds it.
One thread uses this module.
"""

import atexit
import contextlib
import ctypes
import os
import pickle
import sys

import numpy

Sum, Average, Min, Max, Product = "sum", "average", "min", "max", "product"

_MAX_DIMS = 8
_OPS = [Sum, Average, Min, Max, Product]  # enum pl_op
_KINDS = ["allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "reduce", "barrier"]  # enum pl_kind
_DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int8": 4, "int16": 5, "int32": 6, "int64": 7, "uint8": 8, "bool": 9}


class PacelineError(RuntimeError):
    """What the library reported; `status` is its name, "MISMATCH" for example."""

    def __init__(self, status, text):
        super().__init__(f"{text} [{status}]")
        self.status = status


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("domain", ctypes.c_int), ("code", ctypes.c_int64), ("retryable", ctypes.c_bool),
                ("cause", ctypes.c_char * 600), ("context", ctypes.c_char * 400)]


class _Op(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("dtype", ctypes.c_int), ("op", ctypes.c_int), ("flags", ctypes.c_uint),
                ("scaled", ctypes.c_bool), ("prescale", ctypes.c_double), ("postscale", ctypes.c_double), ("root", ctypes.c_int),
                ("dims", ctypes.c_uint), ("shape", ctypes.c_uint64 * _MAX_DIMS), ("memory", ctypes.c_int), ("splits", ctypes.POINTER(ctypes.c_uint64)),
                ("send", ctypes.c_void_p), ("recv", ctypes.c_void_p)]


class _Result(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("rows", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("rows_of_rank", ctypes.POINTER(ctypes.c_uint64))]


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libpaceline.so")
    path = os.environ.get("PACELINE_LIBRARY") or (beside if os.path.exists(beside) else "libpaceline.so.0")
    # Open MPI's plug-ins look for its symbols among the global ones.
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.pl_abi_struct_bytes.restype = ctypes.c_size_t
    for name, struct in (("pl_error", _Error), ("pl_named_op", _Op), ("pl_named_result", _Result)):
        bytes_there = library.pl_abi_struct_bytes(name.encode())
        if bytes_there != ctypes.sizeof(struct):
            raise ImportError(f"{path}: struct {name} has {bytes_there} bytes, this file expects {ctypes.sizeof(struct)}: "
                              "take paceline.py and libpaceline.so from the same build")
    library.pl_error_text.restype = ctypes.c_char_p
    library.pl_status_name.restype = ctypes.c_char_p
    library.pl_runtime_world.restype = ctypes.c_void_p
    return library


_library = None
_runtime = ctypes.c_void_p()
_world = ctypes.c_void_p()
_named = ctypes.c_void_p()
_under_way = {}  # by number of the operation: its buffers, which the library uses although the program may have let go of them


def _call(function, *arguments):
    error = _Error()
    status = function(*arguments, ctypes.byref(error))
    if status != 0:
        text = ctypes.create_string_buffer(1100)
        _library.pl_error_text(ctypes.byref(error), text, len(text))
        raise PacelineError(_library.pl_status_name(status).decode(), text.value.decode(errors="replace"))


def init():
    """Join the job: mpirun's ranks, or one rank alone. Calling it again does nothing. A program that ends well leaves by itself."""
    global _library
    if _named:
        return
    atexit.unregister(_leave)
    atexit.register(_leave, os.getpid())
    sys.exit = _exit
    _library = _library or _load()
    _call(_library.pl_runtime_start, ctypes.byref(_runtime))
    _world.value = _library.pl_runtime_world(_runtime)
    _call(_library.pl_named_new, _world, None, ctypes.byref(_named))


def shutdown():
    """Leave; all ranks' operations under way end. Collective. The interpreter's end does it for a program that ran through."""
    if not _named:
        return
    atexit.unregister(_leave)
    _call(_library.pl_named_shutdown, _named)
    _library.pl_named_free(_named)
    _library.pl_runtime_stop(_runtime)
    _named.value = _world.value = _runtime.value = None
    _under_way.clear()


_sys_exit = sys.exit
_exit_status = None


def _exit(status=None):
    """sys.exit(), whose status the interpreter's end is not told; see _leave()."""
    global _exit_status
    _exit_status = status
    _sys_exit(status)


def _leave(pid):
    """At the interpreter's end, but not in a child of fork(). A rank that failed ends at once, and is the one that is blamed."""
    if os.getpid() != pid:
        return
    if "mpi4py.MPI" in sys.modules:  # it ends MPI with the interpreter: what is known by now has to do
        if getattr(sys, "last_type", None) is None and not _exit_status:
            shutdown()
        return
    # The process's end is told its status. Buffers have to last until then.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_under_way))
    _call(_library.pl_abi_leave_at_exit, _runtime, _named)


def is_initialized():
    return bool(_named)


def _engine():
    if not _named:
        raise PacelineError("INVALID", "call paceline.init() first")
    return _named


def _ask(function):
    _engine()
    return function(_world)


def rank():
    return _ask(lambda world: _library.pl_world_rank(world))


def size():
    return _ask(lambda world: _library.pl_world_size(world))


def local_rank():
    return _ask(lambda world: _library.pl_world_local_rank(world))


def local_size():
    return _ask(lambda world: _library.pl_world_local_size(world))


def cross_rank():
    return _ask(lambda world: _library.pl_world_cross_rank(world))


def cross_size():
    return _ask(lambda world: _library.pl_world_cross_size(world))


def _is_torch(array):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _view(array, written=False):
    """Address, shape and type name of a contiguous array in host memory."""
    if _is_torch(array):
        if array.device.type != "cpu" or not array.is_contiguous():
            raise ValueError("a torch tensor must be contiguous and on the CPU: .cpu().contiguous()")
        return array.data_ptr(), tuple(array.shape), str(array.dtype).replace("torch.", "")
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError("a numpy array must be contiguous: numpy.ascontiguousarray()")
    if not array.dtype.isnative:
        raise ValueError("a numpy array must have the machine's byte order: array.astype(array.dtype.newbyteorder('='))")
    if written and not array.flags["WRITEABLE"]:
        raise ValueError("a numpy array that takes the result must be writeable: array.copy()")
    return array.ctypes.data, array.shape, array.dtype.name


class Handle:
    """An operation under way. wait() ends it and gives its result; poll() tells whether wait() would block."""

    def __init__(self, number, finish):
        self._number, self._finish = number, finish

    def poll(self):
        done = ctypes.c_bool()
        _call(_library.pl_named_poll, _engine(), self._number, ctypes.byref(done))
        return done.value

    def wait(self):
        result = _Result()
        number, self._number = self._number, ctypes.c_uint64(0)
        _call(_library.pl_named_wait, _engine(), number, ctypes.byref(result))
        del _under_way[number.value]
        return self._finish(result)


def _submit(kind, send, recv, name, finish, op=Sum, root=0, splits=None, scales=(1.0, 1.0)):
    engine = _engine()
    request = _Op(name=name.encode() if name else None, kind=_KINDS.index(kind), op=_OPS.index(op), root=root)
    if send is not None:
        address, shape, dtype = _view(send)
        if dtype not in _DTYPES:
            raise TypeError(f"{dtype} is not a type that can be exchanged: {', '.join(_DTYPES)}")
        if len(shape) > _MAX_DIMS:
            raise ValueError(f"{len(shape)} dimensions, at most {_MAX_DIMS} can be exchanged")
        request.send, request.dtype, request.dims = address, _DTYPES[dtype], len(shape)
        request.shape[:len(shape)] = shape
    if recv is not None:
        request.recv = _view(recv, written=True)[0]
    if splits is not None:
        request.splits = (ctypes.c_uint64 * len(splits))(*splits)
    if scales != (1.0, 1.0):
        request.scaled, (request.prescale, request.postscale) = True, scales
    number = ctypes.c_uint64()
    _call(_library.pl_named_submit, engine, ctypes.byref(request), ctypes.byref(number))
    _under_way[number.value] = send, recv
    return Handle(number, finish)


def _like(array):
    return sys.modules["torch"].empty_like(array) if _is_torch(array) else numpy.empty_like(array)


def _rows_like(array, result):
    """Copy the library's memory into an array of `array`'s kind, type and inner shape."""
    shape = (int(result.rows),) + tuple(array.shape[1:])
    out = sys.modules["torch"].empty(shape, dtype=array.dtype) if _is_torch(array) else numpy.empty(shape, array.dtype)
    if result.bytes:
        ctypes.memmove(_view(out)[0], result.data, result.bytes)
    _library.pl_named_result_done(ctypes.byref(result))
    return out


def _like_splits(splits, rows):
    return sys.modules["torch"].tensor(rows, dtype=splits.dtype) if _is_torch(splits) else numpy.array(rows, numpy.int32)


def allreduce_async_(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    """Replace `array` by the reduction over all ranks; returns a Handle."""
    return _submit("allreduce", array, array, name, lambda result: array, op, scales=(prescale_factor, postscale_factor))


def allreduce_async(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    out = _like(array)
    return _submit("allreduce", array, out, name, lambda result: out, op, scales=(prescale_factor, postscale_factor))


def allreduce(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    """The reduction of `array` over all ranks, as a new array of the same kind."""
    return allreduce_async(array, name, op, prescale_factor, postscale_factor).wait()


def allreduce_(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    return allreduce_async_(array, name, op, prescale_factor, postscale_factor).wait()


def allgather_async(array, name=None):
    return _submit("allgather", array, None, name, lambda result: _rows_like(array, result))


def allgather(array, name=None):
    """All ranks' rows one behind the other; the number of rows may differ between ranks."""
    return allgather_async(array, name).wait()


def broadcast_async_(array, root_rank=0, name=None):
    return _submit("broadcast", array, array, name, lambda result: array, root=root_rank)


def broadcast_(array, root_rank=0, name=None):
    """Replace `array` on every rank by that of `root_rank`."""
    return broadcast_async_(array, root_rank, name).wait()


def broadcast_async(array, root_rank=0, name=None):
    return broadcast_async_(array.clone() if _is_torch(array) else array.copy(), root_rank, name)


def broadcast(array, root_rank=0, name=None):
    """The array of `root_rank`, as a new one."""
    return broadcast_async(array, root_rank, name).wait()


def alltoall_async(array, splits=None, name=None):
    def finish(result):
        rows = [int(result.rows_of_rank[r]) for r in range(size())] if splits is not None else None
        out = _rows_like(array, result)
        return out if rows is None else (out, _like_splits(splits, rows))
    return _submit("alltoall", array, None, name, finish, splits=None if splits is None else [int(rows) for rows in splits])


def alltoall(array, splits=None, name=None):
    """Equal parts of the rows to every rank; with `splits`, splits[r] rows to rank r, and the result is (rows, rows from each rank)."""
    return alltoall_async(array, splits, name).wait()


def reducescatter_async(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    return _submit("reduce_scatter", array, None, name, lambda result: _rows_like(array, result), op, scales=(prescale_factor, postscale_factor))


def reducescatter(array, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the reduction over all ranks."""
    return reducescatter_async(array, name, op, prescale_factor, postscale_factor).wait()


def barrier(name=None):
    _submit("barrier", None, None, name, lambda result: None).wait()


def poll(handle):
    return handle.poll()


def synchronize(handle):
    return handle.wait()


def join():
    """No more data on this rank: stay neutral until all ranks have joined. Returns the last rank to join."""
    last = ctypes.c_int()
    _call(_library.pl_named_join, _engine(), ctypes.byref(last))
    return last.value


def broadcast_parameters(params, root_rank=0):
    """Give every rank `root_rank`'s values: a dict (a state_dict(), say) or (name, array) pairs."""
    pairs = sorted(params.items()) if hasattr(params, "items") else list(params)
    broadcasts = []
    for name, value in pairs:
        here = value
        if _is_torch(value):
            value = value.data
            here = value.contiguous()  # itself, but for layouts such as channels_last
        if _is_torch(value) or isinstance(value, numpy.ndarray):
            broadcasts.append((value, here, broadcast_async_(here, root_rank, f"parameter.{name}")))
    for value, here, handle in broadcasts:
        handle.wait()
        if here is not value:
            value.copy_(here)


def broadcast_object(obj, root_rank=0, name=None):
    """The object of `root_rank` on every rank, by pickle."""
    name = name or "object"
    here = pickle.dumps(obj) if rank() == root_rank else b""
    length = broadcast(numpy.array([len(here)], numpy.int64), root_rank, f"{name} length")
    data = numpy.frombuffer(here, numpy.uint8).copy() if rank() == root_rank else numpy.empty(int(length[0]), numpy.uint8)
    broadcast_(data, root_rank, name)
    return obj if rank() == root_rank else pickle.loads(data.tobytes())


def broadcast_optimizer_state(optimizer, root_rank=0):
    """Give every rank `root_rank`'s state of a torch optimizer, numbers and tensors, and its options."""
    state = broadcast_object(optimizer.state_dict(), root_rank, "optimizer state")
    if rank() != root_rank:
        optimizer.load_state_dict(state)


class _Distributed:
    """What DistributedOptimizer() puts before an optimizer's own class."""

    def _distribute(self, named_parameters, backward_passes_per_step, op):
        self._op, self._passes = op, backward_passes_per_step
        self._waits, self._seen, self._hooks, self._synchronized = {}, {}, [], False
        self._given = {id(parameter): name for name, parameter in named_parameters or ()}
        self._names = {}  # parameters by name
        self._sparse = set()  # names of those with sparse gradients
        self._watch()

    def _watch(self):
        """Hook every parameter that needs a gradient and has no hook yet: one of a group that was added, or no longer frozen."""
        known = {id(parameter) for parameter in self._names.values()}
        owned = [parameter for group in self.param_groups for parameter in group["params"]]
        for i, parameter in enumerate(owned):
            if not parameter.requires_grad or id(parameter) in known:
                continue
            name = self._given.get(id(parameter), f"parameter{i}")
            if name in self._names:
                raise ValueError(f"two parameters are called '{name}'")
            self._names[name] = parameter
            # The node that adds to parameter.grad; its hook runs when the gradient of this pass is complete.
            accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
            accumulate.register_hook(self._hook_of(name, parameter))
            self._hooks.append(accumulate)

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        self._watch()

    def _hook_of(self, name, parameter):
        def hook(*_):
            self._synchronized = False
            self._seen[name] = self._seen.get(name, 0) + 1
            if self._seen[name] > self._passes:
                raise RuntimeError(f"'{name}': more than {self._passes} backward passes without step(); see backward_passes_per_step")
            if self._seen[name] == self._passes:
                self._start(name, parameter)
        return hook

    def _start(self, name, parameter):
        import torch
        if parameter.grad is None and name not in self._sparse:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad is None or parameter.grad.is_sparse:
            self._sparse.add(name)
            self._waits[name] = self._gather(name, parameter)
            return
        if not parameter.grad.is_contiguous():
            parameter.grad = parameter.grad.contiguous()
        self._waits[name] = allreduce_async_(parameter.grad, f"gradient.{name}", self._op).wait

    def _gather(self, name, parameter):
        """A sparse gradient, which becomes the rows of all ranks; those of one index are added up."""
        import torch
        if self._op not in (Sum, Average):
            raise ValueError(f"'{name}': sparse gradients have a sum and an average, not {self._op}")
        rows, numbers = parameter.new_empty((0, *parameter.shape[1:])), torch.empty((0, 1), dtype=torch.int64)
        if parameter.grad is not None and parameter.grad._nnz():
            grad = parameter.grad.coalesce()
            rows, numbers = grad.values().contiguous(), grad.indices().t().contiguous()
        numbers = allgather_async(numbers, f"gradient.{name}.indices")
        rows = allgather_async(rows, f"gradient.{name}.values")

        def wait():
            grad = torch.sparse_coo_tensor(numbers.wait().t(), rows.wait(), parameter.shape).coalesce()
            parameter.grad = grad / size() if self._op == Average else grad
        return wait

    def synchronize(self):
        """Wait until parameter.grad is reduced everywhere; the next step() does not do it again."""
        self._watch()
        for name, parameter in self._names.items():
            if name not in self._waits and parameter.requires_grad:
                self._start(name, parameter)
        for wait in self._waits.values():
            wait()
        self._waits.clear()
        self._seen.clear()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """step() inside takes the gradients as they are."""
        self._synchronized = True
        try:
            yield
        finally:
            self._synchronized = False

    def step(self, closure=None):
        def averaged():
            loss = closure()  # may run several times in a step; each has its own gradients
            self.synchronize()
            return loss
        if closure is None and not self._synchronized:
            self.synchronize()
        result = super().step(averaged if closure else None)
        self._synchronized = False
        return result

    step.hooked = True  # torch would run an optimizer's step hooks here too, before the gradients are reduced

    def zero_grad(self, *arguments, **keywords):
        if self._waits:
            raise RuntimeError("zero_grad() between backward() and step() would clear gradients that are being averaged")
        return super().zero_grad(*arguments, **keywords)


def DistributedOptimizer(optimizer, named_parameters=None, backward_passes_per_step=1, op=Average):
    """Make the step() of a torch optimizer use gradients averaged over all ranks; returns the same object.

    It stays an instance of its own class, so that schedulers and scalers take it. Gradients are handed over as the backward pass finishes
    them, and waited for in step() (or in synchronize(), for clipping). With backward_passes_per_step = n each gradient, by then the sum of n,
    is handed over in its n-th backward pass. A parameter without a gradient counts as zeros, so that ranks that used different parameters still match;
    one that is frozen on all ranks is left alone, and one that is thawed or added later takes part from then on.
    """
    # A scheduler that was made before has put its own step() over the class's.
    vars(optimizer).pop("step", None)
    optimizer.__class__ = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    optimizer._distribute(named_parameters, backward_passes_per_step, op)
    return optimizer
