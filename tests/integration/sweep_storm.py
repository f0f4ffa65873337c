#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps under faults that are drawn from a seed: kills, stops, a full disk, and restarts with and without what the container kept.

    sweep_storm.py [FIRST_SEED COUNT]

Trials are deterministic, so the result must be that of a sweep without faults: the best model bit for bit, each trial once,
exit code 0 only with the right result, no process left. A trial whose own process was killed may fail, and so may one that the full disk
hit; the best of the others is then the best.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import sweep

FAULTS = ("kill process 1", "kill any process", "stop", "full disk")
DISK_KIB = 8192

# Each epoch's state follows from the one before, so that a model tells whether each epoch ran once, from the right checkpoint.
TRIAL = r'''d=$PACELINE_CHECKPOINT_DIR n=0 state=$SM_HP_X
[ ! -e "$d/state" ] || read -r n state <"$d/state"
echo "$PACELINE_TRIAL $n" >>"$BEGUN"
stopped=
trap 'stopped=1' TERM
while [ $n -lt $SM_HP_EPOCHS ]; do
  [ -z "$stopped" ] || exit 0
  n=$((n + 1))
  state=$(echo "$state $SM_HP_X $n" | sha256sum) || exit 3
  state=${state%% *}
  echo "$n $state" >"$d/state.part" && mv "$d/state.part" "$d/state" || exit 3
  mkdir -p "$SM_MODEL_DIR/deep/empty" || exit 3
  echo "$state" >"$SM_MODEL_DIR/deep/weights.part" && mv "$SM_MODEL_DIR/deep/weights.part" "$SM_MODEL_DIR/deep/weights" || exit 3
  ln -sfn deep/weights "$SM_MODEL_DIR/best" || exit 3
  echo "epoch=$n score=$((SM_HP_X * 100 + n))"
  sleep 0.0$((RANDOM % 8))
done
exit 0
'''


def state_of(x, epochs):
    state = str(x)
    for n in range(1, epochs + 1):
        state = hashlib.sha256(f"{state} {x} {n}\n".encode()).hexdigest()
    return state


