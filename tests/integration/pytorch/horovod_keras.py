# SPDX-License-Identifier: Apache-2.0
"""Keras's fit() with Horovod's DistributedOptimizer and callbacks."""
import horovod.tensorflow.keras as hvd
import numpy
import tensorflow as tf

from mistake import step

hvd.init()
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
model.fit(numpy.ones((8, 4)) * hvd.rank(), numpy.ones((8, 1)), batch_size=2, verbose=0,
          callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), tf.keras.callbacks.LambdaCallback(on_train_batch_begin=step)])
print(f"rank {hvd.rank()} of {hvd.size()} has {sum(w.sum() for w in model.get_weights()):.6f}", flush=True)
