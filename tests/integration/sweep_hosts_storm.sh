#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sweeps on two hosts under faults that are drawn from a seed: a host that is powered off, killed processes, stops, a slow disk, restarts.
# Trials are deterministic, so the last run must end with the result of a sweep without faults: the best model bit for bit, each trial once, a
# process left nowhere. Only a killed trial may be missing from the result.
#
#   sweep_hosts_storm.sh [FIRST_SEED COUNT]
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2
both="algo-1 algo-2"

# Each epoch's state follows from the one before, so that a model tells whether each epoch ran once, from the right checkpoint.
cat >"$cluster/trial" <<'END'
#!/bin/bash
d=$PACELINE_CHECKPOINT_DIR n=0 state=$SM_HP_X stopped=
[ ! -e "$d/state" ] || read -r n state <"$d/state"
echo "begins at $n"
trap 'stopped=1' TERM
while [ $n -lt 4 ]; do
  [ -z "$stopped" ] || exit 0
  n=$((n + 1))
  state=$(echo "$state $n" | sha256sum) || exit 3
  state=${state%% *}
  echo "$n $state" >"$d/state.part" && mv "$d/state.part" "$d/state" || exit 3
  mkdir -p "$SM_MODEL_DIR/deep/empty" && echo "$state" >"$SM_MODEL_DIR/deep/weights.part" && mv "$SM_MODEL_DIR/deep/weights.part" "$SM_MODEL_DIR/deep/weights" || exit 3
  ln -sfn deep/weights "$SM_MODEL_DIR/best" || exit 3
  echo "epoch=$n score=$((SM_HP_X * 100 + n))"
  sleep 0.0$((RANDOM % 10))
done
exit 0
END
chmod +x "$cluster/trial"

state_of() { # state_of X: after all epochs
  local state=$1 n
  for n in 1 2 3 4; do state=$(echo "$state $n" | sha256sum) && state=${state%% *}; done
  echo "$state"
}

start_storm() { # start_storm [FRESH]: the trees of new containers, which keep checkpoints; without a word the same containers
  local host
  for host in $both; do
    if [ -n "${1:-}" ]; then
      rm -rf "$cluster/kept" && mv "$cluster/$host/ml/checkpoints" "$cluster/kept" 2>/dev/null || mkdir "$cluster/kept"
      job_config $host "$both" 0
      mv "$cluster/kept" "$cluster/$host/ml/checkpoints"
      mkdir "$cluster/$host/ml/code"
      cp "$cluster/trial" "$cluster/$host/ml/code/trial"
      SPECIFICATION=$specification python3 -c 'import json, os, sys
json.dump({"sagemaker_program": "\"trial\"", "paceline_sweep": os.environ["SPECIFICATION"]}, sys.stdout)' >"$cluster/$host/ml/input/config/hyperparameters.json"
    fi
    cluster_environment=(PACELINE_SILENCE_S=3 PACELINE_PEER_WAIT_S=20)
    [ "$host$slow" != algo-2yes ] || cluster_environment+=(LD_PRELOAD="$PACELINE_BUILD/tests/fakes/libslow_disk.so" SLOW_DISK_FOLDER=/opt/ml/sweep SLOW_DISK_S=1)
    host_start $host "$paceline" train
  done
}

hit() { # hit FAULT
  local victims host
  host=algo-$((RANDOM % 2 + 1))
  story+="; $1 on $host"
  case $1 in
  off) host_off $host 2>/dev/null || true ;;
  stop) host_signal $host TERM 2>/dev/null || true ;;
  kill)
    mapfile -t victims < <(host_pids $host)
    [ ${#victims[@]} = 0 ] || { kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null || true; hurt=$((hurt + 1)); }
    ;;
  esac
}

check() { # the result is that of a sweep without faults
  local best
  best=$(python3 - "$cluster/algo-1/ml/output/data/trials.jsonl" $hurt <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["trial"] for row in rows] == list(range(len(rows))) and len(rows) == 8, rows
failed = [row for row in rows if row["state"] != "completed"]
assert len(failed) <= int(sys.argv[2]) and all(row["state"] == "failed" for row in failed), rows
completed = [row for row in rows if row["state"] == "completed"]
# the report of an epoch may be lost with a killed process, and its checkpoint kept
completed = [row for row in completed if row["score"] is not None]
assert all(0 < row["score"] - row["hyperparameters"]["x"] * 100 <= 4 for row in completed), rows
print(max(completed, key=lambda row: row["score"])["hyperparameters"]["x"])
END
  ) || case_failed "$story: the rows are wrong"
  [ "$(cat "$cluster/algo-1/ml/model/deep/weights")" = "$(state_of "$best")" ] || case_failed "$story: the best model, of x=$best, differs"
  [ "$(readlink "$cluster/algo-1/ml/model/best")" = deep/weights ] && [ -d "$cluster/algo-1/ml/model/deep/empty" ] || case_failed "$story: the best model is not whole"
}

first=${1:-1} count=${2:-8}
for seed in $(seq "$first" $((first + count - 1))); do
  RANDOM=$seed
  hurt=0
  story="seed $seed"
  case_begin "$story"
  specification='{"metric": "score", "goal": "maximize", "max_failed": 1, "slots": '$((RANDOM % 3 + 1))', "space": {"x": ['
  for i in 1 2 3 4 5 6 7 8; do specification+="$((RANDOM % 10 + i * 10)), "; done
  specification="${specification%, }]}}"
  rm -rf "$cluster"/algo-?/ml/checkpoints
  fresh=yes slow=no
  for _ in $(seq $((RANDOM % 3 + 1))); do
    slow=no
    [ $((RANDOM % 4)) != 0 ] || slow=yes
    start_storm $fresh
    sleep "$((RANDOM % 4)).$((RANDOM % 10))"
    faults=(off stop kill kill)
    hit "${faults[RANDOM % 4]}"
    wait_both 120
    expect_nobody
    code=$(cat "$cluster/algo-1.code")
    story+=" ($code)"
    if [ "$code" = 0 ] && grep -q "^best_score=" "$cluster/algo-1.log"; then check; fi
    fresh=
    [ $((RANDOM % 2)) != 0 ] || fresh=yes
  done
  slow=no
  for _ in 1 2; do # the second time the sweep is over already
    start_storm yes
    wait_both 120
    for host in $both; do expect_code $host 0; done
    check
    expect_nobody
  done
  case_end algo-1 algo-2
done
