#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The click-through model on parameter servers: it learns, and its rows are saved and loaded again, on one server and on two."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
SERVER = BUILD / "libexec/paceline/paceline-server"
EMBEDDING = BUILD / "libexec/paceline/embedding"
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LINE = re.compile(r"^step=(\d+)(?: train_logloss=(\S+))? test_logloss=(\S+) constant_logloss=(\S+) best_logloss=(\S+) rows=(\d+) samples_per_second=\S+$", re.M)
SMALL = ("--rows", 20000, "--columns", 8, "--batch-size", 256, "--evaluate-samples", 10000)


def command(hosts, workers, *words):
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", hosts] if hosts > 1 else []
    return [str(word) for word in (*mpirun, SERVER, "--workers", workers, EMBEDDING, *SMALL, *words)]


def run(hosts, workers, *words, expected=0, staleness="none"):
    done = subprocess.run(command(hosts, workers, *words), env=dict(ENVIRONMENT, PACELINE_PS_STALENESS=staleness), text=True, timeout=240,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    print("$", hosts, "x", workers, "workers", *words, done.stdout, done.stderr)
    assert (done.returncode == 0) == (expected == 0), f"exit status {done.returncode}"
    return done


def lines(done):
    """(step, test, constant, best, rows) of each line."""
    found = [(int(m[1]), float(m[3]), float(m[4]), float(m[5]), int(m[6])) for m in LINE.finditer(done.stdout)]
    assert len(found) == done.stdout.count("\n") > 0, done.stdout
    return found


def part(model, name):
    """The file of a server; its name has the moment of the save."""
    found, = model.glob(name + ".*.rows")
    return found


def learns(folder):
    model = folder / "model"
    done = run(1, 2, "--steps", 400, "--evaluate-steps", 200, "--model-dir", model)
    (_, early, constant, best, _), (step, loss, *_, rows) = lines(done)
    assert step == 400 and best < loss < early < constant, done.stdout
    assert loss < constant - 0.5 * (constant - best), "it has not come half the way from a constant to the best possible"
    assert len(list(model.iterdir())) == 2 and (model / "model.safetensors").exists()
    record = 8 + 2 * 8 * 4
    assert rows * record < part(model, "rows-00000-of-00001").stat().st_size < rows * record + 1024
    return model, loss, rows


def loads(folder, model, loss, rows):
    """Two servers load the rows that one has saved, and save them; one server loads those of two."""
    second, third = folder / "second", folder / "third"
    for hosts, workers, source, target in ((2, 1, model, second), (1, 2, second, third)):
        step, again, *_, count = lines(run(hosts, workers, "--steps", 0, "--load", source, "--model-dir", target))[0]
        assert (step, count) == (0, rows) and abs(again - loss) < 0.0002, f"loss {again} of {count} rows, saved were {loss} of {rows}"
    last = part(second, "rows-00001-of-00002")
    assert last.stat().st_size > 100000
    more = lines(run(2, 2, "--steps", 200, "--load", second))
    assert more[-1][1] < loss + 0.005, "worse after more steps"
    last.unlink()
    assert f"a file of the table is missing ('{last}'" in run(1, 1, "--steps", 0, "--load", second, expected=1).stderr
    assert "staleness 0" in run(1, 1, "--steps", 0, expected=1, staleness="0").stderr


def stops(folder):
    """SIGTERM to the workers: the training has no end of its own."""
    model = folder / "stopped"
    job = subprocess.Popen(command(1, 2, "--steps", 10**12, "--evaluate-steps", 20, "--model-dir", model), env=ENVIRONMENT, text=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = job.stdout.readline()  # both workers have trained
    for child in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    out, said = job.communicate(timeout=60)
    assert LINE.match(first) and job.returncode == 0 and said.count("as asked") == 1, (job.returncode, first, out, said)
    assert part(model, "rows-00000-of-00001").exists()


with tempfile.TemporaryDirectory(prefix="embedding-") as scratch:
    loads(pathlib.Path(scratch), *learns(pathlib.Path(scratch)))
    stops(pathlib.Path(scratch))
