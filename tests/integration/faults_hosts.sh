#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What can go wrong between two hosts: a host dies, the network is cut, a port is taken, the job is stopped.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

start_host() {
  local host=$1
  shift
  job_config "$host" "algo-1 algo-2" 2
  host_start "$host" "$paceline" -- "$probe" "$@"
}
start_both() { start_host algo-1 "$@"; start_host algo-2 "$@"; }
await_control() { until host_run "$1" sh -c '[ -S /run/paceline.*/control ]' 2>/dev/null || [ -e "$cluster/$1.code" ]; do sleep 0.05; done; }
wait_host() { host_wait "$1" "$2" || case_failed "no end"; }
await_ranks() {
  local rank
  for rank in 0 1 2 3; do await_log algo-1 "rank $rank of 4" 60; done
}

case_begin "the worker is powered off mid-job"
start_both sleep 0 60
await_ranks
case_mark
host_off algo-2
wait_host algo-1 20
wait_host algo-2 20
expect_code algo-1 bad
expect_failure algo-1 "host algo-2 went away"
expect_nobody
case_end algo-1 algo-2

case_begin "the master is powered off mid-job"
start_both sleep 0 60
await_ranks
case_mark
host_off algo-1
wait_host algo-2 20
wait_host algo-1 20
expect_code algo-2 bad
expect_failure algo-2 "master host algo-1 went away"
expect_nobody
case_end algo-2 algo-1

# Around the end either outcome is right, as long as both the exit code and the files say the same and nobody waits or stays.
for delay in 0.9 1.0 1.05 1.1; do
  case_begin "the worker is powered off at the end, after $delay s"
  start_both sleep 0 1
  await_ranks
  sleep $delay
  case_mark
  host_off algo-2 2>/dev/null || true # it may have ended by itself
  wait_host algo-1 20
  wait_host algo-2 20
  if [ "$(cat "$cluster/algo-1.code")" = 0 ]; then
    expect_success algo-1
  else
    expect_failure algo-1 "algo-2"
  fi
  expect_nobody
  case_end algo-1
done

# The launcher and its daemons fall for themselves, and with them ranks that have done nothing.
fallen_case() { # fallen_case NAME HOST SIGNAL PROGRAM WORDS
  case_begin "$1"
  start_both sleep 0 60
  await_ranks
  case_mark
  host_run "$2" pkill "-$3" -x "$4"
  wait_host algo-1 20
  wait_host algo-2 20
  expect_code algo-1 1
  expect_code algo-2 1
  expect_failure algo-1 "$5"
  expect_failure algo-2 "$5"
  expect_nobody
  case_end algo-1 algo-2
}
fallen_case "mpirun is killed" algo-1 KILL mpirun '^mpirun on host algo-1 was killed by signal 9 \(SIGKILL\)'
fallen_case "mpirun is told to end" algo-1 TERM mpirun '^mpirun on host algo-1 exited with code 1: it ended its ranks, none of which had failed'
fallen_case "orted is killed" algo-2 KILL orted "^Open MPI's launch daemon on host algo-2 was killed by signal 9 \(SIGKILL\)"

case_begin "a rank leaves with 0 and without MPI_Finalize"
start_both exit 2 0
case_mark
wait_host algo-1 30
wait_host algo-2 30
for host in algo-1 algo-2; do
  expect_code $host 1
  expect_failure $host '^rank 2 on host algo-2 exited with code 0: it left without MPI_Finalize\(\)' 'this is the last word of rank 2'
done
expect_nobody
case_end algo-1 algo-2

case_begin "a rank is stopped and goes on"
start_both sleep 0 3
await_ranks
host_run algo-2 sh -c 'kill -STOP $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 was stopped by signal 19 \(SIGSTOP\)' 20
host_run algo-2 sh -c 'kill -CONT $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 goes on' 20
case_mark
wait_host algo-1 40
wait_host algo-2 40
expect_code algo-1 0
expect_code algo-2 0
expect_nobody
case_end algo-1 algo-2

case_begin "the worker never comes"
cluster_environment=("PACELINE_PEER_WAIT_S=3")
start_host algo-1
wait_host algo-1 30
expect_code algo-1 bad
expect_failure algo-1 "1 of 2 hosts did not come within 3 s: algo-2"
expect_nobody
case_end algo-1

case_begin "the master never comes"
cluster_environment=("PACELINE_PEER_WAIT_S=3")
start_host algo-2
wait_host algo-2 30
expect_code algo-2 bad
expect_failure algo-2 "master host algo-1 did not come within 3 s"
expect_nobody
case_end algo-2

