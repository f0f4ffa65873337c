#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A FIFO of Pipe Mode that `paceline-split` divides among ranks, against the raw FIFO that one process reads: GB/s, and the splitter's CPU time. In turn, medians.

    pipe_ranks.py [--build BUILD] [--mib 1024] [--turns 5] [--ranks 2] [--record 3100] [--data]

`paceline feed` writes, dd reads; with --copy the feeder writes as SageMaker's agent may, without lending pages. With --data the readers are paceline.data's
Dataset instead of dd: batches of an image of so many bytes, which one process or the ranks decode; this needs numpy.
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

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import records  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build", default=str(SOURCE / "build"))
parser.add_argument("--mib", type=int, default=1024)
parser.add_argument("--turns", type=int, default=5)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--record", type=int, default=3100)
parser.add_argument("--copy", action="store_true")
parser.add_argument("--data", action="store_true")
options = parser.parse_args()

READ = """
import sys
from paceline.data import Dataset
for batch in Dataset("training", {"image": ("uint8", (%d,))}, batch=256, decode_threads=1):
    pass
""" % options.record


def objects(folder):
    """64 files with links to one of 16 MiB at most, in the page cache."""
    record = records.tfrecord(records.example({"image": bytes(options.record)}))
    part = record * max(1, (min(options.mib, 16) << 20) // len(record))
    (folder / "objects").mkdir()
    (folder / "objects/part-0").write_bytes(part)
    count = max(1, (options.mib << 20) // len(part))
    for number in range(1, count):
        os.link(folder / "objects/part-0", folder / f"objects/part-{number}")
    return len(part) * count


def turn(folder, ranks):
    """Seconds, and the splitter's CPU seconds."""
    run = folder / "run"
    run.mkdir()
    programs = f"{options.build}/libexec/paceline"
    environment = {**os.environ, "PACELINE_RUN_DIR": str(run), "SM_CHANNEL_TRAINING": str(run / "training"), "PYTHONPATH": str(SOURCE / "python"),
                   "SM_INPUT_DATA_CONFIG": '{"training": {"TrainingInputMode": "Pipe"}}', "PACELINE_DATA_LIBRARY": f"{options.build}/runtime/libpaceline-data.so"}
    paths = [run / "training"]
    if ranks > 1:
        paths = [run / f"fifos/{rank}/training" for rank in range(ranks)]
        for rank, path in enumerate(paths):
            path.parent.mkdir(parents=True)
            os.mkfifo(f"{path}_0")
            os.symlink(f"{rank}/{ranks}/{ranks}", run / f"fifos/{rank}.place")
    feeder = subprocess.Popen([f"{programs}/paceline-feed", "--quiet", "--epochs", "1", *(["--copy"] if options.copy else []), folder / "objects", run / "training"])
    while not os.path.exists(run / "training_0"):
        time.sleep(0.001)
    splitter = subprocess.Popen([f"{programs}/paceline-split", "training"], env=environment) if ranks > 1 else None
    begin = time.monotonic()
    readers = []
    for path in paths:
        words = [sys.executable, "-c", READ] if options.data else ["dd", f"if={path}_0", "of=/dev/null", "bs=1M", "status=none"]
        readers.append(subprocess.Popen(words, env={**environment, "SM_CHANNEL_TRAINING": str(path), **({"PACELINE_FIFOS": "training"} if ranks > 1 else {})}))
    for reader in readers:
        assert reader.wait() == 0
    seconds = time.monotonic() - begin
    cpu = 0.0
    if splitter:
        splitter.terminate()
        _, _, usage = os.wait4(splitter.pid, 0)
        cpu = usage.ru_utime + usage.ru_stime
    feeder.wait()
    subprocess.run(["rm", "-rf", run], check=True)
    return seconds, cpu


with tempfile.TemporaryDirectory() as name:
    size = objects(pathlib.Path(name))
    found = {1: [], options.ranks: []}
    for _ in range(options.turns):
        for ranks, turns in found.items():
            turns.append(turn(pathlib.Path(name), ranks))
    raw, divided = (size / 1e9 / statistics.median(seconds for seconds, _ in turns) for turns in found.values())
    cpu = statistics.median(cpu for _, cpu in found[options.ranks]) / (size / 1e9)
    print(json.dumps({"readers": "paceline.data" if options.data else "dd", "record_bytes": options.record, "ranks": options.ranks, "raw_gb_per_s": round(raw, 3),
                      "divided_gb_per_s": round(divided, 3), "ratio": round(divided / raw, 3), "splitter_cpu_s_per_gb": round(cpu, 3)}))
