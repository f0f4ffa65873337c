#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stop of programs that something else has started: the saving program gets the signal, once, and has the time that it needs.

    stops.py          by commands of Debian's base system, on one host; two of them under MPI
    stops.py full     all that is installed, or that PyPI has in little space, on one host, under MPI with two ranks each, and below torchrun
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from python_with import python_with  # noqa: E402

PACELINE = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint/paceline"
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # another user may run it
WAIT_S = 300
# Its forked worker has its handler too, and must not get the signal: `timeout` alone would send it to both.
SAVER = """
import os, signal, sys, time
name, got = os.environ["WAY"], []
folder, main = os.environ["SM_MODEL_DIR"], os.getpid()
def stop(*_):
    got.append(1)
    if os.getpid() != main:
        open(f"{folder}/{name}.worker", "w").close()
signal.signal(signal.SIGTERM, stop)
if os.fork() == 0:
    while os.getppid() == main:
        time.sleep(0.05)
    os._exit(0)
open(f"{folder}/{name}.runs", "w").close()
while not got:
    time.sleep(0.05)
time.sleep(3)
with open(f"{folder}/{name}", "w") as file:
    file.write(f"saved after {len(got)}")
"""
COMMAND = f"{PYTHON} -u q.py"
# A wrapper that needs seconds to end after the program, as those do that unload torch, and can't be told from other programs at its very end.
SLOW = "import os, subprocess, sys, time\ncode = subprocess.call(sys.argv[1:])\ntime.sleep(4)\nos.execlp('sleep', 'sleep', '0.3') if code == 0 else sys.exit(code)\n"
BASIC = {
    "timeout": f"timeout -k 1 1000 {COMMAND}",
    "setsid": f"setsid -w {COMMAND}",
    "script": f"script -qec '{COMMAND}' /dev/null",
    "su": f"su -s /bin/sh -c '{COMMAND}' nobody",
    "runuser": f"runuser -s /bin/sh -c '{COMMAND}' nobody",
    "nice": f"nice {COMMAND}",
    "env": f"env A=b {COMMAND}",
    "stdbuf": f"stdbuf -oL {COMMAND}",
    "nohup": f"nohup {COMMAND}",
    "conda": f"{PYTHON} ./conda {COMMAND}",
    "several": f"timeout 1000 script -qec 'setsid -w nice {COMMAND}; true' /dev/null | cat",
}
OTHERS = {
    "sudo": f"sudo -E -u nobody {COMMAND}",
    "numactl": f"numactl --all {COMMAND}",
    "xvfb-run": f"xvfb-run -a {COMMAND}",
    "uv": f"uv run --no-project --offline --python {PYTHON} bash -c '{COMMAND}; true'",
    "poetry": f"poetry run {COMMAND}",
    "conda-run": f"conda run --no-capture-output {COMMAND}",
    "accelerate": "accelerate launch --cpu --num_processes 1 q.py",
    "deepspeed": "deepspeed --num_accelerators 1 --no_local_rank --master_port $((29600 + ${OMPI_COMM_WORLD_RANK:-${RANK:-0}})) q.py",
}


def ways(table):
    found = {way: line for way, line in table.items() if shutil.which(line.split()[0])}
    if os.geteuid() != 0:
        found = {way: line for way, line in found.items() if way not in ("su", "runuser", "sudo")}
    for way in table.keys() - found.keys():
        print(f"{way}: left out, it is not installed, or another user's name needs root")
    return found


