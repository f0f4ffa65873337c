#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on TFRecords that paceline.data reads for TensorFlow: from a channel of SageMaker in any mode, a directory or S3.

    python3 data_tf.py [--data s3://BUCKET/PREFIX]       under `paceline train` or mpirun each rank reads its share

A record is a tf.Example with "image", 3 x 8 x 8 bytes, and "label".
"""
import argparse

import tensorflow as tf

from paceline.data import Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="training")
options = parser.parse_args()

fields = {"image": ("uint8", (3, 8, 8)), "label": "int64"}
batches = Dataset(options.data, fields, batch=32, shuffle=500, seed=1).tf()  # a tf.data.Dataset; each iteration is the next epoch
pairs = batches.map(lambda batch: (tf.cast(batch["image"], tf.float32) / 255, batch["label"])).prefetch(2)

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.Input((3, 8, 8)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
model.compile(tf.keras.optimizers.Adam(0.01), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])


class Told(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch={epoch} samples={batches.progress().samples} accuracy={logs['accuracy']:.3f}", flush=True)


model.fit(pairs, epochs=5, verbose=0, callbacks=[Told()])
