#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/pytorch/train_ddp.py on two hosts with two ranks each: a stop of either host saves a checkpoint and is a success; the next start, by the other
# launcher, resumes where the first has stopped and comes to the weights of a run without a stop. Needs root for namespaces, and a torch.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
python=$(PYTHONPATH="$PACELINE_SOURCE/tests/support" python3 -c 'import sys; from python_with import python_with; sys.exit(print(found) if (found := python_with("torch")) else 1)') || cluster_skip "no Python here has torch"
cluster_up 2
seconds=300 # far away: what hangs is found by it
mkdir "$cluster/bin"
{ echo "#!$python" && cat "$PACELINE_SOURCE/tests/support/torchrun.py"; } >"$cluster/bin/torchrun"
chmod +x "$cluster/bin/torchrun"

# start LAUNCHER RANKS_PER_HOST EPOCHS HOSTS: the checkpoint in $cluster/ddp.pt, if there is one, is on the first host.
start() {
  local host switch=sagemaker_torch_distributed_enabled
  [ "$1" = torchrun ] || switch=sagemaker_mpi_enabled
  rm -f "$cluster"/algo-?.log
  for host in $4; do
    job_config "$host" "$4" 0
    mkdir "$cluster/$host/ml/code" "$cluster/$host/ml/checkpoints"
    cp "$PACELINE_SOURCE/examples/pytorch/train_ddp.py" "$cluster/$host/ml/code"
    echo "{\"$switch\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"$2\", \"sagemaker_program\": \"train_ddp.py\", \"epochs\": \"$3\"}" \
      >"$cluster/$host/ml/input/config/hyperparameters.json"
  done
  [ ! -e "$cluster/ddp.pt" ] || cp "$cluster/ddp.pt" "$cluster/algo-1/ml/checkpoints"
  for host in $4; do host_start "$host" env PATH="$cluster/bin:$PATH" PACELINE_PYTHON="$python" "$paceline" train; done
}
succeeded() { # HOSTS
  local host
  for host in $1; do
    wait_host "$host" $seconds
    expect_code "$host" 0
    expect_success "$host"
  done
  expect_nobody
  case_end $1
}
both="algo-1 algo-2"

case_begin "SIGTERM to algo-2 while four ranks train by MPI"
start mpi 2 1000000 "$both"
await_log algo-1 'epoch=1 loss=' $seconds
case_mark
host_signal algo-2 TERM
succeeded "$both"
read -r epoch step < <(sed -n 's/.*stopped after epoch \([0-9]*\) step \([0-9]*\), as asked; .opt.ml.checkpoints.ddp.pt has the checkpoint.*/\1 \2/p' "$cluster/algo-1.log") \
  || case_failed "no word of the checkpoint"
[ ! -e "$cluster/algo-1/ml/model/model.pt" ] || case_failed "a model of a training that is not over"
cp "$cluster/algo-1/ml/checkpoints/ddp.pt" "$cluster/ddp.pt"

case_begin "the next start resumes, by torchrun"
start torchrun 2 $((epoch + 1)) "$both"
succeeded "$both"
for rank in 0 1 2 3; do
  grep -q "^\[rank$rank\]: rank $rank of 4 begins at epoch $epoch step $step$" "$cluster"/algo-?.log || case_failed "rank $rank did not resume"
done
cp "$cluster/algo-1/ml/model/model.pt" "$cluster/resumed.pt"
rm "$cluster/ddp.pt"

case_begin "a run without a stop has the same weights"
start mpi 4 $((epoch + 1)) algo-1
succeeded algo-1
"$python" -c '
import sys, torch
one, other = (torch.load(path) for path in sys.argv[1:])
sys.exit(not all(torch.allclose(one[name], other[name], atol=1e-5) for name in one))' "$cluster/resumed.pt" "$cluster/algo-1/ml/model/model.pt" \
  || case_failed "the weights differ"
echo "examples/pytorch: all cases passed"
