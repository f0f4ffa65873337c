#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A parameter server job on two hosts: the server next to the program on each, ended when the master's program has ended, also when
# the job is stopped. With a chief the other host serves in the program's place.
# A shell script replaces the interpreter, so that TensorFlow is not needed; tensorflow_hosts.sh uses TensorFlow.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
case_name="parameter servers"
cluster_up 2

cat >"$cluster/python" <<'PY'
#!/bin/sh
if [ "$1" = -c ]; then
  case $2 in *find_spec*) exit 0;; esac # whether TensorFlow is there
  name=server
  case $TF_CONFIG in *'"type": "worker"'*) name=worker_server;; esac
  echo "$TF_CONFIG" >/opt/ml/output/data/$name
  echo $$ >/opt/ml/output/data/${name}_pid
  exec sleep 1000
fi
echo "$TF_CONFIG" >/opt/ml/output/data/program
while [ ! -e /opt/ml/output/data/server_pid ]; do sleep 0.05; done
if [ -n "${WORKER_STOP:-}" ]; then # saving takes longer than a failed job's program would get, and needs the server to its end
  case $TF_CONFIG-$WORKER_STOP in
  *'"type": "master"'*) trap 'sleep 4; kill -0 "$(cat /opt/ml/output/data/server_pid)" && echo saved >/opt/ml/output/data/saved; exit 0' TERM;;
  *-saves) trap 'sleep 4; exit 0' TERM;;
  esac
  echo ready
  while :; do sleep 0.05; done
fi
case $TF_CONFIG in
*'"type": "master"'*)
  worker=${0%/*}/algo-2/ml/output/data # what is there is checked: its server and program must have come so far
  until [ -s "$worker/program" ] && [ -e "$worker/server_pid" ]; do sleep 0.05; done
  exit "$MASTER_CODE"
  ;;
*'"type": "chief"'*)
  worker=${0%/*}/algo-2/ml/output/data
  until [ -e "$worker/server_pid" ] && [ -e "$worker/worker_server_pid" ]; do sleep 0.05; done
  echo ready
  if [ "$MASTER_CODE" = wait ]; then sleep 1000; fi
  exit "$MASTER_CODE"
  ;;
esac
PY
chmod +x "$cluster/python"

fail() { echo "FAILED: $*"; cat "$cluster"/*.log; exit 1; }

start_both() {
  for host in algo-1 algo-2; do
    rm -rf "$cluster/$host/ml/output" && mkdir -p "$cluster/$host/ml/output" "$cluster/$host/ml/code"
    echo "{\"current_host\": \"$host\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"eth0\"}" >"$cluster/$host/ml/input/config/resourceconfig.json"
    echo '{"sagemaker_parameter_server_enabled": "true", "sagemaker_program": "train.py"}' >"$cluster/$host/ml/input/config/hyperparameters.json"
    echo >"$cluster/$host/ml/code/train.py"
    host_start $host "$PACELINE_BUILD/entrypoint/paceline" train
  done
}

for master_code in 0 6; do
  cluster_environment=(PACELINE_PYTHON="$cluster/python" MASTER_CODE=$master_code)
  start_both
  for host in algo-1 algo-2; do
    host_wait $host 60
    if [ $master_code = 0 ]; then [ "$code" = 0 ] || fail "$host ended with $code"; else [ "$code" != 0 ] || fail "$host ended with 0"; fi
    [ -z "$(host_pids $host)" ] || fail "processes are left on $host"
  done
  grep -q '"task": {"index": 0, "type": "master"}' "$cluster/algo-1/ml/output/data/program" || fail "the master's TF_CONFIG"
  grep -q '"task": {"index": 0, "type": "worker"}' "$cluster/algo-2/ml/output/data/program" || fail "the worker's TF_CONFIG"
  grep -q '"task": {"index": 1, "type": "ps"}' "$cluster/algo-2/ml/output/data/server" || fail "the server's TF_CONFIG"
  if [ $master_code != 0 ]; then
    for host in algo-1 algo-2; do grep -q 'exited with code 6' "$cluster/$host/ml/output/failure" || fail "$host: the failure file"; done
  fi
done

for worker_stop in saves dies; do
  cluster_environment=(PACELINE_PYTHON="$cluster/python" WORKER_STOP=$worker_stop)
  start_both
  for host in algo-1 algo-2; do
    await_log $host '^ready$' 60
  done
  host_signal algo-1 TERM
  for host in algo-1 algo-2; do
    host_wait $host 60
    if [ $worker_stop = saves ]; then [ "$code" = 0 ] || fail "a stop: $host ended with $code"; else [ "$code" != 0 ] || fail "a stop: $host ended with 0"; fi
    [ -z "$(host_pids $host)" ] || fail "processes are left on $host"
  done
  [ -e "$cluster/algo-1/ml/output/data/saved" ] || fail "a stop: the master's program could not save while the worker's program $worker_stop"
  if [ $worker_stop = dies ]; then
    grep -q 'stopped by SIGTERM; the program on host algo-2 was killed by signal 15' "$cluster/algo-1/ml/output/failure" || fail "a stop: the failure file"
  fi
done
# With a chief the other host serves in the program's place, until the chief's program has ended.
for chief_code in 0 6 wait; do
  cluster_environment=(PACELINE_PYTHON="$cluster/python" MASTER_CODE=$chief_code PACELINE_TF_CHIEF=1)
  start_both
  if [ $chief_code = wait ]; then
    await_log algo-1 '^ready$' 60
    host_run algo-2 kill -KILL "$(cat "$cluster/algo-2/ml/output/data/worker_server_pid")"
  fi
  for host in algo-1 algo-2; do
    host_wait $host 60
    if [ $chief_code = 0 ]; then [ "$code" = 0 ] || fail "a chief: $host ended with $code"; else [ "$code" != 0 ] || fail "a chief: $host ended with 0"; fi
    [ -z "$(host_pids $host)" ] || fail "a chief: processes are left on $host"
    case $chief_code in
    6) grep -q '^the program on host algo-1 exited with code 6' "$cluster/$host/ml/output/failure" || fail "a chief that fails: the failure file of $host" ;;
    wait) grep -q "^the worker's server on host algo-2 was killed by signal 9" "$cluster/$host/ml/output/failure" || fail "a killed worker: the failure file of $host" ;;
    esac
  done
  grep -q 'the program on the first of 2 hosts, servers on all' "$cluster/algo-2.log" || fail "the line that says what runs where"
  grep -q '"task": {"index": 0, "type": "chief"}' "$cluster/algo-1/ml/output/data/program" || fail "the chief's TF_CONFIG"
  grep -q '"task": {"index": 0, "type": "worker"}' "$cluster/algo-2/ml/output/data/worker_server" || fail "the TF_CONFIG of the worker's server"
  grep -q '"task": {"index": 1, "type": "ps"}' "$cluster/algo-2/ml/output/data/server" || fail "a chief: the server's TF_CONFIG"
  [ ! -e "$cluster/algo-2/ml/output/data/program" ] || fail "a worker has run the chief's program"
done
echo "parameter servers end with the master's program, well or not, and outlive its saving"
