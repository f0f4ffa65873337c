# SPDX-License-Identifier: Apache-2.0
"""Batches of records from files, S3 and Pipe Mode, decoded by threads of C, as numpy arrays, or tensors of torch
and TensorFlow.

    from paceline.data import Dataset
    dataset = Dataset("training", {"image": ("uint8", (3, 32, 32)), "label": "int64"}, batch=256, shuffle=2000)
    for epoch in range(10):
        for batch in dataset:                     # one epoch
            train(batch["image"], batch["label"])

Records: every record of an epoch goes to one rank, and there to one worker of a DataLoader. Nothing is opened, and no thread runs, before the first iteration.
A child of fork() opens the dataset again when it iterates. Control-C ends a wait at once.

A place in the stream: state_dict() is the place after the last batch that the program got, and load_state_dict() goes there; the batches from there on are those of
a run without a stop.

Memory: arrays are views of the batch, which is used again when the last of them is gone. A program may keep up to `max_batches` batches.
"""
from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from ._library import PacelineError, _DTYPES, _Error, _MAX_DIMS, _load_data, _struct, _words

__all__ = ["DataError", "DataTimeoutError", "DataValueError", "Dataset", "Field", "Varying"]

Batch = Dict[str, Any]

_FORMATS = {"tfrecord": 0, "recordio": 1, "lines": 2, "csv": 3, "idx": 4, "whole": 5, "tar": 6}  # enum pl_record_format
_SOURCES = {"record": 0, "example": 1, "protobuf": 2, "csv": 3, "tar": 4}  # enum pl_field_source
_SOURCE_OF = {"tfrecord": "example", "recordio": "protobuf", "csv": "csv", "tar": "tar"}
_COMPRESSIONS = {"none": 0, "gzip": 1, "zstd": 2, "auto": 3}  # enum pl_compression
_SPLITS = {"records": 0, "objects": 1}  # enum pl_stream_split
_MOST_BATCHES = 64  # what max_batches 0 is in the library
_CLOSED = "this iteration has ended: close(), load_state_dict() or the end of the program came after it"
_CLOSE_S = 2  # a thread leaves the library 50 ms after pl_dataset_cancel()
_POLL_NS = 100_000_000  # so long Python does not see a signal

_Shard = _struct("_Shard", rank=ctypes.c_uint32, size=ctypes.c_uint32)
_RecordOptions = _struct("_RecordOptions", format=ctypes.c_int, join=ctypes.c_int, max_record_bytes=ctypes.c_size_t, window_bytes=ctypes.c_size_t,
                         skip_corrupt=ctypes.c_bool, keep_empty_lines=ctypes.c_bool, delimiter=ctypes.c_char, leave_checksum=ctypes.c_bool)
_Field = _struct("_Field", name=ctypes.c_char_p, type=ctypes.c_int, dims=ctypes.c_uint, shape=ctypes.c_uint64 * _MAX_DIMS, is_varying=ctypes.c_bool,
                 has_default=ctypes.c_bool, default_data=ctypes.c_char_p, default_bytes=ctypes.c_size_t)
_Options = _struct("_Options", channel_name=ctypes.c_char_p, channel=ctypes.c_void_p, paths=ctypes.POINTER(ctypes.c_char_p), path_count=ctypes.c_size_t,
                   records=_RecordOptions, compression=ctypes.c_int, source=ctypes.c_int, fields=ctypes.POINTER(_Field), field_count=ctypes.c_size_t,
                   batch_samples=ctypes.c_size_t, drop_last=ctypes.c_bool, shuffle_samples=ctypes.c_size_t, shuffle_objects=ctypes.c_bool,
                   seed=ctypes.c_uint64, deal=_Shard, local=_Shard, split=ctypes.c_int, epochs=ctypes.c_uint64,
                   decode_threads=ctypes.c_uint, prefetch_batches=ctypes.c_size_t, max_batches=ctypes.c_size_t, timeout_ns=ctypes.c_int64,
                   allocate=ctypes.c_void_p, release=ctypes.c_void_p, allocator=ctypes.c_void_p)
_BatchField = _struct("_BatchField", data=ctypes.c_void_p, offsets=ctypes.c_void_p)
_Batch = _struct("_Batch", epoch=ctypes.c_uint64, index=ctypes.c_uint64, samples=ctypes.c_size_t, field_count=ctypes.c_size_t,
                 fields=ctypes.POINTER(_BatchField), memory=ctypes.c_void_p)
