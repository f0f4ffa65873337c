#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares parameter servers between two hosts in network namespaces, links of 1 Gbit/s: Paceline's and TensorFlow's in
# turn, one JSON object per line.
#
#   tests/bench/server_hosts.sh PYTHON [BUILD_DIR [SIZE_IN_BYTES...]]   needs root; PYTHON has tensorflow-cpu, numpy
#
# A server and a worker run on each host, with the program and output of peer_tensorflow_server.py. `share` is relative
# to `goodput_mbs`, the rate of one TCP stream in the same run: an update sends half of its gradients and half of its
# values from host to host, and those of both workers make the same traffic in each direction. `sent_rate` is the number
# of bytes that a host has sent per second, with all headers. ROUNDS (2), SECONDS_EACH (3) and WHO ("ours theirs") are
# read from the environment.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
python=$1 build=$(realpath "${2:-build}")
sizes=("${@:3}")
[ ${#sizes[@]} -gt 0 ] || sizes=(1048576 16777216 67108864)
seconds=${SECONDS_EACH:-3}
program=$here/peer_tensorflow_server.py
export PACELINE_BUILD=$build PACELINE_SOURCE=${here%/tests/bench} TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=
source "$here/../support/cluster.sh"
cluster_up 2
for host in "${cluster_hosts[@]}"; do host_rate "$host" 1gbit; done
hosts_listen
host_run algo-1 "$here/../support/goodput.py" serve >"$cluster/goodput" &
sleep 0.5
host_run algo-2 "$here/../support/goodput.py" 10.78.0.1
wait $!
goodput=$(cat "$cluster/goodput")

ours() { # BYTES
  PYTHONPATH=$here/../../python PACELINE_LIBRARY=$build/runtime/libpaceline.so cluster_mpirun 1 -x PYTHONPATH -x PACELINE_LIBRARY ${PACELINE_BUCKET_BYTES:+-x PACELINE_BUCKET_BYTES} timeout 120 \
    "$build/libexec/paceline/paceline-server" --workers 1 "$python" "$program" ours "$1" "$seconds"
}

theirs() { # BYTES
  local i tasks=() names='{"ps": ["10.78.0.1:5101", "10.78.0.2:5101"], "worker": ["10.78.0.1:5102", "10.78.0.2:5102"]}'
  for i in 0 1; do
    host_run algo-$((i + 1)) timeout 120 "$python" "$program" theirs "$1" "$seconds" "$names" ps $i &
    tasks+=($!)
  done
  host_run algo-2 timeout 120 "$python" "$program" theirs "$1" "$seconds" "$names" worker 1 &
  tasks+=($!)
  host_run algo-1 timeout 120 "$python" "$program" theirs "$1" "$seconds" "$names" worker 0
  wait "${tasks[2]}"
  for host in algo-1 algo-2; do host_run "$host" pkill -f "theirs $1 $seconds" || true; done # the servers do not end by themselves
  wait "${tasks[0]}" "${tasks[1]}" || true
}

for size in "${sizes[@]}"; do
  for ((round = 0; round < ${ROUNDS:-2}; round++)); do
    for who in ${WHO:-ours theirs}; do
      $who "$size" >"$cluster/said" 2>"$cluster/errors" || { cat "$cluster/said" "$cluster/errors"; exit 1; }
      printf '{"who": "%s", ' $who
      "$python" "$program" read "$size" "$goodput" <"$cluster/said" | sed 's/^{//'
    done
  done
done
