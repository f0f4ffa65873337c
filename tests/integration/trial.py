#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline trial`: a job in a job, with an /opt/ml and devices of its own, which ends with its program's code."""
import json
import signal
import subprocess
import sys

from sweep import PACELINE, WAIT_S, Job, wait_until


class Tree(Job):
    """One in which trials are started."""

    def __init__(self):
        super().__init__("")
        (self.base / "input/config/hyperparameters.json").write_text(json.dumps({"epochs": "9", "lr": "0.5"}))

    def start(self, *words, **variables):
        return subprocess.Popen([PACELINE, "trial", *words], env=self.environment(variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *words, code=0, **variables):
        process = self.start(*words, **variables)
        text = process.communicate(timeout=WAIT_S)[0]
        assert process.returncode == code, (process.returncode, text)
        return text


def a_trial_has_its_own_folders_and_hyperparameters():
    tree = Tree()
    script = f'''echo "$SM_HPS $SM_NUM_CPUS $PACELINE_TRIAL"
echo w >{tree.base}/model/w && echo c >{tree.base}/checkpoints/c && echo o >{tree.base}/output/data/o'''
    text = tree.run("--hyperparameter", "lr=0.1", "--hyperparameter", 'kind="a b"', "--cpus", "3", "--", "sh", "-c", script)
    assert text == '{"epochs":9,"kind":"a b","lr":0.1} 3 0\n', text
    assert (tree.base / "checkpoints/trial-0000.model/w").read_text() == "w\n" and not (tree.base / "model/w").exists()
    assert (tree.base / "checkpoints/trial-0000/c").exists() and (tree.base / "output/data/trial-0000/o").exists()
    assert not (tree.base / "sweep/trial-0000").exists(), list(tree.base.rglob("*"))
    assert tree.run("--", "sh", "-c", "echo $PACELINE_TRIAL") == "1\n"  # the next number without files
    # a number that was used goes on from its checkpoints
    assert tree.run("--number", "0", "--", "cat", f"{tree.base}/checkpoints/c") == "c\n"


def the_programs_code_and_signal_are_the_trials():
    tree = Tree()
    tree.run("--", "sh", "-c", "exit 7", code=7)
    tree.run("--", "sh", "-c", "kill -9 $$", code=137)
    assert "no-such-program" in tree.run("--", "no-such-program", code=127)
    process = tree.start("--", "sh", "-c", f"trap 'exit 5' TERM; touch {tree.base}/begun; while :; do sleep 0.1; done")
    wait_until((tree.base / "begun").exists, "the trial does not begin")
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 5, (process.returncode, text)


def trials_at_once_have_numbers_and_gpus_of_their_own():
    tree = Tree()
    script = f'echo "$PACELINE_TRIAL" >{tree.base}/begun-$PACELINE_TRIAL; while [ ! -e {tree.base}/go ]; do sleep 0.05; done; echo "trial $PACELINE_TRIAL"'
    running = []
    for number in 0, 1, 2:
        running.append(tree.start("--", "sh", "-c", script))
        wait_until((tree.base / f"begun-{number}").exists, f"trial {number} does not begin")
    assert "belongs to a trial that is running" in tree.run("--number", "1", "--", "true", code=1)
    (tree.base / "go").touch()
    assert [process.communicate(timeout=WAIT_S)[0] for process in running] == ["trial 0\n", "trial 1\n", "trial 2\n"]
    assert "the trial asks for 4096 GPUs, and host algo-1 has " in tree.run("--gpus", "4096", "--", "true", code=1)


def what_is_wrong_is_told():
    tree = Tree()
    assert "--hyperparameter is 'lr', expected NAME=VALUE" in tree.run("--hyperparameter", "lr", "--", "true", code=2)
    tree.run("--processes", "0", "--", "true", code=2)
    for folder, words in ("ck", "is 'ck': expected an absolute path"), (f"{tree.base}//model/ck", "trials need one elsewhere"):
        assert words in tree.run("--", "true", code=1, PACELINE_CHECKPOINT_DIR=folder)
    tree.run("--no-such-option", code=2)
    for words in (), ("--number", "5", "--"):
        assert "expected the trial's program: -- PROGRAM [ARGUMENT...]" in tree.run(*words, code=2)
    assert not (tree.base / "checkpoints/trial-0005").exists()
    assert "--hyperparameter NAME=VALUE" in tree.run("--help")


if __name__ == "__main__":
    for case in (a_trial_has_its_own_folders_and_hyperparameters, the_programs_code_and_signal_are_the_trials, trials_at_once_have_numbers_and_gpus_of_their_own, what_is_wrong_is_told):
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            case()
            print(case.__name__.replace("_", " "), flush=True)
