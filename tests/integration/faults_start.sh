#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults between two hosts before a job trains: a host does not connect, a port is in use, a preparation fails, secrets differ, the job is stopped.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

await_control() { until host_run "$1" sh -c '[ -S /run/paceline.*/control ]' 2>/dev/null || [ -e "$cluster/$1.code" ]; do sleep 0.05; done; }

begin_with "the worker never comes" PACELINE_PEER_WAIT_S=3
start_host algo-1
case_ends 30 algo-1 bad "1 of 2 hosts did not connect within 3 s: algo-2"

begin_with "the master never comes" PACELINE_PEER_WAIT_S=3
start_host algo-2
case_ends 30 algo-2 bad "master host algo-1 did not connect within 3 s"

# The reason is the message of the last attempt, not of an earlier attempt that got less far.
begin_with "the worker's port hangs up on every session" PACELINE_PEER_WAIT_S=6
start_host algo-1
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 python3 -c 'import socket, time; time.sleep(1); s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("", 22)); s.listen()
while True: s.accept()[0].close()'
wait_host algo-1 30
host_off algo-2
case_ends 10 algo-1 bad "1 of 2 hosts did not connect within 6 s: algo-2 \(kex_exchange_identification" algo-2 any ''

case_begin "a master that greets twice and goes"
start_host algo-2
await_control algo-2
host_run algo-2 sh -c 'printf "PL\004\000\016\000\000\000master\000algo-1\000PL\004\000\000\000\000\000" | "$1" relay /run/paceline.*' sh "$paceline" >/dev/null || true
case_mark
case_ends 20 algo-2 bad "master host algo-1 went away: its connection closed"

# await_queues CONNECTIONS BYTES: until of the socket where the master comes in nobody has taken so many connections, nor read so many bytes.
await_queues() {
  local tries=1200
  until [ "$(host_run algo-2 ss -xaH | awk '$5 ~ "/control$" { queue[$2] = $3 } END { print queue["LISTEN"], queue["ESTAB"] }')" = "$1 $2" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || case_failed "the master's connection: $(host_run algo-2 ss -xaH)"
    sleep 0.05
  done
}
case_begin "SIGTERM in the moment of the master's greeting"
start_host algo-2
await_control algo-2
host_run algo-2 sh -c '{
    until [ -e /opt/ml/greet ]; do sleep 0.05; done
    printf "PL\004\000\016\000\000\000master\000algo-1\000"
    until [ -e /opt/ml/output/failure ]; do sleep 0.05; done
  } | "$1" relay /run/paceline.* >/opt/ml/received' sh "$paceline" &
await_queues 0 0
host_signal algo-2 STOP
touch "$cluster/algo-2/ml/greet"
await_queues 0 22
host_signal algo-2 TERM
case_mark
host_signal algo-2 CONT
wait_host algo-2 60
wait $! || true
case_ends 60 algo-2 143 "stopped by SIGTERM before its program started"
grep -aq $'PL\x04\x07' "$cluster/algo-2/ml/received" || case_failed "the master was not notified"

begin_with "SIGTERM while waiting for the worker" PACELINE_STOP_S=360
start_host algo-1
case_mark
signal_until_end algo-1 TERM 30
case_ends 30 algo-1 143 "stopped by SIGTERM before its program started"

begin_with "port 22 is taken on the worker" PACELINE_PEER_WAIT_S=3
start_host algo-1
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 sh -c 'python3 -c "import socket,time; s=socket.socket(); s.setsockopt(1, 2, 1); s.bind((\"\", 22)); s.listen(); open(\"/opt/ml/taken\", \"w\"); time.sleep(60)" &
  until [ -e /opt/ml/taken ]; do sleep 0.05; done; exec "$@"' sh \
  "$paceline" -- "$probe"
case_ends 30 algo-2 bad "cannot use port 22.*Address already in use" algo-1 bad "algo-2"
expect_failure algo-2 "PACELINE_SSH_PORT"

