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

In a job that may be started again (paceline_max_restarts) keep() copies the same to memory that outlives the process, at most 1 % of the time.

A checkpoint is checkpoint-STEP.safetensors and, written after it, checkpoint-STEP.json with the state and the checksum of both: the files of runtime/checkpoint.h,
by the same writer. Only one thread may use a Checkpoints.
"""
from __future__ import annotations

import ctypes
import json
import logging
import operator
import os
import struct
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

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
    if name == "__metadata__" or "\0" in name:
        raise ValueError(f"a tensor cannot have the name {name!r}, which safetensors files reserve")
    dtype = str(value.dtype).split(".")[-1] if kind == "torch" else value.dtype.name
    if dtype not in _STORED or kind == "numpy" and dtype == "bfloat16":
        raise TypeError(f"tensor '{name}' is of type {dtype}: expected {', '.join(_STORED)} (bfloat16 of torch)")
    if kind == "torch" and value.layout is not sys.modules["torch"].strided or len(value.shape) > _MAX_DIMS:
        raise TypeError(f"tensor '{name}' is {getattr(value, 'layout', 'an array')} of {len(value.shape)} dimensions: expected a dense one of at most {_MAX_DIMS}")
    return [name, kind, dtype, list(value.shape)]


def _bytes(value):
    return value.nbytes if _kind(value) == "numpy" else value.numel() * value.element_size()


def _empty(kind, dtype, shape, at=None, size=0):
    """An array or tensor in memory of its own, or in the `size` bytes at the address `at`."""
    memory = (ctypes.c_char * size).from_address(at) if size else None
    if kind == "numpy":
        return numpy.ndarray(shape, dtype, memory)
    import torch
    with torch.inference_mode(False):  # its tensors could not be used again outside it
        dtype = getattr(torch, dtype)
        return torch.frombuffer(memory, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype, device="cpu")


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


_HEAD, _FORM = struct.Struct("<24sQ"), b"paceline.checkpoint 1".ljust(24, b"\0")  # a kept copy: this and the length of the JSON text, the text, the tensors


def _offsets(text_bytes, sizes):
    """Where the tensors of a kept copy begin, and its end."""
    offsets = [_HEAD.size + text_bytes]
    for size in sizes:
        offsets[-1] += -offsets[-1] % 64
        offsets.append(offsets[-1] + size)
    return offsets


class _Kept:
    """The job's memory that outlives its ranks (runtime/kept.h), and when a copy is due there, as runtime/checkpoint/keeper.c has it."""

    def __init__(self):
        self.memory, self.every = ctypes.c_void_p(), int(os.environ.get("PACELINE_KEEP_STEPS") or 0)
        self.step, self.begun, self.spent = None, 0.0, 0.0  # of the last copy
        _call_anywhere("opening the kept memory", _library.pl_kept_open, ctypes.byref(self.memory))
        self.close = weakref.finalize(self, _library.pl_kept_close, self.memory)

    def is_due(self, step, is_writing):
        _library.pl_kept_note(self.memory, ctypes.c_uint64(step))
        if self.step is None or self.every:
            return self.step is None or step < self.step or step - self.step >= self.every
        return step != self.step and not is_writing and time.monotonic() - self.begun >= 100 * self.spent

    def begin(self, step, text, sizes):
        """Begins a copy with the text, and returns the addresses of its tensors."""
        offsets, place, self.begun = _offsets(len(text), sizes), ctypes.c_void_p(), time.monotonic()
        _call_anywhere(f"keeping step {step}", _library.pl_kept_begin, self.memory, ctypes.c_size_t(offsets[-1]), ctypes.byref(place))
        head = _HEAD.pack(_FORM, len(text)) + text
        ctypes.memmove(place.value, head, len(head))
        self.step = step
        return [place.value + offset for offset in offsets]

    def end(self):
        _library.pl_kept_end(self.memory, ctypes.c_uint64(self.step))
        self.spent = time.monotonic() - self.begun

    def read(self):
        """The newest copy as its step, its text as an object ({}: no copy of this module) and the address of what follows the text; None without a copy."""
        step, at, size = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t()
        _library.pl_kept_read(self.memory, ctypes.byref(step), ctypes.byref(at), ctypes.byref(size))
        if not at.value:
            return None
        form, length = _HEAD.unpack(ctypes.string_at(at.value, _HEAD.size)) if size.value >= _HEAD.size else (b"", 0)
        text = ctypes.string_at(at.value + _HEAD.size, length) if form == _FORM else b"{}"
        return step.value, json.loads(text), at.value, len(text)


def _restored(record, memory):
    """The tensors by name, and the state."""
    tensors = dict(zip((description[0] for description in record["tensors"]), memory))
    rest = _unflattened(record["state"], tensors)  # takes the state's tensors out
    return tensors, rest


def _await(writer):
    for thread in writer:
        thread.join()  # Control-C may end it, and the next one waits again
    writer.clear()


def _tell(writer, failure):
    if threading.current_thread() not in writer:
        _await(writer)
    if failure:
        print(f"paceline.checkpoint: {failure[0]}", file=sys.stderr, flush=True)


