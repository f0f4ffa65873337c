#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `paceline check` on one host; `check.sh long` on hosts in namespaces: hosts that are as they should be, and each thing that it is to find.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$PACELINE_BUILD/libexec/paceline/paceline-check" ] || cluster_skip "built without MPI"
trap cluster_down EXIT
trap 'exit 143' TERM INT
if [ "${1:-}" = long ]; then cluster_up 3; else cluster_up 1; fi

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

case_begin "an option that there is not"
job_hosts algo-1 1
host_start algo-1 "$paceline" check --expect-all
wait_all algo-1 60
expect_code algo-1 bad
expect_failure algo-1 "there is no option --expect-all"
case_end algo-1

[ "${1:-}" = long ] || exit 0

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
