#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts, of which one prepares (its pip never ends) or cannot be linked: the other is notified of that, and the first is notified of a stop or a failure of the other.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
cluster_up 2

# start_prepares HOST WORDS...: its pip never ends.
start_prepares() {
  local host=$1
  shift
  job_config $host "algo-1 algo-2" $processes
  hanging_pip $host
  cluster_environment=(PACELINE_PYTHON=/opt/ml/bin/python3)
  host_start $host "$paceline" -- "$@"
  cluster_environment=()
}

# await_link: until the master's session is up on the worker; a program that runs may end before that.
await_link() {
  local tries=1200
  until host_run algo-2 sh -c 'ss -xaH | grep "ESTAB.*/control" >/dev/null' 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || case_failed "no link"
    sleep 0.05
  done
}

for busy in algo-2 algo-1; do
  other=algo-$((3 - ${busy#algo-}))

  processes=2
  case_begin "SIGTERM to $other while $busy prepares"
  start_prepares $busy "$probe"
  start_host $other "$probe"
  await_log $busy "pip is at work" 60
  case_mark
  signal_until_end $other TERM 30
  wait_both 30
  for host in algo-1 algo-2; do
    expect_code $host 143
    expect_failure $host "the job was stopped by SIGTERM"
  done
  expect_nobody
  case_end algo-1 algo-2

  processes=0
  case_begin "SIGTERM to $other, which runs, while $busy prepares"
  start_prepares $busy true
  job_config $other "algo-1 algo-2" 0
  host_start $other "$paceline" -- sh -c 'trap "echo model >/opt/ml/model/model; exit 0" TERM; echo runs; while :; do sleep 0.1; done'
  await_log $other '^runs$' 60
  await_log $busy "pip is at work" 60
  await_link
  case_mark
  host_signal $other TERM
  wait_both 30
  [ -s "$cluster/$other/ml/model/model" ] || case_failed "$other has no model"
  expect_code $busy 143
  expect_failure $busy "the job was stopped by SIGTERM"
  expect_nobody
  case_end algo-1 algo-2

  case_begin "the program of $other fails while $busy prepares"
  start_prepares $busy true
  job_config $other "algo-1 algo-2" 0
  host_start $other "$paceline" -- sh -c 'until [ -e /opt/ml/go ]; do sleep 0.1; done; exit 3'
  await_log $busy "pip is at work" 60
  await_link
  case_mark
  touch "$cluster/$other/ml/go"
  wait_both 30
  expect_code $other 3
  expect_code $busy bad
  for host in algo-1 algo-2; do expect_failure $host "^the program on host $other exited with code 3"; done
  expect_nobody
  case_end algo-1 algo-2
done

# PACELINE_PEER_WAIT_S is left at its 900 s.
case_begin "sshd may not run on algo-2"
start_host algo-1 "$probe"
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 setpriv --bounding-set -sys_chroot "$paceline" -- "$probe"
wait_both 30
for host in algo-1 algo-2; do
  expect_code $host bad
  expect_failure $host "needs the capabilities SETGID, SETUID and SYS_CHROOT, but this container lacks SYS_CHROOT"
done
expect_failure algo-1 '^host algo-2: sshd for the other hosts'
expect_nobody
case_end algo-1 algo-2

case_begin "a setting of algo-2 has a wrong value"
start_host algo-1 "$probe"
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 env PACELINE_STOP_S=soon "$paceline" -- "$probe"
wait_both 30
for host in algo-1 algo-2; do
  expect_code $host 1
  expect_failure $host "^host algo-2: PACELINE_STOP_S is 'soon': expected seconds"
done
expect_nobody
case_end algo-1 algo-2
echo "hosts that prepare: all cases passed"
