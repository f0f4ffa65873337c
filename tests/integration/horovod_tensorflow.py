#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's own Python on Paceline with TensorFlow: `horovod_tensorflow.py VERSION [RANKS]...`, programs with 1 to 4 ranks or with these numbers of them.

Needs mpirun, Python.h and a C++ compiler at build time, and PyPI for Horovod's package and tensorflow-cpu (1.3 GB, once for a build
folder); skips without. Where Debian's torch is there, it runs in one process with TensorFlow.
"""
import os
import re
import subprocess
import sys

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from horovod_python import SHARDED, python_for, ranks, run, skip  # noqa: E402

PACELINE = f"{BUILD}/entrypoint/paceline"

# The exceptions of a program when ranks disagree, and before hvd.init().
OPERATIONS = r'''
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

def refused(error, call):
    try:
        call()
    except error as got:
        return str(got)
    raise SystemExit(f"{error.__name__} was not raised")

assert "has not been initialized" in refused(tf.errors.FailedPreconditionError, lambda: hvd.broadcast(tf.ones(1), 0))
assert "has not been initialized" in refused(tf.errors.FailedPreconditionError, hvd.rank_op)
hvd.init(process_sets="dynamic")
n, r = hvd.size(), hvd.rank()
assert hvd.is_initialized() and hvd.mpi_built() and not hvd.gloo_built()
assert [int(op()) for op in (hvd.size_op, hvd.rank_op, hvd.local_size_op, hvd.local_rank_op, hvd.process_set_included_op)] == [n, r, n, r, 1]

x = tf.reshape(tf.range(6), (2, 3)) + r
total = np.arange(6).reshape(2, 3) * n + n * (n - 1) // 2
def same(tensor, expected):
    assert tensor.shape == np.shape(expected) and np.array_equal(tensor.numpy().astype(np.float64), np.asarray(expected, np.float64)), (tensor, expected)

# Eagerly, and as functions: reductions by type, factors, groups, scalars, nothing.
def reductions(x):
    found = [hvd.allreduce(tf.cast(x, kind), op=hvd.Sum, name=f"sum.{kind.name}")
             for kind in (tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64)]
    real = tf.cast(x, tf.float32)
    found += [hvd.allreduce(real, op=hvd.Average, name="average"), hvd.allreduce(x, op=hvd.Min, name="min"), hvd.allreduce(x, op=hvd.Max, name="max"),
              hvd.allreduce(tf.ones(3) * 2, op=hvd.Product, name="product"),
              hvd.allreduce(real, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0, name="factors")]
    found += hvd.grouped_allreduce([real, real[0]], op=hvd.Sum, name="group")
    return found + [hvd.allreduce(real[0, 0], op=hvd.Sum, name="scalar"), hvd.allreduce(real[:0], op=hvd.Sum, name="empty")]
for face in (reductions, tf.function(reductions)):
    found = face(x)
    for tensor in found[:8]:
        same(tensor, total)
    same(found[8], total / n)
    same(found[9], np.arange(6).reshape(2, 3))
    same(found[10], np.arange(6).reshape(2, 3) + n - 1)
    same(found[11], [2 ** n] * 3)
    same(found[12], total * 2)
    same(found[13], total)
    same(found[14], total[0])
    same(found[15], total[0, 0])
    assert found[16].shape == (0, 3)
same(x, np.arange(6).reshape(2, 3) + r)  # eager inputs stay

# Halves, as Horovod rounds them: after each factor, and after the sum.
half = tf.cast(tf.range(-20, 28), tf.float16) / 7
wide = half.numpy().astype(np.float32)
first, last = ((wide * np.float32(0.3)).astype(np.float16).astype(np.float32) * n).astype(np.float16), (wide * n).astype(np.float16).astype(np.float32)
last = (last * np.float32(0.3)).astype(np.float16)
def rounded(half):
    found = []
    for factors in ({"prescale_factor": 0.3}, {"postscale_factor": 0.3}):
        which = next(iter(factors))
        found.append([hvd.allreduce(half, op=hvd.Sum, name=f"half.{which}", **factors),
                      hvd.allreduce(half + 0, op=hvd.Sum, name=f"own.{which}", **factors),  # in place, in a graph
                      *hvd.grouped_allreduce([half, half], op=hvd.Sum, name=f"halves.{which}", **factors),
                      hvd.allgather(hvd.reducescatter(half, op=hvd.Sum, name=f"part.{which}", **factors), name=f"parts.{which}"),
                      hvd.allgather(hvd.grouped_reducescatter([half, half], op=hvd.Sum, **factors)[1], name=f"splits.{which}")])
    return found
for face in (rounded, tf.function(rounded)):
    for found, expected in zip(face(half), (first, last)):
        for tensor in found:
            same(tensor, expected)
same(half, wide)

# Rows: their shapes are known as far as they can be when a function is made.
rows = [row for rank in range(n) for row in [rank] * (rank + 1)]
static = {}
def moves(x):
    mine = tf.fill([r + 1, 2], r)
    found = [hvd.allgather(mine, name="gather"), *hvd.grouped_allgather([mine, mine[:1, 0] * 2], name="gathers"), hvd.allgather(mine > 0, name="truth")]
    found += [hvd.allgather(tf.cast(mine, tf.uint16), name="wide"), hvd.broadcast(x, n - 1, name="last"), hvd.broadcast(x > n, 0, name="first")]
    sent, received = hvd.alltoall(tf.repeat(tf.range(n) * 10 + r, tf.range(n) + 1), splits=tf.range(n) + 1, name="uneven")
    even = hvd.alltoall(tf.range(n * 2) + r * 100, name="even")
    scattered = hvd.reducescatter(tf.reshape(tf.range((n + 1) * 2, dtype=tf.float32), (n + 1, 2)), op=hvd.Sum, name="scatter")
    groups = hvd.grouped_reducescatter([tf.ones((n, 2)), tf.ones(n)], op=hvd.Average)
    if not tf.executing_eagerly():
        static.update(gather=found[0].shape.as_list(), sent=sent.shape.as_list(), received=received.shape.as_list(), scatter=scattered.shape.as_list(),
                      last=found[5].shape.as_list())
    return found + [sent, received, even, scattered, *groups]
for face in (moves, tf.function(moves)):
    found = face(x)
    same(found[0], np.repeat(rows, 2).reshape(-1, 2))
    same(found[1], np.repeat(rows, 2).reshape(-1, 2))
    same(found[2], [rank * 2 for rank in range(n)])
    same(found[3], np.repeat(rows, 2).reshape(-1, 2) > 0)
    same(found[4], np.repeat(rows, 2).reshape(-1, 2))
    same(found[5], np.arange(6).reshape(2, 3) + n - 1)
    same(found[6], np.arange(6).reshape(2, 3) > n)
    same(found[7], [r * 10 + rank for rank in range(n) for _ in range(r + 1)])
    same(found[8], [r + 1] * n)
    same(found[9], [rank * 100 + r * 2 + i for rank in range(n) for i in range(2)])
    before = (n + 1) // n * r + min(r, (n + 1) % n)
    mine = (n + 1) // n + (r < (n + 1) % n)
    same(found[10], np.arange((n + 1) * 2).reshape(n + 1, 2)[before:before + mine] * n)
    same(found[11], [[1, 1]])
    same(found[12], [1])
assert static == {"gather": [None, 2], "sent": [None], "received": [n], "scatter": [None, 2], "last": [2, 3]}, static

# Gradients through each, as Horovod defines them.
def gradients(x):
    weight = tf.cast(r + 1, tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        losses = [tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, name="a")) * weight, tf.reduce_sum(hvd.allgather(x, name="b")) * weight,
                  tf.reduce_sum(hvd.alltoall(x, splits=tf.one_hot(0, n, 2, 0, dtype=tf.int32), name="c")[0]) * weight,
                  tf.reduce_sum(hvd.reducescatter(x, op=hvd.Sum, name="d")) * weight,
                  tf.add_n([tf.reduce_sum(part) for part in hvd.grouped_allreduce([x, x], op=hvd.Sum, name="e")]) * weight]
        # Horovod's Python multiplies these two by 0 where no root is: TensorFlow's optimiser then needs no sum there, but the others wait for it.
        losses += [tf.reduce_sum(hvd.broadcast(x, 0, name="f")) * weight, tf.reduce_sum(hvd.broadcast(x, 0, name="g") ** 2) * weight]
    return [tape.gradient(loss, x) for loss in losses]
x = tf.ones((2, 3))
weights = n * (n + 1) // 2
function = tf.function(gradients)
for face in (gradients, function, function):  # again: what a rank's optimiser evaluated would be missing in the second run
    found = face(x)
    same(found[0], np.full((2, 3), weights))
    assert np.allclose(found[1], weights / n)
    same(found[2], np.ones((2, 3)))  # rank 0 has all rows, with weight 1
    same(found[3], np.concatenate([np.full(((2 // n) + (rank < 2 % n), 3), (rank + 1) * n) for rank in range(n)]))
    same(found[4], np.full((2, 3), 2 * weights))
    for gradient, factor in ((found[5], 1), (found[6], 2)):
        assert np.allclose(gradient, factor * weights / n if r == 0 else 0), found

# Sparse gradients, objects, variables.
sparse = hvd.allreduce(tf.IndexedSlices(tf.ones((1, 2)), tf.constant([r]), dense_shape=(n, 2)), op=hvd.Sum, name="sparse")
same(tf.convert_to_tensor(sparse), np.ones((n, 2)))
assert hvd.broadcast_object({"rank": r}, n - 1) == {"rank": n - 1} and hvd.allgather_object(r) == list(range(n))
variables = [tf.Variable(tf.fill([3], float(r)), name="v"), tf.Variable([[r]], name="w")]
hvd.broadcast_variables(variables, n - 1)
same(variables[0], [n - 1] * 3)
same(variables[1], [[n - 1]])

# Every tensor of a function goes on its own: ranks that run them in other orders, on few threads, do not wait for one another.
@tf.function
def many(x):
    order = list(range(60)) if r % 2 else list(reversed(range(60)))
    return tf.add_n([hvd.allreduce(x * i, op=hvd.Sum, name=f"many.{i}") for i in order])
same(many(tf.ones(2)), [sum(range(60)) * n] * 2)
# TensorFlow's optimiser evaluates what has constant inputs, on each rank by itself, but not these.
@tf.function
def constants():
    order = sorted(range(12), key=lambda i: (i * (r + 3)) % 13)
    return [total for _, total in sorted(((i, hvd.allreduce(tf.ones(2) * (i + 2), op=hvd.Sum, name=f"constant.{i}")) for i in order), key=lambda pair: pair[0])]
for i, tensor in enumerate(constants() + constants()):
    same(tensor, [(i % 12 + 2) * n] * 2)
# Names that differ far from their end.
@tf.function
def long_names(x):
    return [hvd.allreduce(x * i, op=hvd.Sum, name=f"n{i}" + "x" * 300) for i in (1, 2)]
first, second = long_names(tf.ones(1))
same(first, [n])
same(second, [2 * n])

# What is refused, and where.
refused(tf.errors.InvalidArgumentError, lambda: hvd.alltoall(tf.ones(3), splits=tf.constant([3] * (n + 1)), name="splits"))
assert "2147483648 rows came from rank 0" in refused(tf.errors.InvalidArgumentError, lambda: hvd.alltoall(tf.zeros(tf.constant([n * 2 ** 31, 0], tf.int64))))
if n > 1:
    assert "'HorovodAllreduce'" in refused(tf.errors.FailedPreconditionError, lambda: hvd.allreduce(tf.ones(r + 1), op=hvd.Sum))
    last = hvd.add_process_set([n - 1])
    assert int(hvd.size_op(last.process_set_id)) == 1 and int(hvd.process_set_included_op(last.process_set_id)) == (r == n - 1)
    if r == n - 1:
        same(hvd.allreduce(tf.ones(1), op=hvd.Sum, process_set=last), [1])
        same(hvd.broadcast(tf.constant([5]), n - 1, process_set=last), [5])
        refused(tf.errors.InvalidArgumentError, lambda: hvd.broadcast(tf.constant([5]), 0, process_set=last))
    assert hvd.remove_process_set(last)
    if r == 0:
        assert int(hvd.join()) != 0
    else:
        same(hvd.allreduce(tf.ones(1), op=hvd.Sum, name="joined"), [n - 1])
        refused(tf.errors.FailedPreconditionError, lambda: hvd.allgather(tf.ones(1)))
        hvd.join()
hvd.shutdown()
print("rank", r, "is right")
'''

# Variables of both kinds, in place: values that were read before stay, and a TensorFlow without the calls for it says so.
IN_PLACE = r'''
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
n, r = hvd.size(), hvd.rank()
try:
    variables = [tf.Variable([float(r)] * 4, name="v"), tf.Variable(r, name="w"), tf.Variable(tf.zeros((0, 3)), name="empty")]
    before = variables[0].read_value()
    given = hvd.broadcast_(variables, n - 1)
    assert given[0].numpy().tolist() == variables[0].numpy().tolist() == [n - 1] * 4 and int(variables[1]) == n - 1, variables
    assert before.numpy().tolist() == [r] * 4, before
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        reference = tf.compat.v1.get_variable("reference", initializer=float(r), use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(hvd.broadcast_([reference], n - 1)) == [n - 1] and session.run(reference) == n - 1
    print("rank", r, "is right in place")
except tf.errors.UnimplementedError as error:
    assert "broadcasting in place needs TF_" in str(error), error
    print("rank", r, "is right: nothing is broadcast in place here")
'''

TRAINING = r'''
import os
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
import horovod.tensorflow as plain
hvd.init()
r = hvd.rank()
# Beside Keras 3 Horovod's own callback asks that one for constant(), which it has not.
averages = [] if "TF_USE_LEGACY_KERAS" in os.environ else [hvd.callbacks.MetricAverageCallback()]
tf.keras.utils.set_random_seed(r)
x = np.random.randn(256, 4).astype("float32")
y = x.sum(1, keepdims=True)

model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh", input_shape=(4,)), tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05, momentum=0.9)), loss="mse")
history = model.fit(x, y, batch_size=16, epochs=4, verbose=0,
                    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), *averages])
losses = history.history["loss"]
assert losses[-1] < losses[0] / 2, losses
assert not averages or all(row == losses for row in plain.allgather_object(losses)), losses
def equal(weights):
    every = plain.allgather_object([weight.tolist() for weight in weights])
    assert all(other == every[0] for other in every)
equal(model.get_weights())

# horovod.keras is for the Keras that TensorFlow has, also where another one is installed.
import horovod.keras
assert horovod.keras.DistributedOptimizer(tf.keras.optimizers.Adam()).get_config()["name"] == "Adam"

# By hand: a tape, a sparse gradient, compression.
table = tf.Variable(tf.random.normal((10, 4), seed=r))
head = tf.Variable(tf.random.normal((4, 1), seed=r + 100))
plain.broadcast_variables([table, head], 0)
optimizer = tf.keras.optimizers.SGD(0.1)
@tf.function
def step(indices, target):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.embedding_lookup(table, indices) @ head - target) ** 2)
    tape = plain.DistributedGradientTape(tape, compression=plain.Compression.fp16)
    optimizer.apply_gradients(zip(tape.gradient(loss, [table, head]), [table, head]))
    return loss
for _ in range(20):
    step(tf.random.uniform((8,), 0, 10, tf.int32), tf.ones((8, 1)))
equal([table.numpy(), head.numpy()])
print("rank", r, "is right")
'''

# Both frameworks are one Horovod: one init, one numbering, sets that both know.
BOTH = r'''
import torch
import horovod.torch as hvd
import tensorflow as tf
import horovod.tensorflow as hvt
hvd.init(process_sets="dynamic")
assert hvt.is_initialized() and hvt.size() == hvd.size()
hvt.init()
n, r = hvd.size(), hvd.rank()
for i in range(5):
    handle = hvd.allreduce_async(torch.full((3,), float(i)), op=hvd.Sum, name=f"torch.{i}")
    assert hvt.allreduce(tf.fill([3], float(i)), op=hvt.Sum).numpy().tolist() == [i * n] * 3
    assert hvd.synchronize(handle).tolist() == [i * n] * 3
if n > 1:
    last = hvd.add_process_set([n - 1])
    assert int(hvt.size_op(last.process_set_id)) == 1
hvt.shutdown()
assert not hvd.is_initialized()
print("rank", r, "is right")
'''

# Rank 0 raises while the others wait for it.
RAISING = r'''
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
hvd.allreduce(tf.ones(1), op=hvd.Sum)
if hvd.rank() == 0:
    raise KeyError("rank 0 raises")
try:
    hvd.allreduce(tf.ones(1), op=hvd.Sum)
except tf.errors.UnknownError as error:
    print("rank", hvd.rank(), "got", type(error).__name__, error, flush=True)
'''


def main():
    version, counts = sys.argv[1], [int(word) for word in sys.argv[2:]] or [1, 2, 3, 4]
    if not os.path.exists(f"{BUILD}/libexec/paceline/libpaceline-horovod-tensorflow.so"):
        skip("built without Python.h or a C++ compiler")
    python = python_for(version)
    has_torch = version == "2.15.1" and subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", **({} if version == "2.15.1" else {"TF_USE_LEGACY_KERAS": "1"})}

    assert f"TensorFlow {version}" in run(PACELINE, "horovod", "--python", python)
    assert "horovod.tensorflow works" in run(PACELINE, "horovod", "--check", "--python", python)
    for count in counts:
        programs = (OPERATIONS, IN_PLACE, TRAINING) + ((SHARDED,) if count == 3 else ())
        text = ranks(python, count, programs, **variables)
        assert text.count("is right") == count * len(programs), text
        assert version != "2.15.1" or text.count("in place") == count, text
        if has_torch:
            text = ranks(python, count, BOTH, **variables)
            assert text.count("is right") == count, text
    text = ranks(python, counts[-1], RAISING, expect=None, **variables)
    assert "rank 0 raises" in text and "got UnknownError" in text and "HorovodAllreduce" in text and re.search("rank 0 on host .+ has given up", text), text
    print(f"horovod.tensorflow {version}: as it should be" + ("" if has_torch else "; not tried with torch in one process"))


main()
