# SPDX-License-Identifier: Apache-2.0
"""The core of horovod.tensorflow over Paceline's operations, for Pythons without Horovod's package: what training with Keras 3 or a tape needs."""
import atexit
import ctypes
import os
import pickle
import re

import numpy as np
import tensorflow as tf

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_library = ctypes.CDLL(f"{_FOLDER}/libpaceline-horovod.so", mode=ctypes.RTLD_GLOBAL)
_library.horovod_paceline_error.restype = ctypes.c_char_p
_ops = tf.load_op_library(f"{_FOLDER}/libpaceline-horovod-tensorflow.so")
Average, Sum, Adasum, Min, Max, Product = range(6)


def __getattr__(name):
    if name == "callbacks":
        from paceline_horovod.keras import callbacks
        return callbacks
    raise AttributeError(f"horovod.tensorflow has no '{name}' without Horovod's package: HOROVOD_SKIP_COMPILE=1 pip install horovod==0.28.1 "
                         "&& paceline horovod")


class Compression:
    class none:
        compress, decompress = staticmethod(lambda tensor: (tensor, None)), staticmethod(lambda tensor, context: tensor)

    class fp16:
        compress = staticmethod(lambda tensor: (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor, tensor.dtype))
        decompress = staticmethod(lambda tensor, dtype: tf.cast(tensor, dtype))


class ProcessSet:
    """Ranks that work among themselves, once it was given to add_process_set() or init()."""

    def __init__(self, ranks):
        self.ranks, self.process_set_id = sorted(ranks), None

    def included(self):
        return self.process_set_id == 0 or rank() in self.ranks

    def size(self):
        return size() if self.process_set_id == 0 else len(self.ranks)

    def rank(self):
        return rank() if self.process_set_id == 0 else self.ranks.index(rank()) if self.included() else None


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def init(comm=None, process_sets=None):
    """Join the job: mpirun's ranks, or one rank alone. Sets can always be added, so that process_sets="dynamic" says nothing new."""
    if comm:
        raise ValueError("init() takes all of mpirun's ranks, not comm; make a ProcessSet of some")
    os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    if not _library.horovod_init(None, 0, None, None, 0) & 1:
        raise ValueError("the start failed, see the message above")
    atexit.unregister(shutdown)
    atexit.register(shutdown)
    for process_set in [] if isinstance(process_sets, str) else process_sets or []:
        add_process_set(process_set)


def add_process_set(process_set):
    """All ranks call, in the set or not."""
    process_set = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = process_set.ranks
    number = _library.horovod_add_process_set((ctypes.c_int * len(ranks))(*ranks), len(ranks))
    if number < 0:
        why = _library.horovod_paceline_error() or b"is it there already, or are ranks not in the job?"
        raise ValueError(f"the process set {ranks} was not added: {why.decode('utf-8', 'replace')}")
    process_set.process_set_id = number
    return process_set


def remove_process_set(process_set):
    if not process_set.process_set_id or _library.horovod_remove_process_set(process_set.process_set_id) < 0:
        return False
    process_set.process_set_id = None
    return True


def _asking(name):
    def ask():
        answer = getattr(_library, f"horovod_{name}")()
        if answer == -1:
            raise ValueError("call hvd.init() first")
        return answer
    return ask


def shutdown():
    _library.horovod_shutdown()


