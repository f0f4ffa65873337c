#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `paceline check` on one host; `check.sh long` on several hosts, in namespaces: hosts without a fault, and each fault that the check must find.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$PACELINE_BUILD/libexec/paceline/paceline-check" ] || cluster_skip "built without MPI"
network() { ip netns exec "$cluster_tag-$(host_number "$1")" "${@:2}"; }
input="add table inet t; add chain inet t in { type filter hook input priority 0; }" # a host that drops all packets
if [ "${1:-}" = long ]; then
  cluster_up 3
  network algo-1 nft "$input; flush ruleset" || cluster_skip "no nft here, or a kernel without nftables"
else
  cluster_up 1
fi

# job_hosts HOSTS RANKS [NAME=VALUE...]: the configuration of each, with more hyperparameters.
job_hosts() {
  local host names=$1 ranks=$2
  shift 2
  for host in $names; do
    job_config "$host" "$names" "$ranks"
    python3 - "$cluster/$host/ml/input/config/hyperparameters.json" "$@" <<'PY'
import json, sys
with open(sys.argv[1]) as file:
    parameters = json.load(file)
parameters["sagemaker_mpi_custom_mpi_options"] = "--oversubscribe --mca mpi_yield_when_idle 1"
parameters.update(word.split("=", 1) for word in sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(parameters, file)
PY
  done
}
wait_all() { # HOSTS SECONDS
  local host
  for host in $1; do host_wait "$host" "$2" || case_failed "no end"; done
}
# row WHAT WHERE FOUND STATE: a line of the table, by expressions.
row() { grep -Eq "^$1 +$2  +$3  +$4" "$cluster/algo-1.log" || case_failed "the table has no '$1' of '$2' with '$3', $4"; }
table() { grep -E "MISSED|note|^[0-9]+ hosts?, checked" "$cluster/algo-1.log" || true; }

if [ "${1:-}" != long ]; then
  case_begin "one host"
  job_hosts algo-1 2
  cluster_environment=(PACELINE_CHECK=0)
  host_start algo-1 "$paceline" check
  wait_all algo-1 60
  expect_code algo-1 0
  expect_success algo-1
  row allreduce 'all ranks' right ok
  row broadcast 'all ranks' right ok
  row 'shared memory' algo-1 '.* free' ok
  grep -q "JOB MAP\|\[1,0\]" "$cluster/algo-1.log" && case_failed "mpirun's own tables are in the output"
  expect_nobody
  case_end algo-1
  table

  case_begin "before the job, which then runs"
  job_hosts algo-1 2 paceline_check=1
  host_start algo-1 "$paceline" -- "$probe"
  wait_all algo-1 60
  expect_code algo-1 0
  expect_success algo-1
  row allreduce 'all ranks' right ok
  grep -q "rank 1 of 2 sum 2 on algo-1" "$cluster/algo-1.log" || case_failed "the job did not run"
  expect_nobody
  case_end algo-1

  case_begin "before the job, whose command version 3 of the SDK names, and whose options place its ranks"
  job_hosts algo-1 2 paceline_check=1 "sagemaker_mpi_custom_mpi_options=--map-by ppr:3:node"
  mkdir -p "$cluster/algo-1/ml/input/data/sm_drivers" "$cluster/algo-1/ml/input/data/code"
  echo '{"command": "echo the command has \"$#\" words"}' >"$cluster/algo-1/ml/input/data/sm_drivers/sourcecode.json"
  host_start algo-1 "$paceline" train
  wait_all algo-1 60
  expect_code algo-1 0
  row allreduce 'all ranks' right ok
  [ "$(grep "the command has" "$cluster/algo-1.log" | sed 's/.*>://' | uniq -c | xargs)" = "2 the command has 0 words" ] ||
    case_failed "the command did not run as the job's two ranks alone"
  expect_nobody
  case_end algo-1

  # mpirun of the check sends SIGTERM to process 1, its shim's parent, as its last act.
  case_begin "SIGTERM while the check ends, before the job"
  job_hosts algo-1 2 paceline_check=1
  mkdir "$cluster/algo-1/ml/bin"
  printf '#!/bin/sh\n"%s" "$@"\ncode=$?\nkill -TERM "$(ps -o ppid= -p $PPID)"\nexit $code\n' "$(command -v mpirun)" >"$cluster/algo-1/ml/bin/mpirun"
  chmod +x "$cluster/algo-1/ml/bin/mpirun"
  host_start algo-1 env PATH="/opt/ml/bin:$PATH" "$paceline" -- "$probe"
  wait_all algo-1 60
  expect_code algo-1 143
  expect_failure algo-1 'the job was stopped by SIGTERM before its program started'
  row allreduce 'all ranks' right ok
  ! grep -q "rank 1 of 2 sum" "$cluster/algo-1.log" || case_failed "the job ran"
  expect_nobody
  case_end algo-1

  case_begin "before the job, which a missed need ends"
  job_hosts algo-1 2 "paceline_check=--expect-files 100000000"
  host_start algo-1 "$paceline" -- "$probe"
  wait_all algo-1 60
  expect_code algo-1 1
  expect_failure algo-1 '^check: open files of algo-1: .*; needed: 100000000'
  [ ! -e "$cluster/algo-1/ml/output/success" ] || case_failed "there is a success file"
  ! grep -q "rank 1 of 2" "$cluster/algo-1.log" || case_failed "the job ran"
  expect_nobody
  case_end algo-1

  case_begin "the result as JSON"
  job_hosts algo-1 1
  host_start algo-1 "$paceline" check --json
  wait_all algo-1 60
  expect_code algo-1 0
  grep '^{"version":1,' "$cluster/algo-1.log" | python3 -c '
import json, sys
found = json.load(sys.stdin)
assert found["passed"] and found["hosts"] == 1 and {"memory", "disk"} <= {row["check"] for row in found["checks"] if row["result"] == "ok"}, found' ||
    case_failed "the result is not JSON"
  case_end algo-1

  case_begin "an option that there is not"
  job_hosts algo-1 1
  host_start algo-1 "$paceline" check --expect-all
  wait_all algo-1 60
  expect_code algo-1 bad
  expect_failure algo-1 "^check: there is no option --expect-all"
  case_end algo-1
  exit 0
fi

two="algo-1 algo-2"
start() { # HOSTS WORDS...
  local host hosts=$1
  shift
  for host in $hosts; do host_start "$host" "$@"; done
}

case_begin "two hosts that are as they should be"
for host in $two algo-3; do host_rate "$host" 1gbit; done
job_hosts "$two" 2
start "$two" "$paceline" check --expect tcp --expect-mbit 300
wait_all "$two" 60
for host in $two; do
  expect_code $host 0
  expect_success $host
done
row transport 'algo-1 > algo-2' 'tcp eth0' ok
row speed 'algo-2 > algo-1' '[0-9]+ Mbit/s' ok
row clock algo-2 '[+-]0\.[0-9]+ s' ok
row broadcast 'all ranks' right ok
expect_nobody
case_end algo-1 algo-2
cat "$cluster/algo-1.log"

# Each host's own start: `first` runs in its namespaces before `paceline` is process 1.
start_after() { # HOST COMMANDS WORDS...
  local host=$1 first=$2
  shift 2
  host_start "$host" sh -c "$first; exec \"\$@\"" sh "$paceline" check "$@"
}
ends_with_1() { # HOSTS REGEX: the reason on every host
  local host
  wait_all "$1" 90
  for host in $1; do
    expect_code "$host" 1
    expect_failure "$host" "$2"
  done
  expect_nobody
}

case_begin "a host with 64 MiB of shared memory"
job_hosts "$two" 2
host_start algo-1 "$paceline" check
start_after algo-2 'mount -o remount,size=64m /dev/shm'
ends_with_1 "$two" '^check: shared memory of algo-2: 64 MiB, [0-9]+ MiB free; needed: 128 MiB'
row 'shared memory' algo-1 '.*' ok
case_end $two

case_begin "too few descriptors"
job_hosts "$two" 2
host_start algo-1 "$paceline" check
start_after algo-2 'ulimit -n 200'
ends_with_1 "$two" '^check: open files of algo-2: 200; needed: 284'
case_end $two

fake_efa='mount -t tmpfs none /sys/class; d=/sys/class/infiniband/rdmap0s31; mkdir -p $d/device $d/ports/1/hw_counters
  echo 0x1d0f >$d/device/vendor; for c in tx rx; do echo 4711 >$d/ports/1/hw_counters/${c}_bytes; done'
case_begin "an EFA device that nobody uses"
job_hosts "$two" 2
for host in $two; do start_after $host "$fake_efa" --expect efa; done
ends_with_1 "$two" '^check: transport of algo-[12] > algo-[12]: tcp eth0; needed: efa'
row EFA algo-2 'rdmap0s31.*' MISSED
case_end $two

case_begin "the same, and nobody expects it"
job_hosts "$two" 2
for host in $two; do start_after $host "$fake_efa"; done
wait_all "$two" 60
expect_code algo-1 0
row transport 'algo-1 > algo-2' 'tcp eth0' 'note'
case_end $two

case_begin "an interface that is not here"
job_hosts "$two" 2
for host in $two; do sed -i s/eth0/ethwe/ "$cluster/$host/ml/input/config/resourceconfig.json"; done
start "$two" "$paceline" check
wait_all "$two" 60
expect_code algo-1 0
row interface algo-2 'ethwe does not exist here; another one is used' note
case_end $two

three="algo-1 algo-2 algo-3"
case_begin "ports that are closed between two workers"
job_hosts "$three" 1
network algo-3 nft "$input; add rule inet t in ip saddr 10.78.0.2 meta l4proto tcp drop"
start "$three" "$paceline" check
ends_with_1 "$three" '^check: messages of algo-[23] > algo-[32]: no message arrives: a port is closed'
case_end $three
network algo-3 nft flush ruleset

case_begin "a link at a tenth of the others"
job_hosts "$three" 1
host_rate algo-3 100mbit
start "$three" "$paceline" check
ends_with_1 "$three" '^check: speed of algo-[13] > algo-[13]: [0-9]+ Mbit/s; needed: [0-9]+ Mbit/s, a third of the fastest'
row speed 'algo-1 > algo-2' '[0-9]+ Mbit/s' ok
row speed 'algo-3 > algo-2' '[0-9]+ Mbit/s' MISSED
case_end $three
host_rate algo-3 1gbit

case_begin "a host that does not come"
job_hosts "$two" 1
cluster_environment=(PACELINE_PEER_WAIT_S=5)
host_start algo-1 "$paceline" check
wait_all algo-1 60
expect_code algo-1 1
expect_failure algo-1 '^1 of 2 hosts did not connect within 5 s: algo-2'
case_end algo-1
