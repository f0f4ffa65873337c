#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep on two hosts that one of them leaves, or that is stopped: `paceline` is process 1 of each. sweep_hosts_storm.sh shows where trials run,
# and that the best model arrives.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
cluster_up 2

# sweep_config SPECIFICATION: the same on both hosts. The program is `trial` of this file's folder in the cluster.
sweep_config() {
  local host
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 0
    mkdir -p "$cluster/$host/ml/code"
    install -m 755 "$cluster/trial" "$cluster/$host/ml/code/trial"
    SPECIFICATION=$1 python3 -c 'import json, os, sys
json.dump({"sagemaker_program": "\"trial\"", "paceline_sweep": os.environ["SPECIFICATION"]}, sys.stdout)' >"$cluster/$host/ml/input/config/hyperparameters.json"
  done
}
start_both() { for host in algo-1 algo-2; do host_start $host "$paceline" train; done; }

# A host is powered off while trials run: the job fails, and started again it goes on where it was.
cat >"$cluster/trial" <<END
#!/bin/bash
[ -e "\$PACELINE_CHECKPOINT_DIR/begun" ] && echo "goes on" || echo "begins"
: >"\$PACELINE_CHECKPOINT_DIR/begun"
case \$PACELINE_TRIAL in
[01]) ;;
*) while [ ! -e "$cluster/go" ]; do sleep 0.05; done ;;
esac
echo "\$SM_HP_X" >"\$SM_MODEL_DIR/w"
echo "score=\$SM_HP_X"
END
case_begin "a host is lost, and the sweep goes on when it is started again"
sweep_config '{"metric": "score", "goal": "maximize", "space": {"x": [1, 2, 3, 4, 5, 6]}, "slots": 1}'
start_both
await_log algo-1 "^\[trial [2-5]\] begins" 30
await_log algo-2 "^\[trial [2-5]\] begins" 30
host_off algo-2
wait_both 30
expect_code algo-1 1
expect_failure algo-1 "^host algo-2 went away: its connection closed$"
expect_nobody
: >"$cluster/go"
begun=$(cat "$cluster"/algo-?.log | grep -c "\] begins$")
start_both
wait_both 60
for host in algo-1 algo-2; do expect_code $host 0; done
[ $((begun + $(cat "$cluster"/algo-?.log | grep -c "\] begins$"))) = 6 ] || case_failed "a trial began twice, or not at all"
[ "$(cat "$cluster"/algo-?.log | grep -c "\] goes on$")" = 2 ] || case_failed "not the two that ran went on"
[ "$(grep -c '"state": "completed"' "$cluster/algo-1/ml/output/data/trials.jsonl")" = 6 ] || case_failed "not all trials have ended"
expect_nobody
case_end algo-1 algo-2

case_begin "a stop on any host lets all trials save"
rm -f "$cluster/go"
cat >"$cluster/trial" <<END
#!/bin/bash
trap 'echo saved; exit 0' TERM
echo begins
while :; do sleep 0.05; done
END
sweep_config '{"metric": "score", "goal": "maximize", "space": {"x": [1, 2, 3, 4, 5, 6]}, "slots": 2}'
start_both
for host in algo-1 algo-2; do
  until [ "$(grep -c "\] begins$" "$cluster/$host.log")" = 2 ]; do await_log $host "." 30; sleep 0.05; done
done
host_signal algo-2 TERM
wait_both 60
for host in algo-1 algo-2; do
  expect_code $host 0
  [ "$(grep -c "\] saved$" "$cluster/$host.log")" = 2 ] || case_failed "not all trials of $host saved"
done
expect_nobody
case_end algo-1 algo-2

# The best model is on algo-2, and needs longer to algo-1 than a job that is stopped has.
case_begin "a stop while the best model moves ends in time, and the next start has the model"
cat >"$cluster/trial" <<'END'
#!/bin/bash
[ "$(hostname)" != algo-2 ] || head -c 40000000 /dev/urandom >"$SM_MODEL_DIR/weights"
touch "$SM_MODEL_DIR/w"
echo "score=$(stat -c %s "$SM_MODEL_DIR/weights" 2>/dev/null || echo 0)"
END
sweep_config '{"metric": "score", "goal": "maximize", "space": {"x": [1, 2]}, "slots": 1}'
cluster_environment=(PACELINE_STOP_S=5)
host_rate algo-2 8mbit
start_both
until [ -s "$cluster/algo-1/ml/model/.paceline-incoming/weights" ]; do sleep 0.05; done
host_signal algo-1 TERM
wait_both 30
for host in algo-1 algo-2; do expect_code $host 143; done
expect_failure algo-1 "the job was stopped by SIGTERM; the model of the best trial, ., cannot be the job's model: .*: the job was stopped; it stays in its place"
[ -z "$(ls -A "$cluster/algo-1/ml/model")" ] || case_failed "half of a model is left: $(ls -A "$cluster/algo-1/ml/model")"
cluster_environment=()
host_rate algo-2 none
start_both
wait_both 60
for host in algo-1 algo-2; do expect_code $host 0; done
cmp "$cluster"/algo-2/ml/checkpoints/sweep/*/trial-000?.model/weights "$cluster/algo-1/ml/model/weights" || case_failed "the model differs"
expect_nobody
case_end algo-1 algo-2
