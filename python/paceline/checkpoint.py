# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of numpy arrays and torch tensors, which rank 0 writes in the background.

    from paceline.checkpoint import Checkpoints
    with Checkpoints() as checkpoints:
        first, tensors, state = checkpoints.load() or (0, None, None)
        if tensors:
            model.load_state_dict(tensors)
            optimizer.load_state_dict(state["optimizer"])
        for step in range(first + 1, steps + 1):
            ...
            checkpoints.save(step, model.state_dict(), {"optimizer": optimizer.state_dict()})

A checkpoint is checkpoint-STEP.safetensors and, written after it, checkpoint-STEP.json with the state and the checksum of both: the files of runtime/checkpoint.h,
by the same writer. Only one thread may use a Checkpoints.
"""
from __future__ import annotations

import ctypes
import json
import logging
import operator
import os
import sys
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

import numpy

from ._library import _DTYPES, _MAX_DIMS, PacelineError, _call_anywhere, _check_structs, _library, _struct
from .data import _ranks

__all__ = ["Checkpoints"]

_USELESS = ("CORRUPT", "LIMIT", "MISMATCH", "NOT_FOUND", "UNSUPPORTED")  # the checkpoint itself is wrong; any other failure may pass
_log = logging.getLogger("paceline")
_STORED = {**_DTYPES, **{f"u{name}": _DTYPES[name] for name in ("int16", "int32", "int64")}}  # safetensors' types that C has: the same bits

_Tensor = _struct("_Tensor", name=ctypes.c_char_p, dtype=ctypes.c_int, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS, data=ctypes.c_void_p,
                  bytes=ctypes.c_uint64)


def _c():
    """The library, after a check that its struct is this one."""
    if _library.pl_safetensors_tensor.restype is not ctypes.POINTER(_Tensor):
        _check_structs(_library.pl_abi_struct_bytes, pl_tensor=_Tensor)
        _library.pl_safetensors_count.restype, _library.pl_checkpoint_checksum.restype = ctypes.c_size_t, ctypes.c_uint32
        _library.pl_safetensors_tensor.restype = ctypes.POINTER(_Tensor)
    return _library


def _kind(value):
    """"torch" for a torch tensor, "numpy" for an array, None for anything else."""
    torch = sys.modules.get("torch")
    return "torch" if torch and isinstance(value, torch.Tensor) else "numpy" if isinstance(value, numpy.ndarray) else None


def _description(name, value):
    """A tensor's name, kind, type and shape, as the state keeps them."""
    kind = _kind(value)
    if not isinstance(name, str) or not kind:
        raise TypeError(f"tensor {name!r} is a {type(value).__name__}: expected a name of type str and a numpy array or torch tensor")
    dtype = str(value.dtype).split(".")[-1] if kind == "torch" else value.dtype.name
    if dtype not in _STORED or kind == "numpy" and dtype == "bfloat16":
        raise TypeError(f"tensor '{name}' is of type {dtype}: expected {', '.join(_STORED)} (bfloat16 of torch)")
    if kind == "torch" and value.layout is not sys.modules["torch"].strided or len(value.shape) > _MAX_DIMS:
        raise TypeError(f"tensor '{name}' is {getattr(value, 'layout', 'an array')} of {len(value.shape)} dimensions: expected a dense one of at most {_MAX_DIMS}")
    return [name, kind, dtype, list(value.shape)]


def _empty(kind, dtype, shape):
    if kind == "numpy":
        return numpy.empty(shape, dtype)
    import torch
    with torch.inference_mode(False):  # its tensors could not be used again outside it
        return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")


def _struct_of(description, memory):
    name, kind, dtype, shape = description
    at, size = (memory.data_ptr(), memory.numel() * memory.element_size()) if kind == "torch" else (memory.ctypes.data, memory.nbytes)
    return _Tensor(name.encode(), _STORED[dtype], len(shape), (ctypes.c_uint64 * _MAX_DIMS)(*shape), at, size)


