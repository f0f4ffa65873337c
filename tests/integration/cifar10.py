#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 example sees the same batches in the same order, and so learns the same, from files, from Pipe Mode's
FIFOs (which `paceline train` divides among several ranks) and from S3.

  cifar10.py      uses generated pictures, and also the real ones if ../shared/data/cifar10 holds them
"""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
PROGRAM = BUILD / "libexec/paceline/cifar10"
PACELINE = BUILD / "entrypoint/paceline"
FEED = BUILD / "libexec/paceline/paceline-feed"
REAL = SOURCE.parent / "shared/data/cifar10"
LIMIT_S = 150
# KILL_RANK_1 CHECKPOINTS PROGRAM...: kills rank 1 of a job's first attempt once there is a checkpoint.
KILL_RANK_1 = """checkpoints=$1; shift
"$@" &
if [ "$PACELINE_RESTART" = 0 ] && [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
  until ls "$checkpoints"/checkpoint-*.json >/dev/null 2>&1; do sleep 0.02; done
  kill -9 $!
fi
wait $!"""
SHARDS, RECORDS = 4, 64
sys.path.insert(0, str(SOURCE / "tests/fakes"))
from fake_s3 import crc32c  # noqa: E402


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(image, label):
    features = field(1, field(1, b"image") + field(2, field(1, field(1, image))))
    features += field(1, field(1, b"label") + field(2, field(3, field(1, varint(label)))))
    return field(1, features)


def write_shard(path, rng, count):
    with open(path, "wb") as out:
        for _ in range(count):
            label = rng.randrange(10)
            data = example(bytes((20 * label + rng.randrange(40)) & 255 for _ in range(3072)), label)
            length = struct.pack("<Q", len(data))
            out.write(length + masked(length) + data + masked(data))


def make_pictures(folder):
    rng = random.Random(7)
    for name, shards in (("training", SHARDS), ("testing", 1)):
        (folder / name).mkdir(parents=True)
        for shard in range(shards):
            write_shard(folder / name / f"part-{shard:05}.tfrecord", rng, RECORDS)


def link_pictures(folder):
    for name, pattern in (("training", "train-*"), ("testing", "test-*")):
        (folder / name).mkdir(parents=True)
        for path in REAL.glob(pattern):
            (folder / name / path.name).symlink_to(path)


def train(ranks, words, environment=None, code=0, servers=False, wrapper=()):
    """Run the example, with ranks or as workers of a parameter server, or as a job where `environment` has one; its metric lines without what depends on time,
    or its message when `code` is not 0."""
    command = [*map(str, wrapper), str(PROGRAM), *map(str, words)]
    if servers:
        command = [str(BUILD / "libexec/paceline/paceline-server"), "--workers", str(ranks), *command]
    elif environment and "SAGEMAKER_BASE_DIR" in environment:
        command = [str(PACELINE), "--", *command]
    elif ranks > 1:
        command = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-np", str(ranks), *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False, text=True,
                          env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                               **(environment or {})})
    assert done.returncode == code, f"{words}: exit {done.returncode}: {done.stderr}"
    if code:
        return done.stderr
    times = r" (images_per_second|waited_share|pieces_pulled|server_wait_s|gradient_bytes_sent)=\S+"
    lines = [re.sub(times, "", line) for line in done.stdout.splitlines() if line.startswith("epoch=")]
    assert lines and all("batch_order=" in line for line in lines), done.stdout
    return lines


def pipe_job(folder, base, ranks, wrapper="None"):
    """The environment of a job with the training records in Pipe Mode; alone the program gets what `paceline train` would give it."""
    config = {"training": {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "RecordWrapperType": wrapper},
              "testing": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}}
    data = base / "input/data"
    data.mkdir(parents=True)
    (data / "testing").symlink_to(folder / "testing")
    if ranks == 1:
        return {"SM_CHANNEL_TRAINING": str(data / "training"), "SM_CHANNEL_TESTING": str(data / "testing"), "SM_CHANNELS": '["testing", "training"]',
                "SM_INPUT_DATA_CONFIG": json.dumps(config)}
    (base / "input/config").mkdir()
    (base / "input/config/resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    (base / "input/config/inputdataconfig.json").write_text(json.dumps(config))
    (base / "input/config/hyperparameters.json").write_text(json.dumps({
        "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": str(ranks),
        "sagemaker_mpi_custom_mpi_options": "--oversubscribe --mca mpi_yield_when_idle 1"}))
    return {"SAGEMAKER_BASE_DIR": str(base), "PACELINE_RANK_TAGS": "off"}


def through_pipe(folder, work, ranks, words, feed_words=(), code=0, wrapper="None", environment=None, program_wrapper=()):
    """The same as train(), with the training records from FIFOs that the feeder fills."""
    base = pathlib.Path(tempfile.mkdtemp(dir=work))
    job = pipe_job(folder, base, ranks, wrapper)
    feeder = subprocess.Popen([FEED, "--timeout", "60", *feed_words, folder / "training", base / "input/data/training"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    try:
        return train(ranks, words, {**job, **(environment or {})}, code, wrapper=program_wrapper)
    finally:
        feeder.terminate()
        said = feeder.communicate(timeout=LIMIT_S)[1]
        assert feeder.returncode == 0, f"the feeder ended with {feeder.returncode}: {said}"
        assert not list(base.glob("input/data/training_*")), "the feeder left a FIFO"


def from_s3(folder, ranks, words):
    server = subprocess.Popen([sys.executable, str(SOURCE / "tests/fakes/fake_s3.py"), str(folder)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().split()[1]
        return train(ranks, [*words, "--data", "s3://bkt"], {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
                                                            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                                            "AWS_REGION": "us-east-1", "NO_PROXY": "*"})
    finally:
        server.terminate()
        server.wait(LIMIT_S)


def expect_same(what, found, expected):
    assert found == expected, f"{what}:\n" + "\n".join(found) + "\nfrom files:\n" + "\n".join(expected)
    print(f"{what}: as from files; {found[-1]}")


def check(folder, work):
    words = ["--epochs", 2, "--batch-size", 16, "--shuffle-buffer", 40, "--warmup-steps", 4, "--model-dir", work / "model"]
    alone = train(1, [*words, "--data", folder])
    pair = train(2, [*words, "--data", folder])
    assert alone != pair and alone[0] != alone[1]
    expect_same("one rank, FIFOs", through_pipe(folder, work, 1, words), alone)
    expect_same("two ranks, FIFOs", through_pipe(folder, work, 2, words), pair)
    expect_same("four ranks, FIFOs", through_pipe(folder, work, 4, words), train(4, [*words, "--data", folder]))
    expect_same("one rank, FIFOs of wrapped objects, made late",
                through_pipe(folder, work, 1, words, ["--recordio", "--late"], wrapper="RecordIO"), alone)
    wrapped = through_pipe(folder, work, 2, words, ["--recordio", "--late"], wrapper="RecordIO")
    assert len(wrapped) == len(pair) and wrapped != pair, "\n".join(wrapped)
    print(f"two ranks, FIFOs of wrapped objects, which are dealt whole: {wrapped[-1]}")
    expect_same("two ranks, S3", from_s3(folder, 2, words), pair)
    (work / "untested").mkdir()
    (work / "untested/training").symlink_to(folder / "training")
    expect_same("training without testing, S3", from_s3(work / "untested", 1, words), train(1, [*words, "--data", work / "untested"]))
    for ranks in (1, 2):
        message = through_pipe(folder, work, ranks, words, ["--cut", "700000"], code=1)
        assert re.search(r"training_0': record \d+ at byte \d+: the input ends inside a record", message), message
        print(f"a feeder that dies in mid-record, {ranks} rank(s): {message.splitlines()[0]}")
    resumed(folder, work, words)
    without_a_feeder(folder, work, words)
    with_servers(folder, words)


def resumed(folder, work, words):
    """A run that ends in its second epoch, or after it, and goes on in a new process or job, prints the rest of the lines and has the same model."""
    model = work / "model/model.safetensors"
    for what, ranks, run in (("one rank", 1, lambda words: train(1, [*words, "--data", folder])), ("two ranks", 2, lambda words: train(2, [*words, "--data", folder])),
                             ("two ranks, FIFOs", 2, lambda words: through_pipe(folder, work, 2, words))):
        steps = 16 // ranks  # of an epoch
        whole, wanted = run([*words, "--epochs", 3]), model.read_bytes()
        checkpoints = ["--checkpoint-dir", tempfile.mkdtemp(dir=work), "--checkpoint-steps", 3]
        run([*words, *checkpoints, "--epochs", 3, "--max-steps", steps + 5])
        expect_same(f"{what}, resumed in an epoch", run([*words, *checkpoints]), whole[1:2])
        expect_same(f"{what}, resumed after an epoch", run([*words, *checkpoints, "--epochs", 3]), whole[2:])
        assert model.read_bytes() == wanted, f"{what}: the resumed run has another model"
    checkpoints = tempfile.mkdtemp(dir=work)
    whole, wanted = through_pipe(folder, work, 2, [*words, "--epochs", 8]), model.read_bytes()
    again = through_pipe(folder, work, 2, [*words, "--epochs", 8, "--checkpoint-dir", checkpoints, "--checkpoint-steps", 3],
                         environment={"PACELINE_MAX_RESTARTS": "1", "PACELINE_KEEP_STEPS": "1"}, program_wrapper=["sh", "-c", KILL_RANK_1, "sh", checkpoints])
    assert again[-1] == whole[-1] and model.read_bytes() == wanted, "\n".join(again)
    print(f"two ranks, FIFOs, one of them killed and started again: {again[-1]}")
    run = [*words, "--data", folder, "--checkpoint-dir", tempfile.mkdtemp(dir=work)]
    train(1, [*run, "--max-steps", 5])
    message = train(1, [*run, "--batch-size", 8], code=1)
    assert "the checkpoint of step 5 is in the middle of an epoch with another --batch-size" in message, message


def with_servers(folder, words):
    """In lockstep two workers print the same as two ranks; asynchronously they learn too, each at its own speed."""
    words = [*words, "--data", folder]
    exact = {"PACELINE_REPRODUCIBLE": "1", "PACELINE_PS_STALENESS": "0"}
    expect_same("two workers of a parameter server", train(2, words, exact, servers=True), train(2, words, exact))
    found = train(2, words, {"PACELINE_PS_STALENESS": "none"}, servers=True)
    losses = [float(re.search(r"train_loss=(\S+)", line)[1]) for line in found]
    assert len(losses) == 2 and losses[1] < losses[0], found


def without_a_feeder(folder, work, words):
    """The ranks name the wait for the platform's FIFO, whichever deadline passes first."""
    base = pathlib.Path(tempfile.mkdtemp(dir=work))
    message = train(2, [*words, "--timeout", 10], pipe_job(folder, base, 2), code=1)
    failed = [line for line in message.splitlines() if "training failed" in line]
    assert failed and all(f"FIFO '{base}/input/data/training_0' did not appear before the deadline" in line for line in failed), message
    print(f"no feeder, 2 ranks, {len(failed)} message(s): {failed[0]}")


def check_real(folder, work):
    words = ["--batch-size", 32, "--max-steps", 6, "--model-dir", work / "model"]
    expect_same("real pictures, leaving each FIFO early", through_pipe(folder, work, 2, words), train(2, [*words, "--data", folder]))


def main():
    with tempfile.TemporaryDirectory(prefix="paceline-cifar10-") as name:
        work = pathlib.Path(name)
        make_pictures(work / "made")
        check(work / "made", work)
        if list(REAL.glob("train-*")):
            link_pictures(work / "real")
            check_real(work / "real", work)
        else:
            print("the real pictures are not here; made-up ones alone were used")


if __name__ == "__main__":
    main()