_Progress = _struct("_Progress", epoch=ctypes.c_uint64, samples=ctypes.c_uint64, bytes=ctypes.c_uint64, skipped=ctypes.c_uint64,
                    elapsed_ns=ctypes.c_int64, waited_ns=ctypes.c_int64)


class DataError(PacelineError):
    """What is wrong with a source or its records: the text names source, object, record and byte, what was found and what was expected."""

    status = "INVALID"

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)


class DataValueError(DataError, ValueError):
    """Damaged data, or data that is not what the fields say; a wrong option."""


class DataTimeoutError(DataError, TimeoutError):
    """A source that gave no record for `timeout` seconds."""

    status = "TIMEOUT"


def _checked(status, error):
    if status:
        name, text = _words(_data(), status, ctypes.byref(error))
        kind = DataTimeoutError if name == "TIMEOUT" else DataValueError if name in ("INVALID", "NOT_FOUND", "CORRUPT", "UNSUPPORTED", "LIMIT", "MISMATCH") else DataError
        failure = kind(f"{text} [{name}]")
        failure.status = name
        raise failure


_loaded = None


def _data():
    """The library of base and s3io; the first call loads it."""
    global _loaded
    if _loaded is None:
        library = _load_data(pl_batch=_Batch, pl_batch_field=_BatchField, pl_dataset_options=_Options, pl_dataset_progress=_Progress, pl_field=_Field)
        library.pl_dataset_progress.restype = _Progress
        _loaded = library
    return _loaded


class Field(NamedTuple):
    """What a program wants of each record. `type`: float32, float64, float16, bfloat16 (for numpy its bits as int16), int8, int16, int32, int64, uint8, bool.

    `shape` is that of one sample, () for one element; None: the number of elements differs from sample to sample. A record without the field gets `default`, one
    element or a whole sample; without a default it is an error. `name` is the field's name in the record, if it is another one; for CSV the number of its
    first column, from 0; for tar the member's extension, or "__key__". Of tar one element is a number as text; with a shape or None it is the member's bytes."""

    type: str
    shape: Optional[Tuple[int, ...]] = ()
    default: Any = None
    name: Union[str, int, None] = None


class Varying(NamedTuple):
    """A field whose number of elements differs: sample i has the elements data[offsets[i]:offsets[i + 1]]. `offsets` are int64, one more than samples."""

    data: Any
    offsets: Any

    def sample(self, i: int) -> Any:
        i = range(len(self.offsets) - 1)[i]
        return self.data[int(self.offsets[i]):int(self.offsets[i + 1])]


def _field_of(what):
    """A Field from what a program may write: Field(...), "int64", ("uint8", shape), bytes."""
    if what is bytes:
        return Field("uint8", None)
    return what if isinstance(what, Field) else Field(what) if isinstance(what, str) else Field(*what)


def _numpy_type(name):
    return "int16" if name == "bfloat16" else name  # numpy has no bfloat16, and older torch no uint16


