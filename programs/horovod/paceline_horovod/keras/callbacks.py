# SPDX-License-Identifier: Apache-2.0
"""The callbacks of horovod.tensorflow.keras for Keras 3."""
import os
import warnings

import horovod.tensorflow as _hvd
import keras
import numpy
import tensorflow as tf


class _Callback(keras.callbacks.Callback):
    def set_model(self, model):
        """Turns XLA off. fit() calls this before it makes its function, and XLA cannot be turned off later."""
        super().set_model(model)
        if getattr(model, "jit_compile", False) and _hvd.size() > 1:
            warnings.warn("jit_compile is switched off for this model: XLA does not compile the operations between ranks")
            model.jit_compile = False
        optimizer = getattr(model, "optimizer", None)
        if hasattr(getattr(optimizer, "inner_optimizer", None), "_distributed") and not hasattr(optimizer, "_distributed"):
            raise ValueError("a LossScaleOptimizer around a DistributedOptimizer: ranks would not agree about an overflow; with mixed_float16 compile with "
                             "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))")


class BroadcastGlobalVariablesCallback(_Callback):
    """Gives every rank the variables of rank `root_rank`, the optimizer's included: before the first step, or after it if that step creates them.
    Ranks keep their own `local_variables` and seeds of random numbers, so that dropout drops different units on each rank."""

    def __init__(self, root_rank, device="", local_variables=None):
        super().__init__()
        self.root_rank, self.device, self.broadcast_done = root_rank, device, False
        local = [] if local_variables is None else local_variables if isinstance(local_variables, (list, tuple)) else [local_variables]
        if not all(isinstance(variable, (tf.Variable, keras.Variable)) for variable in local):
            raise ValueError("local_variables are variables of Keras or TensorFlow")
        self._local = {id(self._tf(variable)) for variable in local}

    def set_model(self, model):
        """This callback makes the weights equal, perhaps after several steps: the optimizer need not compare them."""
        super().set_model(model)
        distributed = getattr(getattr(model, "optimizer", None), "_distributed", None)
        if distributed is not None:
            distributed.broadcasts = True

    @staticmethod
    def _tf(variable):
        return variable.value if isinstance(variable, keras.Variable) else variable

    def register_local_var(self, var):
        self._local.add(id(self._tf(var)))

    def _broadcast(self):
        optimizer = self.model.optimizer
        variables = [*self.model.variables, *(optimizer.variables if optimizer is not None else [])]
        shared = {id(self._tf(variable)): self._tf(variable) for variable in variables if not variable.path.endswith("seed_generator_state")}
        with tf.device(self.device):
            _hvd.broadcast_variables([variable for key, variable in shared.items() if key not in self._local], root_rank=self.root_rank)
        self.broadcast_done = True

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if not self.broadcast_done and self.model.built and (optimizer is None or optimizer.built):
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        if not self.broadcast_done:
            self._broadcast()


class MetricAverageCallback(_Callback):
    """Averages an epoch's metrics over all ranks. Put it before callbacks that use them, such as ReduceLROnPlateau."""

    def __init__(self, device=""):
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch, logs=None):
        names = sorted(logs or {})
        if not names:
            return
        values = [numpy.asarray(logs[name], numpy.float64) for name in names]
        with tf.device(self.device):  # one operation, so that ranks with different metrics get an error about different shapes
            mean = _hvd.allreduce(tf.constant(numpy.concatenate([value.ravel() for value in values])), name="MetricAverageCallback", op=_hvd.Average).numpy()
        for name, value in zip(names, values):
            part, mean = mean[:value.size], mean[value.size:]
            logs[name] = part.reshape(value.shape) if value.shape else float(part[0])


class LearningRateScheduleCallback(_Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch), or, if multiplier is a number m, to initial_lr * m ** (epoch - start_epoch). It does so
    from start_epoch until before end_epoch, at the beginning of each epoch or, with staircase=False, of each batch, whose epoch is a fraction.

    With momentum_correction the accumulated momentum of an optimizer is scaled like the rate (Goyal et al., arXiv 1706.02677, 2.2)."""

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True, steps_per_epoch=None):
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed: the learning rate at the start of the training")
        self.initial_lr, self.start_epoch, self.end_epoch, self.staircase = initial_lr, start_epoch, end_epoch, staircase
        self.momentum_correction, self.steps_per_epoch, self.current_epoch = momentum_correction, steps_per_epoch, None
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)

    def _optimizer(self):
        optimizer = self.model.optimizer
        return getattr(optimizer, "inner_optimizer", optimizer)  # the optimizer inside a LossScaleOptimizer

    def _adjust(self, epoch):
        optimizer = self._optimizer()
        before, rate = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        if rate == before:
            return
        optimizer.learning_rate = rate
        if self.momentum_correction and getattr(optimizer, "momentum", 0) and optimizer.built and before:
            for slot in getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []:
                slot.assign(slot * (rate / before))

    def on_train_begin(self, logs=None):
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError(f"{type(self).__name__}: fit() does not know how many steps an epoch has; give steps_per_epoch")

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.current_epoch < self.start_epoch or self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = float(self._optimizer().learning_rate)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size() to initial_lr, a little with each batch of the first epochs."""

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
        def multiplier(epoch):
            done = (epoch + 1 / self.steps_per_epoch) / warmup_epochs  # 1 in the last batch
            return (1 + done * (_hvd.size() - 1)) / _hvd.size()
        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: the warm-up of the learning rate ends with {float(self._optimizer().learning_rate):g}")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keeps the best model so far in `filepath`, by default best.keras in SageMaker's model folder or the current folder. For one rank."""

    def __init__(self, monitor="val_loss", verbose=0, save_weights_only=False, mode="auto", save_freq="epoch", filepath=None):
        name = "best.weights.h5" if save_weights_only else "best.keras"
        super().__init__(filepath or os.path.join(os.environ.get("SM_MODEL_DIR", "."), name), monitor=monitor, verbose=verbose, save_best_only=True,
                         save_weights_only=save_weights_only, mode=mode, save_freq=save_freq)
