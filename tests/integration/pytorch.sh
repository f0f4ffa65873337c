#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch programs of today, unchanged, by torchrun and by MPI, on one host and on two with two ranks each: all ranks join one training and come to the same
# weights. By MPI also mpi4py, and Horovod with torch and with Keras 3.
# `pytorch.sh reasons`: the reason of the job's end, when a rank of each program raises or is killed, and when SIGTERM stops the job. The words after it, if
# there are any, are the only programs.
# Needs root for namespaces, and PyPI for torch, Accelerate, transformers, Lightning, Horovod and TensorFlow (several GB, once for a build folder).
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
what=${1:-runs}
programs=${*:2}
programs=${programs:-ddp fsdp2 accelerated trainer lightning_ddp with_mpi4py horovod_torch horovod_keras}

# Sets `python` to the one for PROGRAM.
find_python() {
  case $1 in
  with_mpi4py)
    python=$(PYTHONPATH="$PACELINE_SOURCE/tests/support" python3 -c 'import sys; from python_with import python_with
sys.exit(print(found) if (found := python_with("mpi4py")) else 1)') || cluster_skip "no Python here has mpi4py"
    return
    ;;
  horovod_torch) set -- torch ;;
  horovod_keras) set -- 2.21.0 ;;
  *) set -- pytorch ;;
  esac
  python=$(python3 "$PACELINE_SOURCE/tests/support/horovod_python.py" "$1") || { code=$?; echo "$python"; exit $code; }
  [ "$1" = pytorch ] || "$paceline" horovod install --python "$python" >/dev/null
}
declare -A pythons
for program in $programs; do find_python "$program"; pythons[$program]=$python; done
cluster_up 2
seconds=300 # a far deadline, to find a run that hangs

# start LAUNCHER PROGRAM HOSTS
start() {
  local host switch=sagemaker_torch_distributed_enabled python=${pythons[$2]}
  [ "$1" = torchrun ] || switch=sagemaker_mpi_enabled
  rm -f "$cluster"/algo-?.log
  for host in $3; do
    job_config "$host" "$3" 0
    mkdir "$cluster/$host/ml/code"
    cp "$PACELINE_SOURCE/tests/integration/pytorch/$2.py" "$PACELINE_SOURCE/tests/integration/pytorch/mistake.py" "$cluster/$host/ml/code"
    echo "{\"$switch\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", \"sagemaker_program\": \"$2.py\"}" \
      >"$cluster/$host/ml/input/config/hyperparameters.json"
    host_start "$host" env PATH="$(dirname "$python"):$PATH" PACELINE_PYTHON="$python" HF_HUB_OFFLINE=1 TF_CPP_MIN_LOG_LEVEL=2 "$paceline" train
  done
}

# expect_ranks COUNT: each has come to the same weights.
expect_ranks() {
  local rank
  for rank in $(seq 0 $(($1 - 1))); do
    [ "$(cat "$cluster"/algo-?.log | grep -Ec "(^|: ?)rank $rank of $1 has ")" = 1 ] || case_failed "rank $rank of $1 is not there once"
  done
  [ "$(cat "$cluster"/algo-?.log | grep -E "(^|: ?)rank [0-9]+ of $1 has " | sed 's/.* has //' | sort -u | wc -l)" = 1 ] || case_failed "the ranks' weights differ"
}

runs() { # LAUNCHER PROGRAM HOSTS
  local count=$(($(wc -w <<<"$3") * 2))
  case_begin "$2 by $1, $count ranks"
  cluster_environment=()
  start "$@"
  for host in $3; do
    wait_host $host $seconds
    expect_code $host 0
    expect_success $host
  done
  expect_ranks $count
  expect_nobody
  case_end $3
}

# The last rank makes the mistake.
reasons() { # LAUNCHER PROGRAM HOSTS
  local how rank=$(($(wc -w <<<"$3") * 2 - 1)) last=${3##* } first code
  for how in raise kill wait; do
    case_begin "$2 by $1, rank $rank on $last: $how"
    cluster_environment=(HOW=$how WHO=$rank)
    start "$@"
    if [ $how = wait ]; then
      for host in $3; do [ $1 = mpi ] || await_log $host 'rank [0-9] waits' $seconds; done
      [ $1 = torchrun ] || for i in $(seq 0 $rank); do await_log algo-1 "rank $i waits" $seconds; done
      case_mark
      host_signal $last TERM
    fi
    for host in $3; do wait_host $host $seconds; done
    for host in $3; do
      first=$(head -n 1 "$cluster/$host/ml/output/failure" 2>/dev/null || true) code=$(cat "$cluster/$host.code")
      case $how-$2 in
      raise-*) [ "$code" != 0 ] && [ "$first" = "ValueError: bad data (mistake.py:32, rank $rank on $last)" ] || case_failed "$host: $first" ;;
      kill-*) [ "$code" != 0 ] && grep -q "^rank $rank on host $last was killed by signal 9 (SIGKILL)" <<<"$first" || case_failed "$host: $first" ;;
      wait-lightning_ddp) # it has a handler of its own, after which its ranks save and end with 0
        [ "$code" = 0 ] && [ -e "$cluster/$host/ml/output/success" ] && [ -s "$cluster/algo-1/ml/checkpoints/stopped.ckpt" ] || case_failed "$host: $code $first" ;;
      wait-*) [ "$code" = 143 ] && grep -q "^the job was stopped by SIGTERM; .*rank [0-9]* on" <<<"$first" || case_failed "$host: $code $first" ;;
      esac
    done
    expect_nobody
    case_end $3
  done
}

for hosts in "algo-1 algo-2" "algo-1"; do
  for program in $programs; do
    for launcher in torchrun mpi; do
      case $program-$launcher in with_mpi4py-torchrun | horovod_*-torchrun) continue ;; esac
      $what $launcher $program "$hosts"
    done
  done
done
echo "pytorch.sh $what: all cases passed"
