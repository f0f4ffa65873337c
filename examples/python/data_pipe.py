#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on a channel in Pipe Mode under `paceline train`, which divides the host's FIFO among its ranks. Needs numpy, and no torch.

A record is a tf.Example with "image", 192 bytes, and "label". On a machine of your own:

    paceline local --processes-per-host 2 --channel training=DIRECTORY:pipe data_pipe.py
"""
import numpy
import paceline
from paceline.data import Dataset

paceline.init()
dataset = Dataset("training", {"image": ("uint8", (192,)), "label": "int64"}, batch=32, shuffle=500, seed=1)
weights = numpy.zeros((192, 10), "float32")
for epoch in range(5):
    batches = iter(dataset)  # opens this rank's FIFO of the epoch
    right = samples = 0
    while True:
        batch = next(batches, None)
        if not paceline.allreduce(numpy.array([batch is not None], "int32"), op=paceline.Min)[0]:
            break  # a rank may have one batch more than another: all leave together
        x, y = batch["image"].astype("float32") / 255 - 0.5, batch["label"]
        scores = numpy.exp(x @ weights)
        scores /= scores.sum(axis=1, keepdims=True)
        right, samples = right + int((scores.argmax(axis=1) == y).sum()), samples + len(y)
        scores[numpy.arange(len(y)), y] -= 1
        weights -= 0.1 * paceline.allreduce(x.T @ scores / len(y), name="gradient")
    counts = paceline.allreduce(numpy.array([right, samples], "int64"), op=paceline.Sum)
    if paceline.rank() == 0:
        print(f"epoch={epoch} samples={counts[1]} accuracy={counts[0] / counts[1]:.3f}", flush=True)
