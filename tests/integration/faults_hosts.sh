#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults between two hosts while a job trains: a host dies, the network is cut, the launcher falls, the job is stopped.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

await_ranks() {
  local rank
  for rank in 0 1 2 3; do await_log algo-1 "rank $rank of 4" 60; done
}

# training_case NAME [VARIABLE=VALUE]... WORDS...: begins the case with a job of `mpi_probe WORDS...`, whose ranks are there when it returns.
training_case() {
  begin_with "$@"
  start_both "${case_words[@]}"
  await_ranks
  case_mark
}

training_case "the worker is powered off mid-job" sleep 0 60
host_off algo-2
case_ends 20 algo-1 bad "host algo-2 went away" algo-2 any ''

training_case "the master is powered off mid-job" sleep 0 60
host_off algo-1
case_ends 20 algo-2 bad "master host algo-1 went away" algo-1 any ''

# Near the end either outcome is right, if the exit code and the files agree, no host waits, and no process is left.
for delay in 0.9 1.0 1.05 1.1; do
  training_case "the worker is powered off at the end, after $delay s" sleep 0 1
  sleep $delay
  case_mark
  host_off algo-2 2>/dev/null || true # it may have ended by itself
  case_ends 20 algo-1 any '' algo-2 any ''
  if [ "$(cat "$cluster/algo-1.code")" = 0 ]; then expect_success algo-1; else expect_failure algo-1 "algo-2"; fi
done

# The launcher or a daemon is killed, and its ranks, which have not failed, end with it.
fallen_case() { # fallen_case NAME HOST SIGNAL PROGRAM WORDS
  training_case "$1" sleep 0 60
  host_run "$2" pkill "-$3" -x "$4"
  both_end 20 1 "$5"
}
fallen_case "mpirun is killed" algo-1 KILL mpirun '^mpirun on host algo-1 was killed by signal 9 \(SIGKILL\)'
fallen_case "mpirun is told to end" algo-1 TERM mpirun '^mpirun on host algo-1 exited with code 1: it ended its ranks, none of which had failed'
fallen_case "orted is killed" algo-2 KILL orted "^Open MPI's launch daemon on host algo-2 was killed by signal 9 \(SIGKILL\)"

case_begin "a rank leaves with 0 and without MPI_Finalize"
start_both exit 2 0
both_end 30 1 '^rank 2 on host algo-2 exited with code 0: it left without MPI_Finalize\(\)' 'this is the last word of rank 2'

training_case "a rank is stopped and goes on" sleep 0 3
host_run algo-2 sh -c 'kill -STOP $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 was stopped by signal 19 \(SIGSTOP\)' 20
host_run algo-2 sh -c 'kill -CONT $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 goes on' 20
both_end 40 0

training_case "a cut of 5 s is survived" sleep 0 7
host_cut algo-2
sleep 5
host_join algo-2
both_end 60 0

faketime=$(find /usr/lib -name libfaketime.so.1 2>/dev/null | sed -n 1p)
if [ -n "$faketime" ]; then
  echo "+0" >"$cluster/time"
  training_case "the clock is set back by an hour" PACELINE_SILENCE_S=5 PACELINE_STOP_S=20 "LD_PRELOAD=$faketime" FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1 \
    "FAKETIME_TIMESTAMP_FILE=$cluster/time" sleep 0 10
  echo "-1h" >"$cluster/time"
  both_end 60 0
else
  echo "the clock is set back by an hour: left out, libfaketime is not installed"
fi

training_case "the cable is cut for good" PACELINE_SILENCE_S=6 sleep 0 60
host_cut algo-2
wait_both 40
host_join algo-2
case_ends 40 algo-1 bad "host algo-2 went away: nothing was received from it for 6 s" algo-2 bad "master host algo-1 went away: nothing was received from it for 6 s"

# saving_ends: both hosts end well, and each of the four ranks has saved.
saving_ends() {
  local rank
  both_end 60 0
  for rank in 0 1 2 3; do [ -e "$cluster/algo-$((rank / 2 + 1))/ml/model/saved-$rank" ] || case_failed "rank $rank saved nothing"; done
}
for host in algo-1 algo-2; do
  training_case "SIGTERM to $host: ranks on both save" save 0 1
  host_signal $host TERM
  saving_ends
done

# A rank is a shell without a trap, below which the program saves.
case_begin "SIGTERM: the ranks' programs save below shells"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 2
  host_start $host "$paceline" -- sh -c '"$@"; code=$?; echo "the shell ends"; exit $code' sh "$probe" save 0 2
done
await_ranks
case_mark
host_signal algo-2 TERM
saving_ends
[ "$(grep -c 'the shell ends' "$cluster/algo-1.log")" = 4 ] || case_failed "not all shells have ended by themselves"
! grep -q 'has no handler' "$cluster"/algo-?.log || case_failed "a rank that saves is said to have no handler"

# Only rank 0 handles SIGTERM, as scripts usually do: the ends of the others must not cut its save short.
alone_case() { # alone_case HOW STOP_S WORDS
  training_case "SIGTERM, rank 0 alone saves, the others ${1:-die of it}" "PACELINE_STOP_S=$2" alone 0 4 $1
  host_signal algo-2 TERM
  if [ "$1" != ignore ]; then # the platform may kill all processes before the save has ended, so the files are written before that
    for host in algo-1 algo-2; do
      until [ -s "$cluster/$host/ml/output/failure" ] || [ -e "$cluster/$host.code" ]; do sleep 0.05; done
      [ ! -e "$cluster/algo-1/ml/model/saved-0" ] || case_failed "the failure file of $host was written after the save"
    done
  fi
  case_ends 40 algo-1 bad "stopped by SIGTERM; rank [123] on host algo-[12] $3" algo-2 bad ''
  [ -e "$cluster/algo-1/ml/model/saved-0" ] || case_failed "rank 0 saved nothing"
}
alone_case "" 30 "was killed by signal 15 .SIGTERM.: it has no handler for this signal"
alone_case leave 30 "exited with code 1"
alone_case ignore 15 "was killed by signal 9 .SIGKILL.: it had not ended when it was asked to"

training_case "SIGTERM that the ranks ignore" PACELINE_STOP_S=6 save 0 60
host_signal algo-1 TERM
case_ends 40 algo-1 bad "SIGTERM|asked to stop" algo-2 bad ''

training_case "a rank leaves a daemon that holds its output" daemon 2 60
both_end 40 0

training_case "a rank fails after all have finished" last 3 5
both_end 60 bad "rank 3 on host algo-2 exited with code 5"

# Replaces TensorFlow: a server that serves until it is killed.
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
}
server_case "parameter servers end with the master" 'import os, time; print(os.environ["TF_CONFIG"], flush=True); time.sleep(1)'
both_end 40 0
server_case "a program on a worker fails" 'import os, sys, time; "algo-2" == os.environ["SM_CURRENT_HOST"] and sys.exit("the worker is out of data"); time.sleep(60)'
both_end 40 bad "the program on host algo-2 exited with code 1" "the worker is out of data"
echo "faults between hosts: all cases passed"
