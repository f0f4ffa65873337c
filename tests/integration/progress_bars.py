#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A progress bar is lines in the log, without a carriage return: of a program that is alone, of 8 ranks under mpirun and under a stand-in of torchrun, and of
`paceline local`. `full`: those of tqdm, Keras and Lightning, where they are installed.
"""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(os.environ["PACELINE_SOURCE"]) / "tests/support"))
from python_with import python_with  # noqa: E402

PACELINE = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint/paceline"
RANKS, STATES = 8, 1000
MOST_S = 240  # for what comes in a few seconds on a machine that has time

BARS = """
import os, sys
rank, states = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "0"), int(os.environ["STATES"])
for stream, name in ((sys.stderr, "loss"), (sys.stdout, "acc")):
    for state in range(1, states + 1):
        stream.write(f"\\r{state * 100 // states:3}% [{'#' * (state * 20 // states):20}] {state}/{states} rank={rank} {name}={states - state}")
        stream.flush()
    stream.write("\\n")
print("a line\\r")
print(f"1/2 rank={rank}", end="\\r")
print(f"2/2 rank={rank}", end="\\r", flush=True)
"""

FAILS = BARS + """
sys.stderr.write("\\r50% of the last bar")
sys.stderr.flush()
sys.exit("no more data")
"""

WAITS = """
import os, sys, time
sys.stderr.write("\\r 10%\\r 20%")
sys.stderr.flush()
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.01)
sys.stderr.write("\\r 30%\\n")
"""

TORCHRUN = """#!/bin/sh
for last; do :; done # the script
for rank in $(seq 0 $(({ranks} - 1))); do RANK=$rank LOCAL_RANK=$rank "$PYTHON_EXEC" -u "$last" & done
wait
"""

TQDM = """
import sys
from tqdm import tqdm, trange
for i in tqdm(range(100), desc="plain", mininterval=0):
    pass
for epoch in trange(3, desc="epochs", mininterval=0):
    for i in tqdm(range(50), desc="batches", position=1, leave=False, mininterval=0):
        pass
    tqdm.write(f"epoch {epoch} done", file=sys.stderr)
"""

KERAS = """
import numpy, keras
x = numpy.random.rand(640, 8).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(1, keepdims=True), epochs=2, batch_size=8, validation_split=0.1)
"""

LIGHTNING = """
import torch
try:
    import lightning.pytorch as lightning
except ImportError:
    import pytorch_lightning as lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def loss(self, batch, name):
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        self.log(name, loss, prog_bar=True)
        return loss
    def training_step(self, batch, _):
        return self.loss(batch, "train_loss")
    def validation_step(self, batch, _):
        self.loss(batch, "val_loss")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
