#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands for a training: prints a score that is best for a learning rate of 0.1 and a width of 64, and saves a model."""
import json
import math
import os
import pathlib

values = json.loads(os.environ["SM_HPS"])
score = 1 - abs(math.log10(values["lr"]) + 1) / 4 - abs(values["width"] - 64) / 512
print(f"score={score:.6f}", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps({"lr": values["lr"], "width": values["width"], "score": round(score, 6)}))
