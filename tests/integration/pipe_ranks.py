#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipe Mode with several ranks on a host: under `paceline train` any program reads FIFOs of its own, and each record of an epoch comes to one rank; what a rank
that leaves early, damaged data and a stop do; the example of examples/python. tests/integration/cifar10.py is the same for a program in C.

Programs are scripts that know nothing of Paceline, except those of paceline.data, which need numpy. Ranks are started by mpirun, as workers of a parameter
server, and by torchrun if there is a torch.
"""
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
import records  # noqa: E402
from python_with import python_with  # noqa: E402

PACELINE, FEED, LIMIT_S = f"{BUILD}/entrypoint/paceline", f"{BUILD}/libexec/paceline/paceline-feed", 150
BY_MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "--oversubscribe --mca mpi_yield_when_idle 1"}

PLAIN = '''
import json, os, signal, sys, time
channel, most = os.environ["SM_CHANNEL_TRAINING"], int(os.environ.get("TEST_MOST", "0"))
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PACELINE_PS_WORKER") or os.environ["RANK"]
got = []
for epoch in range(2):
    with open(f"{channel}_{epoch}", "rb") as fifo:
        data = fifo.read(most) if most and epoch == 0 and rank == "1" else fifo.read()
    got.append(data.hex())
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "rank-" + rank), "w") as file:
    json.dump({"channel": channel, "got": got, "run": os.environ["PACELINE_RUN_DIR"]}, file)
'''

STOPPED = '''
import os, signal, sys, time
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
output, rank = os.environ["SM_OUTPUT_DATA_DIR"], os.environ["OMPI_COMM_WORLD_RANK"]
epoch = lines = 0
while not stopped:
    with open(f"{os.environ['SM_CHANNEL_TRAINING']}_{epoch}") as fifo:
        for line in fifo:
            lines += 1
            if lines == 100:
                open(os.path.join(output, "reads-" + rank), "w").write(os.environ["PACELINE_RUN_DIR"])
            if stopped:
                break
            time.sleep(0.001)
    epoch += 1
print(f"rank {rank} saved after {lines} lines", flush=True)
'''

RESTARTED = '''
import os
if os.environ["PACELINE_RESTART"] == "0":
    for epoch, most in enumerate((-1, 100)):
        with open(f"{os.environ['SM_CHANNEL_TRAINING']}_{epoch}", "rb") as fifo:
            fifo.read(most)
    raise SystemExit(3)
''' + PLAIN

# Each attempt ends in the middle of its second epoch, when all ranks have saved their places; the third goes on to the end.
PLACES = '''
import json, os, sys, time
from paceline.data import Dataset
output, rank, size, restart = os.environ["SM_OUTPUT_DATA_DIR"], os.environ.get("OMPI_COMM_WORLD_RANK", "0"), int(sys.argv[1]), int(os.environ["PACELINE_RESTART"])
dataset, got, taken = Dataset("training", {"id": "int64"}, batch=16, shuffle=int(sys.argv[2]), seed=3, timeout=60), [], 0
place = lambda restart, rank: os.path.join(output, f"place-{restart}-{rank}")
if restart:
    with open(place(restart - 1, rank)) as file:
        state, got = json.load(file)
    dataset.load_state_dict(state)
for epoch in range(max(0, len(got) - 1), 4):
    got += [[]] * (len(got) == epoch)
    for batch in dataset:
        got[epoch] = got[epoch] + [int(i) for i in batch["id"]]
        taken += 1
        if restart < 2 and epoch == restart + 1 and len(got[epoch]) >= 160:
            with open(place(restart, rank) + ".new", "w") as file:
                json.dump([dataset.state_dict(), got], file)
            os.rename(place(restart, rank) + ".new", place(restart, rank))
            while not all(os.path.exists(place(restart, other)) for other in range(size)):
                time.sleep(0.01)
            raise SystemExit(3 + restart)
with open(os.path.join(output, "rank-" + rank), "w") as file:
    json.dump(got, file)
'''

# After SIGTERM all ranks save after the same step, and end; the next job, which has the checkpoints, goes on.
TRAINED = '''
import os, signal, time
import numpy
import paceline
from paceline.checkpoint import Checkpoints
from paceline.data import Dataset
stopped, stop_at = [], int(os.environ.get("TEST_STOP", "0"))
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
paceline.init()
dataset = Dataset("training", {"id": "int64"}, batch=16, shuffle=50, seed=3, timeout=60)
with Checkpoints() as checkpoints:
    step, tensors, places = checkpoints.load() or (0, {"weights": numpy.zeros(8)}, None)
    weights = tensors["weights"]
    if places:
        dataset.load_state_dict(places[paceline.rank()])
    while step < 4 * 32:
        for batch in dataset:
            x = numpy.sin(batch["id"][:, None] * numpy.arange(1, 9))
            weights += 0.1 * paceline.allreduce((x * (1 - x @ weights)[:, None]).mean(0), name="gradient")
            step += 1
            if step == stop_at:
                print("stop me", flush=True)
            while step == stop_at and not stopped:
                time.sleep(0.01)
            if paceline.allreduce(numpy.array([len(stopped)]), op=paceline.Max, name="stopped")[0]:
                checkpoints.save(step, tensors, paceline.allgather_object(dataset.state_dict()))
                raise SystemExit(0)
numpy.save(os.environ["SM_MODEL_DIR"] + "/weights.npy", weights)
'''

DATA = '''
import json, os
from paceline.data import DataError, Dataset
rank, got = os.environ["OMPI_COMM_WORLD_RANK"], []
dataset = Dataset("training", {"id": "int64"}, batch=16, shuffle=30, seed=3, timeout=60)
try:
    for epoch in range(2):
        got.append([int(i) for batch in dataset for i in batch["id"]])
except DataError as error:
    print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
    got.append(str(error))
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "rank-" + rank), "w") as file:
    json.dump(got, file)
'''

WORKERS = '''
from paceline.data import DataValueError, Dataset
from torch.utils.data import DataLoader
try:
    list(DataLoader(Dataset("training", {"id": "int64"}, batch=16).torch(), batch_size=None, num_workers=2))
except DataValueError as error:
    print(f"refused: {error}", flush=True)
'''


def tar(i):
    """A sample of two files, without the end of the archive."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for extension, data in (("txt", b"text %d" % i), ("cls", b"%d" % i)):
            info = tarfile.TarInfo(f"{i:06}.{extension}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()[:4 * 512]


FORMATS = {
    "lines": lambda i: b"line %d\n" % i,
    "csv": lambda i: b'%d,"two\nlines"\n' % i,
    "tfrecord": lambda i: records.tfrecord(records.example({"id": [i]})),
    "recordio": lambda i: records.recordio(b"record %d" % i),
    "tar": tar,
}


class Job:
    """A job of one host with a channel in Pipe Mode, which `paceline feed` feeds."""

    def __init__(self, what, objects, hyperparameters, channel=None, feed=(), **environment):
        self.folder = tempfile.TemporaryDirectory(prefix="paceline-pipe-ranks-")
        self.base = pathlib.Path(self.folder.name)
        self.what, self.log = what, self.base / "log"
        for name in ("input/config", "input/data", "output/data", "model", "code", "objects"):
            (self.base / name).mkdir(parents=True)
        for name, data in objects.items():
            (self.base / "objects" / name).write_bytes(data)
        config = {"training": {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None", **(channel or {})}}
        for name, value in (("resourceconfig", {"current_host": "algo-1", "hosts": ["algo-1"]}), ("inputdataconfig", config), ("hyperparameters", hyperparameters)):
            (self.base / f"input/config/{name}.json").write_text(json.dumps(value))
        self.environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(self.base), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "PYTHONPATH": f"{SOURCE}/python", "PACELINE_LIBRARY": f"{BUILD}/runtime/libpaceline.so", "PACELINE_DATA_LIBRARY": f"{BUILD}/runtime/libpaceline-data.so",
                            "PYTHONDONTWRITEBYTECODE": "1",
                            "PACELINE_RANK_TAGS": "off", **environment}
        self.feeder = subprocess.Popen([FEED, "--quiet", "--timeout", "100", *feed, self.base / "objects", self.base / "input/data/training"],
                                       stdin=subprocess.DEVNULL)

    def start(self, *words):
        self.process = subprocess.Popen([PACELINE, *map(str, words)], env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log.open("wb"),
                                        stderr=subprocess.STDOUT)

    def text(self):
        return self.log.read_text(errors="replace")

    def end(self, code=0):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(LIMIT_S)
        found = self.process.poll()
        self.process.kill()
        self.feeder.terminate()
        self.feeder.wait(LIMIT_S)
        assert found == code, f"{self.what}: exit code {found}, not {code}:\n{self.text()}"

    def run(self, program, code=0, python=sys.executable):
        (self.base / "code/program.py").write_text(program)
        self.start("--", python, self.base / "code/program.py")
        self.end(code)
        return {path.name[5:]: json.loads(path.read_text()) for path in (self.base / "output/data").glob("rank-*")}

    def expect_nothing_left(self, run_dir):
        """No process of the job, no run directory, no FIFO."""
        mark, deadline = f"SAGEMAKER_BASE_DIR={self.base}\0".encode(), time.monotonic() + LIMIT_S
        while True:
            left = []
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    left += [folder.joinpath("cmdline").read_bytes()] if mark in folder.joinpath("environ").read_bytes() else []
            if not left:
                break
            assert time.monotonic() < deadline, f"{self.what}: left running: {left}"
            time.sleep(0.05)
        assert not os.path.exists(run_dir), f"{self.what}: {run_dir} is left"
        assert not list((self.base / "input/data").glob("training_*")), f"{self.what}: a FIFO is left"


def mpi(ranks):
    return {**BY_MPI, "sagemaker_mpi_num_of_processes_per_host": str(ranks)}


def of_rank(add, count, rank, ranks):
    return b"".join(add(i) for i in range(rank, count, ranks))


def plain(name, ranks, hyperparameters, python=sys.executable, count=1001, channel=None, feed=()):
    """Scripts without Paceline get each record once, in order, in both epochs."""
    add = FORMATS[name]
    stream = b"".join(map(add, range(count)))
    if name == "tar":
        stream += bytes(1024)
    job = Job(f"{name}, {ranks} ranks", {"part-0": stream}, hyperparameters, channel, feed)
    found = job.run(PLAIN, python=python)
    assert set(found) == {str(rank) for rank in range(ranks)}, f"{job.what}: {found.keys()}\n{job.text()}"
    for rank in range(ranks):
        wanted = of_rank(add, count, rank, ranks) + (bytes(1024) if name == "tar" else b"")
        for epoch, data in enumerate(found[str(rank)]["got"]):
            assert bytes.fromhex(data) == wanted, f"{job.what}: rank {rank}, epoch {epoch}: {bytes.fromhex(data)[:200]!r}, other bytes"
        assert found[str(rank)]["channel"].endswith(f"/fifos/{rank}/training"), found[str(rank)]["channel"]
        job.expect_nothing_left(found[str(rank)]["run"])
    print(f"ok: {job.what}", flush=True)


def early():
    """A rank that leaves epoch 0 gets its share of epoch 1, and the other one all of both."""
    add, count = FORMATS["lines"], 200000
    job = Job("a rank leaves early", {"part-0": b"".join(map(add, range(count)))}, mpi(2), TEST_MOST="1000")
    found = job.run(PLAIN)
    for rank, epoch in ((0, 0), (0, 1), (1, 1)):
        assert bytes.fromhex(found[str(rank)]["got"][epoch]) == of_rank(add, count, rank, 2), f"rank {rank}, epoch {epoch}: other bytes"
    assert len(found["1"]["got"][0]) == 2000
    print(f"ok: {job.what}", flush=True)


def restarted():
    """A job that is started again in the middle of epoch 1 goes on with the platform's next FIFO."""
    add, count = FORMATS["lines"], 1001
    job = Job("started again", {"part-0": b"".join(map(add, range(count)))}, mpi(2), PACELINE_MAX_RESTARTS="1")
    found = job.run(RESTARTED)
    assert "restart 1 of 1" in job.text(), job.text()
    for rank in range(2):
        assert [bytes.fromhex(data) for data in found[str(rank)]["got"]] == 2 * [of_rank(add, count, rank, 2)], f"rank {rank}: other bytes"
        job.expect_nothing_left(found[str(rank)]["run"])
    print(f"ok: {job.what}", flush=True)


def places(python, ranks, shuffle, channel=None):
    """Started again twice, each time in the middle of an epoch: the rest comes from the platform's next FIFO, so that each record is seen once an epoch."""
    job = Job(f"places of {ranks} ranks", {"part-0": b"".join(map(FORMATS["tfrecord"], range(1001)))}, mpi(ranks) if ranks > 1 else {}, channel, PACELINE_MAX_RESTARTS="2")
    (job.base / "code/program.py").write_text(PLACES)
    job.start("--", python, job.base / "code/program.py", ranks, shuffle)
    job.end()
    assert "restart 2 of 2" in job.text(), job.text()
    assert job.text().count("has a ShuffleConfig, with which each FIFO has another order") == (2 * ranks if channel else 0), job.text()
    for rank in range(ranks):
        got = json.loads((job.base / f"output/data/rank-{rank}").read_text())
        wanted = list(range(rank, 1001, ranks))
        assert len(got) == 4 and all((sorted(ids) if shuffle else ids) == wanted for ids in got), f"rank {rank}: other records: {[len(ids) for ids in got]}, {got}"
        assert not shuffle or wanted not in got
    print(f"ok: {job.what}", flush=True)


def damaged():
    """The job of a program that reads bytes fails by the division's message; it never sees the end of the data."""
    stream = b"".join(FORMATS["tfrecord"](i) for i in range(500))
    at = len(FORMATS["tfrecord"](0)) * 100
    job = Job("a damaged record", {"part-0": stream[:at] + b"\xff" + stream[at + 1:]}, mpi(2))
    found = job.run(PLAIN, code=1)
    failure = (job.base / "output/failure").read_text()
    assert not found, f"a rank took damaged data for all: {found}"
    assert re.search(r"division of a channel among ranks", failure) and re.search(rf"training_0': record 100 at byte {at}: the checksum of the length", failure), failure
    print(f"ok: {job.what}: {failure.splitlines()[0]}", flush=True)


def stopped():
    """SIGTERM in the middle of an epoch: both ranks end by themselves, and nothing is left."""
    job = Job("SIGTERM", {"part-0": b"".join(map(FORMATS["lines"], range(100000)))}, mpi(2))
    (job.base / "code/program.py").write_text(STOPPED)
    job.start("--", sys.executable, job.base / "code/program.py")
    marks, deadline = [job.base / f"output/data/reads-{rank}" for rank in range(2)], time.monotonic() + LIMIT_S
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert time.monotonic() < deadline and job.process.poll() is None, f"{job.what}: ranks did not read:\n{job.text()}"
        time.sleep(0.02)
    job.process.send_signal(signal.SIGTERM)
    job.end()
    assert len(re.findall(r"rank \d saved after", job.text())) == 2, job.text()
    job.expect_nothing_left(marks[0].read_text())
    print(f"ok: {job.what}", flush=True)


def resumed(python, *steps):
    """A job that SIGTERM has stopped after each of these steps, and the next one with its checkpoints, which reads the platform's FIFOs from number 0, end as one job."""
    stream, weights = b"".join(map(FORMATS["tfrecord"], range(1001))), set()
    for stops in (), steps:
        before = None
        for stop in (*stops, 0):
            job = Job(f"stopped after step {stop}", {"part-0": stream}, mpi(2), TEST_STOP=str(stop))
            job.environment["PACELINE_CHECKPOINT_DIR"] = str(job.base / "saved")
            (job.base / "code/program.py").write_text(TRAINED)
            if before:
                shutil.copytree(before.base / "saved", job.base / "saved")
            job.start("--", python, job.base / "code/program.py")
            if stop:
                deadline = time.monotonic() + LIMIT_S
                while job.text().count("stop me") < 2:
                    assert time.monotonic() < deadline and job.process.poll() is None, f"{job.what}: it did not come:\n{job.text()}"
                    time.sleep(0.02)
                job.process.send_signal(signal.SIGTERM)
            job.end()
            before = job
        weights.add((job.base / "model/weights.npy").read_bytes())
    assert len(weights) == 1, "the weights differ from those without a stop"
    print(f"ok: stopped after steps {steps}, and resumed by other jobs: the same weights", flush=True)


def by_data(python):
    """paceline.data reads its FIFO, and does not divide it once more; an error of the data reaches each rank."""
    stream = b"".join(map(FORMATS["tfrecord"], range(1001)))
    job = Job("paceline.data", {"part-0": stream}, mpi(2))
    found = job.run(DATA, python=python)
    for rank in range(2):
        for epoch in found[str(rank)]:
            assert sorted(epoch) == list(range(rank, 1001, 2)), f"rank {rank}: {len(epoch)} records: {epoch[:20]}"
    job = Job("paceline.data, a cut record", {"part-0": stream[:-1]}, mpi(2))
    found = job.run(DATA, python=python)
    for rank in range(2):
        assert re.search(r"training_0': record 1000 at byte \d+: the input ends inside a record .*\[CORRUPT\]", found[str(rank)][-1]), found
    print("ok: paceline.data, and a cut record", flush=True)
    images = [[(i * 7 + k) % 200 for k in range(192)] for i in range(600)]
    stream = b"".join(records.tfrecord(records.example({"image": bytes(v // 2 + 100 * (i // 2 % 2) for v in image), "label": [i // 2 % 2]})) for i, image in enumerate(images))
    job = Job("the example", {"part-0": stream}, mpi(2))
    job.run(pathlib.Path(SOURCE, "examples/python/data_pipe.py").read_text(), python=python)
    lines = re.findall(r"epoch=(\d) samples=(\d+) accuracy=([\d.]+)", job.text())
    assert [line[:2] for line in lines] == [(str(epoch), "600") for epoch in range(5)] and float(lines[-1][2]) > 0.9, job.text()
    print(f"ok: the example: {lines[-1]}", flush=True)


def whole():
    """The bundled digit classifier, of which one rank of a host reads the FIFO of IDX arrays, reads the platform's."""
    images = b"".join(bytes((i * 13 + 20 * (i % 10) * (k % 10 == i % 10)) % 256 for k in range(784)) for i in range(100))
    arrays = {"a-images": struct.pack(">IIII", 0x803, 100, 28, 28) + images, "b-labels": struct.pack(">II", 0x801, 100) + bytes(i % 10 for i in range(100))}
    job = Job("one rank reads all", arrays, {**mpi(2), "epochs": "1", "batch-size": "10"})
    (job.base / "code").rmdir()
    job.start("train")
    job.end()
    assert re.search("epoch=1 .*train_loss", job.text()), job.text()
    print("ok: one rank reads the platform's FIFO", flush=True)


def by_torch(python):
    with tempfile.TemporaryDirectory() as folder:
        torchrun = pathlib.Path(folder, "torchrun")
        torchrun.write_text(f"#!{python}\n" + pathlib.Path(SOURCE, "tests/support/torchrun.py").read_text())
        torchrun.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        add, count = FORMATS["lines"], 1001
        job = Job("2 ranks by torchrun", {"part-0": b"".join(map(add, range(count)))},
                  {"sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2", "sagemaker_program": "program.py"})
        (job.base / "code/program.py").write_text(PLAIN)
        job.environment["PACELINE_PYTHON"] = python
        job.start("train")
        job.end()
        for rank in range(2):
            found = json.loads((job.base / f"output/data/rank-{rank}").read_text())
            assert [bytes.fromhex(data) for data in found["got"]] == 2 * [of_rank(add, count, rank, 2)], f"rank {rank}: other bytes"
    print("ok: 2 ranks by torchrun", flush=True)
    done = subprocess.run([python, "-c", WORKERS], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
                          env={**job.environment, "SM_CHANNEL_TRAINING": "/nowhere", "SM_INPUT_DATA_CONFIG": '{"training": {"TrainingInputMode": "Pipe"}}'})
    words = "DataValueError: channel 'training' is in Pipe Mode, where one process reads the FIFO: num_workers is 2, and may be 1; threads decode"
    assert done.stdout.count(words) == 1, done.stdout + done.stderr
    print("ok: workers of a DataLoader are refused", flush=True)


def main():
    plain("lines", 2, mpi(2))
    plain("csv", 4, mpi(4), channel={"ContentType": "text/csv"})
    plain("tfrecord", 2, {"sagemaker_parameter_server_enabled": "true", "paceline_ps": "native", "paceline_ps_workers_per_host": "2",
                          "sagemaker_mpi_custom_mpi_options": "--oversubscribe"})
    plain("tar", 2, mpi(2))
    early()
    restarted()
    damaged()
    stopped()
    whole()
    with_numpy, with_torch = python_with("numpy"), python_with("torch", "numpy")
    if with_numpy:
        by_data(with_numpy)
        places(with_numpy, 1, 0, {"ShuffleConfig": {"Seed": 1}})
        places(with_numpy, 2, 50)
        resumed(with_numpy, 20, 64, 75)
    else:
        print("not shown: paceline.data, no Python here has numpy")
    by_torch(with_torch) if with_torch else print("not shown: torchrun, no Python here has torch")


main()
