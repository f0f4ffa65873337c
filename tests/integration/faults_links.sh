#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs whose hosts each run their own program, with the link beside it: two hosts, plain programs that are shell scripts.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

# start_host HOST SCRIPT: the program is the shell script, which says "runs" when it does.
start_host() {
  job_config "$1" "algo-1 algo-2" 0
  host_start "$1" "$paceline" -- sh -c "$2"
}
start_both() { start_host algo-1 "$1"; start_host algo-2 "$2"; }
sleeps='echo runs; while :; do sleep 0.1; done'
saves='trap "sleep 3; echo model >/opt/ml/model/model; exit 0" TERM; echo runs; while :; do sleep 0.1; done'
# Until the programs run and the link is up.
await_link() {
  await_log algo-1 '^runs$' 60
  await_log algo-2 '^runs$' 60
  await_log algo-1 'all 2 hosts are linked' 60
  grep -q "direct: one program on each of 2 hosts; this is algo-1, the master" "$cluster/algo-1.log" || case_failed "the line that says what runs where"
}

case_begin "a program fails on the worker"
start_both "$sleeps" "$sleeps"
await_link
case_mark
host_run algo-2 sh -c 'kill -KILL $(pgrep -f "^sh -c echo runs")'
wait_both 20
expect_code algo-1 1
expect_code algo-2 137
for host in algo-1 algo-2; do expect_failure $host '^the program on host algo-2 was killed by signal 9 \(SIGKILL\)'; done
expect_nobody
case_end algo-1 algo-2

case_begin "a program fails on the master"
start_both 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done; echo no such column >&2; exit 3' "$sleeps"
await_link
case_mark
touch "$cluster/algo-1/ml/go"
wait_both 20
expect_code algo-1 3
expect_code algo-2 1
for host in algo-1 algo-2; do expect_failure $host '^the program on host algo-1 exited with code 3' 'no such column'; done
expect_nobody
case_end algo-1 algo-2

case_begin "the worker is powered off"
start_both "$sleeps" "$sleeps"
await_link
case_mark
host_off algo-2
wait_both 20
expect_code algo-1 1
expect_failure algo-1 '^host algo-2 went away'
expect_nobody
case_end algo-1

case_begin "the master is powered off"
start_both "$sleeps" "$sleeps"
await_link
case_mark
host_off algo-1
wait_both 20
expect_code algo-2 1
expect_failure algo-2 '^the master host algo-1 went away'
expect_nobody
case_end algo-2

case_begin "the cable is cut for ever"
cluster_environment=(PACELINE_SILENCE_S=3)
start_both "$sleeps" "$sleeps"
await_link
case_mark
host_cut algo-2
wait_both 20
host_join algo-2
expect_code algo-1 1
expect_code algo-2 1
expect_failure algo-1 '^host algo-2 went away: nothing was received from it for 3 s'
expect_failure algo-2 '^the master host algo-1 went away: nothing was received from it for 3 s'
expect_nobody
case_end algo-1 algo-2

for host in algo-1 algo-2; do
  case_begin "SIGTERM to $host alone, both save"
  start_both "$saves" "$saves"
  await_link
  case_mark
  host_signal $host TERM
  wait_both 20
  expect_code algo-1 0
  expect_code algo-2 0
  for saved in algo-1 algo-2; do [ -s "$cluster/$saved/ml/model/model" ] || case_failed "$saved has no model"; expect_success $saved; done
  expect_nobody
  case_end algo-1 algo-2
done

