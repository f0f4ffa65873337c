#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs with Paceline's own parameter servers under `paceline train`, on one host and on two.
#
#   native_server.sh          every push counts, with a bound and without; a worker that fails, and the others continue or end; a stop
#   native_server.sh long     workers and servers that are killed, stopped, or leave in the middle; `full`: at more random moments
#   native_server.sh faults [TIMES]    a worker or a server of a job in full training is killed, stopped, or cut off, TIMES (8) at random moments each
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
worker=$PACELINE_BUILD/tests/integration/server_worker
cluster_up 2

# start HOSTS WORKERS STALENESS WORDS...: a job whose workers run server_worker WORDS.
start() {
  local hosts=$1 host
  case_name="$1 host(s) x $2 worker(s), staleness $3: ${*:4}"
  for host in $hosts; do
    job_config "$host" "$hosts" 0
    echo "{\"sagemaker_parameter_server_enabled\": \"true\", \"paceline_ps\": \"native\", \"paceline_ps_workers_per_host\": \"$2\",
      \"paceline_ps_staleness\": \"$3\", \"paceline_timeout_s\": \"${timeout_s:-60}\", \"paceline_stall_s\": \"2\", \"paceline_trace\": \"${trace:-}\", \"paceline_ps_min_workers\": \"${min_workers:-all}\",
      \"sagemaker_mpi_custom_mpi_options\": \"--mca mpi_yield_when_idle 1\"}" >"$cluster/$host/ml/input/config/hyperparameters.json"
  done
  for host in $hosts; do host_start "$host" "$paceline" -- "$worker" "${@:4}"; done
}

# finish HOSTS CODE
finish() {
  local host
  for host in $1; do
    host_wait "$host" 120 || case_failed "$host did not end"
    expect_code "$host" "$2"
    [ -z "$(host_pids "$host")" ] || case_failed "processes are left on $host"
  done
}

one=algo-1 both="algo-1 algo-2"

