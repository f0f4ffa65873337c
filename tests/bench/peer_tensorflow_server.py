#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Paceline's parameter servers and TensorFlow's with the same parameters and traffic, in processes that take turns on one host.

    tests/bench/peer_tensorflow_server.py --python PYTHON [--build build] [--sizes 4KiB,1MiB,16MiB,64MiB] [--rounds 3] [--seconds 3]

PYTHON has tensorflow-cpu 2.21 and numpy and runs both. One server and two workers; plain SGD, asynchronous, tensors of 4 MiB at most. A step
pushes a gradient that exists already (TensorFlow: a variable of the worker), waits until it is applied, and copies the new values to the worker's
memory. Then worker 0 takes steps while worker 1 pulls, with pauses so long that all values change. TensorFlow runs a session-style program: a graph in each worker, variables on /job:ps.

One line per size: updates per second of both workers, their gigabytes per second (gradients and values, 2 x size per update), the same per second
of the server's CPU time, and p50 and p99 in ms of a step (the workers' mean, and the worse one) and a pull; medians of the rounds. `ratio` is our rate divided by TensorFlow's, round by round.

    peer_tensorflow_server.py ours BYTES SECONDS                         a worker of ours; server_hosts.sh starts these on two hosts
    peer_tensorflow_server.py theirs BYTES SECONDS CLUSTER JOB INDEX     a server (ps) or worker of TensorFlow's; CLUSTER as in TF_CONFIG
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TENSOR_BYTES = 4 << 20
ENVIRONMENT = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def tensors(total_bytes):
    """Elements of each tensor, by name."""
    count = -(-total_bytes // TENSOR_BYTES)
    return {f"w{i}": total_bytes // count // 4 for i in range(count)}


def cpu_s(pid):
    """CPU seconds of a process; 0 if there is none."""
    if not pid:
        return 0.0
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sent_bytes():
    """Bytes that this host has sent on eth0; 0 without that interface."""
    path = pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes")
    return int(path.read_text()) if path.exists() else 0


def timed(call, seconds, pause_s=0.0):
    """Milliseconds of each call, for some seconds, with pauses between them."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e3)
        if pause_s:
            time.sleep(pause_s)
    return found


def measure(worker, server_pid, seconds, step, pull, barrier):
    for _ in range(3):
        step()
    barrier()
    begin, cpu, sent = time.monotonic(), cpu_s(server_pid), sent_bytes()
    steps = timed(step, seconds)
    took = time.monotonic() - begin
    cpu, sent = cpu_s(server_pid) - cpu, sent_bytes() - sent
    barrier()
    pulls = timed(step, seconds) if worker == 0 else timed(pull, seconds, 2e-3 * statistics.median(steps))  # after a pause all values are new
    barrier()
    found = {"worker": worker, "rate": len(steps) / took, "server_share": cpu / took, "sent_rate": sent / took}
    for what, times in ("step", sorted(steps)), ("pull", sorted(pulls)):
        found.update({f"{what}_p50": times[len(times) // 2], f"{what}_p99": times[len(times) * 99 // 100]})
    os.write(1, (json.dumps(found) + "\n").encode())  # one write, since both workers share one pipe


def our_worker(total_bytes, seconds):
    import numpy
    import paceline
    with paceline.Server({name: numpy.zeros(elems, numpy.float32) for name, elems in tensors(total_bytes).items()}, "sgd", lr=1e-9) as server:
        gradients = dict(reversed(server.gradients.items()))  # in the order of a backward pass
        for gradient in gradients.values():
            gradient[:] = 1e-6
        measure(server.worker, os.getppid() if server.local_worker == 0 else 0, seconds, lambda: server.step(gradients), server.pull, server.sum)


def their_session(tf1, server, index, workers):
    """A worker's session, when all variables of the graph exist, and a barrier of all workers."""
    with tf1.device("/job:ps/task:0"):
        arrived = tf1.get_variable("arrived", initializer=0)
        arrive = arrived.assign_add(1, use_locking=True).op
    unset, reached, come = tf1.report_uninitialized_variables(tf1.global_variables()), arrived.read_value(), [0]
    session = tf1.Session(server.target)
    if index == 0:
        session.run(tf1.global_variables_initializer())
    while len(session.run(unset)):
        time.sleep(0.1)
    session.run(tf1.local_variables_initializer())

    def barrier():
        come[0] += workers
        session.run(arrive)
        while session.run(reached) < come[0]:
            time.sleep(0.001)
    return session, barrier


def their_task(total_bytes, seconds, cluster, job, index, server_pid=0):
    import tensorflow as tf
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
    if job == "ps":
        server.join()
    here, workers, servers = f"/job:worker/task:{index}", len(cluster["worker"]), len(cluster["ps"])
    steps, pulls = [], []
    for i, (name, elems) in enumerate(tensors(total_bytes).items()):
        with tf1.device(f"/job:ps/task:{i % servers}"):
            value = tf1.get_variable(name, [elems], initializer=tf1.zeros_initializer())
        with tf1.device(here):
            gradient = tf1.get_variable(f"gradient_{name}", [elems], initializer=tf1.constant_initializer(1e-6), collections=[tf1.GraphKeys.LOCAL_VARIABLES])
            sent = tf1.identity(gradient.read_value())
        update = tf1.train.GradientDescentOptimizer(1e-9).apply_gradients([(sent, value)])
        with tf1.device(here):
            with tf1.control_dependencies([update]):
                steps.append(tf1.identity(value.read_value()).op)
            pulls.append(tf1.identity(value.read_value()).op)
    step, pull = tf1.group(*steps), tf1.group(*pulls)
    session, barrier = their_session(tf1, server, index, workers)
    run_step, run_pull = session.make_callable(step), session.make_callable(pull)
    barrier()
    measure(index, server_pid, seconds, run_step, run_pull, barrier)
    os._exit(0)  # the TensorFlow server cannot be stopped otherwise


def read_workers(outputs):
    """The figures of one round, from the workers' output."""
    found = sorted((json.loads(line) for output in outputs for line in output.splitlines() if line.startswith("{")), key=lambda line: line["worker"])
    assert len(found) == 2, outputs
    return {"rate": sum(line["rate"] for line in found), "server_share": max(line["server_share"] for line in found),
            "sent_rate": statistics.mean(line["sent_rate"] for line in found), "step_p50": statistics.mean(line["step_p50"] for line in found),
            "step_p99": max(line["step_p99"] for line in found), "pull_p50": found[1]["pull_p50"], "pull_p99": found[1]["pull_p99"]}


def our_round(words, total_bytes):
    environment = dict(ENVIRONMENT, PYTHONPATH=str(HERE.parents[1] / "python"), PACELINE_LIBRARY=str(words.build / "runtime/libpaceline.so"))
    done = subprocess.run([words.build / "libexec/paceline/paceline-server", "--workers", "2", words.python, __file__, "ours", str(total_bytes), str(words.seconds)],
                          env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return read_workers([done.stdout])


def their_outputs(command):
    """Output of two workers with one server, each started as `command` with a cluster, a job, an index and, for the first worker, the server's process id."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    cluster = json.dumps({"ps": ports[:1], "worker": ports[1:]})

    def start(job, index, *more):
        return subprocess.Popen([*map(str, command), cluster, job, str(index), *more], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    server = start("ps", 0)
    try:
        workers = [start("worker", index, str(server.pid) if index == 0 else "0") for index in range(2)]
        return [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        server.kill()
        server.wait()


def their_round(words, total_bytes):
    return read_workers(their_outputs([words.python, __file__, "theirs", total_bytes, words.seconds]))


def size_of(text):
    units = {"KiB": 1 << 10, "MiB": 1 << 20}
    return int(text[:-3]) * units[text[-3:]]


def main():
    if sys.argv[1:2] == ["ours"]:
        return our_worker(int(sys.argv[2]), float(sys.argv[3]))
    if sys.argv[1:2] == ["theirs"]:
        return their_task(int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]), sys.argv[5], int(sys.argv[6]), *map(int, sys.argv[7:]))
    if sys.argv[1:2] == ["read"]:  # called by server_hosts.sh: BYTES GOODPUT, and the workers' output on stdin
        total_bytes, goodput = int(sys.argv[2]), float(sys.argv[3])
        found = read_workers([sys.stdin.read()])
        # Half of each update's gradients and values goes from host to host; those of two workers make the same traffic in each direction.
        found["share"] = found["rate"] / 2 * total_bytes / goodput
        return print(json.dumps({"bytes": total_bytes, "goodput_mbs": round(goodput / 1e6, 1), **{key: round(value, 4) for key, value in found.items()}}))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--sizes", default="4KiB,1MiB,16MiB,64MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    words = parser.parse_args()
    words.build = words.build.resolve()
    for total_bytes in map(size_of, words.sizes.split(",")):
        rounds = [(our_round(words, total_bytes), their_round(words, total_bytes)) for _ in range(words.rounds)]
        ratios = [ours["rate"] / theirs["rate"] for ours, theirs in rounds]
        line = {"bytes": total_bytes, "ratio": round(statistics.median(ratios), 1), "low": round(min(ratios), 1), "high": round(max(ratios), 1)}
        for who, numbers in (("ours", [ours for ours, _ in rounds]), ("theirs", [theirs for _, theirs in rounds])):
            middle = {key: statistics.median(number[key] for number in numbers) for key in numbers[0]}
            gigabytes = 2e-9 * total_bytes * middle["rate"]
            line[who] = {"updates_s": round(middle["rate"], 1), "gb_s": round(gigabytes, 3),
                         "gb_server_cpu_s": round(gigabytes / middle["server_share"], 3) if middle["server_share"] else None,
                         **{f"{key}_ms": round(middle[key], 3) for key in ("step_p50", "step_p99", "pull_p50", "pull_p99")}}
        print(json.dumps(line), flush=True)
    return None


if __name__ == "__main__":
    main()
