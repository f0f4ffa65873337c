# SPDX-License-Identifier: Apache-2.0
"""A session-style program, as script mode's users have it: a server in each process, variables on the parameter servers, the master as chief."""
import json
import os
import signal
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
how, last_step = os.environ.get("HOW", "train"), int(os.environ.get("LAST_STEP", "300"))
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server = tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"])
is_chief = task["type"] == "master"
stopped = []
if how == "save":
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))

random = np.random.default_rng(task["index"] + 10 * is_chief)
with tf.Graph().as_default(), tf1.device(tf1.train.replica_device_setter(worker_device=f"/job:{task['type']}/task:{task['index']}", cluster=cluster)):
    x = tf1.placeholder(tf.float32, [None, 4])
    weights = [tf1.get_variable(f"w{i}", [2, 1], initializer=tf1.zeros_initializer()) for i in range(2)]
    step = tf1.train.get_or_create_global_step()
    by_worker = tf1.get_variable("by_worker", initializer=0)
    count = by_worker.assign_add(0 if is_chief else 1, use_locking=True)
    loss = tf.reduce_mean((x @ tf.concat(weights, 0) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    train = tf1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    assert {weight.device for weight in weights} == {"/job:ps/task:0", "/job:ps/task:1"}, [weight.device for weight in weights]
    saved = os.environ["SHARED"]  # every server writes its own variables there
    with tf1.train.MonitoredTrainingSession(server.target, is_chief, saved if is_chief else None, save_checkpoint_secs=5) as session:
        worker_steps = at = 0
        while not stopped and (6 * worker_steps < last_step or (is_chief and at < last_step)):
            _, at, now, worker_steps = session.run([train, step, loss, count], {x: random.normal(size=(16, 4))})
            if at % 50 < 2 or worker_steps == 1:
                print(f"{task['type']} at step {at}", flush=True)
            if how == "raise" and is_chief and at >= 50:
                raise KeyError("a mistake in the program")
assert stopped or now < 0.01, now
if is_chief:
    assert tf1.train.latest_checkpoint(saved), os.listdir(saved)
    with open(f"{os.environ['SM_MODEL_DIR']}/loss", "w") as file:
        file.write(str(now))
print(f"{task['type']} {task['index']} {'saves' if stopped else 'is right'}", flush=True)
sys.exit(0)
