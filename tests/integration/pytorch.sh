#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch programs of today, unchanged, by torchrun and by MPI, on one host and on two with two ranks each: all ranks join one training and
# come to the same weights; an exception of one rank is the reason of the job's end.
# Needs root for namespaces, and PyPI for torch, Accelerate, transformers and Lightning (several GB, once for a build folder).
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
python=$(python3 "$PACELINE_SOURCE/tests/support/horovod_python.py" pytorch) || { code=$?; echo "$python"; exit $code; }
cluster_up 2
seconds=300 # a far deadline, to find a run that hangs

# start LAUNCHER PROGRAM HOSTS
start() {
  local host switch=sagemaker_torch_distributed_enabled
  [ "$1" = torchrun ] || switch=sagemaker_mpi_enabled
  for host in $3; do
    job_config "$host" "$3" 0
    mkdir "$cluster/$host/ml/code"
    cp "$PACELINE_SOURCE/tests/integration/pytorch/$2.py" "$cluster/$host/ml/code"
    echo "{\"$switch\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", \"sagemaker_program\": \"$2.py\"}" \
      >"$cluster/$host/ml/input/config/hyperparameters.json"
    host_start "$host" env PATH="$(dirname "$python"):$PATH" PACELINE_PYTHON="$python" HF_HUB_OFFLINE=1 "$paceline" train
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

for hosts in "algo-1" "algo-1 algo-2"; do
  count=$(($(wc -w <<<"$hosts") * 2))
  for launcher in torchrun mpi; do
    for program in ddp fsdp2 accelerated trainer lightning_ddp; do
      case_begin "$program by $launcher, $count ranks"
      rm -f "$cluster"/algo-?.log
      cluster_environment=()
      start $launcher $program "$hosts"
      for host in $hosts; do
        wait_host $host $seconds
        expect_code $host 0
        expect_success $host
      done
      expect_ranks $count
      expect_nobody
      case_end $hosts
    done
  done
done

for launcher in torchrun mpi; do
  case_begin "rank 3 raises, by $launcher"
  cluster_environment=(RAISES=3)
  start $launcher ddp "algo-1 algo-2"
  wait_both $seconds
  for host in algo-1 algo-2; do
    expect_code $host 1
    expect_failure $host '^rank 3 on host algo-2 exited with code 1$'
    [ "$(head -n 1 "$cluster/$host/ml/output/failure")" = "ValueError: bad data (ddp.py:18, rank 3 on algo-2)" ] || case_failed "the exception is not first: $host"
  done
  expect_nobody
  case_end algo-1 algo-2
done
