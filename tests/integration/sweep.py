#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps on one host, as real processes: trials run in slots, and a trial that harms itself harms no other trial."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

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

    def start(self, **variables):
        values = {**self.hyperparameters, "paceline_sweep": json.dumps(self.specification)}
        (self.base / "input/config/hyperparameters.json").write_text(json.dumps(values))
        self.log = open(self.base / "log", "w+")
        environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(self.base), **variables}
        self.process = subprocess.Popen([*self.command, PACELINE, "train"], env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
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
        deadline = time.monotonic() + WAIT_S
        while self.text().count(words) < times:
            assert time.monotonic() < deadline and self.process.poll() is None, f"not {times} times '{words}':\n{self.text()}"
            time.sleep(0.02)

    def rows(self):
        return [json.loads(line) for line in (self.base / "output/data/trials.jsonl").read_text().splitlines()]

    def states(self):
        return [row["state"] for row in self.rows()]

    def failure(self):
        return (self.base / "output/failure").read_text()

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
    deadline = time.monotonic() + WAIT_S
    while alive(word):
        assert time.monotonic() < deadline, alive(word)
        time.sleep(0.02)


def each_trial_is_a_job_of_its_own():
    job = Job('''echo "$* $SM_HP_LR $SM_HPS $SM_NUM_CPUS $PACELINE_TRIAL $(cat)" >"$SM_OUTPUT_DATA_DIR/seen"
echo "$SM_HP_LR" >"$SM_MODEL_DIR/weights"
echo "to stderr score=$((SM_HP_LR + 10))" >&2
echo "score=$SM_HP_LR"
''', space={"lr": [3, 1, 2]}).run()
    assert job.states() == ["completed"] * 3, job.rows()
    assert [row["score"] for row in job.rows()] == [13, 11, 12], job.rows()  # both outputs count
    for trial, value in enumerate((3, 1, 2)):
        seen = (job.base / f"output/data/trial-{trial:04}/seen").read_text()
        assert seen == f'--epochs 9 --lr {value} {value} {{"epochs":9,"lr":{value}}} {max(1, len(os.sched_getaffinity(0)) // 2)} {trial} \\n'.replace("\\n", "\n"), seen
        assert f"\n[trial {trial}] score={value}\n" in "\n" + job.text(), job.text()
    assert "\nbest_score=13.0 trial=0\n" in job.text(), job.text()
    assert (job.base / "model/weights").read_text() == "3\n"
    assert json.loads((job.base / "model/sweep-hyperparameters.json").read_text()) == {"lr": 3}
    assert not list((job.base / "sweep").iterdir()) and (job.base / "output/success").exists()
    assert sorted(path.name for path in (job.base / "checkpoints").iterdir()) == ["sweep.journal", "trial-0000.model"]


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


def a_journal_goes_on_only_with_the_same_sweep():
    job = Job('d=$PACELINE_CHECKPOINT_DIR\n[ ! -e $d/x ] || echo "found $(cat $d/x)"\necho $SM_HP_X >$d/x\necho m >$SM_MODEL_DIR/m\n'
              'mkdir -p log && echo new >log/written\necho "score=$SM_HP_X"\n', space={"x": [1, 2]}).run()

    def differs(words):
        job.run(code=1)
        assert f"sweep.journal' belongs to another sweep: {words}" in job.failure(), job.failure()
        assert " (paceline_sweep_fresh=1 starts a new sweep, and keeps the present files in '" in job.failure(), job.failure()

    job.hyperparameters["epochs"] = "90"
    differs("hyperparameters.epochs was 9 and is 90")
    job.hyperparameters["epochs"] = "9"
    program = job.base / "code/trial"
    text = program.read_text()
    program.write_text(text + "exit 0\n")
    differs("code.trial was ")
    program.write_text(text)
    job.specification["space"] = {"x": [100, 200]}
    differs("space.x was [1, 2] and is [100, 200]")
    # what changes no trial: other slots and times, what the platform says of each job, one more trial at the end
    job.specification.update(space={"x": [1, 2, 3]}, slots=1, trial_time_s=100, max_failed=1)
    job.hyperparameters.update(sagemaker_job_name=json.dumps("another"), sagemaker_region=json.dumps("eu-west-1"),
                               sagemaker_container_log_level="10", sagemaker_submit_directory=json.dumps(str(job.base / "code")))
    job.run()
    assert [row["runs"] for row in job.rows()] == [1, 1, 1] and "\nbest_score=3.0 trial=2\n" in job.text(), job.text()
    # a new sweep keeps the old one, and begins with empty folders; the same job that is started again goes on
    job.specification["space"] = {"x": [100, 200]}
    job.hyperparameters["paceline_sweep_fresh"] = "1"
    for _ in range(2):
        job.run()
        assert [row["runs"] for row in job.rows()] == [1, 1] and "found" not in job.text(), job.text()
        assert (job.base / "checkpoints/sweep-1/sweep.journal").exists(), job.text()
        assert not (job.base / "checkpoints/sweep-2").exists(), job.text()
    job.specification["space"] = {"x": [7, 8]} # a request counts once
    job.run(code=1)
    assert "(paceline_sweep_fresh=2 starts a new sweep" in job.failure(), job.failure()
    del job.hyperparameters["paceline_sweep_fresh"]
    # so it is where the journal alone was removed
    (job.base / "checkpoints/sweep.journal").unlink()
    (job.base / "checkpoints/trial-0000").mkdir(exist_ok=True)
    (job.base / "checkpoints/trial-0000/x").write_text("100\n")
    job.run()
    assert "found" not in job.text() and (job.base / "checkpoints/sweep-2/trial-0000/x").read_text() == "100\n", job.text()
    # a digit that changed
    journal = job.base / "checkpoints/sweep.journal"
    text = journal.read_text()
    journal.write_text(text.replace('"value": 7.0', '"value": 9.0'))
    job.run(code=1)
    assert "sweep.journal, line 3, column " in job.failure() and ": expected the checksum " in job.failure(), job.failure()
    journal.write_text('{"sweep": 1, "specification": "{}"}\n')
    job.run(code=1)
    assert "found version 1, which an earlier Paceline wrote (paceline_sweep_fresh=1 starts a new sweep" in job.failure(), job.failure()


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


def asha_stops_at_rungs_and_promotes():
    job = Job('''d=$PACELINE_CHECKPOINT_DIR n=$(cat "$PACELINE_CHECKPOINT_DIR/n" 2>/dev/null || echo 0)
trap 'exit 0' TERM
while [ $n -lt 9 ]; do
  n=$((n + 1))
  echo $n >"$d/n"
  echo "epoch=$n score=$SM_HP_X"
  case $PACELINE_TRIAL:$n in [0-4]:1 | *:3) sleep 300 & wait $! ;; esac # of these the stop comes now
done
''', space={"x": [5, 4, 3, 2, 1, 9]}, slots=1, scheduler={"asha": {"step": "epoch=([0-9]+)", "min": 1, "factor": 3}}).run()
    rows = job.rows()
    assert all(row["state"] in ("stopped", "completed") for row in rows), rows
    assert {row["trial"] for row in rows if row["step"] > 1} == {0, 5}, rows  # the best third of all
    assert "\nbest_score=9.0 trial=5\n" in job.text(), job.text()


def a_trial_of_two_processes_is_an_mpi_job():
    if not (BUILD / "tests/integration/mpi_probe").exists() or not shutil.which("mpirun"):
        return print("skipped: no Open MPI")
    job = Job('echo "rank=$OMPI_COMM_WORLD_RANK of=$OMPI_COMM_WORLD_SIZE"\n[ $OMPI_COMM_WORLD_RANK != 1 ] || echo "score=$SM_HP_X"\n',
              space={"x": [1, 2]}, processes=2)
    job.run(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    assert job.states() == ["completed"] * 2 and [row["score"] for row in job.rows()] == [1, 2], job.rows()
    for rank in 0, 1:
        assert job.text().count(f"rank={rank} of=2\n") == 2, job.text()


def a_trial_that_a_full_disk_hurts_says_so():
    job = Job('''sweep=$job/sweep
if [ $SM_HP_X = fills ]; then
  while [ ! -e "$sweep/trial-0001" ]; do sleep 0.02; done
  dd if=/dev/zero of="$SM_OUTPUT_DATA_DIR/all" bs=64k 2>/dev/null
  touch "$sweep/full"
  while [ -e "$sweep/trial-0001" ]; do sleep 0.02; done # it has ended
  rm "$SM_OUTPUT_DATA_DIR/all"
  exit 1
fi
while [ ! -e "$sweep/full" ]; do sleep 0.02; done
dd if=/dev/zero of="$SM_OUTPUT_DATA_DIR/some" bs=64k count=1 2>/dev/null
''', space={"x": ["fills", "hurt"]}, max_failed=1)
    (job.base / "output").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", job.base / "output"], capture_output=True).returncode != 0:
        return print("skipped: no small disk can be mounted")
    try:
        job.run(code=1)
        rows = job.rows()
        assert [row["state"] for row in rows] == ["failed", "failed"], rows
        assert "disk" in rows[1]["reason"] and "full" in rows[1]["reason"], rows
    finally:
        subprocess.run(["umount", "--lazy", job.base / "output"], check=True)


def the_time_of_the_sweep_ends_it_with_the_best_so_far():
    job = Job('trap \'echo "score=$SM_HP_X"; exit 0\' TERM; [ -e "$job/go" ] || { sleep 300 & wait $!; }; echo "score=$SM_HP_X"\n', space={"x": [1, 2, 3]}, slots=1)
    job.hyperparameters["paceline_sweep_time_s"] = "6"
    job.run()
    assert job.states() == ["stopped", "stopped", "stopped"] and [row["runs"] for row in job.rows()] == [1, 0, 0], job.rows()
    assert "\nbest_score=1.0 trial=0\n" in job.text(), job.text()
    (job.base / "go").touch()
    job.run()
    assert "time was over in an earlier job: 2 trials that have not run do not start. " in job.text(), job.text()
    assert [row["runs"] for row in job.rows()] == [1, 0, 0], job.rows()
    job.hyperparameters["paceline_sweep_time_s"] = "3600"
    job.run()
    assert job.states() == ["stopped", "completed", "completed"] and [row["runs"] for row in job.rows()] == [1, 1, 1], job.rows()
    assert "\nbest_score=3.0 trial=2\n" in job.text() and "earlier job" not in job.text(), job.text()


def what_cannot_run_is_refused_before_anything_starts():
    job = Job("exit 0\n", space={"x": [1]}, processes=4096, slots=0)
    del job.specification["slots"]
    job.run(code=1)
    assert "the sweep has 4096 processes per trial, and host algo-1 has " in job.failure(), job.failure()
    job = Job("exit 0\n", space={})
    job.run(code=1)
    assert "space" in job.failure() and not (job.base / "sweep").exists(), job.failure()
    job = Job("exit 0\n", space={"x": [1]})
    job.run(code=1)
    assert "trial 0 succeeded, but the regular expression '" in job.failure(), job.failure()
    assert job.failure().splitlines()[0].endswith("has found the metric 'score' in none of its lines: it has printed no line with a number"), job.failure()


def a_metric_is_found_in_long_lines_and_a_wrong_name_ends_the_sweep_at_its_first_trial():
    job = Job('echo "$PACELINE_TRIAL $(ls $PACELINE_CHECKPOINT_DIR | wc -l)" >>"$job/begun"\ntouch $PACELINE_CHECKPOINT_DIR/c\n'
              'head -c 500000 /dev/zero | tr "\\0" " "; echo "Test_Accuracy=0.$SM_HP_X"\necho "loss=7"\n', space={"x": [1, 2, 3]}, slots=1)
    job.specification["metric"] = "test_acc"
    job.run(code=1)
    assert "has found the metric 'test_acc' in none of its lines: the nearest line is 'loss=7'" in job.failure(), job.failure()
    assert job.begun() == [("0", "0")], job.begun()
    job.specification["metric"] = "Test_Accuracy"  # no trial has printed the other: the sweep goes on, the trial begins again
    job.run()
    assert [row["Test_Accuracy"] for row in job.rows()] == [0.1, 0.2, 0.3], job.rows()
    assert job.begun() == [("0", "0"), ("0", "0"), ("1", "0"), ("2", "0")], job.begun()
    job.specification["metric"] = "loss"
    job.run(code=1)
    assert "sweep.journal' belongs to another sweep: metric.name was Test_Accuracy and is loss (" in job.failure(), job.failure()
    job = Job('echo "Epoch 1: score=5"\n', space={"x": [1, 2, 3]}, slots=1, scheduler={"asha": {"step": "epoch=([0-9]+)"}}).run(code=1)
    assert "it printed no step before its first value, which is in the line 'Epoch 1: score=5'" in job.failure(), job.failure()


def a_value_that_is_not_finite_is_a_report_and_never_the_best():
    job = Job('echo "score=nan"; [ $SM_HP_X = 1 ] || echo "score=$SM_HP_X"\n', space={"x": [1, 2]}, slots=1).run()
    assert [(row["state"], row["score"], row["step"]) for row in job.rows()] == [("completed", None, 1), ("completed", 2, 2)], job.rows()


def a_step_has_its_last_value_and_step_0_is_a_step():
    job = Job('''for e in 0 1; do
  for b in 1 2 3; do printf "epoch=$e batch=$b score=0.$((b * SM_HP_X - e))\\r"; done
  echo
done
''', space={"x": [3, 2]}, slots=1)
    for scheduler in {"median": {"step": "epoch=([0-9]+)"}}, {"asha": {"step": "epoch=([0-9]+)", "min": 5}}:
        job.specification["scheduler"] = scheduler
        job.run(PACELINE_SWEEP_FRESH="1" if "asha" in scheduler else "0")
        assert [(row["score"], row["best_step"], row["step"]) for row in job.rows()] == [(0.9, 0, 1), (0.6, 0, 1)], job.rows()
        assert "\nbest_score=0.9 trial=0\n" in job.text(), job.text()
    job.run()  # the journal has the same
    assert [(row["score"], row["best_step"], row["step"]) for row in job.rows()] == [(0.9, 0, 1), (0.6, 0, 1)], job.rows()
    job = Job('echo "epoch=0 score=0.$SM_HP_X"\n', space={"x": [3, 5]}, scheduler={"asha": {"step": "epoch=([0-9]+)"}}).run()
    assert "\nbest_score=0.5 trial=1\n" in job.text(), job.text()
    job = Job('echo "score=nan"\n', space={"x": [1, 2]}).run(code=1)
    assert job.failure().startswith("no trial has printed a finite value of the metric 'score': all values were nan or inf"), job.failure()
    assert "it has not printed a finite value of the metric score" in job.text(), job.text()


def a_slow_expression_is_named_and_its_program_goes_on():
    job = Job('line=$(head -c 64000 /dev/zero | tr "\\0" ,)\nfor i in {1..15}; do echo "$line"; done\ntouch "$job/printed"\n',
              space={"x": [1]}, max_failed=0)
    job.specification["metric"] = {"name": "score", "regex": "((((.*),)*,)*,)*score=([0-9]+)$"}
    job.run(code=1)
    assert (job.base / "printed").exists(), job.text()
    assert "trial 0: the regular expression '((((.*),)*,)*,)*score=([0-9]+)$' took " in job.failure(), job.failure()


def no_report_of_a_flood_is_lost():
    job = Job('for i in {1..20000}; do echo "score=$i"; done\n', space={"x": [1, 2]}).run()
    assert [row["step"] for row in job.rows()] == [20000] * 2 and [row["score"] for row in job.rows()] == [20000] * 2, job.rows()


if __name__ == "__main__":
    names = sys.argv[1:]
    for case in (each_trial_is_a_job_of_its_own, trials_that_go_wrong_are_rows_with_causes, a_stop_lets_all_save_and_a_restart_goes_on,
                 a_journal_goes_on_only_with_the_same_sweep, a_killed_sweep_runs_no_trial_twice_and_loses_none, a_trial_without_a_handler_ends_the_stop_badly, asha_stops_at_rungs_and_promotes,
                 a_trial_of_two_processes_is_an_mpi_job, a_trial_that_a_full_disk_hurts_says_so,
                 the_time_of_the_sweep_ends_it_with_the_best_so_far, a_metric_is_found_in_long_lines_and_a_wrong_name_ends_the_sweep_at_its_first_trial,
                 a_value_that_is_not_finite_is_a_report_and_never_the_best, a_step_has_its_last_value_and_step_0_is_a_step, a_slow_expression_is_named_and_its_program_goes_on, no_report_of_a_flood_is_lost,
                 what_cannot_run_is_refused_before_anything_starts):
        if not names or case.__name__ in names:
            case()
            print(case.__name__.replace("_", " "), flush=True)
