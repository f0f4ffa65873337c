# SPDX-License-Identifier: Apache-2.0
"""Operations among ranks, with the names and parameters of horovod.torch."""
from __future__ import annotations

import ctypes
import functools
import operator
import pickle
import sys
from typing import Any, List, Optional, Sequence, TypeVar

from . import _job
from ._job import ProcessSet, _running, _service, global_process_set, rank
from ._library import InvalidError, _Completion, _DTYPES, _MAX_DIMS, _Op, _Result, _call, _error, _failed, _library

Array = TypeVar("Array")  # a numpy array or a torch tensor

Sum, Average, Min, Max, Product, Adasum = "sum", "average", "min", "max", "product", "adasum"


_ON_DEVICE = 2  # enum pl_memory
_OPS = [Sum, Average, Min, Max, Product, Adasum]  # enum pl_op
_KINDS = ["allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "reduce", "barrier"]  # enum pl_kind


class _Numpy:
    """numpy's names. It is imported when one of them is first used."""

    def __getattr__(self, name):
        import numpy
        value = self.__dict__[name] = getattr(numpy, name)
        return value


numpy = _Numpy()


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
        if array.is_neg():
            raise ValueError("a torch tensor must have its values, and this one waits to be negated: .resolve_neg()")
        if not (array.is_cpu or array.is_cuda) or not array.is_contiguous():
            raise ValueError("a torch tensor must be contiguous, and on the CPU or a GPU: .contiguous()")
        if _gpu_of(array) not in (None, _job._gpu):
            advice = f"{_job._gpu}: torch.cuda.set_device({_job._gpu})" if _job._gpu is not None else "none: import torch before init(), and see `paceline info`"
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

    def poll(self) -> bool:
        return _library.pl_service_poll(_service, ctypes.byref(self._under_way()))

    def wait(self) -> Any:
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
    if kind != "barrier":
        address, shape, dtype = _view(send)
        if dtype not in _DTYPES:
            raise TypeError(f"{dtype} is not a type that can be exchanged: {', '.join(_DTYPES)}")
        if len(shape) > _MAX_DIMS:
            raise ValueError(f"{len(shape)} dimensions, at most {_MAX_DIMS} can be exchanged")
        request.send, request.dtype, request.dims = address, _DTYPES[dtype], len(shape)
        if _gpu_of(send) is not None:  # the operation starts after the work of the current stream
            request.memory, request.stream = _ON_DEVICE, sys.modules["torch"].cuda.current_stream(_job._gpu).cuda_stream
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
            send.is_contiguous() and not send.is_neg()):
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


