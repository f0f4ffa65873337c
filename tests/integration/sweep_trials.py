#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trials of sweeps as jobs of their own, the best model, and disks. `sweep_trials.py full`: many checkpoints of 100 MB on a disk of 1 GB."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from sweep import PACELINE, Job, await_nobody

NO_CAPABILITY = ["setpriv", "--bounding-set", "-sys_admin"]
# In it nobody may mount: no capability to, and no user namespace that has it.
NO_MOUNTS = ["unshare", "--user", "--map-root-user", "sh", "-c",
             'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -sys_admin "$@"', "sh"]


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def new_container(job):
    """What a container that is started again has not: all but the checkpoints."""
    for name in "model", "output", "sweep":
        shutil.rmtree(job.base / name, ignore_errors=True)


def the_best_model_is_there_at_every_start():
    job = Job('echo w$SM_HP_X >$SM_MODEL_DIR/w; echo score=$SM_HP_X\n', space={"x": [1, 3, 2]}).run()
    for _ in range(2):
        new_container(job)
        job.run()
        assert (job.base / "model/w").read_text() == "w3\n" and "\nbest_score=3.0 trial=1\n" in job.text(), job.text()
    shutil.rmtree(job.model(1))
    new_container(job)
    job.run(1)
    assert re.search("the model of the best trial, 1, cannot be the job's model: '.*/trial-0001.model' on host algo-1: its copy ended with code 1, see the log", job.failure()), job.failure()


