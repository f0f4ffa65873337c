#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep on two hosts: `paceline` is process 1 of each, trials run on both, and what moves between them arrives.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

# sweep_config SPECIFICATION: the same on both hosts. The program is `trial` of this file's folder in the cluster.
sweep_config() {
  local host
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 0
    mkdir -p "$cluster/$host/ml/code"
    cp "$cluster/trial" "$cluster/$host/ml/code/trial"
    SPECIFICATION=$1 python3 -c 'import json, os, sys
json.dump({"sagemaker_program": "\"trial\"", "paceline_sweep": os.environ["SPECIFICATION"]}, sys.stdout)' >"$cluster/$host/ml/input/config/hyperparameters.json"
  done
}
start_both() { for host in algo-1 algo-2; do host_start $host "$paceline" train; done; }
wait_both() { host_wait algo-1 "$1" || case_failed "no end"; host_wait algo-2 "$1" || case_failed "no end"; }

# rows EXPRESSION: of trials.jsonl
rows() { python3 -c "import json, sys
rows = [json.loads(line) for line in open('$cluster/algo-1/ml/output/data/trials.jsonl')]
print($1)"; }

cat >"$cluster/trial" <<'END'
#!/bin/sh
echo "on $(hostname)"
head -c 200000 /dev/zero | tr '\0' "$SM_HP_X" >"$SM_MODEL_DIR/weights"
mkdir -p "$SM_MODEL_DIR/sub"
echo "$SM_HP_X" >"$SM_MODEL_DIR/sub/name"
echo "score=$SM_HP_X"
END
chmod +x "$cluster/trial"

case_begin "trials run on both hosts, and the best model arrives"
sweep_config '{"metric": "score", "goal": "maximize", "space": {"x": [1, 2, 3, 4, 5, 6, 7, 8]}, "slots": 2}'
start_both
wait_both 60
for host in algo-1 algo-2; do
  expect_code $host 0
  expect_success $host
done
[ "$(rows 'sorted({row["host"] for row in rows})')" = "['algo-1', 'algo-2']" ] || case_failed "not on both hosts: $(rows '[row["host"] for row in rows]')"
[ "$(rows '[row["state"] for row in rows].count("completed")')" = 8 ] || case_failed "not all trials have ended"
[ "$(cat "$cluster/algo-1/ml/model/hyperparameters.json")" = '{"x": 8}' ] || case_failed "the best trial is not the last"
head -c 200000 /dev/zero | tr '\0' 8 | cmp - "$cluster/algo-1/ml/model/weights" || case_failed "the best model differs"
[ "$(cat "$cluster/algo-1/ml/model/sub/name")" = 8 ] || case_failed "the best model lacks a file"
grep -q "^best_score=8.0 trial=7$\|^best_score=8 trial=7$" "$cluster/algo-1.log" || case_failed "no line for the platform"
expect_nobody
case_end algo-1 algo-2

# Each round is a step. Of three points only the last stays in front; it is put off once, so that its checkpoint moves.
cat >"$cluster/trial" <<'END'
#!/bin/bash
n=$(cat "$PACELINE_CHECKPOINT_DIR/deep/n" 2>/dev/null || echo 0)
echo "begins at $n on $(hostname)"
trap 'exit 0' TERM
mkdir -p "$PACELINE_CHECKPOINT_DIR/deep"
while [ $n -lt 9 ]; do
  n=$((n + 1))
  echo $n >"$PACELINE_CHECKPOINT_DIR/deep/n.part" && mv "$PACELINE_CHECKPOINT_DIR/deep/n.part" "$PACELINE_CHECKPOINT_DIR/deep/n"
  echo "epoch=$n score=$SM_HP_X"
  sleep 0.3 & wait $!
done
END
case_begin "a trial that is promoted goes on from its checkpoint"
sweep_config '{"metric": "score", "goal": "maximize", "space": {"x": [9, 8, 7, 6, 5, 4, 3, 2, 1]}, "slots": 1,
  "scheduler": {"asha": {"step": "epoch=([0-9]+)", "min": 1, "factor": 3}}}'
start_both
wait_both 60
for host in algo-1 algo-2; do expect_code $host 0; done
cat "$cluster/algo-1.log"
expect_nobody
case_end algo-1 algo-2
