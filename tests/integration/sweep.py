#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps on one host, as real processes: trials run in slots, and a trial that harms itself harms no other trial."""
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
PACELINE = str(BUILD / "entrypoint/paceline")
WAIT_S = 60  # a far deadline


class Job:
    """A tree like /opt/ml whose program is a shell script."""

    def __init__(self, script, **specification):
        self.folder = tempfile.TemporaryDirectory(prefix="paceline-sweep-")
        self.base = pathlib.Path(self.folder.name)
        config = self.base / "input/config"
        config.mkdir(parents=True)
        (self.base / "code").mkdir()
        program = self.base / "code/trial"
        program.write_text(f"#!/bin/bash\njob={self.base}\n" + script)
        program.chmod(0o755)
        (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
        self.specification = {"metric": "score", "goal": "maximize", "slots": 2, "model": "MODEL" in script, **specification}
        self.command = []  # what runs paceline
        self.hyperparameters = {"sagemaker_program": json.dumps("trial"), "epochs": "9"}

    def environment(self, variables):
        return {**os.environ, "SAGEMAKER_BASE_DIR": str(self.base), **variables}

    def start(self, **variables):
        values = {**self.hyperparameters, "paceline_sweep": json.dumps(self.specification)}
        (self.base / "input/config/hyperparameters.json").write_text(json.dumps(values))
        self.log = open(self.base / "log", "w+")
        self.process = subprocess.Popen([*self.command, PACELINE, "train"], env=self.environment(variables), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        return self

    def end(self, code=0):
        found = self.process.wait(timeout=WAIT_S)
        assert found == code, f"exit code {found}, not {code}:\n{self.text()}"
        return self

    def run(self, code=0, **variables):
        return self.start(**variables).end(code)

    def text(self):
        return (self.base / "log").read_text()

    def await_text(self, words, times=1):
        wait_until(lambda: self.text().count(words) >= times, lambda: f"not {times} times '{words}':\n{self.text()}", self.process)

    def rows(self):
        return [json.loads(line) for line in (self.base / "output/data/trials.jsonl").read_text().splitlines()]

    def states(self):
        return [row["state"] for row in self.rows()]

    def failure(self):
        return (self.base / "output/failure").read_text()

    def model(self, trial):
        """The folder of a trial's model."""
        found = list((self.base / "checkpoints/sweep").glob(f"*/trial-{trial:04}.model"))
        assert len(found) == 1, found
        return found[0]

    def begun(self):
        """The record of each program's beginning: its trial, and the checkpoint from which it began."""
        return sorted(tuple(line.split()) for line in (self.base / "begun").read_text().splitlines())


def alive(word):
    """Processes with the word among their arguments, but this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word in text for text in words):
                found.append(f"{entry.name} {words}")
    return found


def await_nobody(word):
    wait_until(lambda: not alive(word), lambda: str(alive(word)))


def each_trial_is_a_job_of_its_own():
    job = Job('''echo "$* $SM_HP_LR $SM_HPS $SM_NUM_CPUS $PACELINE_TRIAL $(cat)" >"$SM_OUTPUT_DATA_DIR/seen"
echo "$SM_HP_LR" >"$SM_MODEL_DIR/weights"
echo "score=$((SM_HP_LR + 10))" >&2
''', space={"lr": [3, 1, 2]}).run()
    assert job.states() == ["completed"] * 3, job.rows()
    assert [row["score"] for row in job.rows()] == [13, 11, 12], job.rows()  # stderr counts too
    for trial, value in enumerate((3, 1, 2)):
        seen = (job.base / f"output/data/trial-{trial:04}/seen").read_text()
        assert seen == f'--epochs 9 --lr {value} {value} {{"epochs":9,"lr":{value}}} {max(1, len(os.sched_getaffinity(0)) // 2)} {trial} \\n'.replace("\\n", "\n"), seen
        assert f"\n[trial {trial}] score={value + 10}\n" in "\n" + job.text(), job.text()
    assert "\nbest_score=13.0 trial=0\n" in job.text(), job.text()
    assert (job.base / "model/weights").read_text() == "3\n"
    assert json.loads((job.base / "model/sweep-hyperparameters.json").read_text()) == {"lr": 3}
    assert not list((job.base / "sweep").iterdir()) and (job.base / "output/success").exists()
    assert [path.name for path in job.model(0).parent.iterdir()] == ["trial-0000.model"], list(job.model(0).parent.iterdir())


def trials_that_go_wrong_are_rows_with_causes():
    job = Job('''case $SM_HP_X in
crash) echo "it broke here" >&2; exit 3 ;;
killed) kill -9 $$ ;;
hangs) sleep 300 ;;
daemon) setsid setsid sleep 4123.5 & sleep 4123.5 & ;;
esac
echo "score=1"
''', space={"x": ["good", "crash", "killed", "hangs", "daemon", "good too"]}, trial_time_s=12, max_failed=0.5).run()
    assert job.states() == ["completed", "failed", "failed", "failed", "completed", "completed"], job.rows()
    reasons = [row["reason"] for row in job.rows()]
    assert reasons[1] == "the program on host algo-1 exited with code 3: it broke here", reasons
    assert reasons[2].startswith("the program on host algo-1 was killed by signal 9 (SIGKILL)"), reasons
    assert reasons[3] == "it ran longer than trial_time_s (12 s)", reasons
    assert not alive("4123.5")
    job.specification["max_failed"] = 0.1
    job.run(code=1, PACELINE_SWEEP_FRESH="1")
    assert "trials failed, more than max_failed (0.1) allows; trial " in job.failure(), job.failure()
    Job('[ $SM_HP_X -gt 29 ] && echo score=1\n', space={"x": {"int": [1, 50]}}, max_failed=0.58).run()  # 0.58 * 50 is 28.999999999999996


SAVES = '''d=$PACELINE_CHECKPOINT_DIR n=0
[ ! -e "$d/n" ] || n=$(cat "$d/n")
echo "$PACELINE_TRIAL $n" >>"$job/begun"
trap 'echo saved; exit 0' TERM
while [ $n -lt 5 ]; do
  n=$((n + 1))
  echo $n >"$d/n.part" && mv "$d/n.part" "$d/n"
  echo "round $n score=$SM_HP_X"
  while [ $n -ge $1 ] && [ ! -e "$job/go" ]; do sleep 0.02; done
done
'''.replace("$1", "3")


def a_stop_lets_all_save_and_a_restart_goes_on():
    job = Job(SAVES, space={"x": [1, 2, 3, 4, 5, 6]}, slots=4).start()
    job.await_text("] round 3 ", 4)
    job.process.send_signal(signal.SIGTERM)
    job.end()
    assert job.text().count("] saved\n") == 4, job.text()
    (job.base / "go").touch()
    job.run()
    assert job.states() == ["completed"] * 6, job.rows()
    assert job.begun() == [("0", "0"), ("0", "3"), ("1", "0"), ("1", "3"), ("2", "0"), ("2", "3"), ("3", "0"), ("3", "3"), ("4", "0"), ("5", "0")], job.begun()
    assert "\nbest_score=6.0 trial=5\n" in job.text(), job.text()
    begun = job.begun()
    job.run()  # all are over: none runs, the result is the same
    assert job.begun() == begun and "\nbest_score=6.0 trial=5\n" in job.text(), job.text()


def a_sweep_goes_on_only_with_the_same_sweep():
    job = Job('d=$PACELINE_CHECKPOINT_DIR\n[ ! -e $d/x ] || echo "found $(cat $d/x)"\necho $SM_HP_X >$d/x\necho m >$SM_MODEL_DIR/m\n'
              'echo "$PACELINE_TRIAL 0" >>$job/begun\necho "score=$SM_HP_X"\n', space={"x": [1, 2]}).run()

    def differs(words):
        job.run(code=1)
        assert f"/checkpoints/sweep/trials.jsonl' belongs to another sweep: {words}" in job.failure(), job.failure()
        assert " (paceline_sweep_fresh=1 starts a new sweep, and keeps the present files)" in job.failure(), job.failure()

    job.hyperparameters["epochs"] = "90"
    differs("hyperparameters.epochs was 9 and is 90")
    job.hyperparameters["epochs"] = "9"
    job.specification["space"] = {"x": [100, 200]}
    differs('trial 0 had {"x": 1} and has {"x": 100}')
    # what changes no trial: other slots and times, what the platform says of each job, one more trial at the end
    job.specification.update(space={"x": [1, 2, 3]}, slots=1, trial_time_s=100, max_failed=1)
    job.hyperparameters.update(sagemaker_job_name=json.dumps("another"), sagemaker_region=json.dumps("eu-west-1"))
    job.run()
    assert job.begun() == [("0", "0"), ("1", "0"), ("2", "0")] and "\nbest_score=3.0 trial=2\n" in job.text(), job.text()
    # a new sweep keeps the old one, and begins with empty folders; the same job that is started again goes on
    job.specification["space"] = {"x": [100, 200]}
    job.hyperparameters["paceline_sweep_fresh"] = "1"
    old = job.model(2)
    for _ in range(2):
        job.run()
        assert len(job.begun()) == 5 and "found" not in job.text() and old.exists(), job.text()
    # so it is where the file alone was removed
    (job.base / "checkpoints/sweep/trials.jsonl").unlink()
    job.run()
    assert len(job.begun()) == 7 and "found" not in job.text(), job.text()


def a_killed_sweep_runs_no_trial_twice_and_loses_none():
    job = Job(SAVES, space={"x": [1, 2, 3, 4]}).start()
    job.await_text("] round 3 ", 2)
    job.process.kill()
    job.process.wait()
    await_nobody(str(job.base))  # who lost its supervisor has ended
    (job.base / "go").touch()
    job.run()
    assert job.begun() == [("0", "0"), ("0", "3"), ("1", "0"), ("1", "3"), ("2", "0"), ("3", "0")], job.begun()
    assert job.states() == ["completed"] * 4, job.rows()


def a_trial_without_a_handler_ends_the_stop_badly():
    job = Job("echo begun; sleep 300\n", space={"x": [1, 2]}).start()
    job.await_text("] begun\n", 2)
    job.process.send_signal(signal.SIGTERM)
    job.end(143)
    assert "the job was stopped by SIGTERM; trial " in job.failure(), job.failure()


def a_trial_of_two_processes_is_an_mpi_job():
    if not (BUILD / "tests/integration/mpi_probe").exists() or not shutil.which("mpirun"):
        return print("skipped: no Open MPI")
    job = Job('echo "rank=$OMPI_COMM_WORLD_RANK of=$OMPI_COMM_WORLD_SIZE"\n[ $OMPI_COMM_WORLD_RANK != 1 ] || echo "score=$SM_HP_X"\n',
              space={"x": [1, 2]}, processes=2)
    job.run(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    assert job.states() == ["completed"] * 2 and [row["score"] for row in job.rows()] == [1, 2], job.rows()
    for rank in 0, 1:
        assert job.text().count(f"rank={rank} of=2\n") == 2, job.text()


def the_time_of_the_sweep_ends_it_with_the_best_so_far():
    job = Job('[ $SM_HP_X != 2 ] || [ -e "$job/go" ] || { trap "exit 0" TERM; echo "score=9"; sleep 300 & wait $!; }; echo "score=$SM_HP_X"\n', space={"x": [1, 2, 3]}, slots=1)
    job.hyperparameters["paceline_sweep_time_s"] = "8"
    for _ in range(2):
        job.run()
        assert job.states() == ["completed", "stopped", "waiting"], job.rows()
        assert "\nbest_score=1.0 trial=0\n" in job.text(), job.text()  # one that was stopped is not the best
    assert "time was over in an earlier job: 1 trials that have not run do not start. " in job.text(), job.text()
    job.hyperparameters["paceline_sweep_time_s"] = "3600"
    job.run()
    assert job.states() == ["completed", "stopped", "completed"] and "\nbest_score=3.0 trial=2\n" in job.text(), job.rows()


def seeds_are_compared_by_their_means():
    job = Job('[ $SM_HP_X$SM_HP_SEED != 37 ] || exit 1\necho w$SM_HP_X$SM_HP_SEED >$SM_MODEL_DIR/w; echo "score=$((SM_HP_X * 10 - SM_HP_SEED))"\n',
              space={"x": [1, 2, 3]}, seeds=[7, 5], model=True).run()
    assert [row["score"] for row in job.rows()] == [3, 13, None, 5, 15, 25], job.rows()
    # the third point has the best value, but not with each seed
    assert (job.base / "model/w").read_text() == "w25\n" and "\nbest_score=15.0 trial=4\n" in job.text(), job.text()
    assert re.search(r"point +score  count  hyperparameters\n.* +1 +14 +2  x=2\n", job.text()), job.text()


def what_cannot_run_is_refused_before_anything_starts():
    job = Job("exit 0\n", space={"x": [1]}, processes=4096, slots=0)
    del job.specification["slots"]
    job.run(code=1)
    assert "the sweep has 4096 processes per trial, and host algo-1 has " in job.failure(), job.failure()
    job = Job("exit 0\n", space={})
    job.run(code=1)
    assert "space" in job.failure() and not (job.base / "sweep").exists(), job.failure()
    job = Job("exit 0\n", space={"x": [1]}, scheduler={"asha": {}})
    job.run(code=1)
    assert "scheduler: expected no scheduler: " in job.failure() and "`paceline trial`" in job.failure(), job.failure()


def a_wrong_name_ends_the_sweep_at_its_first_trial():
    job = Job('echo "$PACELINE_TRIAL $(ls $PACELINE_CHECKPOINT_DIR | wc -l)" >>"$job/begun"\ntouch $PACELINE_CHECKPOINT_DIR/c\n'
              'head -c 500000 /dev/zero | tr "\\0" " "; echo "Test_Accuracy=0.$SM_HP_X"\necho "loss=7"\n', space={"x": [1, 2, 3]}, slots=1)
    job.specification["metric"] = "test_acc"
    job.run(code=1)
    assert re.search("trial 0 succeeded, but the regular expression '.*' has found the metric 'test_acc' in none of its lines", job.failure()), job.failure()
    assert job.begun() == [("0", "0")], job.begun()
    job.specification["metric"] = "Test_Accuracy"  # no trial has printed the other: the sweep goes on, the trial begins again
    job.run()
    assert [row["Test_Accuracy"] for row in job.rows()] == [0.1, 0.2, 0.3], job.rows()
    assert job.begun() == [("0", "0"), ("0", "1"), ("1", "0"), ("2", "0")], job.begun()


def a_value_that_is_not_finite_is_never_the_best():
    job = Job('echo "score=5"; [ $SM_HP_X = 1 ] && echo "score=nan" || echo "score=$SM_HP_X"\n', space={"x": [1, 2]}, slots=1).run()
    assert "\nbest_score=2.0 trial=1\n" in job.text() and math.isnan(job.rows()[0]["score"]), job.text()  # the last value counts


def a_slow_expression_is_named_and_its_program_goes_on():
    job = Job('echo "$(head -c 64 /dev/zero | tr "\\0" a)!"; echo score=1\n', space={"x": [1]})
    job.specification["metric"] = {"name": "score", "regex": "^(?:(?:a+)+)+$|score=([0-9]+)"}
    job.run()
    assert "trial 0: the metric's regular expression '" in job.text() and "was given up" in job.text(), job.text()
    assert job.rows()[0]["score"] == 1, job.rows()


def no_line_of_a_flood_is_lost():
    job = Job('for i in {1..20000}; do echo "score=$i"; done\n', space={"x": [1, 2]}).run()
    assert [row["score"] for row in job.rows()] == [20000] * 2 and job.text().count("] score=") == 40000, job.rows()


CASES = [each_trial_is_a_job_of_its_own, trials_that_go_wrong_are_rows_with_causes, a_stop_lets_all_save_and_a_restart_goes_on, a_sweep_goes_on_only_with_the_same_sweep,
         a_killed_sweep_runs_no_trial_twice_and_loses_none, a_trial_without_a_handler_ends_the_stop_badly, a_trial_of_two_processes_is_an_mpi_job,
         the_time_of_the_sweep_ends_it_with_the_best_so_far, seeds_are_compared_by_their_means, a_wrong_name_ends_the_sweep_at_its_first_trial,
         a_value_that_is_not_finite_is_never_the_best, a_slow_expression_is_named_and_its_program_goes_on, no_line_of_a_flood_is_lost,
         what_cannot_run_is_refused_before_anything_starts]

if __name__ == "__main__":
    for case in CASES:
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            case()
            print(case.__name__.replace("_", " "), flush=True)
