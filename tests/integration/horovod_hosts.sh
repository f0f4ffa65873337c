#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that import horovod.torch under `paceline train`, two ranks on one host and on two: they train, and when a rank is killed, stopped, raises or leaves,
# the others get HorovodInternalError or are ended, the failure file says which rank on which host, and nobody waits for ever.
# Needs what horovod.py needs, and root for namespaces.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
[ -e "$PACELINE_BUILD/libexec/paceline/libpaceline-horovod-torch.so" ] || cluster_skip "built without Python.h or MPI"
base=$(PYTHONPATH=$PACELINE_SOURCE/tests/support python3 -c 'from python_with import python_with; print(python_with("torch", "venv") or "")')
[ -n "$base" ] || cluster_skip "no Python here has torch and venv"
cluster_up 2
python=$cluster/venv/bin/python
"$base" -m venv --system-site-packages "$cluster/venv"
HOROVOD_SKIP_COMPILE=1 "$python" -m pip install -q horovod==0.28.1 >"$cluster/pip.log" 2>&1 || cluster_skip "pip cannot install horovod==0.28.1 here: $(tail -n 1 "$cluster/pip.log")"
"$paceline" horovod --python "$python" >/dev/null

cat >"$cluster/program.py" <<'END'
import os, signal, sys
import torch
import horovod.torch as hvd
how = sys.argv[1]
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
try:
    for step in range(20):
        if step == 10 and hvd.rank() == 1:
            if how in ("KILL", "STOP"):
                os.kill(os.getpid(), getattr(signal, "SIG" + how))
            elif how == "raise":
                raise KeyError("a mistake in the program")
            elif how != "none":
                sys.exit(int(how))
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} got HorovodInternalError {error}", flush=True)
    raise
weights = hvd.allgather(torch.cat([p.detach().flatten() for p in model.parameters()]).unsqueeze(0), name="weights")
assert len(weights) == 2 and weights[0].equal(weights[1])
print(f"rank {hvd.rank()} of {hvd.size()} local {hvd.local_rank()} cross {hvd.cross_rank()} is right", flush=True)
END

run_job() { # HOSTS HOW
  local host
  hosts=$1
  for host in $hosts; do
    job_config "$host" "$hosts" "$([ "$hosts" = algo-1 ] && echo 2 || echo 1)"
    host_start "$host" "$paceline" -- "$python" "$cluster/program.py" "$2"
  done
  for host in $hosts; do host_wait "$host" 120 || case_failed "no end"; done
}

trained() { # HOSTS
  local host
  case_begin "two ranks train on $1"
  run_job "$1" none
  for host in $1; do expect_code "$host" 0; expect_success "$host"; done
  for rank in 0 1; do grep -q "rank $rank of 2 local .* is right" "$cluster/algo-1.log" || case_failed "rank $rank is not right"; done
  expect_nobody
  case_end algo-1
}

fails() { # HOSTS HOW, what the failure file says, what is in the output; rank 1 runs on the last host
  local host
  case_begin "rank 1 of 2 on $1: $2"
  [ "$2" != STOP ] || cluster_environment=(PACELINE_TIMEOUT_S=8)
  run_job "$1" "$2"
  for host in $1; do expect_code "$host" bad; done
  expect_failure algo-1 "$3"
  grep -Eq "$4" "$cluster/algo-1.log" || case_failed "the output lacks '$4'"
  # The other rank may have been ended before it came to say this.
  ! grep "got HorovodInternalError" "$cluster/algo-1.log" | grep -v "rank 1" || case_failed "the other rank does not name rank 1"
  expect_nobody
  case_end $1
}

both="algo-1 algo-2"
if [ "${1:-}" != long ]; then
  trained "$both"
  fails algo-1 KILL "rank 1 on host algo-1 was killed by signal 9" "rank 1 on host algo-1"
  fails algo-1 raise "rank 1 on host algo-1 exited with code 1" "a mistake in the program"
  fails "$both" 3 "rank 1 on host algo-2 exited with code 3" "rank 1 on host algo-2"
  fails "$both" 0 "rank 0 on host algo-1 exited with code 1" "got HorovodInternalError rank 1 shut the named tensors down"
  fails "$both" STOP "rank 0 on host algo-1 exited with code 1" "got HorovodInternalError .* did not end before rank 0's deadline .still waiting for rank 1"
else
  trained algo-1
  fails "$both" KILL "rank 1 on host algo-2 was killed by signal 9" "rank 1 on host algo-2"
  fails "$both" raise "rank 1 on host algo-2 exited with code 1" "a mistake in the program"
  fails algo-1 3 "rank 1 on host algo-1 exited with code 3" "rank 1 on host algo-1"
  fails algo-1 0 "rank 0 on host algo-1 exited with code 1" "got HorovodInternalError rank 1 shut the named tensors down"
  fails algo-1 STOP "rank 0 on host algo-1 exited with code 1" "got HorovodInternalError .* did not end before rank 0's deadline .still waiting for rank 1"
fi