def of_job(base):
    """Processes of the job, its process 1 left out: their environment names its tree."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "environ").read_bytes()
                if str(base).encode() in words and (entry / "stat").read_text().rpartition(") ")[2][0] != "Z":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class Storm:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count, self.epochs = self.random.randint(3, 8), self.random.randint(2, 6)
        values = self.random.sample(range(1, 90), self.count)
        more = {} if self.random.random() < 0.7 else {"scheduler": {"asha": {"step": "epoch=([0-9]+)", "min": 1, "factor": 2}}}
        self.asha = bool(more)
        self.job = sweep.Job(TRIAL, space={"x": values}, slots=self.random.randint(1, 3), max_failed=1, **more)
        self.job.hyperparameters["epochs"] = str(self.epochs)
        self.values, self.hurt, self.was_killed, self.story = values, 0, False, [f"seed {seed}: {self.count} trials of {self.epochs} epochs{', asha' if more else ''}"]
        self.disk = self.job.base / "checkpoints"
        self.disk.mkdir()
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", self.disk], capture_output=True).returncode == 0

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.disk], check=True)

    def expect(self, right, words):
        assert right, "\n".join([*self.story, words, self.job.text()])

    def hit(self, fault):
        """True if the run may end with a code other than 0."""
        self.was_killed |= fault in ("kill process 1", "kill any process", "stop")
        if fault == "kill process 1":
            self.job.process.kill()
        elif fault == "stop":
            self.job.process.send_signal(signal.SIGTERM)
        elif fault == "full disk":
            with open(self.disk / "balloon", "wb") as balloon:
                try:
                    while True:
                        os.write(balloon.fileno(), bytes(4096))
                except OSError:
                    pass
            time.sleep(self.random.random() / 2)
            (self.disk / "balloon").unlink()
            self.hurt += self.count
        else:
            victims = [pid for pid in of_job(self.job.base) if pid != self.job.process.pid]
            if victims:
                victim = self.random.choice(sorted(victims))
                try:
                    self.story.append(f"  it is {pathlib.Path(f'/proc/{victim}/cmdline').read_bytes()!r}")
                    os.kill(victim, signal.SIGKILL)
                    self.hurt += 1
                except OSError:
                    pass

    def end(self):
        code = self.job.process.wait(timeout=sweep.WAIT_S)
        deadline = time.monotonic() + sweep.WAIT_S
        while left := of_job(self.job.base):
            self.expect(time.monotonic() < deadline, f"left: {left}")
            time.sleep(0.02)
        return code

    def check(self):
        """The result is that of a sweep without faults."""
        rows = self.job.rows()
        self.expect([row["trial"] for row in rows] == list(range(self.count)), f"not each trial once: {rows}")
        over = ("completed", "stopped") if self.asha else ("completed",)
        failed = [row for row in rows if row["state"] not in over]
        self.expect(len(failed) <= self.hurt and all(row["state"] == "failed" for row in failed), f"{self.hurt} were hurt: {rows}")
        for row in rows:
            # The report of an epoch may be lost with a process that is killed or stopped, and its checkpoint kept.
            epochs = round(row["score"] or 0) - self.values[row["trial"]] * 100
            self.expect(row["state"] != "completed" or epochs == self.epochs or self.was_killed and (row["score"] is None or 0 < epochs < self.epochs), f"a score differs: {row}")
        best = max((row for row in rows if row["state"] in over and row["score"] is not None), key=lambda row: row["score"])
        self.expect(f"\nbest_score={best['score']:.1f} trial={best['trial']}\n" in self.job.text(), f"the best is {best}")
        model = self.job.base / "model"
        weights = (model / "deep/weights").read_text() if (model / "deep/weights").exists() else None
        x = self.values[best["trial"]]
        epochs = {self.epochs} if best["state"] == "completed" else range(round(best["score"]) - x * 100, self.epochs + 1)
        self.expect(weights in [state_of(x, n) + "\n" for n in epochs], f"the best model differs: {weights!r} of {best}")
        self.expect(os.readlink(model / "best") == "deep/weights" and (model / "deep/empty").is_dir(), "the best model is not whole")

    def run(self):
        for _ in range(self.random.randint(1, 5)):
            fault = self.random.choice([fault for fault in FAULTS if fault != "full disk" or self.mounted])
            after_s = self.random.random() * 0.25 * self.count
            self.story.append(f"{fault} after {after_s:.3f} s")
            self.job.start(BEGUN=str(self.job.base / "begun"))
            try:
                self.job.process.wait(timeout=after_s)
            except subprocess.TimeoutExpired:
                self.hit(fault)
            code = self.end()
            self.story.append(f"  it ended with {code}")
            if code == 0 and "\npaceline: SIGTERM: stopping" not in self.job.text() and "\nbest_score=" in self.job.text():
                self.check()
            elif code == 0:
                self.expect(fault == "stop", "ended with 0 without a result")
            if self.random.random() < 0.5:
                self.story.append("a new container has the checkpoints alone")
                subprocess.run(["rm", "-rf", self.job.base / "model", self.job.base / "output", self.job.base / "sweep"], check=True)
        for _ in range(2):  # the second time it is over already
            self.job.start(BEGUN=str(self.job.base / "begun"))
            code = self.end()
            if code == 1 and self.hurt >= self.count and all(row["state"] == "failed" for row in self.job.rows()):
                break  # the faults have hit each trial
            self.expect(code == 0, f"the last run ended with {code}")
            self.check()
            subprocess.run(["rm", "-rf", self.job.base / "model", self.job.base / "output", self.job.base / "sweep"], check=True)
        starts = {}
        for line in (self.job.base / "begun").read_text().splitlines():
            trial, n = map(int, line.split())
            self.expect(n >= starts.get(trial, 0), f"trial {trial} began at {n} after it had begun at {starts.get(trial)}")
            starts[trial] = n


def main():
    first, count = (int(word) for word in (sys.argv[1:] or ("1", "20")))
    for seed in range(first, first + count):
        storm = Storm(seed)
        try:
            storm.run()
        finally:
            storm.close()
        print(storm.story[0], f"{len(storm.story)} lines", flush=True)


if __name__ == "__main__":
    main()
