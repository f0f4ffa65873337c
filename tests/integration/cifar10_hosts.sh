#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# CIFAR-10 in Pipe Mode on two hosts: `paceline train` is process 1 of each, two ranks a host divide the host's FIFOs, and the
# batches are those that one host with four ranks takes from files.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
program=$PACELINE_BUILD/libexec/paceline/cifar10
feed=$PACELINE_BUILD/libexec/paceline/paceline-feed
[ -x "$program" ] || cluster_skip "built without the example"
trap 'kill $(jobs -p) 2>/dev/null || true; cluster_down' EXIT
trap 'exit 143' TERM INT
cluster_up 2
words=(--epochs 2 --batch-size 16 --max-steps 10 --warmup-steps 4 --timeout 60)
PYTHONPATH=$PACELINE_SOURCE/tests/integration python3 -c "import pathlib, sys, cifar10; cifar10.make_pictures(pathlib.Path(sys.argv[1]))" "$cluster/files"

case_begin "CIFAR-10 through FIFOs on two hosts"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 2
  mkdir -p "$cluster/$host/ml/input/data"
  cat >"$cluster/$host/ml/input/config/inputdataconfig.json" <<'JSON'
{"training": {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}}
JSON
  "$feed" --quiet --timeout 100 "$cluster/files/training" "$cluster/$host/ml/input/data/training" &
done
cluster_environment=(OPENBLAS_NUM_THREADS=1)
for host in algo-1 algo-2; do
  host_start $host "$paceline" -- "$program" "${words[@]}"
done
for host in algo-1 algo-2; do host_wait $host 200 || case_failed "no end"; done
for host in algo-1 algo-2; do
  expect_code $host 0
  expect_success $host
done
expect_nobody
case_end algo-1 algo-2

order_of() { grep -o 'batch_order=[0-9]*' "$1" | tr '\n' ' '; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
mpirun --oversubscribe --mca mpi_yield_when_idle 1 -np 4 "$program" --data "$cluster/files" "${words[@]}" --model-dir "$cluster/model" >"$cluster/one.log" </dev/null
found=$(order_of "$cluster/algo-1.log") expected=$(order_of "$cluster/one.log")
[ -n "$expected" ] && [ "$found" = "$expected" ] || case_failed "other batches than from files: '$found', not '$expected'"
echo "two hosts in Pipe Mode: the batches of one host with files; $expected"
