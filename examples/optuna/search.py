#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A search with Optuna in one job: each trial is `paceline trial`, with its own hyperparameters, folders and GPU.

    search.py [--trials 20] [--at-once N]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import optuna

CHECKPOINTS = pathlib.Path(os.environ.get("PACELINE_CHECKPOINT_DIR") or "/opt/ml/checkpoints")
GPUS = int(os.environ.get("SM_NUM_GPUS", "0"))


def objective(trial):
    values = {"lr": trial.suggest_float("lr", 1e-3, 1, log=True), "width": trial.suggest_int("width", 16, 128, step=16)}
    words = ["paceline", "trial", "--number", str(trial.number), "--gpus", "1" if GPUS else "0"]
    for name, value in values.items():
        words += ["--hyperparameter", f"{name}={value}"]
    done = subprocess.run([*words, "--", sys.executable, "train.py"], stdout=subprocess.PIPE, text=True)
    print("".join(f"[trial {trial.number}] {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    scores = re.findall(r"^score=(\S+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not scores:
        raise RuntimeError(f"trial {trial.number} ended with code {done.returncode} and {len(scores)} scores")
    return float(scores[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=max(1, GPUS or (os.cpu_count() or 1) // 2))
    words = parser.parse_args()

    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    # Optuna's journal is a checkpoint of the job: started again, the search goes on after the trials that it has.
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(CHECKPOINTS / "optuna.journal")))
    study = optuna.create_study(storage=storage, study_name="search", load_if_exists=True, direction="maximize",
                                sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(objective, n_trials=words.trials - len(study.trials), n_jobs=words.at_once, catch=RuntimeError)

    best = study.best_trial
    shutil.copytree(CHECKPOINTS / f"trial-{best.number:04}.model", os.environ["SM_MODEL_DIR"], dirs_exist_ok=True)
    print(f"best_score={best.value} trial={best.number}", flush=True)


if __name__ == "__main__":
    main()
