#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares paceline.data's tf() with TensorFlow's own reader, and with tf.data's from_generator over our arrays.

  data_tf.py CIFAR10_FOLDER [--build build] [--rounds 5] [--seconds 2] [--batches 64,256]

CIFAR10_FOLDER has TFRecord shards of tf.Example with "image" (3 x 32 x 32 bytes) and "label", which are read again and again, pages in cache. A reader is a process
that iterates over a dataset with eager TensorFlow; its first 0.5 s are not counted. Readers take turns. One JSON line for each reader and batch size, with medians:
samples/s, microseconds a batch, CPU microseconds a sample, and the ratio to TensorFlow's own reader in the same round.
"""
import argparse
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHAPE, WARM_S = (3, 32, 32), 0.5


def own(folder, batch, _):
    import tensorflow as tf

    def parse(messages):
        found = tf.io.parse_example(messages, {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)})
        return {**found, "image": tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), (-1, *SHAPE))}
    return tf.data.TFRecordDataset(sorted(glob.glob(f"{folder}/train*"))).repeat().batch(batch).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(
        tf.data.AUTOTUNE)


def arrays(folder, batch, threads):
    from paceline.data import Dataset
    return Dataset(sorted(glob.glob(f"{folder}/train*")), {"image": ("uint8", SHAPE), "label": "int64"}, batch, rank=0, size=1, decode_threads=threads, epochs=1 << 40)


def ours(folder, batch, threads):
    return arrays(folder, batch, threads).tf().repeat()


def prefetched(folder, batch, threads):
    return ours(folder, batch, threads).prefetch(2)


def generator(folder, batch, threads):
    import tensorflow as tf
    dataset = arrays(folder, batch, threads)
    return tf.data.Dataset.from_generator(lambda: iter(dataset), output_signature={
        "image": tf.TensorSpec((None, *SHAPE), tf.uint8), "label": tf.TensorSpec((None,), tf.int64)}).repeat().prefetch(2)


READERS = {"TFRecordDataset": (own, 0), "tf()": (ours, 1), "tf(), 2 threads": (ours, 2), "tf().prefetch(2)": (prefetched, 1), "from_generator": (generator, 1)}


def read(name, folder, batch, seconds):
    make, threads = READERS[name]
    samples = batches = 0
    begin = time.monotonic()
    counted = None
    for found in make(folder, batch, threads):
        now = time.monotonic()
        if counted is None and now - begin > WARM_S:
            counted, cpu, samples, batches = now, time.process_time(), 0, 0
        samples, batches = samples + found["label"].shape[0], batches + 1
        if counted is not None and now - counted > seconds:
            break
    print(json.dumps({"samples_per_s": samples / (now - counted), "batch_us": 1e6 * (now - counted) / batches, "cpu_us": 1e6 * (time.process_time() - cpu) / samples}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--batches", default="64,256")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--read")
    options = parser.parse_args()
    if options.read:
        return read(options.read, options.folder, int(options.batches), options.seconds)
    environment = dict(os.environ, PYTHONPATH=str(SOURCE / "python"), TF_CPP_MIN_LOG_LEVEL="2",
                       PACELINE_DATA_LIBRARY=os.path.abspath(f"{options.build}/runtime/libpaceline-data.so"))
    for batch in options.batches.split(","):
        found = {name: [] for name in READERS}
        for _ in range(options.rounds):
            for name, results in found.items():
                done = subprocess.run([sys.executable, __file__, options.folder, "--batches", batch, "--seconds", str(options.seconds), "--read", name],
                                      env=environment, stdout=subprocess.PIPE, text=True, check=True)
                results.append(json.loads(done.stdout))
        for name, results in found.items():
            ratio = statistics.median(mine["samples_per_s"] / theirs["samples_per_s"] for mine, theirs in zip(results, found["TFRecordDataset"]))
            medians = {key: round(statistics.median(result[key] for result in results), 2) for key in results[0]}
            print(json.dumps({"reader": name, "batch": int(batch), **medians, "ratio": round(ratio, 2)}), flush=True)


if __name__ == "__main__":
    main()