rank, size, local_rank, local_size, cross_rank, cross_size = map(_asking, ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"))
is_initialized = lambda: bool(_library.horovod_is_initialized() & 1)
mpi_threads_supported = lambda: bool(_library.horovod_mpi_threads_supported() & 1)
mpi_built = mpi_enabled = lambda: True
nccl_built = gloo_built = gloo_enabled = cuda_built = rocm_built = ccl_built = ddl_built = lambda: 0


def start_timeline(file_path, mark_cycles=False):
    _library.horovod_start_timeline(os.fsencode(file_path), bool(mark_cycles))


def stop_timeline():
    _library.horovod_stop_timeline()


def _name(name, kind, tensor):
    """Operations match by the names of their nodes; those of a graph have the tensor's, those without one are numbered."""
    if name is None and not tf.executing_eagerly():
        name = f"{kind}_{tensor.name}"
    return name and re.sub("[^a-zA-Z0-9_.]", "_", name)


def allreduce(tensor, average=None, device_dense="", device_sparse="", compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0,
              name=None, process_set=global_process_set, ignore_name_scope=False):
    """The reduction over all ranks, the average unless `op` says otherwise; of tf.IndexedSlices the rows of all ranks."""
    if average is not None and op is not None:
        raise ValueError("average and op say the same; give one of them")
    op = (Average if average is None or average else Sum) if op is None else op
    if isinstance(tensor, tf.IndexedSlices):
        if op not in (Average, Sum) or prescale_factor != 1.0 or postscale_factor != 1.0:
            raise NotImplementedError("tf.IndexedSlices have a sum and an average, without factors")
        values = allgather(tensor.values, name and f"{name}.values", process_set=process_set)
        indices = allgather(tensor.indices, name and f"{name}.indices", process_set=process_set)
        return tf.IndexedSlices(values / tf.cast(process_set.size(), values.dtype) if op == Average else values, indices, tensor.dense_shape)
    small, context = compression.compress(tf.convert_to_tensor(tensor))
    reduced = _ops.horovod_allreduce(small, name=_name(name, "HorovodAllreduce", small), reduce_op=op, prescale_factor=prescale_factor,
                                     postscale_factor=postscale_factor, ignore_name_scope=ignore_name_scope, process_set_id=process_set.process_set_id)
    return compression.decompress(reduced, context)


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """All ranks' rows one after the other; the number of rows may differ between ranks."""
    tensor = tf.convert_to_tensor(tensor)
    return _ops.horovod_allgather(tensor, name=_name(name, "HorovodAllgather", tensor), ignore_name_scope=ignore_name_scope,
                                  process_set_id=process_set.process_set_id)


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    tensor = tf.convert_to_tensor(tensor)
    return _ops.horovod_broadcast(tensor, name=_name(name, "HorovodBroadcast", tensor), root_rank=root_rank, ignore_name_scope=ignore_name_scope,
                                  process_set_id=process_set.process_set_id)


def reducescatter(tensor, device_dense="", compression=Compression.none, op=Average, name=None, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    """This rank's rows of the reduction over all ranks."""
    small, context = compression.compress(tf.convert_to_tensor(tensor))
    rows = _ops.horovod_reducescatter(small, name=_name(name, "HorovodReducescatter", small), reduce_op=op, prescale_factor=prescale_factor,
                                      postscale_factor=postscale_factor, process_set_id=process_set.process_set_id)
    return compression.decompress(rows, context)


def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=False):
    """Give every rank `root_rank`'s values of TensorFlow's variables."""
    for i, variable in enumerate(variables):
        variable.assign(broadcast(variable, root_rank, f"HorovodBroadcastVariable.{i}", process_set=process_set))


def broadcast_global_variables(root_rank):
    raise RuntimeError("broadcast_global_variables() has an effect in graphs of TensorFlow 1 only; broadcast_variables() takes those of a model")


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """Every rank's object, in a list by rank, by pickle."""
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    lengths = allgather([len(data)], f"{name or 'object'}.lengths", process_set=process_set).numpy()
    rows = allgather(data, name or "object", process_set=process_set).numpy()
    return [pickle.loads(part.tobytes()) for part in np.split(rows, np.cumsum(lengths)[:-1])]


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """The object of `root_rank` on every rank, by pickle."""
    root = (list(range(size())) if process_set.process_set_id == 0 else process_set.ranks).index(root_rank)
    return allgather_object(obj if rank() == root_rank else None, None, name, process_set)[root]


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() is reduced over all ranks."""

    def __init__(self, gradtape, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False, op=Average,
                 process_set=global_process_set):
        self._tape, self._settings, self._sparse_as_dense = gradtape, {"compression": compression, "op": op, "process_set": process_set}, sparse_as_dense

    def __getattr__(self, name):
        return getattr(self._tape, name)

    def __enter__(self):
        self._tape.__enter__()
        return self

    def __exit__(self, *what):
        return self._tape.__exit__(*what)

    def gradient(self, target, sources, output_gradients=None, **keywords):
        gradients = self._tape.gradient(target, sources, output_gradients, **keywords)
        flat = [tf.convert_to_tensor(gradient) if self._sparse_as_dense and isinstance(gradient, tf.IndexedSlices) else gradient
                for gradient in tf.nest.flatten(gradients)]
        flat = [None if gradient is None else allreduce(gradient, name=f"DistributedGradientTape.{i}", **self._settings) for i, gradient in enumerate(flat)]
        return tf.nest.pack_sequence_as(gradients, flat)


def DistributedOptimizer(optimizer, **keywords):
    """Of Keras 3."""
    from paceline_horovod import keras
    return keras.DistributedOptimizer(optimizer, **keywords)