def _field_in_c(name, field):
    if field.type not in _DTYPES:
        raise DataValueError(f"field '{name}': {field.type!r} is not a type: {', '.join(_DTYPES)}")
    shape = () if field.shape is None else tuple(field.shape)
    if len(shape) > _MAX_DIMS:
        raise DataValueError(f"field '{name}': {len(shape)} dimensions, and there may be {_MAX_DIMS}")
    inside = str(name if field.name is None else field.name).encode()
    struct = _Field(inside, _DTYPES[field.type], len(shape), (ctypes.c_uint64 * _MAX_DIMS)(*shape), field.shape is None, field.default is not None)
    if field.default is not None:
        if isinstance(field.default, (bytes, str)):
            if field.type != "uint8" or field.shape == ():
                raise DataValueError(f"field '{name}': the default {field.default!r} is text, which only a uint8 with a shape or None takes, not one {field.type}")
            data = field.default.encode() if isinstance(field.default, str) else field.default
        elif field.type == "bfloat16":
            bits = numpy.asarray(field.default, "float32").view("uint32").astype("int64")
            data = numpy.where((bits & 0x7fffffff) > 0x7f800000, 0x7fc0, (bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("uint16").tobytes()
        else:
            given = numpy.asarray(field.default)
            data = given.astype(field.type)
            if data.dtype.kind in "biu" and not numpy.array_equal(data, given):
                raise DataValueError(f"field '{name}': the default {field.default!r} is no {field.type}")
            data = data.tobytes()
        struct.default_data, struct.default_bytes = data, len(data)
    return struct


class _Lease:
    """A batch of the library's. The last array that uses it gives it back."""

    _pid = None

    def __init__(self):
        self.batch, self._release, self._pid = _Batch(), _data().pl_batch_release, os.getpid()

    def __del__(self):
        if os.getpid() == self._pid:  # a child of fork() has no part in it
            self._release(ctypes.byref(self.batch))


class _View:
    """Memory for numpy.asarray(), which keeps this object, and so the lease."""

    def __init__(self, lease, address, shape, type_name):
        self._lease = lease
        self.__array_interface__ = {"shape": shape, "typestr": numpy.dtype(type_name).str, "data": (address or id(self), False), "version": 3}


def _arrays(fields, lease):
    batch, result = lease.batch, {}
    for (name, field), found in zip(fields.items(), batch.fields[:batch.field_count]):
        if field.shape is not None:
            result[name] = numpy.asarray(_View(lease, found.data, (batch.samples, *field.shape), _numpy_type(field.type)))
            continue
        offsets = numpy.asarray(_View(lease, found.offsets, (batch.samples + 1,), "int64"))
        result[name] = Varying(numpy.asarray(_View(lease, found.data, (int(offsets[-1]),), _numpy_type(field.type))), offsets)
    return result


def _close(handle, pid, lock):
    if os.getpid() == pid:
        _data().pl_dataset_cancel(handle)
        if lock.acquire(timeout=_CLOSE_S):  # else a thread is in the library still, and the process's end frees the dataset
            _data().pl_dataset_close(handle)
            lock.release()


class _Reader:
    """The dataset of the library that one process has open."""

    def __init__(self, options):
        self.handle, self.pid, self.turn = ctypes.c_void_p(), os.getpid(), None
        self.lock = lock = threading.RLock()  # one thread at a time is in the library
        error, opened, left, library = _Error(), [], [], _data()

        def open_it():
            status = library.pl_dataset_open(ctypes.byref(options), ctypes.byref(self.handle), ctypes.byref(error))
            with lock:
                opened.append(status)
                if left and not status:
                    _close(self.handle, self.pid, lock)
        opening = threading.Thread(target=open_it, name="paceline-open", daemon=True)  # it may list S3, and Control-C ends the wait for it
        opening.start()
        try:
            opening.join()
        except BaseException:
            with lock:
                left.append(True)
                if opened == [0]:
                    _close(self.handle, self.pid, lock)
            raise
        _checked(opened[0], error)
        self.close = weakref.finalize(self, _close, self.handle, self.pid, lock)

    def expect_open(self):
        if not self.close.alive:
            raise DataError(_CLOSED)

    def start(self, epoch, place):
        """Begins the epoch, or goes on at a place in it."""
        error = _Error()
        with self.lock:
            self.expect_open()
            if place is None:
                _checked(_data().pl_dataset_start(self.handle, ctypes.c_uint64(epoch), ctypes.byref(error)), error)
            else:
                _checked(_data().pl_dataset_restore(self.handle, place.encode(), ctypes.byref(error)), error)

    def save(self, back):
        """The place after the last batch but `back`."""
        text, error = ctypes.c_char_p(), _Error()
        with self.lock:
            self.expect_open()
            _checked(_data().pl_dataset_save(self.handle, ctypes.c_uint64(back), ctypes.byref(text), ctypes.byref(error)), error)
        place = text.value.decode()
        _data().pl_memory_free_at(ctypes.byref(text))
        return place

    def next(self, lease):
        """Gets the next batch; False at the end of the epoch. It waits in pieces, so that Python sees signals."""
        error = _Error()
        while True:
            deadline_ns = time.monotonic_ns() + _POLL_NS
            with self.lock:
                self.expect_open()
                status = _data().pl_dataset_next(self.handle, ctypes.c_int64(deadline_ns), ctypes.byref(lease.batch), ctypes.byref(error))
            if not status:
                return True
            name = _data().pl_status_name(status)
            if name == b"END":
                return False
            if name == b"CANCELLED":
                raise DataError(_CLOSED)
            if name != b"TIMEOUT" or not error.retryable:
                _checked(status, error)


class _Turn:
    """An iteration over one epoch: the batches that were taken from the library, and those that the program got of them."""

    took = 0, None  # batches, and a lease that the library's newest call fills, also if a signal's handler raises right after it
    given = 0
    is_running = is_over = False

    @property
    def taken(self):
        count, lease = self.took
        return count + bool(lease and lease.batch.memory)

    def begin(self):
        lease = _Lease()
        self.took = self.taken, lease
        return lease

    def arrays(self, fields):
        count, lease = self.took
        result = _arrays(fields, lease)
        self.took = count + 1, None
        return result


def _ranks():
    """This process among those of the job, and among those of its host, as (rank, size), and who says so."""
    modules, environment = sys.modules, os.environ
    local = next(((int(environment[rank]), int(environment[size])) for rank, size in (
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"))
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit()), None)
    distributed = modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return (distributed.get_rank(), distributed.get_world_size()), local, "torch.distributed"
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras", "paceline"):
        module = modules.get(name)
        if module and module.is_initialized():
            return (module.rank(), module.size()), (module.local_rank(), module.local_size()), name
    if "PACELINE_PS_PLACE" in environment:
        rank, size, *local = map(int, environment["PACELINE_PS_PLACE"].split())
        return (rank, size), tuple(local), "paceline server"
    for rank, size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit():
            return (int(environment[rank]), int(environment[size])), local, f"{rank} and {size}"
    return (0, 1), (0, 1), "no launcher: alone"


def _one_of(what, value, names):
    if value not in names:
        raise DataValueError(f"{what} is one of {', '.join(names)}, not {value!r}")
    return names[value]


class Dataset:
    """Batches of decoded records. Iterating is one epoch: dicts by field of numpy arrays [samples, *shape], or Varying.

    `source`: the name of a channel, whose configuration says where it is (File, FastFile or Pipe Mode); a file, a directory, "s3://BUCKET/PREFIX"; or a list of
    these three. `fields`: what each record is decoded to, by name: Field, "int64", ("uint8", (3, 32, 32)), or bytes for text and pictures.
    `batch`: samples. The last one of an epoch has fewer, or is left out with `drop_last`.
    `format` of the objects: tfrecord, recordio, lines, csv, idx, whole, tar. `decode` of a record: example (tf.Example), protobuf (SageMaker's RecordIO-protobuf), csv,
    tar (members by their extensions), record (its bytes are the one field); by the format if it is None. `compression`: none, gzip, zstd, auto.
    `shuffle`: each sample is chosen at random from a buffer of so many records. `shuffle_objects`: objects are read in an order of the epoch. Both
    depend on `seed` and the epoch alone.
    `epochs`: so many follow each other, and each is begun before the program asks for it. None: it begins when the program iterates.
    `rank` of `size` processes gets its share; without them torch.distributed, Horovod, Paceline or the launcher's variables say so, which is printed once.
    `split`: "records" deals record i to rank i % size; "objects" deals objects.
    `decode_threads`: 0 is one for each CPU of the process, at most 4. `prefetch`: batches made ahead. `timeout`: seconds without a record.
    `skip_corrupt`: damaged records are left out and counted: progress().skipped.

    DataValueError: a wrong option, or data that is damaged or differs from `fields`. DataTimeoutError. The iteration is over then."""

    def __init__(self, source: Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]], fields: Dict[str, Any], batch: int, shuffle: int = 0,
                 seed: int = 0, epochs: Optional[int] = None, rank: Optional[int] = None, size: Optional[int] = None, *, format: str = "tfrecord",
                 decode: Optional[str] = None, compression: str = "none", shuffle_objects: bool = False, split: str = "records", drop_last: bool = False,
                 decode_threads: int = 0, prefetch: int = 0, max_batches: int = 0, timeout: float = 300.0, skip_corrupt: bool = False, delimiter: str = ",",
                 keep_empty_lines: bool = False) -> None:
        if (rank is None) != (size is None) or rank is not None and not 0 <= rank < size:
            raise DataValueError(f"rank {rank} of size {size}: give both, rank below size, or none")
        if batch < 1 or min(shuffle, decode_threads, prefetch, max_batches, epochs or 0) < 0 or not timeout > 0 or len(delimiter.encode()) != 1:
            raise DataValueError(f"batch {batch} is at least 1, timeout {timeout} above 0, delimiter {delimiter!r} one byte, other numbers not below 0")
        self._source = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else list(map(os.fspath, source))
        self._is_channel = isinstance(source, str) and re.fullmatch(r"[A-Za-z0-9._-]+", source) is not None and \
            f"SM_CHANNEL_{source.upper()}" in os.environ
        self._fields = {name: _field_of(field) for name, field in fields.items()}
        self._place, self._timeout_s, self._epoch = None if rank is None else ((rank, size), None, "given"), timeout, 0
        self._says_so = rank is None
        _one_of("format", format, _FORMATS)
        self._options = {
            "batch_samples": batch, "shuffle_samples": shuffle, "seed": seed, "epochs": epochs or 0, "compression": _one_of("compression", compression, _COMPRESSIONS),
            "source": _one_of("decode", decode or _SOURCE_OF.get(format, "record"), _SOURCES), "split": _one_of("split", split, _SPLITS), "drop_last": drop_last,
            "shuffle_objects": shuffle_objects, "decode_threads": decode_threads, "prefetch_batches": prefetch, "max_batches": max_batches,
            "timeout_ns": int(timeout * 1e9)}
        self._records = {"format": _FORMATS[format], "skip_corrupt": skip_corrupt, "keep_empty_lines": keep_empty_lines, "delimiter": delimiter.encode()}
        for name, field in self._fields.items():
            _field_in_c(name, field)
        self._functions: List[Tuple[Callable[[Batch], Any], int]] = []
        self._reader: Optional[_Reader] = None
        self._saved: Optional[str] = None  # where the next iteration begins in its epoch; None is its beginning
        self._turn: Optional[_Turn] = None  # the last iteration; None if the next one is to count
        self._left: Optional[Dict[str, Any]] = None  # its state_dict(), from close() on
        self._is_worker = False  # this process is a DataLoader's worker
        self._memory: Optional[Callable[[], Tuple[ctypes.c_void_p, ctypes.c_void_p]]] = None  # gives allocate and release

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration reads, from 0, instead of the one after the last. A place in that epoch, from load_state_dict(), stays."""
        if epoch != self._epoch:
            self._saved = None
        self._epoch, self._turn = epoch, None

    def state_dict(self) -> Dict[str, Any]:
        """The place after the last batch that the program has got, also where it has left the iteration; after the end of an epoch the beginning of the next one.
        Numbers and text; with a shuffle buffer about 20 bytes for each of its records. Other ranks and workers have places of their own."""
        turn, reader = self._turn, self._reader
        if turn and (self._is_worker or not turn.is_over):  # a worker that has ended goes on when all have
            if reader and reader.pid == os.getpid():
                return {"version": 1, "epoch": self._epoch - 1, "place": reader.save(turn.taken - turn.given)}
            if self._left:
                return self._left
        return {"version": 1, "epoch": self._epoch, "place": self._saved}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next iteration begins there, and is the rest of that epoch. It raises a DataValueError if source, objects, format, seed, batch, shuffle or ranks differ; see
        docs/python.md for other numbers of ranks."""
        version, epoch, place = (state.get(name) for name in ("version", "epoch", "place")) if isinstance(state, dict) else (None, None, None)
        if version != 1 or not isinstance(epoch, int) or epoch < 0 or not isinstance(place, (str, type(None))):
            raise DataValueError(f"{str(state)[:80]} is not what state_dict() gave: expected version 1, an epoch and a place")
        if self._reader:
            self._reader.turn = None  # ends an iteration that is under way
        self._epoch, self._saved, self._turn = epoch, place, None

    def map(self, function: Callable[[Batch], Any], threads: int = 1) -> "Dataset":
        """A dataset whose batches are function(batch), in the same order; `threads` of them are computed at a time, beside the program."""
        if threads < 1:
            raise DataValueError(f"map() has at least 1 thread, not {threads}")
        other = self._copy()
        other._functions.append((function, threads))
        return other

    def torch(self, pin: bool = False) -> Any:
        """A torch.utils.data.IterableDataset with tensors instead of arrays, by itself or in DataLoader(dataset, batch_size=None, num_workers=n): each worker reads
        its share. `pin`: rows of fixed shape are in pinned memory, from which copies to a GPU need not wait."""
        from ._data_torch import TorchDataset
        return TorchDataset(self._copy(), pin)

    def tf(self) -> Any:
        """A tf.data.Dataset whose batches come from operations of TensorFlow, without Python: dicts by field of tensors, for bytes of strings, and for other fields of
        varying length of RaggedTensors. Each iterator is one epoch, begun where the one before it was begun last; with `drop_last` shapes are fixed. Errors are
        those of tf.errors, with the text of DataError."""
        from ._data_tensorflow import TensorflowDataset
        return TensorflowDataset(self._copy())

    def progress(self) -> Any:
        """Of the epoch that is read: epoch, samples, bytes, skipped, elapsed_ns, waited_ns."""
        reader = self._reader
        return _data().pl_dataset_progress(reader.handle) if reader and reader.pid == os.getpid() and reader.close.alive else _Progress()

    def close(self) -> None:
        """Ends threads and closes the source; the next iteration opens it again. Arrays stay valid."""
        reader = self._reader
        if reader and reader.pid == os.getpid():
            reader.turn = None
            if not reader.close.alive:  # the program ends
                return
            _data().pl_dataset_cancel(reader.handle)  # another thread may wait in it
        try:
            self._left = self.state_dict()
        finally:
            self._reader = None
            if reader:
                reader.close()

    def _copy(self):
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "_functions": list(self._functions), "_reader": None, "_turn": None}
        return other

    def __getstate__(self):
        if self._reader and self._reader.pid == os.getpid() and self._turn and self._turn.is_running:
            raise DataError("a dataset cannot be pickled in the middle of an epoch: its place in the stream belongs to this process. Pickle it before the iteration, "
                            "or end that first")
        self._find_place()
        return {**self.__dict__, "_reader": None, "_turn": None}

    def _find_place(self):
        """Rank and size among processes. Found once, by the first iteration or where the dataset is pickled for a worker."""
        if self._place is None:
            self._place = _ranks()
        if self._says_so:
            (rank, size), _, who = self._place
            print(f"paceline.data: rank {rank} of {size} ({who}) reads {', '.join(self._source)}", file=sys.stderr, flush=True)
            self._says_so = False
        return self._place

    def _options_in_c(self, worker, workers):
        (rank, size), local, _ = self._find_place()
        if workers > 1 and self._is_channel and json.loads(os.environ.get("SM_INPUT_DATA_CONFIG") or "{}").get(self._source[0], {}).get("TrainingInputMode") == "Pipe":
            raise DataValueError(f"channel '{self._source[0]}' is in Pipe Mode, where one process reads the FIFO: num_workers is {workers}, and may be 1; threads decode")
        local_rank, local_size = local or (rank, size)
        options = _Options(**self._options, records=_RecordOptions(**self._records), deal=_Shard(rank * workers + worker, size * workers),
                           local=_Shard(local_rank * workers + worker, local_size * workers))
        if self._is_channel:
            options.channel_name = self._source[0].encode()
        else:
            options.paths = (ctypes.c_char_p * len(self._source))(*map(os.fsencode, self._source))
            options.path_count = len(self._source)
        if not options.max_batches and self._functions:
            options.max_batches = _MOST_BATCHES + 2 * sum(threads for _, threads in self._functions)
        options.fields = (_Field * len(self._fields))(*(_field_in_c(name, field) for name, field in self._fields.items()))
        options.field_count = len(self._fields)
        if self._memory:
            options.allocate, options.release = self._memory()
        return options

    def __iter__(self) -> Iterator[Batch]:
        return self._iterate(0, 1)

    def _iterate(self, worker, workers):
        if self._reader is None or self._reader.pid != os.getpid():
            self._reader = _Reader(self._options_in_c(worker, workers))
        turn = _Turn()
        self._turn = None
        batches = self._epoch_of(self._reader, turn)
        for function, threads in self._functions:
            batches = _mapped(batches, function, threads) if threads else map(function, batches)
        return self._count(batches, turn)

    @staticmethod
    def _count(batches, turn):
        for batch in batches:
            turn.given += 1
            yield batch
        turn.is_over = True

    def _epoch_of(self, reader, turn):
        reader.turn, turn.is_running = turn, True
        try:
            reader.start(self._epoch, self._saved)
            self._turn, self._epoch, self._saved = turn, self._epoch + 1, None
            while True:
                if reader.pid != os.getpid() or reader.turn is not turn:
                    raise DataError("this iteration has ended: it belongs to the parent process" if reader.pid != os.getpid() else
                                    "this iteration has ended: another one of the dataset has begun" if reader.turn else _CLOSED)
                if not reader.next(turn.begin()):
                    return
                yield turn.arrays(self._fields)
        except DataError:
            if self._reader is reader and reader.turn is turn and reader.pid == os.getpid():
                with contextlib.suppress(DataError):  # the place may be too far back
                    self.close()
            raise
        finally:
            turn.is_running = False


def _mapped(batches, function, threads):
    """function(batch) of each batch, in order; two batches a thread are under way."""
    with concurrent.futures.ThreadPoolExecutor(threads, "paceline-map") as pool:
        under_way = collections.deque()
        try:
            for batch in batches:
                under_way.append(pool.submit(function, batch))
                del batch
                if len(under_way) >= 2 * threads:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()
