# SPDX-License-Identifier: Apache-2.0
"""paceline.data for TensorFlow: a tf.data.Dataset whose batches come from operations of libpaceline-data-tensorflow.so."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Dict

import tensorflow as tf

from ._library import _find, _struct
from .data import DataValueError, Dataset, _Options, _Progress, _data

_SourceOptions = _struct("_SourceOptions", dataset=_Options, pipe_channel=ctypes.c_char_p, pipe_path=ctypes.c_char_p, pipe_is_dealt=ctypes.c_bool,
                         epoch_path=ctypes.c_char_p, lock_path=ctypes.c_char_p, max_skipped=ctypes.c_uint64, reports_totals=ctypes.c_bool, report_samples=ctypes.c_uint64)
_loaded = None
_kept: list = []  # options that graphs of TensorFlow point to, also when no object of Python knows them any more


def _module():
    """The operations, and the functions of the library that has them."""
    global _loaded
    if _loaded is None:
        _data()
        folder, name = os.path.dirname(os.path.realpath(_find("libpaceline-data", "PACELINE_DATA_LIBRARY"))), "libpaceline-data-tensorflow.so"
        path = next(filter(os.path.exists, (f"{folder}/{name}", os.path.normpath(f"{folder}/../libexec/paceline/{name}"))), None)
        if not path:
            raise ImportError(f"{name} is neither in {folder} nor in its ../libexec/paceline: this build of Paceline had no C++ compiler")
        operations = tf.load_op_library(path)
        if not hasattr(operations, "paceline_data_take"):
            raise ImportError(f"{path} has no operations for TensorFlow {tf.__version__}: expected 2.12 to 2.21")
        library = ctypes.CDLL(path)
        library.pl_tensorflow_data_new.restype, library.pl_tensorflow_data_mark.restype = ctypes.c_void_p, ctypes.c_int64
        library.pl_tensorflow_data_progress.restype = _Progress
        _loaded = operations, library
    return _loaded


def _generator(pointer, specs):
    """The variant of a dataset: TensorFlow's GeneratorDataset calls the operations, by graphs without Python."""
    operations, library = _module()

    def is_ready(tensor):
        tensor.set_shape(())
        return tensor

    def take(iterator):
        tf.while_loop(tf.logical_not, lambda _: [is_ready(operations.paceline_data_wait(iterator=iterator))],
                      [is_ready(operations.paceline_data_poll(iterator=iterator))])
        return operations.paceline_data_take(iterator=iterator, types=[spec.dtype for spec in specs])
    of_iterator = tf.TensorSpec(None, tf.int64)
    opened = tf.function(lambda source: operations.paceline_data_open(source=source), autograph=False).get_concrete_function(tf.TensorSpec([2], tf.int64))
    taken = tf.function(take, autograph=False).get_concrete_function(of_iterator)
    closed = tf.function(lambda iterator: tf.constant(0), autograph=False).get_concrete_function(of_iterator)
    source = tf.constant([pointer, library.pl_tensorflow_data_mark()], tf.int64)
    return tf.raw_ops.GeneratorDataset(init_func_other_args=[source], next_func_other_args=[], finalize_func_other_args=[], init_func=opened,
                                       next_func=taken, finalize_func=closed, output_types=[spec.dtype for spec in specs],
                                       output_shapes=[spec.shape for spec in specs])


def _batches(fields, rows, pointer):
    """A tf.data.Dataset of dicts by field, whose names are sorted as TensorFlow does."""
    specs, ragged = {}, []
    for name, field in fields.items():
        kind = tf.as_dtype(field.type)
        if field.shape is not None:
            specs[name] = tf.TensorSpec([rows, *field.shape], kind)
        elif kind is tf.uint8:
            specs[name] = tf.TensorSpec([rows], tf.string)
        else:
            ragged.append(name)
            specs[name] = (tf.TensorSpec([None], kind), tf.TensorSpec([None if rows is None else rows + 1], tf.int64))
    batches = tf.data.experimental.from_variant(_generator(pointer, tf.nest.flatten(specs)), specs)

    def build(batch):
        return {**batch, **{name: tf.RaggedTensor.from_row_splits(*batch[name], validate=False) for name in ragged}}
    return batches.map(build) if ragged else batches


class TensorflowDataset(tf.data.Dataset):
    """See Dataset.tf(). Each iterator is one epoch, in the order of their beginnings."""

    def __init__(self, dataset: Dataset, **more: Any) -> None:
        if dataset._functions:
            raise DataValueError("tf() comes before map(): map() of tf.data takes functions of tensors")
        if dataset._saved:
            raise DataValueError("tf() begins at the beginning of an epoch: it takes set_epoch(), and no place from load_state_dict()")
        dataset._fields = dict(sorted(dataset._fields.items()))
        library = _module()[1]
        options = _SourceOptions(dataset=dataset._options_in_c(0, 1), **more)
        if more:
            options.dataset.paths, options.dataset.path_count, options.dataset.records.join = None, 0, 1
        self._pointer = library.pl_tensorflow_data_new(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
        if not self._pointer:
            raise ImportError(f"{library._name}: struct pl_tensorflow_data_options has not {ctypes.sizeof(options)} bytes: take the package and the library from the same build")
        _kept.append(options)
        library.pl_tensorflow_data_set_epoch(ctypes.c_void_p(self._pointer), ctypes.c_uint64(dataset._epoch))
        self._batches = self._made_of(_batches(dataset._fields, dataset._options["batch_samples"] if dataset._options["drop_last"] else None, self._pointer))
        weakref.finalize(self, library.pl_tensorflow_data_close, ctypes.c_void_p(self._pointer))
        super().__init__(tf.data.experimental.to_variant(self._batches))

    def _made_of(self, batches):
        return batches

    def _inputs(self):
        return []

    @property
    def element_spec(self) -> Any:
        return self._batches.element_spec

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iterator reads, from 0, instead of the one after the last."""
        _module()[1].pl_tensorflow_data_set_epoch(ctypes.c_void_p(self._pointer), ctypes.c_uint64(epoch))

    def progress(self) -> Any:
        """Of the iterator that has got the last batch: epoch, samples, bytes, skipped, elapsed_ns, waited_ns."""
        return _module()[1].pl_tensorflow_data_progress(ctypes.c_void_p(self._pointer))
