#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a trial besides its program: Paceline and Ray Tune sweep over the same space and program, in turn on one machine.

    tests/bench/peer_ray_tune.py --python PYTHON [--build build] [--trials 40] [--slots 2] [--seconds 0.2] [--rounds 3]

PYTHON has ray[tune]. The program sleeps for --seconds and prints a score; Ray's trainable runs it and reports that. One line per side: the wall time of the
whole command in seconds (`wall_s`, with Ray's own start), and the rest of it per trial without the programs' sleep
(`trial_ms` = (wall - trials / slots * seconds) / trials * slots); `start_ms` is the median time from the end of a slot's program to the first
instruction of its next one. Figures are medians of the rounds; `ratio` is Ray's figure divided by ours.

    peer_ray_tune.py theirs TRIALS SLOTS PROGRAM LOG     Ray's side
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = """#!/bin/sh
# NAME VALUE...: when it began and ended, and a score
begin=$(date +%s%N)
sleep {seconds}
printf 'score=%s\\n' "$(echo "$*" | cksum | cut -c 1-4)"
echo "$begin $(date +%s%N)" >>{log}
"""


def theirs(trials, slots, program):
    from ray import init, tune

    def train(point):
        done = subprocess.run([program, "--x", str(point["x"])], stdout=subprocess.PIPE, text=True, check=True)
        tune.report({"score": float(done.stdout.split("=")[1])})

    init(num_cpus=slots, include_dashboard=False, log_to_driver=False, configure_logging=False)
    tuner = tune.Tuner(train, param_space={"x": tune.grid_search(list(range(trials)))}, tune_config=tune.TuneConfig(metric="score", mode="max"))
    assert len(tuner.fit()) == trials


def ours(words, folder):
    base = folder / "ml"
    (base / "input/config").mkdir(parents=True)
    (base / "input/config/resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    sweep = {"space": {"x": list(range(words.trials))}, "metric": "score", "goal": "maximize", "slots": words.slots, "model": False}
    (base / "input/config/hyperparameters.json").write_text(json.dumps({"paceline_sweep": json.dumps(sweep)}))
    return [words.build / "entrypoint/paceline", "--", folder / "program"], dict(os.environ, SAGEMAKER_BASE_DIR=str(base))


def one_round(words, is_ours):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log = folder / "log"
        (folder / "program").write_text(PROGRAM.format(seconds=words.seconds, log=log))
        (folder / "program").chmod(0o755)
        if is_ours:
            command, environment = ours(words, folder)
        else:
            command = [words.python, __file__, "theirs", words.trials, words.slots, folder / "program"]
            environment = dict(os.environ, RAY_AIR_NEW_OUTPUT="0", RAY_USAGE_STATS_ENABLED="0")
        begin = time.monotonic()
        done = subprocess.run(list(map(str, command)), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=600)
        wall = time.monotonic() - begin
        assert done.returncode == 0, done.stdout
        spans = sorted(tuple(map(int, line.split())) for line in log.read_text().splitlines())
    assert len(spans) == words.trials, done.stdout
    free, waits = [], []  # times at which slots became free
    for began, ended in spans:
        left = max((moment for moment in free if moment <= began), default=None)
        if left is not None:
            free.remove(left)
            waits.append((began - left) / 1e6)
        free.append(ended)
    asleep = words.trials / words.slots * words.seconds
    return {"wall_s": wall, "trial_ms": (wall - asleep) / words.trials * words.slots * 1e3, "start_ms": statistics.median(waits)}


def main():
    if sys.argv[1:2] == ["theirs"]:
        return theirs(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    words = parser.parse_args()
    words.build = words.build.resolve()
    sides = ["paceline", "ray"] if words.python else ["paceline"]
    found = {side: [] for side in sides}
    for _ in range(words.rounds):
        for side in sides:
            found[side].append(one_round(words, side == "paceline"))
    for side in sides:
        print(json.dumps({"side": side, "trials": words.trials, "slots": words.slots,
                          **{name: round(statistics.median(row[name] for row in found[side]), 2) for name in found[side][0]}}), flush=True)
    if words.python:
        print(json.dumps({"ratio": {name: round(statistics.median(theirs[name] / ours[name] for ours, theirs in zip(found["paceline"], found["ray"])), 1)
                                    for name in found["ray"][0]}}))


if __name__ == "__main__":
    main()
