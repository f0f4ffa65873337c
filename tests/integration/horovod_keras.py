#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs for Keras 3 that import horovod.tensorflow.keras, on 1 to 4 ranks: `paceline horovod` maps it to our own package.

Needs PyPI for TensorFlow (1.3 GB, once for a build folder) and Horovod's package; skips without.
"""
import os
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from horovod_python import SHARDED, python_for, ranks, run, skip  # noqa: E402

PACELINE = f"{BUILD}/entrypoint/paceline"
HEAD = r'''
import os, sys, warnings
import numpy as np
import tensorflow as tf
import keras
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
hvd.init(process_sets="dynamic")
n, r = hvd.size(), hvd.rank()

def refused(kind, words, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except kind as error:
        assert words in str(error), error
    else:
        raise SystemExit(f"not refused: {words}")

def everywhere(values):
    """These values of every rank, one row each."""
    return hvd.allgather(np.concatenate([np.ravel(value) for value in values])[None].astype(np.float64)).numpy()

def same(values):
    rows = everywhere(values)
    assert (rows == rows[0]).all(), rows
'''

OPTIMIZER = HEAD + r'''
import horovod.keras
from horovod.tensorflow.keras.callbacks import MetricAverageCallback
assert horovod.keras is not None and horovod.keras.DistributedOptimizer is hvd.DistributedOptimizer and hvd.__name__ == "paceline_horovod.keras"
assert hvd_tf.callbacks.MetricAverageCallback is MetricAverageCallback is hvd.callbacks.MetricAverageCallback
refused(AttributeError, "no 'spark' for Keras 3", lambda: hvd.spark)
mean = (n - 1) / 2

def stepped(grads_of_steps, optimizer=None, **keywords):
    """What steps with these gradients of w (2) and e (3 rows) leave of zeros, at a learning rate of 1; in a graph and without."""
    values = []
    for in_graph in (True, False):
        given = keras.optimizers.SGD(1.0)
        made = hvd.DistributedOptimizer(given, **keywords)
        assert made is given and isinstance(made, keras.optimizers.SGD) and type(made).__name__ == "SGD"
        w, e = keras.Variable(np.zeros(2, "float32"), name="w"), keras.Variable(np.zeros((3, 1), "float32"), name="e")
        if optimizer:
            optimizer(made, w)
        apply = lambda a, b: made.apply_gradients(zip([a, b], [w, e]))
        apply = tf.function(apply) if in_graph else apply
        for grads in grads_of_steps:
            apply(*grads)
        assert int(made.iterations) == len(grads_of_steps), made.iterations
        values.append([w.numpy(), e.numpy().ravel()])
    assert all((a == b).all() for a, b in zip(*values)), values
    return values[0]

rows = lambda *numbers: tf.IndexedSlices(tf.constant([[float(number)] for number in numbers]), tf.constant([0] * len(numbers)), tf.constant([3, 1]))
for sparse_as_dense in (False, True):
    w, e = stepped([(tf.constant([1.0, r]), rows(1, r))], sparse_as_dense=sparse_as_dense)
    assert w.tolist() == [-1, -mean] and np.allclose(e, [-1 - mean, 0, 0]), (w, e)
w, e = stepped([(tf.constant([1.0, r]), tf.fill([3, 1], 2.0))] * 2, op=hvd.Sum)
assert w.tolist() == [-2 * n, -2 * n * mean] and (e == -4 * n).all(), (w, e)
w, _ = stepped([(tf.constant([1.0, r]), rows(0))], gradient_predivide_factor=2.0, compression=hvd.Compression.fp16)
assert np.allclose(w, [-1, -mean]), w
for average, whole in ((False, 1), (True, 1 / 2)):  # the last of the five is half a step
    w, e = stepped([(tf.constant([1.0, r]), rows(r))] * 5, backward_passes_per_step=2, average_aggregated_gradients=average)
    assert np.allclose(w, [-4 * whole, -4 * whole * mean]) and np.allclose(e, [-4 * whole * mean, 0, 0]), (w, e)
local = lambda made, w: made.register_local_var(w)
assert np.allclose(stepped([(tf.constant([1.0, r]), rows(r))], local)[0], [-1 / n, -r / n])
assert np.allclose(stepped([(tf.constant([1.0, r]), rows(r))], local, scale_local_gradients=False)[0], [-1, -r])
if n > 2:
    pair = hvd.add_process_set([0, 1])
    w, _ = stepped([(tf.constant([1.0, r]), rows(r))], process_set=pair)
    assert w.tolist() == ([-1, -0.5] if r < 2 else [-1, -r]), w

assert np.allclose(hvd.allreduce([1.0, r]), [1, mean]) and np.allclose(hvd.allreduce([1.0, r], op=hvd.Sum, name="sum"), [n, n * mean])
assert hvd.allgather([r] * (r + 1), name="rows").numpy().tolist() == [i for i in range(n) for _ in range(i + 1)]
assert hvd.broadcast([r], n - 1).numpy().tolist() == [n - 1] and hvd.reducescatter(np.ones((n, 2)), op=hvd.Sum).numpy().tolist() == [[n, n]]

refused(ValueError, "takes an optimizer of Keras", hvd.DistributedOptimizer, "adam")
refused(ValueError, "predivide", hvd.DistributedOptimizer, keras.optimizers.SGD(), op=hvd.Sum, gradient_predivide_factor=2.0)
refused(ValueError, "at least", hvd.DistributedOptimizer, keras.optimizers.SGD(), backward_passes_per_step=0)
refused(ValueError, "already", hvd.DistributedOptimizer, hvd.DistributedOptimizer(keras.optimizers.SGD()))
layer = keras.layers.Dense(1)
layer.build((None, 2))
partial = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=layer)
before = layer.kernel.numpy()
partial.apply_gradients([(tf.fill([2, 1], float(r)), layer.kernel)])
assert np.allclose(before - layer.kernel.numpy(), r / n)
print("rank", r, "is right")
'''

TRAINING = HEAD + r'''
keras.utils.set_random_seed(r)  # other weights on each rank, and other data

def made():
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.1), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    return model

x = np.random.randn(96, 4).astype("float32")
y = x.sum(1, keepdims=True)

class Rates(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.rates = []
    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))

# Callbacks, with XLA asked for.
model, rates = made(), Rates()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.02, momentum=0.5)), loss="mse", metrics=["mae"], jit_compile=True)
first = []
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    history = model.fit(x, y, batch_size=16, epochs=4, verbose=0, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.02, warmup_epochs=2), rates])
assert any("jit_compile is switched off" in str(word.message) for word in said) == (n > 1), [str(word.message) for word in said]
same([variable.numpy() for variable in model.trainable_variables] + [variable.numpy() for variable in model.optimizer.variables])
same([[value for name in sorted(history.history) for value in history.history[name]]])
assert history.history["loss"][-1] < history.history["loss"][0] / 2, history.history
steps = 12  # of the warm-up; then the rate stays
assert np.allclose(rates.rates[:steps], [0.02 / n * (1 + (i + 1) / steps * (n - 1)) for i in range(steps)]) and np.allclose(rates.rates[steps:], 0.02), rates.rates
assert np.allclose(history.history["lr"][-1], 0.02)

# A schedule in stairs; momentum is scaled with the rate.
schedule = hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.02, multiplier=0.1, start_epoch=1, end_epoch=3)
history = model.fit(x, y, batch_size=16, epochs=4, verbose=0, callbacks=[schedule, rates])
assert np.allclose(rates.rates[::6], [0.02, 0.02, 0.002, 0.002]), rates.rates
velocity = model.optimizer.momentums[0].numpy()
schedule._adjust(1)
assert np.allclose(model.optimizer.momentums[0].numpy(), velocity * 10)
refused(ValueError, "give steps_per_epoch", model.fit, ((x[:16], y[:16]) for _ in range(2)), verbose=0, callbacks=[
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.02)])

# A variable that stays each rank's own.
model = made()
model.build((None, 4))
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
own = model.layers[0].kernel
before = everywhere([own])
model.fit(x, y, epochs=1, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(n - 1, local_variables=[own])])
assert (everywhere([own]) == before).all() and (n == 1 or (before[0] != before[1]).any())
same([model.layers[-1].kernel.numpy()])

# Rank 0's checkpoint, as tutorials have it; all ranks go on from it, with the optimizer's state.
path = sys.argv[1] + f"/model{n}.keras"
model = made()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if r == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(path))
    callbacks.append(hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=sys.argv[1] + f"/best{n}.keras"))
model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
hvd.allreduce([0.0], name="written")
assert os.path.exists(sys.argv[1] + f"/best{n}.keras")
plain = keras.models.load_model(path)
assert type(plain.optimizer) is keras.optimizers.Adam
loaded = hvd.load_model(path)
assert isinstance(loaded.optimizer, keras.optimizers.Adam) and int(loaded.optimizer.iterations) == 12 and hasattr(loaded.optimizer, "register_local_var")
for one, other in ((model.trainable_variables, loaded.trainable_variables), (model.optimizer.variables, loaded.optimizer.variables)):
    assert len(one) == len(other) > 4 and all((a.numpy() == b.numpy()).all() for a, b in zip(one, other))
loaded.fit(x, y, batch_size=16, epochs=1, verbose=0)
same([variable.numpy() for variable in loaded.trainable_variables])
assert int(loaded.optimizer.iterations) == 18

# float16 that overflows on one rank: all skip that step. The wrapper of the loss goes inside.
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([keras.layers.Dense(1)])
model.build((None, 4))
scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=8.0)
model.compile(optimizer=hvd.DistributedOptimizer(scaled), loss="mse")
start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(x[:16], y[:16] * (np.inf if r == n - 1 else 1), batch_size=16, verbose=0, callbacks=[start])
same([model.layers[0].kernel.numpy(), scaled.dynamic_scale.numpy()])
assert float(scaled.dynamic_scale) == 4.0 and np.isfinite(model.layers[0].kernel.numpy()).all()
model.fit(x, y, batch_size=16, verbose=0)
same([model.layers[0].kernel.numpy()])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
refused(ValueError, "LossScaleOptimizer around", model.fit, x, y, verbose=0, callbacks=[start])
print("rank", r, "is right")
'''

# The parts of Horovod's own Python besides Keras, with variables of both kinds.
TAPE = HEAD + r'''
import horovod
assert horovod.__version__ == "0.28.1"
w = tf.Variable([1.0, 2.0])
with hvd_tf.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = tf.reduce_sum(w * w) * r
assert np.allclose(tape.gradient(loss, [w])[0], np.array([2.0, 4.0]) * (n - 1) / 2)
w.assign(w * (r + 1))
hvd_tf.broadcast_variables([w], root_rank=0)
assert w.numpy().tolist() == [1, 2]
assert hvd_tf.broadcast_object({"rank": r}, n - 1) == {"rank": n - 1} and hvd_tf.allgather_object(r) == list(range(n))
assert hvd_tf.allreduce(tf.constant([r]), op=hvd_tf.Max, name="most").numpy().tolist() == [n - 1]
refused(ValueError, "a process set needs", hvd_tf.add_process_set, [0] * (n + 1))
if n > 1:
    last = hvd_tf.add_process_set([n - 1])
    assert last.included() == (r == n - 1) and hvd_tf.remove_process_set(last)

# A loop of one's own over a model of Keras 3, as Horovod's tutorials have it: rank 0's variables arrive in the first step.
keras.utils.set_random_seed(r)
x = np.random.RandomState(r).randn(64, 4).astype("float32")
model, optimizer = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]), keras.optimizers.Adam(0.01)
@tf.function
def step(x, first):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.reduce_sum(x, 1, keepdims=True) - model(x, training=True)) ** 2)
    tape = hvd_tf.DistributedGradientTape(tape, compression=hvd_tf.Compression.fp16)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    if first:
        hvd_tf.broadcast_variables(model.variables, root_rank=0)
        hvd_tf.broadcast_variables(optimizer.variables, root_rank=0)
    return loss
losses = [float(step(x, i == 0)) for i in range(30)]
assert losses[-1] < losses[0] / 2, losses
same([variable.numpy() for variable in model.trainable_variables])
twice = tf.function(lambda x: hvd_tf.allreduce(x, op=hvd_tf.Sum) + hvd_tf.allreduce(x * 2, op=hvd_tf.Sum))
assert np.allclose(twice(tf.constant([1.0])), 3 * n)
print("rank", r, "is right")
'''

# Ranks that begin with other weights: rank 0 warns where nothing makes them equal, before the first step or after it.
WEIGHTS = HEAD + r'''
keras.utils.set_random_seed(r)
os.dup2(os.open(f"{sys.argv[1]}/stderr-{r}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
for how in ("built", "late", "differ"):
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    if how == "built":
        model.build((None, 4))
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse", jit_compile=False)
    model.fit(np.random.randn(64, 4), np.ones((64, 1)), batch_size=8, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] * (how != "differ"))
    hvd.allreduce([0.0], name="ended")
    found = open(f"{sys.argv[1]}/stderr-{r}").read().count("DistributedOptimizer: the weights of rank 1 differ from those of rank 0")
    assert found == (r == 0 and how == "differ"), (how, found)
print("rank", r, "is right")
'''

# What else the tape has: variables of Keras and of TensorFlow that stay a rank's own, and groups.
LOCAL_TAPE = HEAD + r'''
own, shared, plain = keras.Variable([1.0, 2.0]), keras.Variable([3.0]), tf.Variable([4.0])
sources = [own, shared, plain]
def taped(make, **keywords):
    with tf.GradientTape(persistent=True) as tape:
        loss = sum(tf.reduce_sum(source * source) for source in sources) * r
    return make(tape, **keywords), loss
mean = (n - 1) / 2
tape, loss = taped(hvd_tf.DistributedGradientTape, groups=[[shared, plain]])
tape.register_local_source(own)
for grads in (tape.gradient(loss, sources), tape.gradient(loss, tuple(sources))):
    assert np.allclose(grads[0], np.array([2.0, 4.0]) * r / n) and np.allclose(grads[1], 6 * mean) and np.allclose(grads[2], 8 * mean), grads
local, everyones = tape.get_local_and_global_gradients(loss, sources)
assert [source for source, _ in local] == [own] and everyones[0][0] is shared and everyones[1][0] is plain
keras.optimizers.SGD(1.0).apply_gradients([(grad, source) for source, grad in everyones[:1]])
assert np.allclose(shared.numpy(), 3 - 6 * mean)
layer = keras.layers.Dense(1)
layer.build((None, 2))
sources = [layer.kernel, plain]
tape, loss = taped(hvd_tf.PartialDistributedGradientTape, local_layers=layer, scale_local_gradients=False)
grads = tape.gradient(loss, sources)
assert np.allclose(grads[0], 2 * layer.kernel.numpy() * r) and np.allclose(grads[1], 8 * mean), grads
print("rank", r, "is right")
'''

# Keras 2 beside Keras 3: Horovod's own Python.
LEGACY = r'''
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
assert hvd.__name__ == "horovod.tensorflow.keras" and hvd.__file__.endswith("horovod/tensorflow/keras/__init__.py")
tf.keras.utils.set_random_seed(hvd.rank())
model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05), compression=hvd.Compression.fp16), loss="mse",
              experimental_run_tf_function=False)
x = np.random.randn(320, 4).astype("float32")
history = model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0, callbacks=[
    hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
weights = np.asarray(hvd.allgather(np.concatenate([value.ravel() for value in model.get_weights()])[None], name="weights"))
assert len(weights) == hvd.size() and (weights == weights[0]).all() and history.history["loss"][1] < history.history["loss"][0], history.history
print("rank", hvd.rank(), "is right")
'''

# Keras 2 or 3: hvd.elastic.run in a job that is started again: rank 1 is killed in epoch 2 of the first attempt.
ELASTIC = r'''
import os, signal, sys
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from horovod.tensorflow.keras.elastic import CommitStateCallback, KerasState, UpdateBatchStateCallback, UpdateEpochStateCallback
hvd.init()
r, keras = hvd.rank(), tf.keras
keras.utils.set_random_seed(r)
model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
model.build((None, 4))
# Horovod's own state does not know what an optimizer of Keras 2 makes in its first step
optimizer = keras.optimizers.Adam(0.05) if hvd.__name__ == "paceline_horovod.keras" else keras.optimizers.SGD(0.05)
model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse", jit_compile=False)
x = np.random.RandomState(r).randn(64, 4).astype("float32")

class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if (state.epoch, state.batch, r, sys.argv[1]) == (2, 1, 1, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)

@hvd.elastic.run
def train(state):
    print("rank", r, "begins after epoch", state.epoch, flush=True)
    model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=4 - state.epoch, shuffle=False, verbose=0, callbacks=[
        UpdateEpochStateCallback(state), UpdateBatchStateCallback(state), Kill(), CommitStateCallback(state, batches_per_commit=100)])

state = KerasState(model, epoch=0, batch=0)
state.register_reset_callbacks([lambda: print("rank", r, "is reset", flush=True)])
train(state)
weights = np.concatenate([np.ravel(value) for value in model.get_weights()])[None]
print("weights", np.asarray(hvd.allgather(weights, name="weights")).tolist(), flush=True)
'''


def elastic_state_outlives_ranks(python, **variables):
    memory_fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    memory = {"PACELINE_KEPT": f"/proc/{os.getpid()}/fd/{memory_fd}", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    straight = ranks(python, 2, ELASTIC, "whole", TF_CPP_MIN_LOG_LEVEL="3", **variables)
    assert straight.count("begins after epoch 0") == 2 and "is reset" not in straight, straight
    text = ranks(python, 2, ELASTIC, "killed", expect=None, PACELINE_RESTART="0", **memory)
    assert "weights [" not in text, text
    again = ranks(python, 2, ELASTIC, "whole", PACELINE_RESTART="1", **memory)
    os.close(memory_fd)
    assert again.count("begins after epoch 2") == again.count("is reset") == 2, again
    weights = [re.findall(r"weights (\[.*)", words) for words in (straight, again)]
    assert len(weights[0]) == 2 and weights[0] == weights[1], f"the weights differ: {weights}"


OTHER_BACKEND = r'''
import keras
keras.backend.backend = lambda: "jax"
import horovod.keras
'''


def main():
    if not os.path.exists(f"{BUILD}/libexec/paceline/libpaceline-horovod-tensorflow.so"):
        skip("built without Python.h or without a C++ compiler")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    python = python_for("2.21.0")
    with tempfile.TemporaryDirectory() as folder:
        assert "runs on Paceline" in run(PACELINE, "horovod", "--python", python)
        assert "paceline_horovod.keras" in run(PACELINE, "horovod", "--check", "--python", python, env=environment)
        counts = [int(word) for word in sys.argv[1:]] or [1, 2, 3, 4]
        for count in counts:
            programs = (OPTIMIZER,) + ((SHARDED, TAPE, LOCAL_TAPE) if count == 2 else ()) + (TRAINING,)  # which leaves another policy of Keras
            text = ranks(python, count, programs, folder, TF_CPP_MIN_LOG_LEVEL="3")
            assert text.count("is right") == count * len(programs), text
        if 1 in counts:
            elastic_state_outlives_ranks(python)
        text = ranks(python, 2, WEIGHTS, folder, TF_CPP_MIN_LOG_LEVEL="3")
        assert text.count("is right") == 2, text
        assert "KERAS_BACKEND=tensorflow" in run(python, "-c", OTHER_BACKEND, expect=1, env=environment)
        if subprocess.run([python, "-c", "import tf_keras"], stderr=subprocess.DEVNULL, env=environment).returncode == 0:
            for count, programs in {1: (LEGACY,), 2: (LEGACY, SHARDED)}.items():
                text = ranks(python, count, programs, TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1")
                assert text.count("is right") == count * len(programs), text
            if 1 in counts:
                elastic_state_outlives_ranks(python, TF_USE_LEGACY_KERAS="1")
        else:
            print("left out: Keras 2, there is no tf_keras")
    print("horovod.tensorflow.keras on Keras 3: as it should be")


main()