x = torch.rand(500, 8)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10)
lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[lightning.callbacks.TQDMProgressBar()]).fit(Model(), data, data)
"""


class Job:
    """`paceline train` of one program in a folder of its own, with its log."""

    def __init__(self, program, python=sys.executable, torchrun=False, **parameters):
        self.folder = tempfile.TemporaryDirectory(prefix="paceline-bars-")
        self.path = pathlib.Path(self.folder.name)
        self.program, self.python, self.parameters = program, python, {"sagemaker_program": "train.py", **parameters}
        (self.path / "bin").mkdir()
        if torchrun:
            self.parameters["sagemaker_torch_distributed_enabled"] = "true"
            (self.path / "bin/torchrun").write_text(TORCHRUN.format(ranks=RANKS))
            (self.path / "bin/torchrun").chmod(0o755)

    def __enter__(self):
        base = self.path / "ml"
        (base / "input/config").mkdir(parents=True)
        (base / "code").mkdir()
        (base / "code/train.py").write_text(self.program)
        (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}))
        (base / "input/config/hyperparameters.json").write_text(json.dumps(self.parameters))
        self.environment = dict(os.environ, SAGEMAKER_BASE_DIR=str(base), PACELINE_PYTHON=self.python, PYTHON_EXEC=self.python, STATES=str(STATES),
                                GO=f"{self.path}/go", PATH=f"{self.path}/bin:{os.environ['PATH']}", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="",
                                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def start(self, log):
        self.begin = time.monotonic()
        return subprocess.Popen([str(PACELINE), "train"], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self, code=0):
        """Runs to its end, and returns the lines of the log."""
        with open(self.path / "log", "wb") as log:
            found = self.start(log).wait(timeout=MOST_S)
        text = (self.path / "log").read_bytes().decode()
        assert found == code, f"exit {found}, not {code}:\n{text[-3000:]}"
        return text

    def most_lines(self):
        """Of one bar, as 10 s are its interval: its last state, and what time has added."""
        return 1 + int((time.monotonic() - self.begin) / 10)


def check_bars(what, job, tags):
    """Each rank's bars are few lines, with the last state of each."""
    text = job.log()
    assert "\r" not in text, f"{what}: a carriage return in the log: {text[:1000]!r}"
    lines = text.split("\n")
    assert max(map(len, lines)) <= 400, f"{what}: {max(lines, key=len)}"
    for rank, (out_tag, err_tag) in enumerate(tags):
        last = f"100% [{'#' * 20}] {STATES}/{STATES} rank={rank} "
        for tag, name in ((err_tag, "loss"), (out_tag, "acc")):
            found = [line for line in lines if re.match(tag + r"[ 0-9]+% \[", line) and f" rank={rank} {name}=" in line]
            assert found and re.fullmatch(tag + re.escape(last + f"{name}=0"), found[-1]), f"{what}: rank {rank}'s last {name} is not there: {lines[-40:]}"
            assert len(found) <= job.most_lines(), f"{what}: rank {rank} has {len(found)} lines of {name}"
        assert any(re.fullmatch(f"{out_tag}2/2 rank={rank}", line) for line in lines), f"{what}: no last state of rank {rank} without a line end: {lines[-40:]}"
    assert sum(bool(re.fullmatch(tags[0][0] + "a line", line)) for line in lines) == 1, f"{what}: 'a line' with a carriage return before its end: {lines[-40:]}"
    print(f"{what}: {len(lines)} lines of {2 * len(tags) * STATES} states")


def every_state():
    with Job(BARS, paceline_progress_s="0") as job:
        text = job.log()
    found = [int(state) for state in re.findall(r"(?m)^ *\d+% \[[# ]+\] (\d+)/\d+ rank=0 loss=\d+$", text)]
    assert found == list(range(1, STATES + 1)) and "\r" not in text, f"paceline_progress_s=0: {len(found)} lines of {STATES} states"
    with Job(BARS, paceline_progress_s="keep") as job:
        text = job.log()
    assert text.count("\r") == 2 * STATES + 3, f"paceline_progress_s=keep: {text.count(chr(13))} carriage returns"


def a_failure():
    """The last lines in the failure file are lines of the log, not states."""
    with Job(FAILS) as job:
        text = job.log(1)
        failure = (job.path / "ml/output/failure").read_text()
    for found in (text, failure):
        assert "50% of the last barno more data\n" in found and f"{STATES}/{STATES} rank=0 loss=0\n" in found and "\r" not in found, found
    assert failure.count("loss=") <= 4, failure


def in_time():
    """A state is in the log while the program goes on."""
    with Job(WAITS, paceline_progress_s="1") as job:
        with open(job.path / "log", "wb") as log:
            process = job.start(log)
        try:
            while b" 20%\n" not in (job.path / "log").read_bytes():
                assert process.poll() is None and time.monotonic() < job.begin + MOST_S, "no state in the log"
                time.sleep(0.05)
            (job.path / "go").touch()
            assert process.wait(timeout=MOST_S) == 0
        finally:
            process.kill()
        text = (job.path / "log").read_text()
    assert re.search(r"\n( 10%\n)? 20%\n 30%\n", text), text


