#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The numbered examples, built with an installed library as their first lines describe, do what these lines say.

Those in Python run where a Python has numpy; without one the last line says so.
"""
import contextlib
import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE, BUILD = pathlib.Path(os.environ["PACELINE_SOURCE"]), os.environ["PACELINE_BUILD"]
sys.path.insert(0, str(SOURCE / "tests/support"))
from python_with import python_with  # noqa: E402
from ranks import mpirun  # noqa: E402

EXAMPLES = SOURCE / "examples"
PYTHON = python_with("numpy")
LIMIT_S = 120


def run(*command, **variables):
    done = subprocess.run(list(map(str, command)), env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def build(folder):
    run("meson", "install", "-C", BUILD, "--no-rebuild", DESTDIR=str(folder / "root"))
    pc = next((folder / "root").rglob("paceline.pc"))
    os.environ.update(PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(folder / "root"), LD_LIBRARY_PATH=str(pc.parent.parent),
                      PYTHONPATH=str(next((folder / "root").rglob("paceline/__init__.py")).parents[1]), PACELINE_LIBRARY=str(pc.parent.parent / "libpaceline.so"),
                      OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    sources = sorted(EXAMPLES.glob("[0-9]*.c"))
    assert len(sources) == 4, f"this test has no word about some of {sources}"
    for source in sources:
        line, name = re.search(r"^ \*   cc (.*-o (\w+).*)$", source.read_text(), re.M).groups()
        line = line.replace("$(pkg-config --cflags --libs paceline)", run("pkg-config", "--cflags", "--libs", "paceline"))
        run("cc", "-std=c11", "-Wall", "-Werror", *shlex.split(line.replace(source.name, str(source)).replace(f"-o {name}", f"-o {folder / name}")))


def job(folder, program, **hyperparameters):
    """A job tree whose program is a copy of `program`, on two ranks; returns what starts it."""
    config = folder / "input/config"
    for path in (config, folder / "code", folder / "model"):
        path.mkdir(parents=True)
    shutil.copy(program, folder / "code")
    words = {"sagemaker_program": program.name, "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2", **hyperparameters}
    (config / "hyperparameters.json").write_text(json.dumps(words))
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    (config / "checkpointconfig.json").write_text(json.dumps({"LocalPath": str(folder / "checkpoints")}))
    return [BUILD + "/entrypoint/paceline", "train"], {"SAGEMAKER_BASE_DIR": str(folder), **({"PACELINE_PYTHON": PYTHON} if PYTHON else {})}


def start(folder, program, **hyperparameters):
    command, variables = job(folder, program, **hyperparameters)
    return run(*command, **variables)


def lines_of_ranks(*command, **variables):
    done = mpirun(2, *command, timeout_s=LIMIT_S, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}"
    return [line for line in done.stdout.splitlines() if line.startswith("rank ")]


def allreduce(command):
    found = lines_of_ranks(*command)
    assert found == ["rank 0 of 2: 1 3 5 7", "rank 1 of 2: 1 3 5 7"], found


@contextlib.contextmanager
def bucket(objects):
    """A server for the files below `objects`, instead of S3."""
    server = subprocess.Popen([sys.executable, SOURCE / "tests/fakes/fake_s3.py", objects], stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().split()[1]
        yield {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIDTEST",
               "AWS_SECRET_ACCESS_KEY": "secret", "NO_PROXY": "*"}
    finally:
        server.kill()
        server.wait()


def stream(folder):
    lines = [f"line {number}".encode() for number in range(1001)]
    (folder / "objects/data").mkdir(parents=True)
    (folder / "objects/data/a.txt").write_bytes(b"\n".join(lines[:300]) + b"\n")
    (folder / "objects/data/b.txt.gz").write_bytes(gzip.compress(b"\n".join(lines[300:])))
    (folder / "objects/other.txt").write_bytes(b"of another prefix\n")
    total = sum(map(len, lines))
    expected = [f"rank {rank}: {len(lines[rank::2])} of 1001 lines, {sum(map(len, lines[rank::2]))} of {total} bytes" for rank in range(2)]
    with bucket(folder / "objects") as keys:
        found = lines_of_ranks(folder / "stream_s3", "s3://bkt/data/", **keys)
    assert found == expected, f"{found}, expected {expected}"


def train(folder, program, model):
    log = start(folder, program, steps="300")
    losses = [float(loss) for loss in re.findall(r"step=\d+ loss=([\d.]+)", log)]
    assert len(losses) == 3 and losses[2] < losses[0], log
    assert (folder / "model" / model).stat().st_size > 0, log


def save_resume(folder, program):
    command, variables = job(folder / "stopped", program, steps=str(10**15))
    with subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as first:
        log = ""
        while "beginning after step 0" not in log:
            line = first.stdout.readline()
            assert line, f"the job ended by itself:\n{log}"
            log += line
        first.send_signal(signal.SIGTERM)
        log += first.communicate(timeout=LIMIT_S)[0]
    assert first.returncode == 0, f"a job that saved ended with {first.returncode}:\n{log}"
    step = int(re.search(r"stopped after step (\d+)", log)[1])
    shutil.copytree(folder / "stopped/checkpoints", folder / "resumed/checkpoints")
    log = start(folder / "resumed", program, steps=str(step + 1000))
    assert f"resuming after step {step}\n" in log, log
    straight = start(folder / "straight", program, steps=str(step + 1000))
    ends = [re.search(rf"done after step {step + 1000}: .*", text)[0] for text in (log, straight)]
    assert ends[0] == ends[1], f"resumed and straight runs differ: {ends}"


def main():
    with tempfile.TemporaryDirectory(prefix="paceline-examples-") as name:
        folder = pathlib.Path(name)
        build(folder)
        allreduce([folder / "allreduce"])
        stream(folder)
        train(folder / "c", folder / "train", "model.safetensors")
        save_resume(folder, folder / "save_resume")
        if PYTHON:
            allreduce([PYTHON, EXAMPLES / "01_allreduce.py"])
            train(folder / "python", EXAMPLES / "03_train.py", "model.npz")
    print("the numbered examples do what they say" + ("" if PYTHON else "; no Python has numpy, so those in Python were not tried"))


main()