# Replaces Python by a script whose pip fails; PACELINE_PEER_WAIT_S is left at its 900 s.
for broken in algo-2 algo-1 "algo-1 algo-2"; do
  begin_with "the preparation fails on $broken" PACELINE_PYTHON=/opt/ml/bin/python3
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    [[ "$broken" != *$host* ]] || {
      mkdir "$cluster/$host/ml/bin" "$cluster/$host/ml/code"
      echo "numpy" >"$cluster/$host/ml/code/requirements.txt"
      printf '#!/bin/sh\n[ "$1" != -c ] || exit 0 # pip is there\necho "no such package" >&2\nexit 4\n' >"$cluster/$host/ml/bin/python3"
      chmod +x "$cluster/$host/ml/bin/python3"
    }
    host_start $host "$paceline" -- "$probe"
  done
  both_end 100 bad "installing requirements.txt on host algo-[12]: no such package \(exit code 4\)$"
done

for broken in algo-2 algo-1 "algo-1 algo-2"; do
  case_begin "the configuration of $broken cannot be read"
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    [[ "$broken" != *$host* ]] || sed -i 's/: "2"/: "two"/' "$cluster/$host/ml/input/config/hyperparameters.json"
    host_start $host "$paceline" -- "$probe"
  done
  both_end 100 1 "^host algo-[12]: hyperparameter sagemaker_mpi_num_of_processes_per_host: expected a whole number from 1 to 65536, found \"two\"$"
  [ "$broken" = "algo-1 algo-2" ] || cmp -s "$cluster/algo-1/ml/output/failure" "$cluster/algo-2/ml/output/failure" || case_failed "the words of the hosts differ"
done

for stopped in algo-2 algo-1; do
  begin_with "SIGTERM to $stopped alone while it prepares" PACELINE_PYTHON=/opt/ml/bin/python3 PACELINE_STOP_S=360
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    [ $host != $stopped ] || hanging_pip $host
    host_start $host "$paceline" -- "$probe"
    [ $host = $stopped ] || await_control $host
  done
  await_log $stopped "pip is at work" 60
  case_mark
  host_signal $stopped TERM
  both_end 40 143 "the job was stopped by SIGTERM"
done

begin_with "another port serves" PACELINE_SSH_PORT=2022
start_both
both_end 60 0

secret_case() { # secret_case NAME PEER_WAIT_S SECRET_1 SECRET_2: keys from a file in a channel, none in the image
  local number wait_s=$2
  case_begin "$1"
  cluster_environment=("" "PACELINE_SSH_DIR=/nonexistent" "PACELINE_SSH_SECRET=/opt/ml/input/data/secret/key" "TRAINING_JOB_NAME=job-1")
  shift 2
  for number in 1 2; do
    job_config algo-$number "algo-1 algo-2" 2
    mkdir -p "$cluster/algo-$number/ml/input/data/secret"
    echo "$1" >"$cluster/algo-$number/ml/input/data/secret/key"
    # The worker waits longer: its sshd is there when the master gives up, and the reason is the key, not the port.
    cluster_environment[0]=PACELINE_PEER_WAIT_S=$((wait_s + 10 * (number - 1)))
    host_start algo-$number "$paceline" -- "$probe"
    shift
  done
}
secret_case "keys are made from a secret" 60 "a secret of at least thirty-two bytes" "a secret of at least thirty-two bytes"
both_end 90 0
secret_case "the hosts have different secrets" 10 "a secret of at least thirty-two bytes" "another one of at least thirty-two bytes"
case_ends 90 algo-1 bad "algo-2 \(.*[Hh]ost key" algo-2 bad ''
secret_case "the secret is too short" 4 "a secret of at least thirty-two bytes" "short"
case_ends 90 algo-2 bad "making ssh keys from the job's secret on host algo-2: making ssh keys: PACELINE_SSH_SECRET: .* at least 32 are needed \(exit code 1\)\$" algo-1 any ''
echo "faults at the start of two hosts: all cases passed"