def _flattened(value, path, tensors):
    """The state as JSON; its tensors are put into `tensors`, under the path to their place. What JSON has not is an object with one name, "~KIND"."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (numpy.bool_, numpy.integer, numpy.floating)):
        return _flattened(value.item(), path, tensors) if value.itemsize <= 8 else float(value)
    if _kind(value):
        while path in tensors:
            path += "'"
        tensors[path] = value
        return {"~tensor": path}
    if isinstance(value, (list, tuple)):
        items = [_flattened(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"~tuple": items}
    if not isinstance(value, dict):
        raise TypeError(f"'{path}' is a {type(value).__name__}: a state has dicts, lists, tuples, numbers, text, None, arrays and tensors")
    pairs = [[_flattened(key, path, tensors), _flattened(item, f"{path}/{key}", tensors)] for key, item in value.items()]
    return dict(pairs) if all(isinstance(key, str) and not key.startswith("~") for key in value) else {"~dict": pairs}


def _unflattened(value, tensors):
    if isinstance(value, list):
        return [_unflattened(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "~tensor" in value:
        return tensors.pop(value["~tensor"])
    if "~tuple" in value:
        return tuple(_unflattened(value["~tuple"], tensors))
    if "~dict" in value:
        return dict(_unflattened(pair, tensors) for pair in value["~dict"])
    return {key: _unflattened(item, tensors) for key, item in value.items()}


def _tell(failure):
    if failure:
        print(f"paceline.checkpoint: {failure[0]}", file=sys.stderr, flush=True)


class Checkpoints:
    """The checkpoints in `directory` (PACELINE_CHECKPOINT_DIR, else /opt/ml/checkpoints), of which the `keep` newest stay. Files of later steps than the last
    written one belong to another run, and stay too.

    Rank 0 writes, as paceline.data finds ranks; for the others save() and flush() do nothing. Each rank loads from its own directory. Errors are a PacelineError;
    one of the last write comes at the next save(), flush() or close(), or is printed when the program ends."""

    def __init__(self, directory: Optional["os.PathLike[str] | str"] = None, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep is at least 1, not {keep}")
        self.directory = os.fspath(os.environ.get("PACELINE_CHECKPOINT_DIR", "/opt/ml/checkpoints") if directory is None else directory)
        self._keep, self._place, self._thread = keep, None, None
        self._copies: Dict[Tuple[Any, ...], Any] = {}  # of the last save, which the next one uses again
        self._failure: List[BaseException] = []  # of the last write
        weakref.finalize(self, _tell, self._failure)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        elif self._thread:  # the error in flight says more than the writer's, which is printed
            self._thread.join()

    def save(self, step: int, tensors: Dict[str, Any], state: Any = None) -> None:
        """Take a copy of the tensors and write it in the background; waits while the checkpoint before is being written. `tensors` is for instance a model's
        state_dict(). `state` is what else the program needs: numbers, text, None, lists, tuples, dicts, and in them arrays and tensors, as in an
        optimizer's state_dict(). TypeError names what cannot be kept."""
        step = operator.index(step)
        if not 0 <= step < 2**63:
            raise ValueError(f"step {step}: expected a number from 0 to 2**63 - 1")
        if self._begin() != 0:
            return
        everything = dict(tensors)
        record = {"state": _flattened(state, "state", everything)}
        record["tensors"] = descriptions = [_description(name, value) for name, value in everything.items()]
        self.flush()
        before, self._copies = self._copies, {}
        for description, value in zip(descriptions, everything.values()):
            _, kind, dtype, shape = description
            key = (*description[:3], *shape)
            memory = before.pop(key, None)
            memory = self._copies[key] = _empty(kind, dtype, shape) if memory is None else memory
            if kind == "torch":
                memory.copy_(value.detach())
            else:
                numpy.copyto(memory, value)
        structs = (_Tensor * len(descriptions))(*map(_struct_of, descriptions, self._copies.values()))
        _c()
        self._thread = threading.Thread(target=self._write, args=(step, structs, record), name="paceline-checkpoint")
        self._thread.start()

    def _write(self, step, structs, record):
        try:
            checksum = _library.pl_checkpoint_checksum(structs, ctypes.c_size_t(len(structs)))
            state = {"step": step, "world_size": self._place[1], "data_crc32c": checksum, "python": record}
            _call_anywhere(f"writing the checkpoint of step {step}", _library.pl_checkpoint_write, os.fsencode(self.directory), ctypes.c_uint64(step), self._keep,
                           structs, ctypes.c_size_t(len(structs)), json.dumps(state, separators=(",", ":")).encode())
        except BaseException as error:  # it belongs to the program's thread
            self._failure.append(error)

    def load(self) -> Optional[Tuple[int, Dict[str, Any], Any]]:
        """The newest whole checkpoint as (step, tensors, state), tensors in host memory; None without one. What is cut or corrupt is passed over with a warning.
        An error of reading is an error."""
        self._begin()
        self.flush()
        steps, count, other = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_size_t(), None
        _call_anywhere("looking for checkpoints", _c().pl_checkpoint_steps, os.fsencode(self.directory), False, ctypes.byref(steps), ctypes.byref(count))
        numbers = steps[:count.value]
        _library.pl_memory_free_at(ctypes.byref(steps))
        for step in numbers:
            try:
                return (step, *self._load(step))
            except PacelineError as error:
                if error.status not in _USELESS:
                    raise  # an older one would throw away what was trained since
                other = other or (error if error.status == "MISMATCH" else None)
                _log.warning("the checkpoint of step %d is passed over: %s", step, error)
        if other:
            raise other
        return None

    def _load(self, step):
        what, text, file = f"loading the checkpoint of step {step}", ctypes.c_char_p(), ctypes.c_void_p()
        path = os.path.join(self.directory, f"checkpoint-{step:012d}.safetensors")
        _call_anywhere(what, _library.pl_checkpoint_read_state, os.fsencode(self.directory), ctypes.c_uint64(step), ctypes.byref(text))
        state = json.loads(text.value)
        _library.pl_memory_free_at(ctypes.byref(text))
        if "python" not in state:
            raise PacelineError("MISMATCH", f"'{path}' is of a program in C")
        descriptions = state["python"]["tensors"]
        _call_anywhere(what, _library.pl_safetensors_open, os.fsencode(path), ctypes.byref(file))
        try:
            count = _library.pl_safetensors_count(file)
            found = [_library.pl_safetensors_tensor(file, ctypes.c_size_t(i)).contents for i in range(count)]
            wanted = [[name.encode(), _STORED[dtype], shape] for name, _, dtype, shape in descriptions]
            whole = state["step"] == step and wanted == [[tensor.name, tensor.dtype, tensor.shape[:tensor.dims]] for tensor in found]
            if whole:
                memory = [_empty(*description[1:]) for description in descriptions]
                structs = (_Tensor * count)(*map(_struct_of, descriptions, memory))
                for i, tensor in enumerate(structs):
                    _call_anywhere(what, _library.pl_safetensors_read, file, ctypes.c_size_t(i), ctypes.c_void_p(tensor.data))
                whole = _library.pl_checkpoint_checksum(structs, ctypes.c_size_t(count)) == state["data_crc32c"]
            if not whole:
                raise PacelineError("CORRUPT", f"'{path}' has changed since it was written")
        finally:
            _library.pl_safetensors_close(file)
        tensors = dict(zip((description[0] for description in descriptions), memory))
        rest = _unflattened(state["python"]["state"], tensors)  # takes the state's tensors out
        return tensors, rest

    def flush(self) -> None:
        """Wait until the last checkpoint is on disk."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._failure:
            raise self._failure.pop()

    def close(self) -> None:
        """flush(), and give the memory of the copy back."""
        try:
            self.flush()
        finally:
            self._copies = {}

    def _begin(self):
        """This process's rank. The first call makes the directory, and rank 0 removes what a killed run left half written."""
        if self._place is None:
            place = _ranks()[0]
            os.makedirs(self.directory, exist_ok=True)
            if place[0] == 0:
                steps, count = ctypes.c_void_p(), ctypes.c_size_t()
                _call_anywhere("opening checkpoints", _c().pl_checkpoint_steps, os.fsencode(self.directory), True, ctypes.byref(steps), ctypes.byref(count))
                _library.pl_memory_free_at(ctypes.byref(steps))
            self._place = place
        return self._place[0]