def a_kill_at_the_end_loses_no_model():
    job = Job('echo w$SM_HP_X >$SM_MODEL_DIR/w; echo score=$SM_HP_X\n', space={"x": [1, 2]}, slots=1)
    for words in "trial 0 has succeeded", "trial 1 has succeeded", "completed", "best_score=":
        job.start()
        while words not in job.text() and job.process.poll() is None:
            time.sleep(0.002)
        job.process.kill()
        job.process.wait()
        folder = os.open(job.base / "checkpoints/sweep", os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # paceline-sweep has ended
        os.close(folder)
        await_nobody(str(job.base))
        new_container(job)
    job.run()
    assert (job.base / "model/w").read_text() == "w2\n", job.text()


TREE = r'''cd "$SM_MODEL_DIR"
mkdir -p deep/empty runs && chmod 750 runs && printf x >runs/tool && chmod 755 runs/tool && ln -s ../runs/tool deep/link && ln -s tool runs/latest
printf y >"$(printf 'n\303\244me \377 and\nline')" && printf '{"hidden": 64}' >hyperparameters.json && ln -s "$SM_MODEL_DIR/runs" absolute
(cd deep && printf '%s' {1..300} | xargs -n 50 true; for i in {1..300}; do : >f$i; done)
echo score=$SM_HP_X
'''


def a_tie_keeps_the_model_of_the_first_trial():
    job = Job('''[ $SM_HP_X = 1 ] || until grep -q "trial 1 has succeeded" $job/log; do sleep 0.02; done
echo w$SM_HP_X >$SM_MODEL_DIR/w; echo score=1
''', space={"x": [0, 1]}).run()
    assert (job.base / "model/w").read_text() == "w0\n" and "\nbest_score=1.0 trial=0\n" in job.text(), job.text()


def a_model_is_carried_with_all_that_it_holds():
    for other_disk in False, True:
        job = Job(TREE, space={"x": [2]})
        (job.base / "model/.paceline-incoming").mkdir(parents=True)
        (job.base / "model/.paceline-incoming/half").touch()
        with small_disk(job.base / "model", "16m") if other_disk else contextlib.nullcontext():
            job.run()
            model = job.base / "model"
            assert json.loads((model / "hyperparameters.json").read_text()) == {"hidden": 64}  # it is the program's
            assert json.loads((model / "sweep-hyperparameters.json").read_text()) == {"x": 2}
            assert not (model / ".paceline-incoming").exists() and not (model / "half").exists()
            subprocess.run(["diff", "-r", "--no-dereference", "-x", "sweep-hyperparameters.json", model, job.model(0)], check=True)
            assert os.readlink(model / "runs/latest") == "tool" and os.listdir(model / "deep/empty") == []
            assert [oct((model / name).stat().st_mode & 0o777) for name in ("runs", "runs/tool")] == ["0o750", "0o755"]
            assert (model / "absolute/tool").read_text() == "x"


def what_cannot_be_carried_fails_its_trial_by_name():
    job = Job('''cd "$SM_MODEL_DIR" && touch w && mkdir sub
case $SM_HP_X in
1) ln -s "$SM_CHANNEL_NONE/../../checkpoints/e" sub/out ;;
2) ln -s ../../w sub/up ;;
3) mkfifo sub/pipe ;;
4) ln -s ../w sub/in ;;
esac
echo score=$SM_HP_X
''', space={"x": [1, 2, 3, 4]}, max_failed=0.8).run()
    reasons = [row["reason"] for row in job.rows()]
    for reason, words in zip(reasons, ("the link 'sub/out' leads out of the model, to '/../../checkpoints/e'", "the link 'sub/up' leads out of the model, to '../../w'",
                                       "'sub/pipe' is a FIFO")):
        assert reason == "its model cannot be kept: " + words, reasons
    assert job.states()[3] == "completed" and os.readlink(job.base / "model/sub/in") == "../w"


def a_best_trial_without_a_model_is_an_error():
    job = Job("echo score=$SM_HP_X\n", space={"x": [1, 2]}, model=True).run(1)
    assert re.search("the model of the best trial, 1, cannot be the job's model: '.*/trial-0001.model' on host algo-1: its program has saved none", job.failure()), job.failure()
    assert job.states() == ["completed"] * 2 and job.text().count("; it has left no model") == 2, job.rows()
    job = Job("echo score=$SM_HP_X\n", space={"x": [1, 2]}, model=False).run()
    assert os.listdir(job.base / "model") == ["sweep-hyperparameters.json"]


FIXED = '''[ ! -e "$job/checkpoints/c" ] || echo "it has another trial's checkpoint"
echo $SM_HP_X >$job/model/w; touch $job/checkpoints/c $job/output/data/d
{ : >$job/input/data/training/new; } 2>/dev/null && echo "it has written to a channel"
echo "$(cat $job/input/data/training/a) $(cat $job/input/config/other.json) $SM_MODEL_DIR $PACELINE_CHECKPOINT_DIR"
rm -rf "$SM_MODEL_DIR" 2>/dev/null; mkdir -p "$SM_MODEL_DIR"
echo $SM_HP_X >$job/model/w; echo score=$SM_HP_X
'''


def fixed_job():
    job = Job(FIXED, space={"x": [1, 99, 3]}, slots=3, model=True)
    (job.base / "input/data/training").mkdir(parents=True)
    (job.base / "input/data/training/a").write_text("of the channel")
    (job.base / "input/config/other.json").write_text("of the platform")
    return job


def paths_that_a_program_names_are_its_own_trials(command=()):
    job = fixed_job()
    job.command = command
    job.run()
    assert (job.base / "model/w").read_text() == "99\n", job.text()
    assert job.text().count(f"] of the channel of the platform {job.base}/model {job.base}/checkpoints\n") == 3, job.text()
    assert "it has" not in job.text(), job.text()
    assert sorted(os.listdir(job.base / "output/data")) == ["trial-0000", "trial-0001", "trial-0002", "trials.jsonl"] and not os.listdir(job.base / "sweep")


def a_user_namespace_is_enough():
    if subprocess.run([*NO_CAPABILITY, "unshare", "--user", "--mount", "true"], capture_output=True).returncode != 0:
        return print("skipped: this machine allows no user namespaces")
    paths_that_a_program_names_are_its_own_trials(NO_CAPABILITY)


def without_mounts_shared_folders_are_watched():
    job = Job("echo $SM_HP_X >$job/model/w; echo score=$SM_HP_X\n", space={"x": [1, 99, 3]}, slots=3)  # of several folders that it writes any may be named
    job.command = NO_MOUNTS
    job.run(1)
    assert re.search(f"while trial [0-2] ran, a program has changed '{job.base}/model', which all trials of this host share because .* variable SM_MODEL_DIR",
                     job.failure()), job.failure()
    assert "the system allows no mounts" in job.text()
    job = Job('rm -rf "$SM_MODEL_DIR"; mkdir -p "$SM_MODEL_DIR"; echo $SM_HP_X >"$SM_MODEL_DIR/w"; ln -s "$SM_MODEL_DIR/w" "$SM_MODEL_DIR/last"; echo score=$SM_HP_X\n', space={"x": [1, 2]})
    job.command = NO_MOUNTS
    job.run()
    assert (job.base / "model/w").read_text() == "2\n" and os.readlink(job.base / "model/last") == "./w", job.text()


def checkpoints_may_lie_in_the_output_and_not_in_the_model():
    for place in "model", "model/ck", "output/data/ck", "output/ck":
        job = Job('echo w >$SM_MODEL_DIR/w; echo c >$PACELINE_CHECKPOINT_DIR/c; echo score=$SM_HP_X\n', space={"x": [1, 2]})
        (job.base / "input/config/checkpointconfig.json").write_text(json.dumps({"LocalPath": str(job.base / place)}))
        job.run(int(place[0] == "m"))
        assert "trials need one elsewhere" in job.failure() if place[0] == "m" else (job.base / "model/w").exists(), job.text()


def a_channel_in_pipe_mode_is_refused():
    job = Job("echo score=1\n", space={"x": [1]})
    (job.base / "input/config/inputdataconfig.json").write_text('{"training": {"TrainingInputMode": "Pipe"}}')
    words = "inputdataconfig.json: channel 'training' is in Pipe Mode"
    assert words in job.run(1).failure()
    plan = subprocess.run([PACELINE, "plan"], env=job.environment({}), capture_output=True, text=True)
    assert plan.returncode != 0 and words in plan.stderr, plan


def each_slot_has_a_port_of_its_own():
    job = Job("", space={"x": [1, 2, 3, 4]}, processes=2)
    job.hyperparameters["sagemaker_torch_distributed_enabled"] = "true"
    job.hyperparameters["sagemaker_program"] = '"train.py"'
    (job.base / "code/train.py").touch()
    tools = job.base / "tools"
    tools.mkdir()
    (tools / "torchrun").write_text(f'''#!{sys.executable}
import os, socket, time
server = socket.create_server(("", int(os.environ.get("PET_MASTER_PORT", 29500))))
open("{job.base}/port-" + os.environ["PACELINE_TRIAL"], "w").close()
other = int(os.environ["PACELINE_TRIAL"]) ^ 1
while not os.path.exists("{job.base}/port-%d" % other):
    time.sleep(0.02)
print("score=1")
''')
    (tools / "torchrun").chmod(0o755)
    job.run(PATH=f"{tools}:{os.environ['PATH']}")
    assert job.states() == ["completed"] * 4, job.text()


def files_of_the_sdk_launch_no_trial():
    job = Job("echo score=$SM_HP_X ranks=${OMPI_COMM_WORLD_SIZE:-none}\n", space={"x": [1, 2]})
    drivers = job.base / "input/data/sm_drivers"
    drivers.mkdir(parents=True)
    (job.base / "code").rename(job.base / "input/data/code")
    (drivers / "sourcecode.json").write_text('{"source_dir": ".", "entry_script": "trial"}')
    (drivers / "distributed.json").write_text('{"process_count_per_node": 2, "mpi_additional_options": ["--bad"]}')
    job.run()
    assert job.states() == ["completed"] * 2 and job.text().count(" ranks=none\n") == 2, job.text()


def a_trial_that_hangs_is_reported_alone():
    job = Job('''if [ $PACELINE_TRIAL = 0 ]; then exec sleep 5000; fi
while ! grep -q "the job hangs" $job/log; do sleep 0.2; done
sleep 1; while [ -e $job/sweep/trial-0000 ]; do sleep 0.1; done; echo score=1
''', space={"x": [1, 2]})
    job.hyperparameters.update(paceline_hang_s="5", paceline_hang_action="end")
    job.run()
    report = job.text().split("the one that differs first:", 1)[1]
    assert job.states() == ["failed", "completed"] and re.findall(r"\n\[trial 0\] process [0-9]+: (.*), sleeping", report) == ["sleep"], job.text()


def checkpoints_of_trials_that_are_over_are_removed(count=40, each="1000000", size="16m"):
    job = Job(f'''head -c {each} /dev/zero >$PACELINE_CHECKPOINT_DIR/c || exit 1
head -c {each} /dev/zero >$SM_MODEL_DIR/m || exit 1
echo $SM_HP_X >$SM_MODEL_DIR/x; echo score=$SM_HP_X
''', space={"x": {"int": [1, count]}}, max_failed=0)
    with small_disk(job.base / "checkpoints", size):
        job.run()
        assert job.states() == ["completed"] * count
        assert (job.base / "model/x").read_text() == f"{count}\n" and (job.base / "model/m").stat().st_size == int(each)


def a_full_disk_is_told_with_its_owner_and_the_best_so_far_is_the_result():
    job = Job('''echo $SM_HP_X >$SM_MODEL_DIR/x
if [ $SM_HP_X = 3 ] && [ ! -e $job/go ]; then
  while [ $(grep -c "has succeeded" $job/log) -lt 2 ]; do sleep 0.02; done
  dd if=/dev/zero of=$PACELINE_CHECKPOINT_DIR/all bs=64k 2>/dev/null
  exit 1
fi
echo score=$SM_HP_X
''', space={"x": [1, 2, 3]})
    with small_disk(job.base / "checkpoints", "4m"):
        job.run(1)
        assert re.search("the disk of '.*/checkpoints/sweep' is full: it has 4194304 bytes, of which [0-9]+ are free; the largest entry of the sweep's is 'trial-0002' "
                         "with [0-9]+ bytes. The sweep continues when", job.failure()), job.failure()
        assert job.states() == ["completed", "completed", "waiting"] and (job.base / "model/x").read_text() == "2\n", job.text()
        (job.base / "go").touch()
        next((job.base / "checkpoints/sweep").glob("*/trial-0002/all")).unlink()
        job.run()
        assert (job.base / "model/x").read_text() == "3\n", job.text()


def what_slots_need_is_asked_for_once():
    job = Job("echo score=$SM_HP_X\n", space={"x": {"int": [1, 3]}}, slots=300)
    job.command = ["prlimit", "--nofile=256:256"]
    job.run(1)
    assert "the sweep's 300 slots on each of 1 hosts need 664 open files on host algo-1, whose limit is 256" in job.failure(), job.failure()
    assert "trial 0" not in job.text(), job.text()


CASES = [the_best_model_is_there_at_every_start, a_tie_keeps_the_model_of_the_first_trial, a_kill_at_the_end_loses_no_model, a_model_is_carried_with_all_that_it_holds,
         what_cannot_be_carried_fails_its_trial_by_name, a_best_trial_without_a_model_is_an_error, paths_that_a_program_names_are_its_own_trials,
         a_user_namespace_is_enough, checkpoints_may_lie_in_the_output_and_not_in_the_model,
         without_mounts_shared_folders_are_watched, a_channel_in_pipe_mode_is_refused, each_slot_has_a_port_of_its_own, files_of_the_sdk_launch_no_trial,
         a_trial_that_hangs_is_reported_alone, checkpoints_of_trials_that_are_over_are_removed,
         a_full_disk_is_told_with_its_owner_and_the_best_so_far_is_the_result, what_slots_need_is_asked_for_once]

if __name__ == "__main__":
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        print("SKIP: nothing can be mounted here")
        sys.exit(77)
    names = sys.argv[1:]
    if names == ["full"]:
        checkpoints_of_trials_that_are_over_are_removed(40, "100000000", "1000m")
        sys.exit()
    for case in CASES:
        if not names or case.__name__ in names:
            case()
            print(case.__name__.replace("_", " "), flush=True)
