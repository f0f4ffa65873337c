#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Instance groups on five hosts: MPI over the groups `big` (algo-1) and `small` (algo-2, algo-3), each host with as many
# ranks as it has GPUs, and `data` (algo-4, algo-5) beside them, whose hosts end when the others do.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
cluster_up 5
trained="algo-1 algo-2 algo-3"
beside="algo-4 algo-5"

# groups_config HOST [HYPERPARAMETER]: the configuration, equal on all hosts except for their own names.
groups_config() {
  local group type
  job_config "$1" "$trained $beside" 0
  case $1 in
  algo-1) group=big type=ml.g5.12xlarge ;;
  algo-2 | algo-3) group=small type=ml.g5.xlarge ;;
  *) group=data type=ml.c5.xlarge ;;
  esac
  cat >"$cluster/$1/ml/input/config/resourceconfig.json" <<END
{"current_host": "$1", "current_group_name": "$group", "current_instance_type": "$type", "network_interface_name": "eth0",
 "hosts": ["algo-1", "algo-2", "algo-3", "algo-4", "algo-5"], "instance_groups": [
  {"instance_group_name": "big", "instance_type": "ml.g5.12xlarge", "hosts": ["algo-1"]},
  {"instance_group_name": "small", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2", "algo-3"]},
  {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-4", "algo-5"]}]}
END
  echo '{"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": "[\"big\", \"small\"]",
    "sagemaker_mpi_custom_mpi_options": "--mca mpi_yield_when_idle 1"'"${2:-}}" >"$cluster/$1/ml/input/config/hyperparameters.json"
}

# A host with so many GPUs: names in a /dev of its own are what is counted.
with_gpus='
  mkdir -p /run/dev && mount -t tmpfs tmpfs /run/dev && mkdir /run/dev/shm /run/dev/pts
  for name in null zero full random urandom tty; do cp -a /dev/$name /run/dev/; done
  mount --rbind /dev/shm /run/dev/shm && mount --rbind /dev/pts /run/dev/pts && ln -s /proc/self/fd /run/dev/fd
  for number in $(seq "$1"); do : >/run/dev/nvidia$number; done
  mount --rbind /run/dev /dev && shift && exec "$@"'
gpus_of() { case $1 in algo-1) echo 3 ;; algo-2 | algo-3) echo 2 ;; *) echo 0 ;; esac; }

# The program next to the training: it runs until SIGTERM, or as $cluster/HOST.do says.
server='trap "echo told to end; exit 0" TERM; echo "serves"
  while :; do [ ! -e "$1" ] || { . "$1"; }; sleep 0.05; done'

# start_all HYPERPARAMETER PROGRAM...: PROGRAM on the hosts that train, the server on the others.
start_all() {
  local host more=$1
  shift
  rm -f "$cluster"/*.do "$cluster/go"
  for host in $trained $beside; do groups_config $host "$more"; done
  for host in $beside; do host_start $host "$paceline" -- sh -c "$server" sh "$cluster/$host.do"; done
  for host in $trained; do host_start $host sh -c "$with_gpus" sh "$(gpus_of $host)" "$paceline" -- "$@"; done
}
wait_all() { for host in "$@"; do host_wait $host 240 || case_failed "no end"; done; }
expect_ranks() { # RANK:HOST...
  local pair count=$#
  for pair; do
    grep -q "<stdout>: *rank ${pair%:*} of $count sum $count on ${pair#*:}\$" "$cluster/algo-1.log" || case_failed "rank ${pair%:*} of $count did not run on ${pair#*:}"
  done
}
# The training goes on when $cluster/go is there.
gated() { echo "while [ ! -e $cluster/go ]; do sleep 0.05; done; exec $probe"; }

case_begin "ranks by each host's GPUs; the others end then"
start_all "" "$probe"
wait_all $trained $beside
for host in $trained $beside; do expect_code $host 0; expect_success $host; done
expect_ranks 0:algo-1 1:algo-1 2:algo-1 3:algo-2 4:algo-2 5:algo-3 6:algo-3
expect_nobody
case_end $trained $beside

case_begin "processes named by group"
start_all ', "sagemaker_mpi_num_of_processes_per_host": "{\"big\": 1, \"small\": 2}"' "$probe"
wait_all $trained $beside
for host in $trained $beside; do expect_code $host 0; done
expect_ranks 0:algo-1 1:algo-2 2:algo-2 3:algo-3 4:algo-3
case_end $trained $beside

case_begin "a rank fails: all have its reason"
start_all "" "$probe" exit 4 3
wait_all $trained $beside
for host in $trained $beside; do
  expect_code $host bad
  expect_failure $host "rank 4 on host algo-2 exited with code 3"
done
expect_nobody
case_end $trained $beside

case_begin "hosts beside it that fail or ignore SIGTERM"
start_all "" sh -c "$(gated)"
await_log algo-1 "all 5 hosts are linked" 240
await_log algo-5 "serves" 240
await_log algo-4 "serves" 240
echo 'echo "fails now"; exit 7' >"$cluster/algo-4.do"
echo 'trap "" TERM; echo deaf; rm -f "$1"' >"$cluster/algo-5.do"
await_log algo-1 "on host algo-4 exited with code 7.*; algo-4 is outside the distribution, and only the result of the distribution counts" 240
await_log algo-5 "deaf" 240
[ ! -e "$cluster/algo-4.code" ] || case_failed "algo-4 ended before the training"
: >"$cluster/go"
wait_all $trained $beside
for host in $trained $beside; do expect_code $host 0; expect_success $host; done
expect_nobody
case_end $trained $beside

case_begin "a host beside it is lost"
start_all "" sh -c "$(gated)"
await_log algo-1 "all 5 hosts are linked" 240
host_off algo-4
await_log algo-1 "host algo-4, outside the distribution, is lost" 240
: >"$cluster/go"
wait_all $trained $beside
for host in $trained algo-5; do expect_code $host 0; expect_success $host; done
case_end $trained $beside

case_begin "the hosts beside it come after its end"
for host in $trained $beside; do groups_config $host; done
for host in $trained; do host_start $host sh -c "$with_gpus" sh "$(gpus_of $host)" "$paceline" -- "$probe"; done
await_log algo-1 "the job has ended; waiting for the other hosts" 240
for host in $beside; do host_start $host "$paceline" -- sh -c "$server" sh "$cluster/$host.do"; done
wait_all $trained $beside
for host in $trained $beside; do expect_code $host 0; expect_success $host; done
expect_nobody
case_end $trained $beside