# What the last try says is the reason, not what an earlier one said that got less far.
case_begin "the worker's port hangs up on every session"
cluster_environment=("PACELINE_PEER_WAIT_S=6")
start_host algo-1
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 python3 -c 'import socket, time; time.sleep(1); s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("", 22)); s.listen()
while True: s.accept()[0].close()'
wait_host algo-1 30
expect_code algo-1 bad
expect_failure algo-1 "1 of 2 hosts did not come within 6 s: algo-2 \(kex_exchange_identification"
host_off algo-2
wait_host algo-2 10
case_end algo-1

case_begin "a master that greets twice and goes"
start_host algo-2
await_control algo-2
host_run algo-2 sh -c 'printf "PL\003\000\016\000\000\000master\000algo-1\000PL\003\000\000\000\000\000" | "$1" relay /run/paceline.*' sh "$paceline" >/dev/null || true
case_mark
wait_host algo-2 20
expect_code algo-2 bad
expect_failure algo-2 "master host algo-1 went away: its connection closed"
expect_nobody
case_end algo-2

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
    printf "PL\003\000\016\000\000\000master\000algo-1\000"
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
expect_code algo-2 143
expect_failure algo-2 "stopped by SIGTERM before its program started"
grep -aq $'PL\x03\x07' "$cluster/algo-2/ml/received" || case_failed "the master was not notified"
expect_nobody
case_end algo-2

case_begin "SIGTERM while waiting for the worker"
cluster_environment=("PACELINE_STOP_S=360")
start_host algo-1
case_mark
signal_until_end algo-1 TERM 30
expect_code algo-1 143
expect_failure algo-1 "stopped by SIGTERM before its program started"
expect_nobody
case_end algo-1

case_begin "port 22 is taken on the worker"
cluster_environment=("PACELINE_PEER_WAIT_S=3")
start_host algo-1
job_config algo-2 "algo-1 algo-2" 2
host_start algo-2 sh -c 'python3 -c "import socket,time; s=socket.socket(); s.setsockopt(1, 2, 1); s.bind((\"\", 22)); s.listen(); open(\"/opt/ml/taken\", \"w\"); time.sleep(60)" &
  until [ -e /opt/ml/taken ]; do sleep 0.05; done; exec "$@"' sh \
  "$paceline" -- "$probe"
wait_host algo-2 30
wait_host algo-1 30
expect_code algo-2 bad
expect_code algo-1 bad
expect_failure algo-2 "cannot have port 22.*Address already in use" "PACELINE_SSH_PORT"
expect_failure algo-1 "algo-2"
case_end algo-2 algo-1

# A stand-in for Python whose pip fails; PACELINE_PEER_WAIT_S is left at its 900 s.
for broken in algo-2 algo-1 "algo-1 algo-2"; do
  case_begin "the preparation fails on $broken"
  cluster_environment=("PACELINE_PYTHON=/opt/ml/bin/python3")
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
  wait_host algo-1 100
  wait_host algo-2 100
  for host in algo-1 algo-2; do
    expect_code $host bad
    expect_failure $host "installing requirements.txt on host algo-[12]: no such package \(exit code 4\)$"
  done
  expect_nobody
  case_end algo-1 algo-2
done

for broken in algo-2 algo-1 "algo-1 algo-2"; do
  case_begin "the configuration of $broken cannot be read"
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    [[ "$broken" != *$host* ]] || sed -i 's/: "2"/: "two"/' "$cluster/$host/ml/input/config/hyperparameters.json"
    host_start $host "$paceline" -- "$probe"
  done
  wait_host algo-1 100
  wait_host algo-2 100
  for host in algo-1 algo-2; do
    expect_code $host 1
    expect_failure $host "^host algo-[12]: hyperparameter sagemaker_mpi_num_of_processes_per_host: expected a whole number from 1 to 65536, found \"two\"$"
  done
  [ "$broken" = "algo-1 algo-2" ] || cmp -s "$cluster/algo-1/ml/output/failure" "$cluster/algo-2/ml/output/failure" || case_failed "the words of the hosts differ"
  expect_nobody
  case_end algo-1 algo-2
done

for stopped in algo-2 algo-1; do
  case_begin "SIGTERM to $stopped alone while it prepares"
  cluster_environment=("PACELINE_PYTHON=/opt/ml/bin/python3" "PACELINE_STOP_S=360")
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    [ $host != $stopped ] || hanging_pip $host
    host_start $host "$paceline" -- "$probe"
    [ $host = $stopped ] || await_control $host
  done
  await_log $stopped "pip is at work" 60
  case_mark
  host_signal $stopped TERM
  wait_host algo-1 40
  wait_host algo-2 20
  for host in algo-1 algo-2; do
    expect_code $host 143
    expect_failure $host "the job was stopped by SIGTERM"
  done
  expect_nobody
  case_end algo-1 algo-2
