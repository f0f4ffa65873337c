#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one program for horovod.tensorflow.keras on Paceline's modules and on a compiled Horovod, in processes that take turns.

    tests/bench/peer_horovod_tensorflow.py --python PYTHON --peer PYTHON [--ranks 2] [--rounds 5]

Both have TensorFlow 2.15 and Horovod 0.28.1, the first as `paceline horovod` makes it, the second compiled. Times are the slowest rank's,
medians within a run: one blocking sum of one element; a function that sums 160 of them; a step of model.fit() with hvd.DistributedOptimizer
for MNIST digits (two convolutions and two dense layers, 4.8 MB, batches of 16) and for 80 dense layers of 8, 160 tiny tensors, each next to the same step
of the bare optimizer ("alone"), by all ranks at once; and the processor's time that a rank takes while it sleeps for 10 s after all that ("asleep").

The digits are those in tests/data/mnist. The lines have the form of peer_horovod_torch.py's.
"""
import gzip
import json
import pathlib
import statistics
import sys
import time

from peer_turns import median_us, take_turns

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "data/mnist"
TINY, BATCH, EPOCHS, SLEEP_S = 160, 16, 5, 10


def digits():
    import numpy as np
    images, labels = (gzip.decompress((DIGITS / f"train-{name}-ubyte.gz").read_bytes()) for name in ("images-idx3", "labels-idx1"))
    return np.frombuffer(images, "uint8", offset=16).reshape(-1, 28, 28, 1) / np.float32(255), np.frombuffer(labels, "uint8", offset=8).astype("int64")


def rank_main():
    """One rank: {case: microseconds} from rank 0."""
    import tensorflow as tf
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    layers = tf.keras.layers
    found = {}

    def slowest(seconds):
        return float(tf.reduce_max(hvd.allgather(tf.constant([seconds], tf.float64), name="slowest")))

    class Steps(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            slowest(0.0)
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds = [*getattr(self, "seconds", []), slowest(time.perf_counter() - self.begin)]

    def step_us(make, loss, x, y, steps, distributed):
        model, timer = make(), Steps()
        optimizer = tf.keras.optimizers.SGD(0.01)
        model.compile(optimizer=hvd_keras.DistributedOptimizer(optimizer) if distributed else optimizer, loss=loss)
        synced = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)] if distributed else []
        model.fit(x, y, batch_size=BATCH, steps_per_epoch=steps, epochs=EPOCHS, verbose=0, callbacks=[*synced, timer])
        return statistics.median(timer.seconds[1:]) / steps * 1e6

    def fits(case, *words):
        for distributed in (False, True):
            found[f"fit, {case}" + ("" if distributed else ", alone")] = step_us(*words, distributed)

    def convolutions():
        return tf.keras.Sequential([layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)), layers.Conv2D(64, 3, activation="relu"),
                                    layers.MaxPooling2D(), layers.Dropout(0.25), layers.Flatten(), layers.Dense(128, activation="relu"),
                                    layers.Dropout(0.5), layers.Dense(10, activation="softmax")])

    def narrow():
        return tf.keras.Sequential([layers.Dense(8, input_shape=(8,))] + [layers.Dense(8) for _ in range(TINY // 2 - 1)])

    one = tf.zeros(1)
    found["one element"] = median_us(lambda: hvd.allreduce(one, name="one", op=hvd.Sum), 100, 3, slowest)
    many = tf.function(lambda x: [hvd.allreduce(x * i, name=f"tiny.{i}", op=hvd.Sum) for i in range(TINY)])
    found[f"{TINY} elements"] = median_us(lambda: many(one), 30, 3, slowest)
    x, y = digits()
    fits("MNIST", convolutions, "sparse_categorical_crossentropy", x, y, 40)
    rows = tf.random.normal((BATCH * 100 * EPOCHS, 8))
    fits(f"{TINY} tensors", narrow, "mse", rows, rows, 100)
    slowest(0.0)
    before = time.process_time()
    time.sleep(SLEEP_S)
    found["asleep"] = slowest(time.process_time() - before) * 1e6
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)


if sys.argv[1:] == ["--rank"]:
    rank_main()
else:
    take_turns(__file__, __doc__)
