#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same program by AWS's toolkits and by Paceline in turns: two ranks on one host, of which the last one raises an exception in its third step.
#
#   PACELINE_BUILD=build tests/bench/toolkit.sh [ROUNDS [LAUNCHER:PROGRAM...]]      needs root, and PyPI for torch and the toolkits (several GB, once)
#
# LAUNCHER is torchrun or mpi, PROGRAM a file of tests/integration/pytorch. One JSON object per case and way: medians of the seconds from the start to the
# first step and from the exception to the end of process 1, and the beginning of the failure file. Both have the same Python and the
# same namespaces. The toolkits are sagemaker-training 5.1.1 and sagemaker-pytorch-training 3.0.0, which AWS's PyTorch images start.
set -euo pipefail
PACELINE_SOURCE=${PACELINE_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
PACELINE_BUILD=$(realpath "${PACELINE_BUILD:-$PACELINE_SOURCE/build}")
export PACELINE_SOURCE PACELINE_BUILD
source "$PACELINE_SOURCE/tests/support/job.sh"
rounds=${1:-3}
cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(torchrun:ddp mpi:ddp torchrun:fsdp2 torchrun:accelerated torchrun:trainer torchrun:lightning_ddp mpi:with_mpi4py)

pytorch=$(python3 "$PACELINE_SOURCE/tests/support/horovod_python.py" pytorch) || { code=$?; echo "$pytorch"; exit $code; }
toolkit=$PACELINE_BUILD/toolkit
if [ ! -e "$toolkit/complete" ]; then
  rm -rf "$toolkit"
  "$pytorch" -m venv "$toolkit"
  "$toolkit/bin/pip" install -q --disable-pip-version-check wheel mpi4py sagemaker-training==5.1.1
  "$toolkit/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation sagemaker-pytorch-training==3.0.0
  "$pytorch" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$toolkit/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pytorch.pth"
  touch "$toolkit/complete"
fi
cluster_up 1

# run WAY LAUNCHER PROGRAM: one job; a line of first step, end and failure file.
run() {
  local switch=sagemaker_torch_distributed_enabled ml=$cluster/algo-1/ml start
  [ "$2" = torchrun ] || switch=sagemaker_mpi_enabled
  job_config algo-1 algo-1 0
  mkdir "$ml/code"
  cp "$PACELINE_SOURCE/tests/integration/pytorch/$3.py" "$ml/code"
  cat >"$ml/code/mistake.py" <<'PYTHON'
import os
import sys
import time

steps, rank = 0, int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])


def step(*_):
    global steps
    steps += 1
    if steps == 1 and rank == 1:
        print(f"first step at {time.time()}", flush=True)
    if steps == 3 and rank == 1:
        print(f"raises at {time.time()}", flush=True)
        raise ValueError("bad data")


if "torch" in sys.modules:
    sys.modules["torch"].nn.modules.module.register_module_forward_pre_hook(step)
PYTHON
  echo "{\"$switch\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\", \"sagemaker_program\": \"$3.py\"}" >"$ml/input/config/hyperparameters.json"
  echo '{}' >"$ml/input/config/inputdataconfig.json" # which the toolkit must have
  cluster_environment=(PATH="$toolkit/bin:$(dirname "$pytorch"):$PATH" PACELINE_PYTHON="$toolkit/bin/python" HF_HUB_OFFLINE=1)
  start=$EPOCHREALTIME
  if [ "$1" = paceline ]; then
    host_start algo-1 "$paceline" train
  else # it writes below /etc
    host_start algo-1 env SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main \
      sh -c 'cp -a /etc /tmp/etc && mount --bind /tmp/etc /etc && exec train'
  fi
  host_wait algo-1 300
  python3 - "$1" "$2:$3" "$start" "$cluster/algo-1" "$code" <<'PYTHON'
import json, pathlib, re, sys

way, case, start, host, code = sys.argv[1:]
log, failure = pathlib.Path(host + ".log").read_text(errors="replace"), pathlib.Path(host, "ml/output/failure")
first, raised = (re.search(word + r" at ([0-9.]+)", log) for word in ("first step", "raises"))
end = float(pathlib.Path(host + ".end").read_text())
if not raised:
    print(f"{case} by {way}: the exception was not raised", file=sys.stderr)
print(json.dumps({"case": case, "way": way, "first_step": first and float(first[1]) - float(start), "end": raised and end - float(raised[1]),
                  "code": int(code), "reason": failure.read_text(errors="replace")[:1024] if failure.exists() else None}))
PYTHON
}

for case in "${cases[@]}"; do
  for _ in $(seq "$rounds"); do
    for way in toolkit paceline; do run $way "${case%:*}" "${case#*:}"; done
  done
done | python3 -c '
import collections, json, statistics, sys

rows = collections.defaultdict(list)
for line in sys.stdin:
    row = json.loads(line)
    rows[row["case"], row["way"]].append(row)
for (case, way), runs in rows.items():
    firsts, ends = ([run[key] for run in runs if run[key] is not None] for key in ("first_step", "end"))
    print(json.dumps({"bench": "toolkit", "case": case, "way": way, "rounds": len(runs),
                      "first_step_seconds": round(statistics.median(firsts), 2) if firsts else None,
                      "end_seconds": round(statistics.median(ends), 2) if ends else None, "code": runs[-1]["code"], "reason": runs[-1]["reason"]}))'