done

case_begin "another port serves"
cluster_environment=("PACELINE_SSH_PORT=2022")
start_both
wait_host algo-1 60
wait_host algo-2 30
expect_code algo-1 0
expect_code algo-2 0
case_end algo-1 algo-2

secret_case() { # secret_case NAME PEER_WAIT_S SECRET_1 SECRET_2: keys from a file in a channel, none in the image
  local number
  case_begin "$1"
  cluster_environment=("PACELINE_PEER_WAIT_S=$2" "PACELINE_SSH_DIR=/nonexistent" "PACELINE_SSH_SECRET=/opt/ml/input/data/secret/key" "TRAINING_JOB_NAME=job-1")
  shift 2
  for number in 1 2; do
    job_config algo-$number "algo-1 algo-2" 2
    mkdir -p "$cluster/algo-$number/ml/input/data/secret"
    echo "$1" >"$cluster/algo-$number/ml/input/data/secret/key"
    host_start algo-$number "$paceline" -- "$probe"
    shift
  done
  wait_host algo-1 90
  wait_host algo-2 30
}
secret_case "keys are made from a secret" 60 "a secret of at least thirty-two bytes" "a secret of at least thirty-two bytes"
expect_code algo-1 0
expect_code algo-2 0
case_end algo-1 algo-2
secret_case "the hosts have different secrets" 10 "a secret of at least thirty-two bytes" "another one of at least thirty-two bytes"
expect_code algo-1 bad
expect_code algo-2 bad
expect_failure algo-1 "algo-2 \(.*[Hh]ost key"
case_end algo-1 algo-2
secret_case "the secret is too short" 4 "a secret of at least thirty-two bytes" "short"
expect_code algo-2 bad
expect_failure algo-2 "making ssh keys from the job's secret on host algo-2: making ssh keys: PACELINE_SSH_SECRET: .* at least 32 are needed \(exit code 1\)\$"
case_end algo-2

case_begin "a cut of 5 s is survived"
start_both sleep 0 7
await_ranks
host_cut algo-2
sleep 5
host_join algo-2
wait_host algo-1 60
wait_host algo-2 30
expect_code algo-1 0
expect_code algo-2 0
expect_success algo-2
case_end algo-1 algo-2

faketime=$(find /usr/lib -name libfaketime.so.1 2>/dev/null | head -n 1)
case_begin "the clock is set back by an hour"
if [ -n "$faketime" ]; then
  cluster_environment=("PACELINE_SILENCE_S=5" "PACELINE_STOP_S=20" "LD_PRELOAD=$faketime" "FAKETIME_DONT_FAKE_MONOTONIC=1" "FAKETIME_NO_CACHE=1"
    "FAKETIME_TIMESTAMP_FILE=$cluster/time")
  echo "+0" >"$cluster/time"
  start_both sleep 0 10
  await_ranks
  echo "-1h" >"$cluster/time"
  wait_host algo-1 60
  wait_host algo-2 30
  expect_code algo-1 0
  expect_code algo-2 0
  case_end algo-1 algo-2
else
  echo "$case_name: left out, libfaketime is not installed"
fi

case_begin "the cable is cut for good"
cluster_environment=("PACELINE_SILENCE_S=6")
start_both sleep 0 60
await_ranks
case_mark
host_cut algo-2
wait_host algo-1 40
wait_host algo-2 40
host_join algo-2
expect_code algo-1 bad
expect_code algo-2 bad
expect_failure algo-1 "host algo-2 went away: nothing was received from it for 6 s"
expect_failure algo-2 "master host algo-1 went away: nothing was received from it for 6 s"
expect_nobody
case_end algo-1 algo-2

for host in algo-1 algo-2; do
  case_begin "SIGTERM to $host: ranks on both save"
  start_both save 0 1
  await_ranks
  case_mark
  host_signal $host TERM
  wait_host algo-1 60
  wait_host algo-2 30
  expect_code algo-1 0
  expect_code algo-2 0
  for rank in 0 1; do [ -e "$cluster/algo-1/ml/model/saved-$rank" ] || case_failed "rank $rank saved nothing"; done
  for rank in 2 3; do [ -e "$cluster/algo-2/ml/model/saved-$rank" ] || case_failed "rank $rank saved nothing"; done
  expect_nobody
  case_end algo-1 algo-2
done