for saving in algo-1 algo-2; do
  case_begin "SIGTERM, only $saving saves"
  cluster_environment=()
  other=algo-$((3 - ${saving#algo-}))
  start_host $saving "$saves"
  start_host $other "$sleeps"
  await_link
  case_mark
  host_signal algo-1 TERM
  wait_host $other 30
  [ -s "$cluster/$saving/ml/model/model" ] || case_failed "no model: $other ended before $saving had saved"
  wait_both 20
  expect_code $other 143
  expect_code $saving 143
  for host in algo-1 algo-2; do expect_failure $host "^the job was stopped by SIGTERM; the program on host $other was killed by signal 15 \(SIGTERM\)"; done
  expect_nobody
  case_end algo-1 algo-2
done

for lost in algo-1 algo-2; do
  case_begin "$lost is powered off during a stop, the other saves"
  other=algo-$((3 - ${lost#algo-}))
  start_host $other "$saves"
  start_host $lost 'trap "" TERM; echo runs; while :; do sleep 0.1; done'
  await_link
  host_signal algo-1 TERM
  await_log algo-1 'SIGTERM: stopping' 20
  await_log algo-2 'SIGTERM: stopping' 20
  case_mark
  host_off $lost
  wait_both 30
  [ -s "$cluster/$other/ml/model/model" ] || case_failed "no model: the loss of $lost cut the save short"
  expect_nobody
  case_end $other
done

for first in algo-1 algo-2; do
  case_begin "$first ends well long before the other"
  other=algo-$((3 - ${first#algo-}))
  start_host $first 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done; echo over'
  start_host $other 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done; echo over'
  await_link
  case_mark
  touch "$cluster/$first/ml/go"
  await_log $first '^over$' 20
  sleep 2
  [ ! -e "$cluster/$other.code" ] || case_failed "$other was ended"
  touch "$cluster/$other/ml/go"
  wait_both 20
  for host in algo-1 algo-2; do expect_code $host 0; expect_success $host; done
  expect_nobody
  case_end algo-1 algo-2
done

# The master has connected and has left with success: HELLO and RESULT by hand. A later failure is this host's own.
case_begin "a program fails after the master has left well"
start_host algo-2 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done; exit 3'
await_log algo-2 '^runs$' 60
host_run algo-2 sh -c '{
    printf "PL\004\000\016\000\000\000master\000algo-1\000PL\004\010\003\000\000\0000\000\000"
    until [ -e /opt/ml/output/failure ]; do sleep 0.05; done
  } | "$1" relay /run/paceline.* >/opt/ml/received' sh "$paceline" &
until [ -s "$cluster/algo-2/ml/received" ]; do sleep 0.05; done # READY
case_mark
touch "$cluster/algo-2/ml/go"
wait_host algo-2 30
wait $! || true
expect_code algo-2 3
expect_failure algo-2 '^the program on host algo-2 exited with code 3'
expect_nobody
case_end algo-2

case_begin "no keys on either host: as without a link"
cluster_environment=(PACELINE_SSH_DIR=/nowhere)
start_both 'echo runs; exit 0' 'echo runs; exit 4'
wait_both 20
expect_code algo-1 0
expect_code algo-2 4
expect_failure algo-2 '^the program on host algo-2 exited with code 4'
for host in algo-1 algo-2; do
  [ "$(grep -c 'the hosts of this job are not linked.*/nowhere/id_ed25519' "$cluster/$host.log")" = 1 ] || case_failed "$host: not one warning"
done
expect_nobody
case_end algo-2 algo-1

case_begin "the worker's port is taken: as without a link"
start_host algo-1 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done'
job_config algo-2 "algo-1 algo-2" 0
host_start algo-2 sh -c 'python3 -c "import socket,time; s=socket.socket(); s.setsockopt(1, 2, 1); s.bind((\"\", 22)); s.listen(); open(\"/opt/ml/taken\", \"w\"); time.sleep(600)" &
  until [ -e /opt/ml/taken ]; do sleep 0.05; done; exec "$@"' sh "$paceline" -- sh -c 'echo runs; exit 5'
wait_host algo-2 20
expect_code algo-2 5
grep -q 'the hosts of this job are not linked.*port 22' "$cluster/algo-2.log" || case_failed "no warning"
[ ! -e "$cluster/algo-1.code" ] || case_failed "algo-1 was ended"
touch "$cluster/algo-1/ml/go"
wait_host algo-1 20
expect_code algo-1 0
expect_nobody
case_end algo-2 algo-1

case_begin "the link is switched off"
cluster_environment=(PACELINE_LINK=0)
start_both 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done' 'echo runs; exit 5'
wait_host algo-2 20
[ ! -e "$cluster/algo-1.code" ] || case_failed "algo-1 was ended"
touch "$cluster/algo-1/ml/go"
wait_host algo-1 20
expect_code algo-1 0
expect_code algo-2 5
expect_nobody
case_end algo-2 algo-1

case_begin "torchrun that survives the loss of a host"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 0
  mkdir -p "$cluster/$host/ml/bin"
  printf '#!/bin/sh\necho runs\nuntil [ -e /opt/ml/go ]; do sleep 0.05; done\nexit $(cat /opt/ml/go)\n' >"$cluster/$host/ml/bin/torchrun"
  chmod +x "$cluster/$host/ml/bin/torchrun"
  host_start $host env PATH="/opt/ml/bin:$PATH" "$paceline" -- torchrun --nnodes 1:2 train.py
  await_log $host '^runs$' 20
done
echo 9 >"$cluster/algo-2/ml/go"
wait_host algo-2 20
expect_code algo-2 9
[ ! -e "$cluster/algo-1.code" ] || case_failed "algo-1 was ended"
echo 0 >"$cluster/algo-1/ml/go"
wait_host algo-1 20
expect_code algo-1 0
expect_nobody
case_end algo-2 algo-1

for host in algo-1 algo-2; do
  case_begin "$host has no program, the other hears of it at once"
  other=algo-$((3 - ${host#algo-}))
  start_host $other "$sleeps"
  job_config $host "algo-1 algo-2" 0
  host_start $host "$paceline" -- /no/such/program
  wait_both 70
  expect_code $host bad
  expect_code $other bad
  for each in algo-1 algo-2; do expect_failure $each "/no/such/program"; done
  expect_nobody
  case_end algo-1 algo-2
done

# Each host would read these files by itself. PACELINE_PEER_WAIT_S is left at its 900 s.
for host in algo-1 algo-2; do
  case_begin "the configuration of $host alone cannot be read"
  other=algo-$((3 - ${host#algo-}))
  start_host $other "$sleeps"
  job_config $host "algo-1 algo-2" 0
  echo '{"epochs": ' >"$cluster/$host/ml/input/config/hyperparameters.json"
  host_start $host "$paceline" -- sh -c "$sleeps"
  wait_both 70
  for each in algo-1 algo-2; do
    expect_code $each 1
    expect_failure $each "^host $host: /opt/ml/input/config/hyperparameters.json, line 2, column 1: expected"
  done
  cmp -s "$cluster/algo-1/ml/output/failure" "$cluster/algo-2/ml/output/failure" || case_failed "the words of the hosts differ"
  expect_nobody
  case_end algo-1 algo-2
done

for host in algo-1 algo-2; do
  case_begin "$host fails before the other host is there"
  other=algo-$((3 - ${host#algo-}))
  start_host $host 'exit 7'
  await_log $host 'the job has failed; waiting for' 20
  start_host $other "$sleeps"
  wait_both 70
  expect_code $host 7
  expect_code $other 1
  for each in algo-1 algo-2; do expect_failure $each "^the program on host $host exited with code 7"; done
  expect_nobody
  case_end algo-1 algo-2
done
echo "hosts with programs of their own end together, stop together, and save apart"