def a_terminal():
    """People at a terminal see the bar as it is."""
    with Job(BARS) as job:
        ours, theirs = pty.openpty()
        process = job.start(theirs)
        os.close(theirs)
        text = b""
        try:
            while True:
                text += os.read(ours, 65536)
        except OSError:  # nobody has the terminal open any more
            pass
        assert process.wait(timeout=MOST_S) == 0
        os.close(ours)
    assert text.count(b"\r ") >= 2 * STATES * 99 // 100 - 20, text[:1000]


def with_local():
    """The log of `paceline local`, the log file of its host and the metrics that it reads have the last state."""
    with Job(BARS) as job:
        words = ["local", "--kind", "plain", "--name", "bars", "--environment", f"STATES={STATES}", "--metric", "loss=loss=([0-9]+)", "--"]
        done = subprocess.run([str(PACELINE), *words, sys.executable, str(job.path / "ml/code/train.py")], cwd=job.path, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MOST_S)
        text = done.stdout.decode()
        assert done.returncode == 0 and "\r" not in text, text[-3000:]
        assert re.search(rf"(?m)^\[algo-1\] 100% .* {STATES}/{STATES} rank=0 loss=0$", text) and "[algo-1] 2/2 rank=0\n" in text, text[-3000:]
        assert "\nMetric loss: last 0, " in text, text[-3000:]


def real(name, program, *modules):
    python = python_with(*modules)
    if not python:
        print(f"{name}: left out, no Python imports {', '.join(modules)}")
        return 0
    with Job(program, python) as job:
        text = job.log()
        lines = text.split("\n")
        assert "\r" not in text and "\033[A" not in text and "\b" not in text, text
        found = [line for line in lines if "/" in line and re.search(r"\d+/\d+", line) and not line.startswith("paceline: ")]
        assert found and len(found) <= 20 + 4 * job.most_lines(), f"{name}: {len(found)} lines of bars"
        assert max(map(len, found)) <= 400, max(found, key=len)
        last = {"tqdm": r"(?m)^epochs: 100%.* 3/3 ", "Keras": r"(?m)^.*72/72.* - val_loss: [0-9.]+$", "Lightning": r"(?m)^Epoch 1: 100%.*50/50.*train_loss=.*val_loss="}[name]
        assert re.search(last, text), f"{name}: no last state {last}:\n{text}"
        if name == "tqdm":
            assert all(re.search(rf"(?m)^batches: +\d+%.*\n(epochs.*\n)?epoch {epoch} done$", text) for epoch in range(3)), text
    print(f"{name}: {len(found)} lines of bars")
    return 1


def main():
    if sys.argv[1:] == ["full"]:
        names = [("tqdm", TQDM, "tqdm"), ("Keras", KERAS, "keras", "numpy")]
        lightning = "lightning" if python_with("lightning") else "pytorch_lightning"
        if not sum(real(*words) for words in [*names, ("Lightning", LIGHTNING, lightning)]):
            print("none of tqdm, Keras and Lightning is installed")
            sys.exit(77)
        return
    with Job(BARS) as job:
        check_bars("a program that is alone", job, [("", "")])
    with Job(BARS, torchrun=True) as job:
        check_bars("torchrun", job, [(rf"\[rank{rank}\]: ",) * 2 for rank in range(RANKS)])
    if shutil.which("mpirun"):
        with Job(BARS, sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host=str(RANKS), sagemaker_mpi_custom_mpi_options="--oversubscribe") as job:
            check_bars("mpirun", job, [(rf"\[1,{rank}\]<stdout>: ?", rf"\[1,{rank}\]<stderr>: ?") for rank in range(RANKS)])
    else:
        print("under mpirun: left out, there is none")
    every_state()
    a_failure()
    in_time()
    a_terminal()
    with_local()


main()