# Only rank 0 handles SIGTERM, as scripts usually do: the ends of the others must not cut its save short.
for how in "" leave ignore; do
  case_begin "SIGTERM, rank 0 alone saves, the others ${how:-die of it}"
  cluster_environment=("PACELINE_STOP_S=30")
  [ "$how" != ignore ] || cluster_environment=("PACELINE_STOP_S=15")
  start_both alone 0 4 $how
  await_ranks
  case_mark
  host_signal algo-2 TERM
  if [ "$how" != ignore ]; then # the platform may kill all before the save has ended: the files are there before
    for host in algo-1 algo-2; do
      until [ -s "$cluster/$host/ml/output/failure" ] || [ -e "$cluster/$host.code" ]; do sleep 0.05; done
      [ ! -e "$cluster/algo-1/ml/model/saved-0" ] || case_failed "the failure file of $host was written after the save"
    done
  fi
  wait_host algo-1 40
  wait_host algo-2 20
  expect_code algo-1 bad
  expect_code algo-2 bad
  [ -e "$cluster/algo-1/ml/model/saved-0" ] || case_failed "rank 0 saved nothing"
  case $how in
  "") expect_failure algo-1 "stopped by SIGTERM; rank [123] on host algo-[12] was killed by signal 15 .SIGTERM.: it has no handler for this signal" ;;
  leave) expect_failure algo-1 "stopped by SIGTERM; rank [123] on host algo-[12] exited with code 1" ;;
  ignore) expect_failure algo-1 "stopped by SIGTERM; rank [123] on host algo-[12] was killed by signal 9 .SIGKILL.: it had not ended when it was asked to" ;;
  esac
  expect_nobody
  case_end algo-1 algo-2
done

case_begin "SIGTERM that the ranks ignore"
cluster_environment=("PACELINE_STOP_S=6")
start_both save 0 60
await_ranks
case_mark
host_signal algo-1 TERM
wait_host algo-1 40
wait_host algo-2 20
expect_code algo-1 bad
expect_code algo-2 bad
expect_failure algo-1 "SIGTERM|asked to stop"
expect_nobody
case_end algo-1 algo-2

case_begin "a rank leaves a daemon that holds its output"
start_both daemon 2 60
await_ranks
case_mark
wait_host algo-1 40
wait_host algo-2 20
expect_code algo-1 0
expect_code algo-2 0
expect_nobody
case_end algo-1 algo-2

case_begin "a rank fails after all have finished"
start_both last 3 5
await_ranks
case_mark
wait_host algo-1 60
wait_host algo-2 30
expect_code algo-1 bad
expect_failure algo-1 "rank 3 on host algo-2 exited with code 5"
expect_failure algo-2 "rank 3 on host algo-2 exited with code 5"
expect_nobody
case_end algo-1 algo-2
# A stand-in for TensorFlow: a server that serves until it is ended.
server_case() { # server_case NAME SCRIPT
  local host
  case_begin "$1"
  for host in algo-2 algo-1; do
    job_config $host "algo-1 algo-2" 0
    echo '{"sagemaker_parameter_server_enabled": "true", "sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"}' \
      >"$cluster/$host/ml/input/config/hyperparameters.json"
    mkdir "$cluster/$host/ml/code"
    echo "$2" >"$cluster/$host/ml/code/train.py"
    cat >"$cluster/$host/ml/code/tensorflow.py" <<'STUB'
import time, types
class Server:
    def __init__(self, *args, **named): print('server is up', flush=True)
    def join(self): time.sleep(600)
distribute = types.SimpleNamespace(Server=Server, cluster_resolver=types.SimpleNamespace(TFConfigClusterResolver=lambda: types.SimpleNamespace(cluster_spec=lambda: None)))
train = types.SimpleNamespace(ClusterSpec=lambda x: x, Server=Server)
STUB
    host_start $host "$paceline" train
  done
  wait_host algo-1 40
  wait_host algo-2 20
  expect_nobody
}
server_case "parameter servers end with the master" 'import os, time; print(os.environ["TF_CONFIG"], flush=True); time.sleep(1)'
expect_code algo-1 0
expect_code algo-2 0
case_end algo-1 algo-2
server_case "a program on a worker fails" 'import os, sys, time; "algo-2" == os.environ["SM_CURRENT_HOST"] and sys.exit("the worker is out of data"); time.sleep(60)'
expect_code algo-1 bad
expect_code algo-2 bad
for host in algo-1 algo-2; do expect_failure $host "the program on host algo-2 exited with code 1" "the worker is out of data"; done
case_end algo-1 algo-2
echo "faults between hosts: all cases passed"
