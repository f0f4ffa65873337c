#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep of 40 trials over two hosts of two slots, whose process 1 or one of whose trials is killed at moments drawn from a seed, and which is
# started again. Trials are deterministic, so the last run must end with the result of a sweep without faults: the best model bit for bit, each
# trial once, a process left nowhere. Only a trial whose own processes were killed may be missing from the result.
#
#   sweep_hosts_storm.sh [FIRST_SEED COUNT [MOMENTS]]     MOMENTS a seed, by default 5
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
cluster_up 2
both="algo-1 algo-2"

# Each epoch's state follows from the one before, so that a model tells whether each epoch ran once, from the right checkpoint.
cat >"$cluster/trial" <<'END'
#!/bin/bash
d=$PACELINE_CHECKPOINT_DIR n=0 state=$SM_HP_X
[ ! -e "$d/state" ] || read -r n state <"$d/state"
while [ $n -lt 3 ]; do
  n=$((n + 1))
  state=$(echo "$state $n" | sha256sum) || exit 3
  state=${state%% *}
  echo "$n $state" >"$d/state.part" && mv "$d/state.part" "$d/state" || exit 3
  sleep 0.$((RANDOM % 3))
done
mkdir -p "$SM_MODEL_DIR/deep/empty" && echo "$state" >"$SM_MODEL_DIR/deep/weights" && ln -sfn deep/weights "$SM_MODEL_DIR/best" || exit 3
echo "score=$SM_HP_X"
END
chmod +x "$cluster/trial"

state_of() { # state_of X: after all epochs
  local state=$1 n
  for n in 1 2 3; do state=$(echo "$state $n" | sha256sum) && state=${state%% *}; done
  echo "$state"
}

start_storm() { # the trees of new containers, which keep checkpoints
  local host
  for host in $both; do
    rm -rf "$cluster/kept" && mv "$cluster/$host/ml/checkpoints" "$cluster/kept" 2>/dev/null || mkdir "$cluster/kept"
    job_config $host "$both" 0
    mv "$cluster/kept" "$cluster/$host/ml/checkpoints"
    mkdir "$cluster/$host/ml/code"
    cp "$cluster/trial" "$cluster/$host/ml/code/trial"
    SPECIFICATION=$specification python3 -c 'import json, os, sys
json.dump({"sagemaker_program": "\"trial\"", "paceline_sweep": os.environ["SPECIFICATION"]}, sys.stdout)' >"$cluster/$host/ml/input/config/hyperparameters.json"
    cluster_environment=(PACELINE_SILENCE_S=3 PACELINE_PEER_WAIT_S=20)
    host_start $host "$paceline" train
  done
}

hit() { # kills process 1 of a host, or a process of a trial
  local host=algo-$((RANDOM % 2 + 1)) victims
  if [ $((RANDOM % 2)) = 0 ]; then
    story+="; process 1 of $host"
    host_off $host 2>/dev/null || true
    return 0
  fi
  mapfile -t victims < <(pgrep -f 'paceline-trial|/code/trial|paceline train$' | grep -Fxf <(host_pids $host) | grep -Fxv "$(host_first $host)")
  story+="; one of ${#victims[@]} processes of trials on $host"
  [ ${#victims[@]} = 0 ] || { kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null || true; hurt=$((hurt + 1)); }
}

check() { # the result is that of a sweep without faults
  local best
  best=$(python3 - "$cluster/algo-1/ml/output/data/trials.jsonl" $hurt <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["trial"] for row in rows] == list(range(40)) and [row["host"] for row in rows] == ["algo-1", "algo-2"] * 20, rows
failed = [row for row in rows if row["state"] != "completed"]
assert len(failed) <= int(sys.argv[2]) and all(row["state"] == "failed" and row["reason"] for row in failed), rows
completed = [row for row in rows if row["state"] == "completed"]
assert all(row["score"] == row["hyperparameters"]["x"] and row["code"] == 0 for row in completed), rows
print(max(completed, key=lambda row: row["score"])["hyperparameters"]["x"])
END
  ) || case_failed "$story: the rows are wrong"
  [ "$(cat "$cluster/algo-1/ml/model/deep/weights")" = "$(state_of "$best")" ] || case_failed "$story: the best model, of x=$best, differs"
  [ "$(readlink "$cluster/algo-1/ml/model/best")" = deep/weights ] && [ -d "$cluster/algo-1/ml/model/deep/empty" ] || case_failed "$story: the best model is not whole"
  grep -q "^best_score=$best\.0 trial=" "$cluster/algo-1.log" || case_failed "$story: no line for the platform with $best"
}

first=${1:-1} count=${2:-1} moments=${3:-5}
for seed in $(seq "$first" $((first + count - 1))); do
  RANDOM=$seed
  hurt=0
  story="seed $seed"
  case_begin "$story"
  specification='{"metric": "score", "goal": "maximize", "max_failed": 1, "slots": 2, "space": {"x": ['$(shuf -i 1-1000 -n 40 --random-source=<(yes "$seed") | paste -sd,)']}}'
  rm -rf "$cluster"/algo-?/ml/checkpoints
  for _ in $(seq "$moments"); do
    start_storm
    await_log algo-1 "trial [0-9]+ runs on host|ended with|best_score=" 60
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    hit
    wait_both 120
    expect_nobody
    story+=" ($(cat "$cluster/algo-1.code"))"
    [ "$(cat "$cluster/algo-1.code")" != 0 ] || check
  done
  for _ in 1 2; do # the second time the sweep is over already
    start_storm
    wait_both 120
    for host in $both; do
      expect_code $host 0
      expect_success $host
    done
    check
    expect_nobody
  done
  grep -q " runs on host " "$cluster/algo-1.log" && case_failed "$story: a sweep that was over has started a trial"
  case_end algo-1 algo-2
  echo "$story"
done
