# SPDX-License-Identifier: Apache-2.0
"""ParameterServerStrategy with a ClusterCoordinator and Keras 3, its start as TensorFlow's guide has it: one script for all tasks."""
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
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)
servers = {variable.value.device.split("/")[3] for variable in model.variables}
assert servers == {"task:0", "task:1"}, servers


@tf.function
def train(batches):
    def on_worker(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
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
tf.train.Checkpoint(model=model).save(f"{os.environ['SHARED']}/weights")  # every server writes its own variables there
with open(f"{os.environ['SM_MODEL_DIR']}/loss", "w") as file:
    file.write(str(last))
print(f"chief {'saves' if stopped else 'is right'}", flush=True)