class Checkpoints:
    """The checkpoints in `directory` (PACELINE_CHECKPOINT_DIR, else /opt/ml/checkpoints), of which the `keep` newest stay. Files of later steps than the last
    written one belong to another run, and stay too.

    Rank 0 writes, as paceline.data finds ranks; for the others save() and flush() do nothing. Each rank loads from its own directory. Errors are a PacelineError;
    one of the last write comes at the next save(), flush() or close(), or is printed when the program ends."""

    def __init__(self, directory: Optional["os.PathLike[str] | str"] = None, keep: int = 3) -> None:
        if not hasattr(keep, "__index__") or keep < 1:
            raise ValueError(f"keep is a whole number and at least 1, not {keep}")
        self.directory = os.fspath(os.environ.get("PACELINE_CHECKPOINT_DIR", "/opt/ml/checkpoints") if directory is None else directory)
        self._keep, self._place, self._is_clean = min(operator.index(keep), 2**31 - 1), None, False
        self._copies: Dict[Tuple[Any, ...], Any] = {}  # of the last save, which the next one uses again
        self._kept: Any = None  # a _Kept; False: the job has none; None: not looked for
        self._keeps = self._is_broadcast = False
        self._failure: List[BaseException] = []  # of the last write
        self._writer: List[threading.Thread] = []  # the thread of the last write, until it was waited for
        weakref.finalize(self, _tell, self._writer, self._failure)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
        else:  # the error in flight says more than the writer's, which is printed
            _await(self._writer)

    def save(self, step: int, tensors: Dict[str, Any], state: Any = None) -> None:
        """Take a copy of the tensors and write it in the background; waits while the checkpoint before is being written. `tensors` is for instance a model's
        state_dict(). `state` is what else the program needs: numbers, text, None, lists, tuples, dicts, and in them arrays and tensors, as in an
        optimizer's state_dict(). TypeError names what cannot be kept."""
        self._copy(step, tensors, state, True)

    def keep(self, step: int, tensors: Dict[str, Any], state: Any = None) -> None:
        """Take a copy as save() does, but in memory that outlives this process, if the job may be started again (paceline_max_restarts) and a copy is due. Call it
        once a step, after save(), whose copy then lies in the same memory. Copies cost at most 1 % of the time; the setting keep_steps says a number of steps
        instead. Only rank 0 has them, so with several ranks all must have called load(broadcast)."""
        if self.keep_is_due(step):
            self._keeps = True
            self._copy(step, tensors, state, False)

    def keep_is_due(self, step: int) -> bool:
        """Whether keep() would copy after this step: what is costly to make need be made only then."""
        rank = self._begin()
        if self._place[1] > 1 and not self._is_broadcast:
            raise ValueError("keep() with several ranks needs load(broadcast) before, because only rank 0 has what is kept")
        kept = self._find_kept() if rank == 0 else None
        return bool(kept) and kept.is_due(step, any(thread.is_alive() for thread in self._writer))

    def _copy(self, step, tensors, state, to_files):
        step = operator.index(step)
        if not 0 <= step < 2**63:
            raise ValueError(f"step {step}: expected a number from 0 to 2**63 - 1")
        if self._begin() != 0:
            return
        everything = dict(tensors)
        record = {"state": _flattened(state, "state", everything)}
        record["tensors"] = descriptions = [_description(name, value) for name, value in everything.items()]
        self.flush()
        copies = self._kept_copies(step, record, everything.values())
        if copies is None and not to_files:
            return
        before, self._copies = self._copies, {}
        for i, (description, value) in enumerate(zip(descriptions, everything.values())):
            _, kind, dtype, shape = description
            key = (*description[:3], *shape)
            memory = before.pop(key, None) if copies is None else copies[i]
            memory = self._copies[key] = _empty(kind, dtype, shape) if memory is None else memory
            if kind == "torch":
                memory.copy_(value.detach())
            else:
                numpy.copyto(memory, value)
        structs = (_Tensor * len(descriptions))(*map(_struct_of, descriptions, self._copies.values()))
        if copies is not None:
            self._copies = {}  # the next one lies elsewhere
        _c()
        thread = threading.Thread(target=self._write, args=(step, structs, record, copies is not None, to_files), name="paceline-checkpoint", daemon=False)
        if not threading.main_thread().is_alive():  # the program ends, and no thread would be waited for
            return thread.run()
        thread.start()
        self._writer.append(thread)

    def _write(self, step, structs, record, to_memory, to_files):
        try:
            if to_memory:
                self._kept.end()
            if not to_files:
                return
            self._clean()
            checksum = _library.pl_checkpoint_checksum(structs, ctypes.c_size_t(len(structs)))
            state = {"step": step, "world_size": self._place[1], "data_crc32c": checksum, "python": record}
            _call_anywhere(f"writing the checkpoint of step {step}", _library.pl_checkpoint_write, os.fsencode(self.directory), ctypes.c_uint64(step), self._keep,
                           structs, ctypes.c_size_t(len(structs)), json.dumps(state, separators=(",", ":")).encode())
        except BaseException as error:  # it belongs to the program's thread
            self._failure.append(error)

    def _find_kept(self):
        """The job's kept memory; None without one. The error INVALID says that another part of the program has it open."""
        if self._kept is None and os.environ.get("PACELINE_KEPT"):
            try:
                self._kept = _Kept()
            except PacelineError as error:
                if error.status != "SYSTEM":
                    raise
                self._leave_kept(error)
        return self._kept if self._kept and self._kept.close.alive else None  # not alive: the program ends

    def _leave_kept(self, error):
        _log.warning("no state is kept in memory, a job that is started again goes on from files: %s", error)
        if self._kept:
            self._kept.close()
        self._kept = self._keeps = False

    def _kept_copies(self, step, record, values):
        """Memory for the copies of `values` that outlives this process; None if nothing is kept there."""
        if not self._keeps:
            return None
        text, sizes = json.dumps({"directory": self.directory, **record}, separators=(",", ":")).encode(), list(map(_bytes, values))
        try:
            places = self._kept.begin(step, text, sizes)
        except PacelineError as error:
            return self._leave_kept(error)
        return [_empty(*description[1:], *place) for description, *place in zip(record["tensors"], places, sizes)]

    def _load_kept(self):
        """The newest kept copy as load() gives it; None without one that is of these checkpoints."""
        try:
            kept = self._find_kept()
        except PacelineError:  # another part of the program keeps
            return None
        found = kept.read() if kept else None
        if not found:
            return None
        step, record, at, length = found
        kept.step = None  # the next copy is due at once
        if record.get("directory") != self.directory:
            _log.warning("the kept copy of step %d is passed over: it is of %s", step,
                         f"another model, with checkpoints in '{record['directory']}'" if record else "another part of the program")
            return None
        memory = [_empty(*description[1:]) for description in record["tensors"]]
        structs = list(map(_struct_of, record["tensors"], memory))
        for tensor, offset in zip(structs, _offsets(length, [tensor.bytes for tensor in structs])):
            ctypes.memmove(tensor.data, at + offset, tensor.bytes)
        return (step, *_restored(record, memory))

    def load(self, broadcast: Optional[Callable[[Any], Any]] = None) -> Optional[Tuple[int, Dict[str, Any], Any]]:
        """The newest whole checkpoint as (step, tensors, state), tensors in host memory; None without one. What is cut or corrupt is passed over with a warning.
        An error of reading is an error. `broadcast` is a function that gives each rank what rank 0 calls it with, such as paceline.broadcast_object or
        horovod's: all ranks call load() then, and get what rank 0 has loaded, from its files or from what keep() has kept."""
        rank = self._begin()
        if not broadcast:
            return self._load_newest(self._place[1] == 1)
        self._is_broadcast = True
        found = words = None
        if rank == 0:
            try:
                found = self._load_newest(True)
            except Exception as error:
                broadcast((None, str(error)))
                raise
        found, words = broadcast((found, words))
        if words:
            raise PacelineError("PEER", f"rank 0: {words}")
        return found

    def _load_newest(self, from_memory):
        self.flush()
        kept = self._load_kept() if from_memory else None
        steps, count, other = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_size_t(), None
        _call_anywhere("looking for checkpoints", _c().pl_checkpoint_steps, os.fsencode(self.directory), False, ctypes.byref(steps), ctypes.byref(count))
        numbers = steps[:count.value]
        _library.pl_memory_free_at(ctypes.byref(steps))
        for step in numbers:
            if kept and step <= kept[0]:
                break
            try:
                return (step, *self._load(step))
            except PacelineError as error:
                if error.status not in _USELESS:
                    raise  # an older one would throw away what was trained since
                other = other or (error if error.status == "MISMATCH" else None)
                _log.warning("the checkpoint of step %d is passed over: %s", step, error)
        if other and not kept:
            raise other
        return kept

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
        return _restored(state["python"], memory)

    def flush(self) -> None:
        """Wait until the last checkpoint is on disk."""
        _await(self._writer)
        if self._failure:
            raise self._failure.pop()

    def close(self) -> None:
        """flush(), and give the memory of the copy back. What is kept stays."""
        try:
            self.flush()
        finally:
            self._copies = {}
            if self._kept:
                self._kept.close()
            self._kept, self._keeps = None, False

    def _begin(self):
        """This process's rank. The first call makes the directory."""
        if self._place is None:
            place = _ranks()[0]
            os.makedirs(self.directory, exist_ok=True)
            self._place = place
        return self._place[0]

    def _clean(self):
        """The first save removes what a killed run left half written: a process that only loads may run beside the one that writes."""
        if not self._is_clean:
            steps, count = ctypes.c_void_p(), ctypes.c_size_t()
            _call_anywhere("opening checkpoints", _c().pl_checkpoint_steps, os.fsencode(self.directory), True, ctypes.byref(steps), ctypes.byref(count))
            _library.pl_memory_free_at(ctypes.byref(steps))
            self._is_clean = True
