#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/optuna: a study of 20 trials in one job, and the same job once more. Optuna comes from a Python that has it, or from PyPI."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["PACELINE_SOURCE"])
PACELINE = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint"
sys.path.insert(0, str(SOURCE / "tests/support"))
from python_with import python_with  # noqa: E402


def find_python(scratch):
    python = python_with("optuna")
    if not python:
        subprocess.run([sys.executable, "-m", "venv", scratch / "venv"], check=True)
        python = scratch / "venv/bin/python3"
        done = subprocess.run([python, "-m", "pip", "install", "-q", "optuna"], capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            print("SKIP: no Python here has optuna, and PyPI cannot be reached")
            sys.exit(77)
    return python


def main(scratch):
    python = find_python(scratch)
    base = scratch / "ml"
    (base / "input/config").mkdir(parents=True)
    (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    (base / "input/config/hyperparameters.json").write_text(json.dumps(
        {"sagemaker_program": "search.py", "sagemaker_submit_directory": str(SOURCE / "examples/optuna"), "trials": "20", "at-once": "2"}))
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(base), "PACELINE_PYTHON": str(python), "PATH": f"{PACELINE}:{os.environ['PATH']}",
                   "PACELINE_CHECKPOINT_DIR": str(base / "checkpoints")}
    for begun in 20, 0:  # the second job finds the study of the first
        done = subprocess.run([PACELINE / "paceline", "train"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        text = done.stdout + done.stderr
        assert done.returncode == 0, text
        scores = [float(line.split("score=")[1]) for line in done.stdout.splitlines() if line.startswith("[trial ")]
        assert len(scores) == begun, text
        best = max(scores, default=None) if begun else best
        model = json.loads((base / "model/model.json").read_text())
        assert model["score"] == best and f"best_score={best} trial=" in done.stdout, (best, model, text)
        (base / "model/model.json").unlink()
    print(f"20 trials, the best with {best}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="paceline-optuna-") as folder:
        main(pathlib.Path(folder))