# expect_values WORKERS STEPS VALUE
expect_values() {
  local number
  ! grep -E 'was refused|is gone without' "$cluster"/*.log || case_failed "a worker that has left is not known to have left"
  for ((number = 0; number < $1; number++)); do
    grep -q "worker $number of $1: steps $2 value $3 uniform" "$cluster"/*.log || case_failed "worker $number has other values than $3"
  done
}

short() {
  trace=/opt/ml/output/data/trace start $one 2 none 20 && finish $one 0
  expect_values 2 20 60.0 # 20 x (1 + 2)
  for number in 0 1; do
    [ "$(grep -o '"server wait"' "$cluster/algo-1/ml/output/data/trace.worker$number" | wc -l)" = 20 ] || case_failed "worker $number has no trace of 20 steps"
  done
  cluster_environment=(PACELINE_LOG=debug)
  start "$both" 2 none 20 && finish "$both" 0
  cluster_environment=()
  expect_values 4 20 200.0 # 20 x (1 + 2 + 3 + 4)
  grep -Eq 'host 0: [0-9]+ pushes and [0-9]+ pulls .* MB of values sent; updates of others to a piece before a push: ' "$cluster"/*.log || case_failed "no server says what it has done"
  start "$both" 1 1 20 && finish "$both" 0
  expect_values 2 20 60.0
  start "$both" 2 0 20 && finish "$both" 0
  expect_values 4 20 50.0 # 20 x the average
  # a program with a table of rows, which it saves: each host has its part
  worker=$PACELINE_BUILD/libexec/paceline/embedding start "$both" 2 none --rows 4000 --columns 4 --batch-size 64 --steps 100 --evaluate-samples 1000
  finish "$both" 0
  [ "$(grep -hc 'step=100 .*test_logloss=' "$cluster"/*.log | sort -n | tail -1)" = 1 ] || case_failed "no worker has told its loss once"
  for host in 0 1; do
    compgen -G "$cluster/algo-$((host + 1))/ml/model/rows-0000$host-of-00002.*.rows" >/dev/null || case_failed "algo-$((host + 1)) has no rows in its model"
  done
  start "$both" 2 none 20 exit3 && finish "$both" bad
  for host in $both; do expect_failure "$host" 'algo-1 exited with code 3' 'worker 1 of this host exited with code 3'; done
  min_workers=3 start "$both" 2 none 20 exit3 && finish "$both" 0
  drop 10 'exited with code 3'
  min_workers=4 start "$both" 2 none 20 kill && finish "$both" bad
  expect_failure algo-1 'worker 1 .host 0. was killed by signal 9: 3 of 4 workers are left, expected 4 .ps_min_workers.'
  start "$both" 1 none 20 term
  for rank in 0 1; do await_log algo-1 "1,$rank.*ready\$" 60; done
  host_signal algo-2 USR1 # the program's own affair, which ends no server
  host_signal algo-2 TERM
  finish "$both" 0
  expect_values 2 20 60.0
}

# drop STEP CAUSE: the last job has gone on without worker 1, which had pushed the gradients of step STEP, too
drop() {
  local value=$((20 * (1 + 3 + 4) + ($1 + 1) * 2)) number
  grep -q "worker 1 (host 0) $2 and is dropped: 3 of 4 workers are left, ps_min_workers is 3" "$cluster/algo-1.log" ||
    case_failed "nobody says that worker 1 is dropped"
  for number in 0 2 3; do
    grep -q "worker $number of 4: steps 20 value $value.0 uniform" "$cluster"/*.log || case_failed "worker $number has other values than $value"
  done
}

# long [KILLS FAULTS]
long() {
  local step
  RANDOM=32
  for ((i = 0; i < ${1:-2}; i++)); do
    step=$((RANDOM % 20))
    min_workers=3 start "$both" 2 none 20 kill $step && finish "$both" 0
    drop $step 'was killed by signal 9'
  done
  step=$((RANDOM % 20))
  min_workers=3 start "$both" 2 none 20 stop $step # the others wait for it in a sum
  for _ in $(seq 600); do
    stopped=$(host_run algo-1 ps -eo pid=,stat=,comm= | awk '$2 ~ /^T/ && $3 == "server_worker" { print $1 }')
    [ -z "$stopped" ] || break
    sleep 0.1
  done
  host_run algo-1 kill -KILL "$stopped"
  finish "$both" 0
  drop $step 'was killed by signal 9'
  start "$both" 2 none 20 kill && finish "$both" bad
  for host in $both; do expect_failure "$host" 'algo-1 was killed by signal 9' 'worker 1 of this host was killed by signal 9'; done
  start "$both" 2 none 20 segv && finish "$both" bad
  for host in $both; do expect_failure "$host" 'algo-1 was killed by signal 11' 'worker 1 of this host was killed by signal 11'; done
  start "$both" 2 0 20 leave && finish "$both" 0
  grep -q 'worker 1 (host 0) is gone without leaving' "$cluster/algo-1.log" || case_failed "nobody says that worker 1 is gone"
  timeout_s=30 start "$both" 2 2 2000 stop && finish "$both" bad
  expect_failure algo-1 'the slowest did not catch up within timeout_s'
  grep -q 'worker [0-3] has waited 2 s: .* the slowest did not catch up so far' "$cluster/algo-1.log" || case_failed "nobody says that it waits"
  faults "${2:-1}"
}

# begin STALENESS: a job of 2 x 2 workers trains, and has for a random time; `host` is a random one
begin() {
  start "$both" 2 "$1" 100000000 ready
  for rank in 0 1; do await_log algo-1 "1,$rank.*ready\$" 60; done
  sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
  host=algo-$((1 + RANDOM % 2))
}

# strike SIGNAL NAME: the first process of that name on `host`
strike() { host_run "$host" pkill "-$1" -o "$2"; }

# faults TIMES
faults() {
  local host every
  RANDOM=33
  for ((i = 0; i < $1; i++)); do
    timeout_s=5 begin 2
    strike STOP server_worker
    finish "$both" bad
    expect_failure algo-1 'the slowest did not catch up within timeout_s'
    begin none
    strike KILL server_worker
    finish "$both" bad
    for every in $both; do expect_failure "$every" "rank [01] on host $host was killed by signal 9" 'worker [0-3] of this host was killed by signal 9'; done
    begin none
    strike KILL paceline-server
    finish "$both" bad
    for every in $both; do expect_failure "$every" "rank [01] on host $host was killed by signal 9"; done
    timeout_s=5 begin none
    strike STOP paceline-server
    finish "$both" bad
    for every in $both; do expect_failure "$every" "rank [01] on host $host was stopped by signal 19"; done
    cluster_environment=(PACELINE_SILENCE_S=3)
    begin none
    host_cut "$host"
    finish "$both" bad
    host_join "$host"
    expect_failure algo-1 '^host algo-2 went away: nothing was received from it for 3 s'
    expect_failure algo-2 '^the master host algo-1 went away: nothing was received from it for 3 s'
    cluster_environment=()
  done
}

case ${1:-short} in
faults) faults "${2:-8}" ;;
full) long 8 2 ;;
*) "${1:-short}" ;;
esac
echo "parameter servers apply every push once, and end with the job"
