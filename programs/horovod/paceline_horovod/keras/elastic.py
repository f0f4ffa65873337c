# SPDX-License-Identifier: Apache-2.0
"""horovod.tensorflow.keras.elastic for Keras 3: the state of a model and its optimizer, and callbacks that commit it."""
import horovod.tensorflow as _hvd
import keras
from horovod.tensorflow.elastic import TensorFlowKerasState, run  # noqa: F401


class KerasState(TensorFlowKerasState):
    """Horovod's class asks optimizers for what Keras 3 has otherwise. Ranks keep their own seeds of random numbers, as after BroadcastGlobalVariablesCallback."""

    def __init__(self, model, optimizer=None, **values):
        super().__init__(model, optimizer=optimizer, **values)
        self._bcast_model = self._broadcast

    def _variables(self):
        if not self.optimizer.built:
            self.optimizer.build(self.model.trainable_variables)
        return self.model.variables, self.optimizer.variables

    def _save_model(self):
        self._saved_model_state, self._saved_optimizer_state = ([variable.numpy() for variable in variables] for variables in self._variables())

    def _load_model(self):
        for variables, values in zip(self._variables(), (self._saved_model_state, self._saved_optimizer_state)):
            for variable, value in zip(variables, values):
                variable.assign(value)

    def _broadcast(self):
        shared = [variable.value for variables in self._variables() for variable in variables if not variable.path.endswith("seed_generator_state")]
        _hvd.broadcast_variables(shared, root_rank=0)


class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state after every `batches_per_commit` batches and after each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self.state, self.batches_per_commit, self.batches_remaining = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs=None):
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch, logs=None):
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch, logs=None):
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps state.batch at the current batch, and at 0 between epochs."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch, logs=None):
        self.state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps state.epoch at the number of epochs that have ended, those of earlier attempts included: fit() counts from 0."""

    def __init__(self, state):
        super().__init__()
        self.state, self.first = state, state.epoch

    def on_train_begin(self, logs=None):
        self.first = self.state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self.state.epoch = self.first + epoch + 1
