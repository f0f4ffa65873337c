#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TensorFlow's own programs under `paceline train` on two hosts: a session-style program and a ClusterCoordinator with parameter servers, and a
# MultiWorkerMirroredStrategy. They train; a killed worker or server, SIGTERM and a mistake end the job on every host, with the cause in the failure file.
# With the word `full`: the faults that each of them does not meet without it.
# Needs root for namespaces, and PyPI for tensorflow-cpu (1.3 GB, once for a build folder).
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
python=$(python3 "$PACELINE_SOURCE/tests/support/horovod_python.py" 2.21.0) || { code=$?; echo "$python"; exit $code; }
cluster_up 2
both="algo-1 algo-2"
seconds=300 # a far deadline, to find a run that hangs

# start PROGRAM NAME=VALUE...: tests/integration/tensorflow/PROGRAM.py on both hosts.
start() {
  local program=$1 host switches='"sagemaker_parameter_server_enabled": "true"'
  shift
  [ "$program" != mirrored ] || switches='"sagemaker_multi_worker_mirrored_strategy_enabled": "true"'
  [ "$program" != coordinator ] || switches="$switches, \"paceline_tf_chief\": \"true\""
  cluster_environment=(PACELINE_PYTHON="$python" TF_CPP_MIN_LOG_LEVEL=1 CUDA_VISIBLE_DEVICES= SHARED="$cluster/shared" "$@")
  rm -rf "$cluster/shared"
  mkdir "$cluster/shared"
  for host in $both; do
    job_config "$host" "$both" 0
    echo "{$switches, \"sagemaker_program\": \"$program.py\"}" >"$cluster/$host/ml/input/config/hyperparameters.json"
    mkdir "$cluster/$host/ml/code"
    cp "$PACELINE_SOURCE/tests/integration/tensorflow/$program.py" "$cluster/$host/ml/code"
    host_start "$host" "$paceline" train
  done
}

# Both hosts end, with CODE (0, bad or a number); nobody is left.
ends() {
  local host
  for host in $both; do host_wait "$host" $seconds || case_failed "no end"; expect_code "$host" "$1"; done
  for host in $both; do if [ "$1" = 0 ]; then expect_success "$host"; fi; done
  expect_nobody
  case_end $both
}

# signal_task SIGNAL HOST TASK: for the process that is TASK (ps, worker, master, chief) by its TF_CONFIG: the only Python that is.
signal_task() {
  local pid found=''
  for pid in $(host_pids "$2"); do
    if [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$python")" ] && tr '\0' '\n' <"/proc/$pid/environ" | grep "^TF_CONFIG=.*\"type\": \"$3\"}}$" >/dev/null; then found="$found $pid"; fi
  done
  [ "$(echo $found | wc -w)" = 1 ] || case_failed "the processes of task $3 on $2 are:$found"
  kill "-$1" $found
}

trains() { # PROGRAM TEXT...: in algo-1's or algo-2's output
  local text
  case_begin "$1: trains"
  start "$1"
  ends 0
  shift
  for text; do grep -q "$text" "$cluster/algo-1.log" "$cluster/algo-2.log" || case_failed "the output lacks '$text'"; done
}

# killed PROGRAM HOST TASK FAILURE [HOST]: what both failure files begin with, when the task is killed while the job trains, on HOST too.
killed() {
  local host
  case_begin "$1: $3 on $2 is killed"
  start "$1" LAST_STEP=100000000
  await_log "${5:-algo-1}" "at step" $seconds
  case_mark
  signal_task KILL "$2" "$3"
  ends bad
  for host in $both; do expect_failure "$host" "^$4 on host $2 was killed by signal 9"; done
}

# The workers wait for a server that does not answer, and print nothing more.
hangs() { # PROGRAM HOST TASK
  local host
  case_begin "$1: $3 on $2 is stopped"
  start "$1" LAST_STEP=100000000 PACELINE_HANG_S=40 PACELINE_HANG_ACTION=end
  await_log algo-1 "at step" $seconds
  case_mark
  signal_task STOP "$2" "$3"
  ends bad
  for host in $both; do expect_failure "$host" "^the job hangs, .*; process [0-9]+ on host $2 does something else than the others: stopped"; done
}

stopped() { # PROGRAM HOW CODE [NAME=VALUE]
  case_begin "$1: SIGTERM to algo-2, $2"
  start "$1" LAST_STEP=100000000 HOW="$2" "${@:4}"
  await_log algo-1 "at step" $seconds
  case_mark
  host_signal algo-2 TERM
  ends "$3"
}

raises() { # PROGRAM
  local host
  case_begin "$1: the first host's program raises"
  start "$1" LAST_STEP=100000000 HOW=raise
  await_log algo-1 "KeyError" $seconds
  case_mark
  ends bad
  for host in $both; do expect_failure "$host" "^the program on host algo-1 exited with code 1\$" "KeyError: 'a mistake in the program'"; done
}

if [ "${1:-}" != full ]; then
  trains session "master 0 is right" "worker 0 is right"
  killed session algo-2 ps "the parameter server"
  raises session
  trains coordinator "the script runs as chief" "chief is right"
  ! grep -q "the script runs as worker" "$cluster"/*.log || case_failed "a worker runs the script"
  killed coordinator algo-2 worker "the worker's server"
  trains mirrored "worker 0 of 2 is right" "worker 1 of 2 is right"
  stopped mirrored save 0
  for host in 0 1; do grep -q "worker $host has saved" "$cluster"/algo-*.log || case_failed "worker $host did not save"; done
else
  killed session algo-2 worker "the program" algo-2 # which TensorFlow lets look for the initialized model every 30 s
  hangs session algo-2 ps
  stopped session save 0
  grep -q "master 0 saves" "$cluster/algo-1.log" || case_failed "the master did not save"
  stopped session die 143
  for host in $both; do expect_failure "$host" "^the job was stopped by SIGTERM; the program on host algo-[12] was killed by signal 15"; done
  killed coordinator algo-1 ps "the parameter server"
  killed coordinator algo-1 chief "the program"
  stopped coordinator save 0
  grep -q "chief saves" "$cluster/algo-1.log" || case_failed "the chief did not save"
  stopped coordinator die 143
  raises coordinator
  killed mirrored algo-2 worker "the program"
  stopped mirrored die 143 PACELINE_STOP_S=15 # TensorFlow catches SIGTERM in programs that do not
  for host in $both; do expect_failure "$host" "the program did not end within 15 s after it was asked to stop"; done
  raises mirrored
fi
echo "TensorFlow's programs train on two hosts and end on both when one is lost"
