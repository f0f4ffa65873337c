#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures rows by id on Paceline's parameter servers and on TensorFlow's, in processes that take turns on one host.

    tests/bench/peer_tensorflow_rows.py --python PYTHON [--build build] [--rows 1000000] [--columns 64] [--list 4096] [--rounds 3] [--seconds 3]

PYTHON has tensorflow-cpu 2.21 and numpy. One server and two workers, plain SGD, asynchronous, lists of ascending ids over all rows. Ours is server_rows.c.
TensorFlow's is a session-style program: the table is a variable on /job:ps, a pull is embedding_lookup() into the worker's memory, a push a scatter_sub()
of existing rows (a variable of the worker). A line has the rows per second of both workers, pulled and pushed, medians of the rounds; `ratio` is
our rate divided by TensorFlow's, round by round.

    peer_tensorflow_rows.py theirs ROWS COLUMNS LIST SECONDS CLUSTER JOB INDEX [PID]     a server (ps) or worker of TensorFlow's
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from peer_tensorflow_server import ENVIRONMENT, their_outputs, their_session


def their_task(rows, columns, count, seconds, cluster, job, index, _server_pid=0):
    import numpy
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
    if job == "ps":
        server.join()
    here = f"/job:worker/task:{index}"
    with tf1.device("/job:ps/task:0"):
        table = tf1.get_variable("table", [rows, columns], initializer=tf1.zeros_initializer())
    with tf1.device(here):
        ids = tf1.placeholder(tf.int64, [count])
        gradients = tf1.get_variable("gradients", [count, columns], initializer=tf1.constant_initializer(1e-6), collections=[tf1.GraphKeys.LOCAL_VARIABLES])
        sent = tf1.identity(gradients.read_value())
        pull = tf1.identity(tf1.nn.embedding_lookup(table, ids)).op
    push = table.scatter_sub(tf1.IndexedSlices(sent, ids)).op
    session, barrier = their_session(tf1, server, index, len(cluster["worker"]))
    random = numpy.random.default_rng(index)
    stride, found = rows // count, {"worker": index}

    def draw():
        return random.integers(0, stride) + stride * numpy.arange(count)
    for name, operation in ("pulled", pull), ("pushed", push):
        call = session.make_callable(operation, [ids])
        call(draw())
        barrier()
        begin, lists = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            call(draw())
            lists += 1
        found[name] = lists * count / (time.monotonic() - begin)
    os.write(1, (json.dumps(found) + "\n").encode())
    barrier()
    os._exit(0)  # the TensorFlow server cannot be stopped otherwise


def our_round(words):
    done = subprocess.run([words.build / "libexec/paceline/paceline-server", "--workers", "2", words.build / "tests/bench/server_rows", str(words.rows),
                           str(words.columns), str(words.list), str(words.seconds)],
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return {name: 1e6 * float(re.search(rf"^{name}: ([0-9.]+) million", done.stdout, re.M)[1]) for name in ("pulled", "pushed")}


def their_round(words):
    found = [json.loads(output) for output in their_outputs([words.python, __file__, "theirs", words.rows, words.columns, words.list, words.seconds])]
    return {name: sum(worker[name] for worker in found) for name in ("pulled", "pushed")}


def main():
    if sys.argv[1:2] == ["theirs"]:
        return their_task(*map(int, sys.argv[2:5]), float(sys.argv[5]), json.loads(sys.argv[6]), sys.argv[7], *map(int, sys.argv[8:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    for name, value in ("rows", 1000000), ("columns", 64), ("list", 4096), ("rounds", 3):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=3.0)
    words = parser.parse_args()
    words.build = words.build.resolve()
    rounds = [(our_round(words), their_round(words)) for _ in range(words.rounds)]
    for name in "pulled", "pushed":
        ratios = [ours[name] / theirs[name] for ours, theirs in rounds]
        print(json.dumps({"rows": words.rows, "columns": words.columns, "list": words.list, "what": name,
                          "ours_rows_s": round(statistics.median(ours[name] for ours, _ in rounds)),
                          "theirs_rows_s": round(statistics.median(theirs[name] for _, theirs in rounds)),
                          "ratio": round(statistics.median(ratios), 1), "low": round(min(ratios), 1), "high": round(max(ratios), 1)}), flush=True)
    return None


main()
