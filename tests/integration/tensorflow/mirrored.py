# SPDX-License-Identifier: Apache-2.0
"""MultiWorkerMirroredStrategy with a loop of its own: equal weights on all hosts."""
import os
import sys

import tensorflow as tf

how, last_step = os.environ.get("HOW", "train"), int(os.environ.get("LAST_STEP", "100"))
strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
with strategy.scope():
    weight = tf.Variable(tf.zeros((4, 1)))


@tf.function
def train(x):
    def on_replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, weight))
        weight.assign_sub(0.05 * gradient)
        return loss
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(on_replica, args=(x,)), axis=None)


preemption = None
if how == "save":  # TensorFlow catches SIGTERM, and its own handler saves on all hosts after the same step
    ending = tf.distribute.experimental.TerminationConfig(exit_fn=lambda: (print(f"worker {resolver.task_id} has saved", flush=True), sys.exit(0)))
    preemption = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, tf.train.Checkpoint(weight=weight), os.environ["SHARED"], ending)

tf.random.set_seed(resolver.task_id)
for at in range(1, last_step + 1):
    x = tf.random.normal((16, 4))
    loss = preemption.run(train, x) if preemption else train(x)
    if at % 20 == 0:
        print(f"worker {resolver.task_id} at step {at}", flush=True)
    if how == "raise" and resolver.task_id == 0 and at >= 20:
        raise KeyError("a mistake in the program")
assert float(loss) < 0.01, loss
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, weight.read_value()))
assert (total.numpy() == 2 * weight.numpy()).all(), (total, weight)
print(f"worker {resolver.task_id} of {strategy.num_replicas_in_sync} is right", flush=True)
