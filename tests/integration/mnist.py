#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The digit classifier as real processes under mpirun.

    mnist.py accuracy      four ranks reach 96 % on MNIST's held-out digits; the model opens and the metric line has its form
    mnist.py equivalence   one rank with batch 128 and four with 32 have the same weights after 20 steps
    mnist.py named         gradients as named tensors give the plan's bits on 1 to 4 ranks, and the two go on from each other's checkpoints
    mnist.py pipe          from FIFOs that carry gzip objects one after the other, two ranks learn what they learn from files; without a feeder SIGTERM ends them
    mnist.py server        with parameter servers: without staleness the bits of ranks on 1, 2 and 4 workers, asynchronously it learns, a killed or stopped job goes on from its checkpoint; rounded gradients learn as well
    mnist.py errors        wrong arguments and missing data end with a message and a status other than 0
"""
import array
import gzip
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_open, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
MNIST = BUILD / "libexec/paceline/mnist"
ENVIRONMENT = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LINE = re.compile(r"^epoch=(\d+) step=(\d+) train_loss=(\d+\.\d{4}) test_accuracy=(\d\.\d{4}) images_per_second=\d+\.\d(?: pieces_pulled=\d+ server_wait_s=\d+\.\d+ gradient_bytes_sent=\d+)?$", re.M)


def skip(why):
    print(why)
    sys.exit(77)


def run(ranks, *words, environment=None, check=True):
    command = [MNIST, *words] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), MNIST, *words]
    done = subprocess.run([str(word) for word in command], env=dict(ENVIRONMENT, **(environment or {})), text=True, timeout=900,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print("$", *command, done.stdout, done.stderr, sep="\n" if done.returncode else " ")
    assert not check or done.returncode == 0, f"exit status {done.returncode}"
    assert "\r" not in done.stderr + done.stdout, "a progress line in a log"
    return done


def lines(done):
    return [(int(m[1]), int(m[2]), float(m[3]), float(m[4])) for m in LINE.finditer(done.stdout)]


def read_model(path):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "F32" and (end - begin) == 4 * math.prod(entry["shape"])
            tensors[name] = array.array("f", data[8 + length + begin:8 + length + end])
    return header["__metadata__"], tensors


def real_data(folder):
    for channel, prefix in (("training", "train"), ("testing", "t10k")):
        (folder / channel).mkdir()
        for file in (SOURCE / "tests/data/mnist").glob(prefix + "-*"):
            shutil.copy(file, folder / channel)
    return folder


def synthetic_data(folder, train, test):
    subprocess.run([BUILD / "libexec/paceline/make_digits", folder, str(train), str(test), "7"], check=True)
    return folder


def accuracy(folder):
    data = real_data(folder)
    environment = {"SM_CHANNEL_TRAINING": str(data / "training"), "SM_CHANNEL_TESTING": str(data / "testing"),
                   "SM_MODEL_DIR": str(folder / "model"), "SM_OUTPUT_DATA_DIR": str(folder / "output")}
    found = lines(run(4, "--epochs", "2", "--batch_size=16", "--seed", "1", environment=environment))
    assert [line[:2] for line in found] == [(1, 125), (2, 250)], found
    assert found[-1][3] >= 0.96, f"accuracy {found[-1][3]}"
    metadata, tensors = read_model(folder / "model/model.safetensors")
    assert float(metadata["test_accuracy"]) == found[-1][3]
    assert sum(map(len, tensors.values())) == 1199882, {name: len(tensor) for name, tensor in tensors.items()}
    records = [json.loads(line) for line in (folder / "output/metrics.jsonl").read_text().splitlines()]
    assert [round(record["train_loss"], 4) for record in records] == [line[2] for line in found]


def equivalence(folder):
    """One rank with 128 samples a step against four with 32. OpenBLAS's kernels for Haswell round a sample's sums alike however many samples a
    product has; with others, as for newer Intel processors, rounding decides some ReLU near zero, and weights part by 1e-3 in 20 steps."""
    data = real_data(folder)
    alike = "avx2" in pathlib.Path("/proc/cpuinfo").read_text()
    environment = {"OPENBLAS_CORETYPE": "Haswell"} if alike else {}
    most = 1e-4 if alike else 1e-2
    same = ["--data", data, "--dropout", "0", "--max-steps", "20", "--warmup-epochs", "0", "--seed", "3"]
    run(1, *same, "--batch-size", "128", "--learning-rate", "0.02", "--model-dir", folder / "one", environment=environment)
    run(4, *same, "--batch-size", "32", "--learning-rate", "0.005", "--model-dir", folder / "four", environment=environment)
    one, four = (read_model(folder / name / "model.safetensors")[1] for name in ("one", "four"))
    assert one.keys() == four.keys()
    for name in one:
        apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(one[name], four[name])) / sum(a * a for a in one[name]))
        print(f"{name}: {apart:.2e}")
        assert apart <= most, f"{name} differs by {apart}"
    run(1, *same, "--batch-size", "128", "--learning-rate", "0.02", "--seed", "4", "--model-dir", folder / "other")
    other = read_model(folder / "other/model.safetensors")[1]
    assert any(a != b for a, b in zip(one["conv1.weight"], other["conv1.weight"])), "the seed has no effect"


def named(folder):
    words = ["--data", synthetic_data(folder / "digits", 240, 20), "--batch-size", "10"]
    for ranks in (1, 2, 3, 4):
        models = []
        for way in ("0", "1"):
            run(ranks, *words, "--epochs", "1", "--named", way, "--model-dir", folder / way)
            models.append((folder / way / "model.safetensors").read_bytes())
        assert models[0] == models[1], f"{ranks} ranks: other weights with named tensors"
    run(2, *words, "--epochs", "2", "--model-dir", folder / "whole")
    for first, second in (("0", "1"), ("1", "0")):
        resumed = [*words, "--checkpoint-dir", folder / ("checkpoints" + first), "--model-dir", folder / ("resumed" + first)]
        run(2, *resumed, "--epochs", "1", "--named", first)
        assert "resuming after step 12" in run(2, *resumed, "--epochs", "2", "--named", second).stderr
        assert (folder / ("resumed" + first) / "model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes()


def by_servers(hosts, workers, *words):
    """The command of `hosts` parameter servers with `workers` workers each."""
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", str(hosts)] if hosts > 1 else []
    return [str(word) for word in (*mpirun, BUILD / "libexec/paceline/paceline-server", "--workers", workers, MNIST, *words)]


def run_by_servers(hosts, workers, *words, staleness, environment=None):
    done = subprocess.run(by_servers(hosts, workers, *words), env=dict(ENVIRONMENT, PACELINE_PS_STALENESS=staleness, **(environment or {})), text=True,
                          timeout=900, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print("$", hosts, "x", workers, "workers, staleness", staleness, *words, done.stdout, done.stderr)
    assert done.returncode == 0, f"exit status {done.returncode}"
    return done


def newest_checkpoint(folder):
    """Its step; 0 if there is none."""
    return max((int(path.stem.split("-")[1]) for path in folder.glob("checkpoint-*.json")), default=0)


def break_by_servers(folder, words, number, staleness):
    """SIGKILL to the server of a training without an end, or SIGTERM to its workers, once there is a checkpoint; where that is."""
    checkpoints, model = folder / f"checkpoints-{number}-{staleness}", folder / "stopped/model.safetensors"
    checkpoints.mkdir()
    job = subprocess.Popen(by_servers(1, 2, *words, "--epochs", "1000000", "--max-steps", "0", "--checkpoint-dir", checkpoints, "--checkpoint-steps", "8", "--model-dir", model.parent),
                           env=dict(ENVIRONMENT, PACELINE_PS_STALENESS=staleness, PACELINE_REPRODUCIBLE="1"), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: newest_checkpoint(checkpoints), "no checkpoint", job)
    if number == signal.SIGKILL:
        job.kill()
        job.communicate(timeout=60)
        return checkpoints
    before = newest_checkpoint(checkpoints)
    for child in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    out, said = job.communicate(timeout=60)
    assert job.returncode == 0 and said.count("as asked") == 1, (job.returncode, out, said)
    assert f"stopped after step {newest_checkpoint(checkpoints)}," in said and newest_checkpoint(checkpoints) >= before, said
    assert read_model(model)[1]
    return checkpoints


def resume_by_servers(folder, words):
    """A killed and a stopped job go on with as many workers, on one host and on two, and end as one without a break."""
    for hosts, number in ((1, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGTERM)):
        checkpoints = break_by_servers(folder, words, number, "0")
        same = [*words, "--max-steps", newest_checkpoint(checkpoints) + 9, "--model-dir"]
        step = newest_checkpoint(checkpoints)
        done = run_by_servers(hosts, 2 // hosts, *same, folder / "resumed", "--checkpoint-dir", checkpoints, staleness="0", environment={"PACELINE_REPRODUCIBLE": "1"})
        assert done.stderr.count(f"resuming after step {step}, ") == 1 and "results will differ" not in done.stderr, done.stderr
        run(2, *same, folder / "whole", environment={"PACELINE_REPRODUCIBLE": "1"})
        assert (folder / "resumed/model.safetensors").read_bytes() == (folder / "whole/model.safetensors").read_bytes(), f"{hosts} hosts, {number}: other bits than without a break"
        shutil.rmtree(checkpoints)
    checkpoints = break_by_servers(folder, words, signal.SIGTERM, "none")
    step = newest_checkpoint(checkpoints)
    done = run_by_servers(1, 2, *words, "--max-steps", step + 9, "--model-dir", folder / "resumed", "--checkpoint-dir", checkpoints, staleness="none")
    assert f"resuming after step {step}, " in done.stderr and lines(done)[-1][1] == step + 9, done.stderr + done.stdout


def server(folder):
    data = synthetic_data(folder / "digits", 240, 60)
    words = ["--data", data, "--batch-size", "4", "--epochs", "100", "--max-steps", "40", "--warmup-epochs", "0", "--learning-rate", "0.005"]
    same = [*words, "--dropout", "0", "--model-dir"]
    ranks = run(4, *same, folder / "ranks", environment={"PACELINE_REPRODUCIBLE": "1"})
    served = run_by_servers(2, 2, *same, folder / "servers", staleness="0", environment={"PACELINE_REPRODUCIBLE": "1"})
    assert lines(served) == lines(ranks), "other values than ranks"
    assert (folder / "ranks/model.safetensors").read_bytes() == (folder / "servers/model.safetensors").read_bytes(), "other bits than ranks"
    done = run_by_servers(1, 2, *words, "--learning-rate", "0.01", "--max-steps", "150", "--model-dir", folder / "model", staleness="none")
    assert lines(done)[-1][3] > 0.5, lines(done)
    assert [line[0] for line in lines(done)] == [1, 2, 3, 4, 5], "not one line an epoch"
    assert float(read_model(folder / "model/model.safetensors")[0]["test_accuracy"]) == lines(done)[-1][3]
    resume_by_servers(folder, words)


def feed(path, objects):
    with open(path, "wb") as fifo:
        for file in objects:
            fifo.write(gzip.compress(file.read_bytes()))


def stop_without_feeder(environment, fifos, data):
    """SIGTERM while nobody feeds: the first epoch's wait is a failure that says so, that of a later one an ordinary stop after the epoch before."""
    for channel, epoch in (("training", 0), ("testing", 0), ("training", 1)):
        os.mkfifo(fifos / f"{channel}_{epoch}")
    alone = subprocess.Popen([MNIST], env=environment, stderr=subprocess.PIPE, text=True)
    wait_open([alone.pid], fifos / "training_0")
    alone.terminate()
    words = alone.communicate(timeout=60)[1]
    assert alone.returncode == 1 and f"stopped while waiting for a writer of FIFO '{fifos}/training_0'" in words, (alone.returncode, words)
    for channel in ("training", "testing"):
        threading.Thread(target=feed, args=(fifos / f"{channel}_0", sorted((data / channel).iterdir())), daemon=True).start()
    pair = subprocess.Popen(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", MNIST, "--epochs", "2", "--batch-size", "25"], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def both():
        children = " ".join(path.read_text() for path in pathlib.Path(f"/proc/{pair.pid}/task").glob("*/children")).split()
        ranks = [int(pid) for pid in children if os.path.realpath(f"/proc/{pid}/exe") == str(MNIST.resolve())]
        return ranks if len(ranks) == 2 else None
    ranks = wait_until(both, "no ranks", pair)
    wait_open(ranks, fifos / "training_1")
    for pid in ranks:
        os.kill(pid, signal.SIGTERM)
    out, words = pair.communicate(timeout=60)
    assert pair.returncode == 0 and "stopped after step 12, as asked" in words, (pair.returncode, out, words)


def pipe(folder):
    data = synthetic_data(folder / "files", 600, 200)
    words = ["--epochs", "2", "--batch-size", "25"]
    from_files = lines(run(2, *words, "--data", data))
    assert from_files[-1][3] > 0.5, from_files
    assert [line[:2] for line in from_files] == [(1, 12), (2, 24)]
    fifos = folder / "data"
    fifos.mkdir()
    writers = []
    for channel, epochs in (("training", 2), ("testing", 1)):
        for epoch in range(epochs):
            path = fifos / f"{channel}_{epoch}"
            os.mkfifo(path)
            writers.append(threading.Thread(target=feed, args=(path, sorted((data / channel).iterdir())), daemon=True))
            writers[-1].start()
    config = {channel: {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
              for channel in ("training", "testing")}
    from_pipe = lines(run(2, *words, environment={"SM_CHANNEL_TRAINING": str(fifos / "training"), "SM_CHANNEL_TESTING": str(fifos / "testing"),
                                                  "SM_INPUT_DATA_CONFIG": json.dumps(config), "SM_CHANNELS": '["testing","training"]'}))
    assert from_pipe == from_files, (from_pipe, from_files)
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    unfed = folder / "unfed"
    unfed.mkdir()
    stop_without_feeder(dict(ENVIRONMENT, SM_CHANNEL_TRAINING=str(unfed / "training"), SM_CHANNEL_TESTING=str(unfed / "testing"),
                             SM_INPUT_DATA_CONFIG=json.dumps(config), SM_CHANNELS='["testing","training"]'), unfed, data)
    # One rank with all images sees what two ranks see together; only the order of additions differs.
    alone = lines(run(1, "--epochs", "2", "--batch-size", "50", "--learning-rate", "0.04", "--scale-learning-rate", "0", "--warmup-epochs", "0",
                      "--data", data))
    pair = lines(run(2, *words, "--learning-rate", "0.04", "--scale-learning-rate", "0", "--warmup-epochs", "0", "--data", data))
    assert abs(alone[0][2] - pair[0][2]) < 0.002, (alone, pair)
    # On a terminal a progress line shows.
    terminal, terminal_of_child = pty.openpty()
    subprocess.run([MNIST, "--data", data, "--epochs", "1"], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=terminal_of_child, check=True)
    os.close(terminal_of_child)
    shown = b""
    while b"\repoch 1:" not in shown:
        shown += os.read(terminal, 65536)  # an error when nothing more comes


def errors(folder):
    def expect(text, *words, environment=None):
        done = run(1, *words, environment=environment, check=False)
        assert done.returncode == 1 and text in done.stderr, f"expected '{text}'"

    expect("'--epoch' is not a hyperparameter", "--epoch", "3")
    expect("--epochs is 'three', expected a whole number from 0", "--epochs", "three")
    expect("--momentum is '-1', expected a number from 0", "--momentum=-1")
    expect("'--seed' needs a value", "--seed")
    expect("there is no channel 'training'", environment={"SM_CHANNELS": "[]"})
    expect(str(folder), "--data", folder)
    data = synthetic_data(folder / "files", 40, 10)
    expect("expected 0: named tensors do not work with parameter servers", "--data", data, "--named", "1", environment={"PACELINE_PS_SOCKET": str(folder / "none")})
    odd = synthetic_data(folder / "odd", 40, 10)
    images = odd / "training/train-images-idx3-ubyte"
    images.write_bytes(struct.pack(">4I", 0x803, 40, 28, 14) + images.read_bytes()[16:16 + 40 * 28 * 14])
    expect("channel 'testing' have 784 bytes, expected 392", "--data", odd)  # not read beyond their end
    labels = data / "training/train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-5])
    expect("train-labels-idx1-ubyte", "--data", data)


with tempfile.TemporaryDirectory(prefix="paceline-mnist-") as scratch:
    {"accuracy": accuracy, "equivalence": equivalence, "named": named, "pipe": pipe, "server": server, "errors": errors}[sys.argv[1]](pathlib.Path(scratch))
