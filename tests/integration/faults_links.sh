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
sleeps='echo runs; while :; do sleep 0.1; done'
saves='trap "sleep 3; echo model >/opt/ml/model/model; exit 0" TERM; echo runs; while :; do sleep 0.1; done'
waits='echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done'

# linked_case NAME [VARIABLE=VALUE]... HOST SCRIPT OTHER SCRIPT: begins the case; when it returns the programs run, and the link is up.
linked_case() {
  begin_with "$@"
  set -- "${case_words[@]}"
  start_host "$1" "$2"
  start_host "$3" "$4"
  await_log algo-1 '^runs$' 60
  await_log algo-2 '^runs$' 60
  await_log algo-1 'all 2 hosts are linked' 60
  grep -q "direct: one program on each of 2 hosts; this is algo-1, the master" "$cluster/algo-1.log" || case_failed "the line that says what runs where"
  case_mark
}
expect_runs() { [ ! -e "$cluster/$1.code" ] || case_failed "$1 was ended"; }
expect_model() { [ -s "$cluster/$1/ml/model/model" ] || case_failed "$1 has no model"; }
other_than() { echo algo-$((3 - ${1#algo-})); }

linked_case "a program fails on the worker" algo-1 "$sleeps" algo-2 "$sleeps"
host_run algo-2 sh -c 'kill -KILL $(pgrep -f "^sh -c echo runs")'
words='^the program on host algo-2 was killed by signal 9 \(SIGKILL\)'
case_ends 20 algo-1 1 "$words" algo-2 137 "$words"

linked_case "a program fails on the master" algo-1 "$waits; echo no such column >&2; exit 3" algo-2 "$sleeps"
touch "$cluster/algo-1/ml/go"
case_ends 20 algo-1 3 'no such column' algo-2 1 'no such column'
for host in algo-1 algo-2; do expect_failure $host '^the program on host algo-1 exited with code 3'; done

linked_case "the worker is powered off" algo-1 "$sleeps" algo-2 "$sleeps"
host_off algo-2
case_ends 20 algo-1 1 '^host algo-2 went away' algo-2 any ''

linked_case "the master is powered off" algo-1 "$sleeps" algo-2 "$sleeps"
host_off algo-1
case_ends 20 algo-2 1 '^the master host algo-1 went away' algo-1 any ''

linked_case "the cable is cut for ever" PACELINE_SILENCE_S=3 algo-1 "$sleeps" algo-2 "$sleeps"
host_cut algo-2
wait_both 20
host_join algo-2
case_ends 20 algo-1 1 '^host algo-2 went away: nothing was received from it for 3 s' algo-2 1 '^the master host algo-1 went away: nothing was received from it for 3 s'

for host in algo-1 algo-2; do
  linked_case "SIGTERM to $host alone, both save" algo-1 "$saves" algo-2 "$saves"
  host_signal $host TERM
  both_end 20 0
  for saved in algo-1 algo-2; do expect_model $saved; done
done

for saving in algo-1 algo-2; do
  other=$(other_than $saving)
  linked_case "SIGTERM, only $saving saves" $saving "$saves" $other "$sleeps"
  host_signal algo-1 TERM
  wait_host $other 30
  expect_model $saving # the other host has not ended before it was saved
  both_end 20 143 "^the job was stopped by SIGTERM; the program on host $other was killed by signal 15 \(SIGTERM\)"
done

for lost in algo-1 algo-2; do
  other=$(other_than $lost)
  linked_case "$lost is powered off during a stop, the other saves" $other "$saves" $lost 'trap "" TERM; echo runs; while :; do sleep 0.1; done'
  host_signal algo-1 TERM
  await_log algo-1 'SIGTERM: stopping' 20
  await_log algo-2 'SIGTERM: stopping' 20
  case_mark
  host_off $lost
  case_ends 30 $other any '' $lost any ''
  expect_model $other # the loss has not cut the save short
done

for first in algo-1 algo-2; do
  other=$(other_than $first)
  linked_case "$first ends well long before the other" $first "$waits; echo over" $other "$waits; echo over"
  touch "$cluster/$first/ml/go"
  await_log $first '^over$' 20
  sleep 2
  expect_runs $other
  touch "$cluster/$other/ml/go"
  both_end 20 0
done

# The master has connected and has left with success: HELLO and RESULT by hand. A later failure is this host's own.
case_begin "a program fails after the master has left well"
start_host algo-2 "$waits; exit 3"
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
case_ends 30 algo-2 3 '^the program on host algo-2 exited with code 3'

case_begin "no keys on either host: as without a link"
cluster_environment=(PACELINE_SSH_DIR=/nowhere)
start_host algo-1 'echo runs; exit 0'
start_host algo-2 'echo runs; exit 4'
case_ends 20 algo-2 4 '^the program on host algo-2 exited with code 4' algo-1 0 ''
for host in algo-1 algo-2; do
  [ "$(grep -c 'the hosts of this job are not linked.*/nowhere/id_ed25519' "$cluster/$host.log")" = 1 ] || case_failed "$host: not one warning"
done

case_begin "the worker's port is taken: as without a link"
start_host algo-1 "$waits"
job_config algo-2 "algo-1 algo-2" 0
host_start algo-2 sh -c 'python3 -c "import socket,time; s=socket.socket(); s.setsockopt(1, 2, 1); s.bind((\"\", 22)); s.listen(); open(\"/opt/ml/taken\", \"w\"); time.sleep(600)" &
  until [ -e /opt/ml/taken ]; do sleep 0.05; done; exec "$@"' sh "$paceline" -- sh -c 'echo runs; exit 5'
wait_host algo-2 20
grep -q 'the hosts of this job are not linked.*port 22' "$cluster/algo-2.log" || case_failed "no warning"
expect_runs algo-1
touch "$cluster/algo-1/ml/go"
case_ends 20 algo-2 5 '' algo-1 0 ''

case_begin "the link is switched off"
cluster_environment=(PACELINE_LINK=0)
start_host algo-1 "$waits"
start_host algo-2 'echo runs; exit 5'
wait_host algo-2 20
expect_runs algo-1
touch "$cluster/algo-1/ml/go"
case_ends 20 algo-2 5 '' algo-1 0 ''

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
expect_runs algo-1
echo 0 >"$cluster/algo-1/ml/go"
case_ends 20 algo-2 9 '' algo-1 0 ''

for host in algo-1 algo-2; do
  case_begin "$host has no program, the other hears of it at once"
  start_host "$(other_than $host)" "$sleeps"
  job_config $host "algo-1 algo-2" 0
  host_start $host "$paceline" -- /no/such/program
  both_end 70 bad "/no/such/program"
done

# Each host would read these files by itself. PACELINE_PEER_WAIT_S is left at its 900 s.
for host in algo-1 algo-2; do
  case_begin "the configuration of $host alone cannot be read"
  start_host "$(other_than $host)" "$sleeps"
  job_config $host "algo-1 algo-2" 0
  echo '{"epochs": ' >"$cluster/$host/ml/input/config/hyperparameters.json"
  host_start $host "$paceline" -- sh -c "$sleeps"
  both_end 70 1 "^host $host: /opt/ml/input/config/hyperparameters.json, line 2, column 1: expected"
  cmp -s "$cluster/algo-1/ml/output/failure" "$cluster/algo-2/ml/output/failure" || case_failed "the words of the hosts differ"
done

for host in algo-1 algo-2; do
  case_begin "$host fails before the other host is there"
  other=$(other_than $host)
  start_host $host 'exit 7'
  await_log $host 'the job has failed; waiting for' 20
  start_host $other "$sleeps"
  words="^the program on host $host exited with code 7"
  case_ends 70 $host 7 "$words" $other 1 "$words"
done
echo "hosts with programs of their own end together, stop together, and save apart"
