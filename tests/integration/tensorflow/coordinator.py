# SPDX-License-Identifier: Apache-2.0
"""ParameterServerStrategy with a ClusterCoordinator, its start as TensorFlow's guide has it: one script for all tasks."""
import os
import signal

import tensorflow as tf

how, last_step = os.environ.get("HOW", "train"), int(os.environ.get("LAST_STEP", "300"))
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
print(f"the script runs as {resolver.task_type} {resolver.task_id}", flush=True)
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol=resolver.rpc_layer or "grpc").join()
stopped = []
if how == "save":
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = [tf.Variable(tf.zeros((2, 1))) for _ in range(2)]
devices = [weight.device for weight in weights]
assert [device.split("/")[1:4] for device in devices] == [["job:ps", "replica:0", f"task:{i}"] for i in range(2)], devices


@tf.function
def train(batches):
    def on_worker(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ tf.concat(weights, 0) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.05 * gradient)
        return loss
    return strategy.run(on_worker, args=(next(batches),))


data = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(0).repeat().map(lambda _: tf.random.normal((16, 4))))
batches = iter(data)
for at in range(0, last_step, 50):
    for _ in range(50):
        loss = coordinator.schedule(train, args=(batches,))
    coordinator.join()
    print(f"chief at step {at + 50}", flush=True)
    if how == "raise":
        raise KeyError("a mistake in the program")
    if stopped:
        break
last = float(loss.fetch())
assert stopped or last < 0.01, last
tf.train.Checkpoint(weights=weights).save(f"{os.environ['SHARED']}/weights")  # every server writes its own variables there
with open(f"{os.environ['SM_MODEL_DIR']}/loss", "w") as file:
    file.write(str(last))
print(f"chief {'saves' if stopped else 'is right'}", flush=True)
