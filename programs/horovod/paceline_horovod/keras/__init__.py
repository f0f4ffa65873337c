# SPDX-License-Identifier: Apache-2.0
"""The names of horovod.tensorflow.keras and horovod.keras for Keras 3 on TensorFlow, over the operations of horovod.tensorflow.

The operations do not compile with XLA: a model that would (jit_compile) is set not to by any of the callbacks.
"""
import re
import warnings
import zlib

import horovod.tensorflow as _hvd
import keras
import tensorflow as tf
from horovod.tensorflow import (Average, Compression, Sum, broadcast_variables, ccl_built, cross_rank, cross_size, cuda_built, ddl_built,  # noqa: F401
                                gloo_built, gloo_enabled, init, is_initialized, local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported,
                                nccl_built, rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from horovod.tensorflow import mpi_ops as _mpi_ops
from horovod.tensorflow.mpi_ops import ProcessSet, add_process_set, global_process_set, remove_process_set  # noqa: F401
from paceline_horovod.weights import compare as _compare

if keras.backend.backend() != "tensorflow":
    raise ImportError(f"Keras runs on {keras.backend.backend()} here, but the operations need TensorFlow: set KERAS_BACKEND=tensorflow, or use horovod.torch")


def __getattr__(name):
    raise AttributeError(f"horovod.tensorflow.keras has no '{name}' for Keras 3")


def _tf(variable):
    """TensorFlow's variable inside a variable of Keras; any other value as it is."""
    return variable.value if isinstance(variable, keras.Variable) else variable


class _Settings:
    """The arguments of DistributedOptimizer(). It is not a dict or a list, which Keras would track."""

    def __init__(self, **settings):
        self.__dict__.update(settings, local=set(), gathered=None, counter=None, calls=None, broadcasts=False)


class _Distributed:
    """The base class that DistributedOptimizer() puts before an optimizer's own class."""

    def register_local_var(self, var):
        """Excludes a variable: its gradient is not exchanged with other ranks."""
        self._distributed.local.add(id(_tf(var)))

    def _reduce(self, name, grad, variable):
        settings, ranks = self._distributed, self._distributed.process_set.size()
        if grad is None or not settings.process_set.included():
            return grad
        if id(_tf(variable)) in settings.local:
            factor = tf.cast(1 / ranks if settings.scale_local_gradients else 1, grad.dtype)
            return tf.IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape) if isinstance(grad, tf.IndexedSlices) else grad * factor
        if ranks == 1:
            return grad
        if settings.sparse_as_dense and isinstance(grad, tf.IndexedSlices):
            grad = tf.convert_to_tensor(grad)
        predivide = 1.0 if isinstance(grad, tf.IndexedSlices) else settings.predivide  # rows are gathered, not added
        return _hvd.allreduce(grad, op=settings.op, compression=settings.compression, process_set=settings.process_set, name=name,
                              prescale_factor=1.0 / predivide, postscale_factor=predivide, device_dense=settings.device_dense,
                              device_sparse=settings.device_sparse)

    def _reduce_all(self, grads, variables):
        """Reduces the gradients. Each variable's operation has its own name, in characters that a graph's nodes may have."""
        return [self._reduce(re.sub("[^A-Za-z0-9_.]", "_", f"{self._distributed.name}.{i}.{variable.name}"), grad, variable)
                for i, (grad, variable) in enumerate(zip(grads, variables))]

    def _gather(self, grads, variables):
        """Adds gradients to those of earlier passes. Returns a tensor that tells whether this was the last pass of a step."""
        settings = self._distributed
        if settings.gathered is None:
            with tf.init_scope():  # created once, outside the step's graph
                settings.gathered = [tf.Variable(tf.zeros(variable.shape, _tf(variable).dtype), trainable=False) for variable in variables]
                settings.counter = tf.Variable(0, trainable=False, dtype=tf.int64)
        for sum, grad in zip(settings.gathered, grads):
            if grad is not None:
                sum.assign_add(tf.convert_to_tensor(grad))
        settings.counter.assign_add(1)
        return tf.equal(settings.counter % settings.passes, 0)

    def _compare(self, variables):
        """Makes the ranks compare their weights in the second call: programs may broadcast before the first call or after it."""
        settings = self._distributed
        shared = [_tf(variable) for variable in variables if id(_tf(variable)) not in settings.local]
        if settings.process_set.size() == 1 or not settings.process_set.included() or not shared or settings.broadcasts:
            return
        if settings.calls is None:
            with tf.init_scope(), tf.device("CPU:0"):  # so that a step on a GPU need not wait for it
                settings.calls = tf.Variable(0, trainable=False, dtype=tf.int64)

        def compare(*values):
            checksum = 0
            for value in values:
                checksum = zlib.crc32(value.numpy().reshape(-1).view("u1"), checksum)
            _compare(_mpi_ops, settings.name, settings.process_set, checksum,
                     "give fit() hvd.callbacks.BroadcastGlobalVariablesCallback(0), or call hvd.broadcast_variables(model.variables, root_rank=0)")

        def submit():
            tf.py_function(compare, shared, [])
            return tf.constant(0)
        tf.cond(tf.equal(settings.calls.assign_add(1), 2), submit, lambda: tf.constant(0))

    def apply(self, grads, trainable_variables=None):
        settings, grads = self._distributed, list(grads)
        if trainable_variables is None:
            variables = self._trainable_variables
        else:
            variables = trainable_variables = list(trainable_variables)
            if not self.built:  # build here, since a branch of a graph must not create variables
                self.build(variables)
        self._compare(variables)
        if settings.passes == 1:
            return super().apply(self._reduce_all(grads, variables), trainable_variables)
        empty = [grad is None for grad in grads]
        step = super().apply

        def last():
            gathered = [sum / settings.passes if settings.average else tf.identity(sum) for sum in settings.gathered]
            step([None if none else grad for none, grad in zip(empty, self._reduce_all(gathered, variables))], trainable_variables)
            for sum in settings.gathered:
                sum.assign(tf.zeros_like(sum))
            return tf.constant(0)

        def other():
            self.iterations.assign_add(1)
            return tf.constant(0)
        tf.cond(self._gather(grads, variables), last, other)
        return None


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
                         gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, average_aggregated_gradients=False, num_groups=0,
                         groups=None, process_set=global_process_set, scale_local_gradients=True):
    """Make a Keras optimizer use gradients that are averaged over all ranks; returns the same object, whose class keeps its name, so that a saved
    model loads without Horovod. With backward_passes_per_step = n each gradient is added up n times before. `groups` has no effect.
    A keras.optimizers.LossScaleOptimizer is given here, not made around the result: all ranks must see the same overflow."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(f"DistributedOptimizer() takes an optimizer of Keras {keras.__version__}, not {type(optimizer).__name__}")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=Average")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is at least 1, not {backward_passes_per_step}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is already distributed")
    base = type(optimizer)
    optimizer.__class__ = type(base.__name__, (_Distributed, base), {"__module__": base.__module__})
    optimizer._distributed = _Settings(
        name=name or f"Distributed{base.__name__}.{optimizer.name}", device_dense=device_dense, device_sparse=device_sparse, compression=compression,
        sparse_as_dense=sparse_as_dense, predivide=gradient_predivide_factor, op=op, passes=backward_passes_per_step,
        average=average_aggregated_gradients, process_set=process_set, scale_local_gradients=scale_local_gradients)
    return optimizer


def PartialDistributedOptimizer(optimizer, *arguments, local_layers=None, **keywords):
    """DistributedOptimizer() for a model in which the gradients of `local_layers` are not exchanged between ranks."""
    layers = [local_layers] if isinstance(local_layers, keras.layers.Layer) else list(local_layers or [])
    if not all(isinstance(layer, keras.layers.Layer) for layer in layers):
        raise ValueError("expected layers of Keras as local_layers")
    optimizer = DistributedOptimizer(optimizer, *arguments, **keywords)
    for variable in (variable for layer in layers for variable in layer.trainable_weights):
        optimizer.register_local_var(variable)
    return optimizer


def broadcast_global_variables(root_rank):
    """Does nothing, since Horovod's function has an effect only in graphs of TensorFlow 1."""
    return _hvd.broadcast_global_variables(root_rank)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=Compression.none):
    return _hvd.allreduce(tf.constant(value), average=average, name=name, prescale_factor=prescale_factor, postscale_factor=postscale_factor, op=op,
                          compression=compression)


def allgather(value, name=None):
    return _hvd.allgather(tf.constant(value), name=name)


def broadcast(value, root_rank, name=None):
    return _hvd.broadcast(tf.constant(value), root_rank, name=name)


def reducescatter(value, name=None, op=Average):
    return _hvd.reducescatter(tf.constant(value), name=name, op=op)


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none, legacy_opts=False):
    """keras.models.load_model(), then DistributedOptimizer() on the model's optimizer, which keeps its state."""
    if legacy_opts:
        raise ValueError("legacy_opts: Keras 3 has no legacy optimizers; TF_USE_LEGACY_KERAS=1 makes TensorFlow use Keras 2")
    objects = {**{optimizer.__name__: optimizer for optimizer in custom_optimizers or []}, **(custom_objects or {})}
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is None:
        warnings.warn(f"the model in {filepath} was saved without an optimizer: compile it with a DistributedOptimizer()")
    elif not isinstance(model.optimizer, _Distributed):
        DistributedOptimizer(model.optimizer, compression=compression)
    return model


from paceline_horovod.keras import callbacks, elastic  # noqa: E402,F401  the callbacks use the names above
