#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A parameter server job on two hosts: the server beside the program on each, ended when the master's program has ended.
# A shell script stands for the interpreter, so that TensorFlow is not needed.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
trap cluster_down EXIT
cluster_up 2

cat >"$cluster/python" <<'PY'
#!/bin/sh
if [ "$1" = -c ]; then
  echo "$TF_CONFIG" >/opt/ml/output/data/server
  exec sleep 1000
fi
echo "$TF_CONFIG" >/opt/ml/output/data/program
while [ ! -e /opt/ml/output/data/server ]; do sleep 0.05; done
case $TF_CONFIG in *'"type": "master"'*) sleep 1; exit "$MASTER_CODE";; esac
PY
chmod +x "$cluster/python"

fail() { echo "FAILED: $*"; cat "$cluster"/*.log; exit 1; }

for master_code in 0 6; do
  cluster_environment=(PACELINE_PYTHON="$cluster/python" MASTER_CODE=$master_code)
  for host in algo-1 algo-2; do
    rm -rf "$cluster/$host/ml/output" && mkdir -p "$cluster/$host/ml/output" "$cluster/$host/ml/code"
    echo "{\"current_host\": \"$host\", \"hosts\": [\"algo-1\", \"algo-2\"], \"network_interface_name\": \"eth0\"}" >"$cluster/$host/ml/input/config/resourceconfig.json"
    echo '{"sagemaker_parameter_server_enabled": "true", "sagemaker_program": "train.py"}' >"$cluster/$host/ml/input/config/hyperparameters.json"
    echo >"$cluster/$host/ml/code/train.py"
    host_start $host "$PACELINE_BUILD/entrypoint/paceline" train
  done
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
echo "parameter servers end with the master's program, well or not"