def job(folder, lines, ranks, **hyperparameters):
    """Write a job whose rank N is started by the line N // `ranks`."""
    for name in ("input/config", "code", "model", "output/data"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o777)
    host = os.uname().nodename
    (folder / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": host, "hosts": [host], "network_interface_name": "lo"}))
    (folder / "code/q.py").write_text(SAVER)
    (folder / "code/conda").write_text(SLOW)
    (folder / "code/pyproject.toml").write_text('[project]\nname = "q"\nversion = "1"\nrequires-python = ">=3.9"\n[tool.poetry]\npackage-mode = false\n')
    cases = "".join(f"{number}) export WAY={way}.$rank; {line} ;;\n" for number, (way, line) in enumerate(lines.items()))
    (folder / "code/p.sh").write_text(f"#!/bin/bash\nrank=${{OMPI_COMM_WORLD_RANK:-${{RANK:-0}}}}\ncase $((rank / {ranks})) in\n{cases}esac\n"
                                      'code=$?\necho "the script goes on after $code"\nexit $code\n')
    (folder / "code/p.py").write_text('import subprocess, sys\nsys.exit(subprocess.call(["bash", "./p.sh"]))\n')
    (folder / "code/p.sh").chmod(0o755)
    (folder / "input/config/hyperparameters.json").write_text(json.dumps({"sagemaker_program": "p.sh", **hyperparameters}))


def stop(folder, lines, ranks):
    """Run the job in `folder`, stop it when all of its programs run, and look at what they have saved. Returns what is wrong."""
    names = [f"{way}.{rank}" for number, way in enumerate(lines) for rank in range(number * ranks, number * ranks + ranks)]
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(folder), "DS_ACCELERATOR": "cpu", "POETRY_VIRTUALENVS_CREATE": "false", "PACELINE_PYTHON": PYTHON,
                   "PYTHONPATH": ""}
    with open(folder / "log", "w") as log:
        paceline = subprocess.Popen([PACELINE, "train"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    until = time.monotonic() + WAIT_S
    while paceline.poll() is None and time.monotonic() < until and not all((folder / "model" / f"{name}.runs").exists() for name in names):
        time.sleep(0.05)
    paceline.send_signal(signal.SIGTERM)
    code = paceline.wait(WAIT_S)
    wrong = [] if code == 0 else [f"the job ended with {code}"]
    for name in names:
        saved = folder / "model" / name
        text = saved.read_text() if saved.exists() else "not saved"
        wrong += [] if text == "saved after 1" else [f"{name}: {text}"]
        wrong += [f"{name}: its worker got the signal"] if (folder / "model" / f"{name}.worker").exists() else []
    return [*wrong, (folder / "log").read_text()] if wrong else []


def main(full):
    with tempfile.TemporaryDirectory(prefix="paceline-stops-") as text:
        scratch = pathlib.Path(text)
        scratch.chmod(0o755)
        if full:
            subprocess.run([PYTHON, "-m", "venv", scratch / "venv"], check=True)
            subprocess.run([scratch / "venv/bin/pip", "install", "-q", "uv", "poetry"], check=False)
            os.environ["PATH"] += f":{scratch}/venv/bin"
        lines = ways({**BASIC, **OTHERS} if full else BASIC)
        two = {"timeout": BASIC["timeout"], "script": BASIC["script"]}
        mpi = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
        jobs = {f"{way}_on_one_host": ({way: line}, 1, {}) for way, line in lines.items()}
        if shutil.which("mpirun") and full:
            jobs |= {f"{way}_under_MPI": ({way: line}, 2, mpi) for way, line in lines.items()}
        elif shutil.which("mpirun"):
            jobs["two_ways_under_MPI"] = (two, 1, mpi)
        if full and (python := python_with("torch")):
            (scratch / "torchrun").write_text(f"#!{python}\n" + (SOURCE / "tests/support/torchrun.py").read_text())
            (scratch / "torchrun").chmod(0o755)
            os.environ["PATH"] = f"{scratch}:{os.environ['PATH']}"
            jobs["all_below_torchrun"] = (lines, 1, {"sagemaker_program": "p.py", "sagemaker_torch_distributed_enabled": "true",
                                                    "sagemaker_mpi_num_of_processes_per_host": str(len(lines))})
        for name, (words, ranks, hyperparameters) in jobs.items():  # before another thread forks: a program that is open for writing does not start
            job(scratch / name, words, ranks, **hyperparameters)
        with concurrent.futures.ThreadPoolExecutor(4 if full else 6) as pool:
            running = {pool.submit(stop, scratch / name, words, ranks): name for name, (words, ranks, _) in jobs.items()}
            failed = 0
            for done in concurrent.futures.as_completed(running):
                wrong = done.result()
                failed += bool(wrong)
                print(f"{running[done]}: {'saved' if not wrong else chr(10).join(['FAILED', *wrong])}", flush=True)
    sys.exit(1 if failed else 0)


main(sys.argv[1:] == ["full"])
