#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torch.distributed over Gloo on two hosts with two ranks each, by torchrun and once by MPI: how the job ends, and that a rank may complete its save. Needs a torch.
# `torchrun.sh long`: with other causes. `torchrun.sh full`: a rank that saves for longer, after a SIGTERM to either host.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
python=$(PYTHONPATH="$PACELINE_SOURCE/tests/support" python3 -c 'import sys; from python_with import python_with; sys.exit(print(found) if (found := python_with("torch")) else 1)') || cluster_skip "no Python here has torch"
cluster_up 2

mkdir "$cluster/bin"
{ echo "#!$python" && cat "$PACELINE_SOURCE/tests/support/torchrun.py"; } >"$cluster/bin/torchrun"
chmod +x "$cluster/bin/torchrun"

cat >"$cluster/train.py" <<'PY'
import os, signal, sys, time

rank, mode = int(os.environ["RANK"]), os.environ["MODE"]
if mode == "alone":
    sys.exit(print("alone"))

import torch
import torch.distributed as dist

seconds = float(os.environ.get("SAVE_S", "5"))


def save(number, frame):
    time.sleep(seconds)
    with open("/opt/ml/model/model", "w") as file:
        file.write("model")
    sys.exit(0)


if mode == "save" and rank == 0:
    signal.signal(signal.SIGTERM, save)
if mode == "save" and rank == 1:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {rank} of {int(total.item())}: {os.path.basename(sys.executable)}, PYTHON_EXEC {os.environ.get('PYTHON_EXEC')}", flush=True)
if mode == "end":
    sys.exit(0)
while True:
    if rank == 3 and os.path.exists("/opt/ml/go"):
        if mode == "raise":
            raise RuntimeError("rank three gives up")
        if mode == "exit":
            os._exit(3)
    if mode == "reduce":
        dist.all_reduce(total)
    time.sleep(0.1)
PY

start_host() { # start_host HOST [HOSTS]
  job_config "$1" "${2:-algo-1 algo-2}" 0
  mkdir -p "$cluster/$1/ml/code"
  cp "$cluster/train.py" "$cluster/$1/ml/code/"
  echo '{"sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2", "sagemaker_program": "train.py"}' \
    >"$cluster/$1/ml/input/config/hyperparameters.json"
  host_start "$1" env PATH="$cluster/bin:$PATH"  PACELINE_PYTHON="$python" GLOO_SOCKET_IFNAME=eth0 "$paceline" train
}
start_both() { start_host algo-1; start_host algo-2; }
await_ranks() {
  await_log algo-1 'all 2 hosts are linked' 120
  await_log algo-1 'rank 0 of 4' 120
  await_log algo-1 'rank 1 of 4' 120
  await_log algo-2 'rank 2 of 4' 120
  await_log algo-2 'rank 3 of 4' 120
}

begin() { # begin MODE NAME
  case_begin "$2"
  cluster_environment=(PACELINE_SILENCE_S=3 "MODE=$1")
  start_both
}
go() { case_mark; touch "$cluster/algo-2/ml/go"; }
rank_pid() { host_run "$1" pgrep -f '^[^ ]*python[^ ]* -u .*train.py' | tail -n 1; }

case ${1:-short} in
short)
  begin end "torchrun trains"
  both_end 120 0
  grep -q '^\[rank3\]: rank 3 of 4: ' "$cluster/algo-2.log" || case_failed "no tag"
  grep -q 'rank 0 of 4: .*PYTHON_EXEC None' "$cluster/algo-1.log" || case_failed "not the rank's own interpreter and variables"
  expect_apart 0

  case_begin "ranks that never join a process group"
  cluster_environment=(MODE=alone PACELINE_RANK_TAGS=off)
  rm "$cluster/algo-2.log"
  start_host algo-1 algo-1
  case_ends 120 algo-1 0 ''
  expect_apart 1
  grep -q '^alone$' "$cluster/algo-1.log" || case_failed "a tag, or no line"

  case_begin "the same program under MPI: env:// has what torch.distributed reads"
  cluster_environment=(MODE=end)
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 2
    mkdir -p "$cluster/$host/ml/code"
    cp "$cluster/train.py" "$cluster/$host/ml/code/"
    sed -i 's/^{/{"sagemaker_program": "train.py", /' "$cluster/$host/ml/input/config/hyperparameters.json"
    host_start $host env PACELINE_PYTHON="$python" "$paceline" train
  done
  both_end 120 0
  for rank in 0 1 2 3; do grep -q "rank $rank of 4" "$cluster/algo-1.log" || case_failed "rank $rank did not join"; done

  begin raise "rank 3 raises"
  await_ranks
  go
  both_end 30 1 '^RuntimeError: rank three gives up \(train.py:33, rank 3 on algo-2\)$' '^rank 3 on host algo-2 exited with code 1$' 'train.py$'

  begin save "SIGTERM to algo-2, rank 0 saves for 5 s, the others leave"
  await_ranks
  case_mark
  host_signal algo-2 TERM
  both_end 60 143 '^the job was stopped by SIGTERM; rank [1-3] on host algo-[12] '
  [ -s "$cluster/algo-1/ml/model/model" ] || case_failed "no model"

  begin reduce "torchrun's host algo-2 is powered off"
  await_ranks
  case_mark
  host_off algo-2
  case_ends 30 algo-1 1 '^(host algo-2 went away|rank [01] on host algo-1 exited)' algo-2 any ''
  ;;

long)
  begin exit "rank 3 exits with 3"
  await_ranks
  go
  both_end 30 1 '^rank 3 on host algo-2 exited with code 3'

  begin wait "a rank is killed"
  await_ranks
  case_mark
  host_run algo-2 kill -KILL "$(rank_pid algo-2)"
  both_end 30 1 '^rank [23] on host algo-2 was killed by signal 9'

  begin wait "the cable is cut for ever"
  await_ranks
  case_mark
  host_cut algo-2
  wait_both 60
  host_join algo-2
  both_end 60 1 'went away: nothing was received from it for 3 s'

  begin wait "the host algo-1 is powered off"
  await_ranks
  case_mark
  host_off algo-1
  case_ends 30 algo-2 1 '^the master host algo-1 went away' algo-1 any ''
  ;;

full)
  for signalled in algo-1 algo-2; do
    case_begin "SIGTERM to $signalled, rank 0 saves for 35 s"
    cluster_environment=(MODE=save SAVE_S=35)
    start_both
    await_ranks
    case_mark
    host_signal $signalled TERM
    both_end 90 143 '^the job was stopped by SIGTERM; rank [1-3] on host algo-[12] '
    [ -s "$cluster/algo-1/ml/model/model" ] || case_failed "no model"
  done
  ;;
esac
echo "torchrun on two hosts: all cases passed"
