#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training that is killed or asked to stop continues from its checkpoint and ends with the same bits.

    resume.py [KILLS [STOPS]]      3 kills by SIGKILL and 2 stops by SIGTERM, by default, each at a random moment

The digit classifier on two ranks, on synthetic digits, with a checkpoint every third step. Then the same with a shard of its own, of another size,
for each rank, with a copy in memory instead of files, and with another number of ranks, where bits may differ.
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from ranks import running, survivors  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
MNIST = BUILD / "libexec/paceline/mnist"
STEPS = 60  # of two epochs of 600 images on two ranks
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def launch(words):
    return subprocess.Popen(["mpirun", "--oversubscribe", "--bind-to", "none", *map(str, words)], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def trainer(folder, name):
    return [MNIST, "--epochs", "2", "--batch-size", "10", "--seed", "5", "--model-dir", folder / name, "--checkpoint-dir",
            folder / (name + "-checkpoints"), "--checkpoint-steps", "3"]


def start(folder, name, count=2, *words):
    return launch(["-n", count, *trainer(folder, name), *words, "--data", folder / "data"])


def finish(process):
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, f"exit status {process.returncode}\n{out}"
    return out


def newest(folder, name):
    """The step of the newest checkpoint, -1 without one."""
    return max((int(re.search(r"(\d+)\.json$", path.name)[1]) for path in (folder / (name + "-checkpoints")).glob("*.json")), default=-1)


def interrupt(folder, name, number, seconds):
    """The run's exit status, None where it had ended before; its output; and whether the signal came well before its last step."""
    process = start(folder, name)
    while process.poll() is None and newest(folder, name) < 0:
        time.sleep(0.005)
    time.sleep(seconds)
    victims = running(MNIST, folder / name)
    if process.poll() is not None or not victims:
        return None, finish(process), False
    try:
        os.kill(random.choice(victims), number)
    except ProcessLookupError:
        return None, finish(process), False
    in_time = newest(folder, name) < STEPS - 10  # steps are ahead of the files, and the answer to a stop is a step late
    out, _ = process.communicate(timeout=60)
    assert not survivors(MNIST, folder / name), "a rank survived"
    return process.returncode, out, in_time


def model(folder, name):
    return (folder / name / "model.safetensors").read_bytes()


def sharded(folder):
    """A checkpoint has rank 0's place in its shard; the others' have another number of images."""
    def run(name, *words):
        # Not `-n 1 ... : -n 1 ...`, at which the mpirun of Open MPI 5.0.7 crashes.
        own = 'case $OMPI_COMM_WORLD_RANK in 0) shard=a ;; *) shard=b ;; esac; export SM_CHANNEL_TRAINING="$0/$shard/training"; exec "$@"'
        return finish(launch(["-n", "2", "env", 'SM_INPUT_DATA_CONFIG={"training": {"S3DistributionType": "ShardedByS3Key"}}',
                              "sh", "-c", own, folder, *trainer(folder, name), *words]))

    for shard, count in ("a", 120), ("b", 100):
        subprocess.run([BUILD / "libexec/paceline/make_digits", folder / shard, str(count), "10", str(count)], check=True)
    run("undivided")
    run("divided", "--max-steps", "7")  # of 10, in the second epoch
    out = run("divided")
    assert "resuming after step 7, in epoch 2" in out, out
    assert model(folder, "divided") == model(folder, "undivided"), out
    print("shards of two sizes: the same bits")


def other_ranks(folder):
    """Three ranks cannot have shared evenly what two of them took in seven steps: they begin before it."""
    finish(start(folder, "other", 2, "--max-steps", "7"))
    out = finish(start(folder, "other", 3))
    assert "was written by 2 ranks and is continued by 3" in out and "resuming after step 7, in epoch 1" in out and "epoch=2 " in out, out
    print("another number of ranks: to the end")


def other_optimizer(folder):
    """A mistake in a hyperparameter must not destroy the trained model: it is an error, unless the job allows it."""
    process = start(folder, "other", 2, "--momentum", "0")
    out, _ = process.communicate(timeout=120)
    assert process.returncode != 0 and "PACELINE_CHECKPOINT_IGNORE=1" in out and "epoch=" not in out, f"exit status {process.returncode}\n{out}"
    assert re.search("it has 'optimizer.momentum.[^']*', float32 .[^]]*., and the program wants none", out), out
    ENVIRONMENT["PACELINE_CHECKPOINT_IGNORE"] = "1"
    out = finish(start(folder, "other", 2, "--momentum", "0", "--epochs", "1"))
    assert "resuming" not in out and "epoch=1 " in out, out
    print("another optimizer: an error, and from step 0 where that is wanted")


def kept_step(memory_fd):
    """The step of the newest kept copy, 0 without one (runtime/kept.c)."""
    heads = struct.iter_unpack("=4Q2I", os.pread(memory_fd, 80, 0).ljust(80, b"\0"))
    return max(step if mark else 0 for _, step, _, _, _, mark in heads)


def kept(folder, name="kept"):
    """A rank is killed, before there is a file: the next run goes on from memory, which this process has as process 1 would."""
    memory_fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    ENVIRONMENT.update(PACELINE_KEPT=f"/proc/{os.getpid()}/fd/{memory_fd}", PACELINE_KEEP_STEPS="1")
    words = ["--checkpoint-steps", "0"]
    wanted = random.randrange(1, STEPS // 2)
    process = start(folder, name, 2, *words)
    while process.poll() is None and kept_step(memory_fd) < wanted:
        time.sleep(0.001)
    victims = running(MNIST, folder / name)
    for victim in victims[:1]:
        os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not survivors(MNIST, folder / name)
    last = kept_step(memory_fd)
    out = finish(start(folder, name, 2, *words))
    os.close(memory_fd)
    del ENVIRONMENT["PACELINE_KEPT"], ENVIRONMENT["PACELINE_KEEP_STEPS"]
    if process.returncode == 0:  # it had ended before
        return kept(folder, name + "-again")
    assert f"resuming after step {last}, in epoch " in out and last >= wanted, f"{last} is the last kept step\n{out}"
    assert model(folder, name) == model(folder, "whole"), f"kept: other weights\n{out}"
    print(f"killed after step {last}, which was kept in memory: the same bits")


def memory_of(process):
    """A descriptor of the memory file that process 1 of a job has, None before it has one."""
    for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if "paceline-kept" in os.readlink(link):
                return os.open(link, os.O_RDONLY)
        except FileNotFoundError:
            pass
    return None


def started_again(folder, name="job"):
    """The job's own process 1 starts its ranks again, twice: they go on from memory."""
    base, memory_fd = folder / name, None
    for path in (base / "input/config", base / "code", base / "model"):
        path.mkdir(parents=True)
    shutil.copy(MNIST, base / "code/program")
    words = {"sagemaker_program": "program", "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2", "paceline_max_restarts": "2",
             "paceline_keep_steps": "1", "epochs": "2", "batch-size": "10", "seed": "5", "data": str(folder / "data"), "model-dir": str(base / "model")}
    (base / "input/config/hyperparameters.json").write_text(json.dumps(words))
    (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    (base / "input/config/checkpointconfig.json").write_text(json.dumps({"LocalPath": str(base / "checkpoints")}))
    with subprocess.Popen([BUILD / "entrypoint/paceline", "train"], env={**ENVIRONMENT, "SAGEMAKER_BASE_DIR": str(base)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for wanted in random.randrange(1, 20), random.randrange(21, 40):
            while process.poll() is None and (memory_fd is None or kept_step(memory_fd) < wanted):
                memory_fd = memory_of(process) if memory_fd is None else memory_fd
                time.sleep(0.001)
            for victim in running("./program", base / "model")[:1]:
                os.kill(victim, signal.SIGKILL)
        out = process.communicate(timeout=120)[0]
    os.close(memory_fd)
    assert process.returncode == 0, f"exit status {process.returncode}\n{out}"
    restarts = [int(step) for step in re.findall(r"warning: restart \d of 2: .*; step (\d+) is kept in memory", out)]
    assert (base / "model/model.safetensors").read_bytes() == model(folder, "whole"), f"started again: other weights\n{out}"
    assert [int(step) for step in re.findall(r"resuming after step (\d+)", out)] == restarts, out
    if not restarts:  # it had ended before
        return started_again(folder, name + "-again")
    print(f"{len(restarts)} restarts of a job, after steps {restarts}: the same bits")


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    stops = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    seed = int.from_bytes(os.urandom(4), "big")
    random.seed(seed)
    print(f"random seed {seed}")
    with tempfile.TemporaryDirectory(prefix="paceline-resume-") as scratch:
        folder = pathlib.Path(scratch)
        subprocess.run([BUILD / "libexec/paceline/make_digits", folder / "data", "600", "40", "7"], check=True)
        began = time.monotonic()
        finish(start(folder, "whole"))
        seconds = time.monotonic() - began
        interrupted = 0
        for trial, number in enumerate([signal.SIGKILL] * kills + [signal.SIGTERM] * stops):
            name = f"trial{trial}"
            # The first of each kind as early as can be, whatever the time that the whole took has to do with this run's.
            status, out, in_time = interrupt(folder, name, number, random.uniform(0, 0.6 * seconds) if trial not in (0, kills) else 0)
            if status is not None:
                interrupted += 1
                if number == signal.SIGTERM:
                    assert status == 0 and ("as asked" in out or not in_time), out
                    steps = sorted((folder / (name + "-checkpoints")).glob("*.json"))
                    print("stopped" if "as asked" in out else "too late:", out.strip().splitlines()[-1], "newest", steps[-1].name)
                out = finish(start(folder, name))
                assert "resuming after step" in out, out
            assert model(folder, name) == model(folder, "whole"), f"trial {trial}: other weights\n{out}"
            assert len(list((folder / (name + "-checkpoints")).glob("*.json"))) == 3
        print(f"{interrupted} of {kills + stops} runs were interrupted; all ended with the same bits")
        assert interrupted > 0
        kept(folder)
        started_again(folder)
        sharded(folder)
        other_ranks(folder)
        other_optimizer(folder)


main()