def allreduce_async_(tensor: Array, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[str] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> Handle:
    """Replace `tensor` by the reduction over all ranks, the average unless `op` says otherwise; returns a Handle."""
    return _submit_sum(name, process_set, tensor, tensor, _op(average, op), (prescale_factor, postscale_factor))


def allreduce_async(tensor: Array, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[str] = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> Handle:
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


def allreduce(tensor: Array, average: Optional[bool] = None, name: Optional[str] = None, compression: Any = Compression.none,
              op: Optional[str] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> Array:
    """The reduction of `tensor` over all ranks, as a new one of the same kind."""
    return _reduce("allreduce", [tensor], compression, name, process_set, False, _op(average, op), (prescale_factor, postscale_factor))[0]


def grouped_allreduce_async_(tensors: Sequence[Array], average: Optional[bool] = None, name: Optional[str] = None, op: Optional[str] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> Handle:
    """As allreduce_async_() with a list: if one array fails, no array is reduced."""
    tensors = list(tensors)
    return _submit("allreduce", name, process_set, tensors, tensors, grouped=True, op=_op(average, op), scales=(prescale_factor, postscale_factor))


def grouped_allreduce_async(tensors: Sequence[Array], average: Optional[bool] = None, name: Optional[str] = None, op: Optional[str] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> Handle:
    tensors = list(tensors)
    return _submit("allreduce", name, process_set, tensors, map(_like, tensors), grouped=True, op=_op(average, op),
                   scales=(prescale_factor, postscale_factor))


grouped_allreduce_ = _waiting(grouped_allreduce_async_)


def grouped_allreduce(tensors: Sequence[Array], average: Optional[bool] = None, name: Optional[str] = None, compression: Any = Compression.none,
                      op: Optional[str] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set) -> List[Array]:
    return _reduce("allreduce", tensors, compression, name, process_set, True, _op(average, op), (prescale_factor, postscale_factor))


def allgather_async(tensor: Array, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
    return _submit("allgather", name, process_set, [tensor], finish=_rows_like)


def grouped_allgather_async(tensors: Sequence[Array], name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
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


def allgather(tensor: Array, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
    """All ranks' rows one after the other; the number of rows may differ between ranks."""
    return _allgather([tensor], name, process_set, False)[0]


def grouped_allgather(tensors: Sequence[Array], name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Array]:
    return _allgather(tensors, name, process_set, True)


def _broadcast_async(tensor, out, root_rank, name, process_set):
    _running()
    if root_rank not in process_set.ranks:
        raise InvalidError(f"root {root_rank} is not among the ranks {process_set.ranks}")
    return _submit("broadcast", name, process_set, [tensor], [out], root=process_set.ranks.index(root_rank))


def broadcast_async_(tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
    """Replace `tensor` on every rank by the tensor of `root_rank`; returns a Handle."""
    return _broadcast_async(tensor, tensor, root_rank, name, process_set)


broadcast_ = _waiting(broadcast_async_)


def broadcast_async(tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
    return _broadcast_async(tensor, _like(tensor), root_rank, name, process_set)


def broadcast(tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
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


def alltoall_async(tensor: Array, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Handle:
    return _alltoall_async(tensor, splits, name, process_set, lambda rows, came: _alltoall_result(tensor, splits, rows, came))


def alltoall(tensor: Array, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Send equal parts of the rows to every rank. With `splits`, send splits[r] rows to rank r; the result is (rows, number of rows from each rank)."""
    came = []

    def forward(tensor):
        rows, came[:] = _alltoall_async(tensor, splits, name, process_set, lambda *result: result).wait()
        return [rows]

    def backward(gradient):
        return [alltoall(gradient, came, name and f"{name}.backward", process_set)[0]]
    return _alltoall_result(tensor, splits, *_differentiable(forward, backward, tensor), came)


def reducescatter_async(tensor: Array, name: Optional[str] = None, op: str = Average, process_set: ProcessSet = global_process_set,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Handle:
    return _submit("reduce_scatter", name, process_set, [tensor], finish=_rows_like, op=op, scales=(prescale_factor, postscale_factor))


def grouped_reducescatter_async(tensors: Sequence[Array], name: Optional[str] = None, op: str = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Handle:
    return _submit("reduce_scatter", name, process_set, tensors, finish=_rows_like, grouped=True, op=op, scales=(prescale_factor, postscale_factor))


def reducescatter(tensor: Array, name: Optional[str] = None, compression: Any = Compression.none, op: str = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Array:
    """This rank's rows of the reduction over all ranks."""
    return _reduce("reduce_scatter", [tensor], compression, name, process_set, False, op, (prescale_factor, postscale_factor))[0]


def grouped_reducescatter(tensors: Sequence[Array], name: Optional[str] = None, compression: Any = Compression.none, op: str = Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> List[Array]:
    return _reduce("reduce_scatter", tensors, compression, name, process_set, True, op, (prescale_factor, postscale_factor))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    _submit("barrier", None, process_set, [None]).wait()


def join(device: int = -1) -> int:
    """Call it when this rank has no more data: it contributes nothing until all ranks have joined. Returns the last rank to join. `device` has no effect."""
    completion = _Completion()
    global_process_set._number()
    _call(_library.pl_service_submit_join, _service, ctypes.byref(completion))
    _call(_library.pl_service_wait, _service, ctypes.byref(completion))
    return completion.last_joined_rank


def broadcast_parameters(params: Any, root_rank: int = 0) -> None:
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


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """The object of `root_rank` on every rank."""
    name = name or "object"
    here = _dumps(obj) if rank() == root_rank else b""
    length = broadcast(numpy.array([len(here)], numpy.int64), root_rank, f"{name} length", process_set)
    data = numpy.frombuffer(here, numpy.uint8).copy() if rank() == root_rank else numpy.empty(int(length[0]), numpy.uint8)
    broadcast_(data, root_rank, name, process_set)
    return obj if rank() == root_rank else pickle.loads(data.tobytes())


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """Every rank's object, in a list by rank."""
    name = name or "objects"
    here = numpy.frombuffer(_dumps(obj), numpy.uint8)
    lengths = allgather(numpy.array([len(here)], numpy.int64), f"{name} lengths", process_set)
    rows = allgather(here, name, process_set)
    return [pickle.loads(part.tobytes()) for part in numpy.split(rows, numpy.cumsum(lengths)[:-1])]
