#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sweeps over examples/mnist on two hosts in network namespaces, two slots each: the full search and ASHA, one JSON
# object per line.
#
#   tests/bench/sweep_hosts.sh MNIST [BUILD_DIR]      needs root; MNIST holds the four files of the digits
#
# `ratio` is the wall time divided by (the sum of the trials' seconds / slots); `of_full` is ASHA's wall time divided by
# the full search's with the same seed. SEEDS ("1 2 3") draw the trials, TRIALS (16) of them with EPOCHS (9) each. They
# train with the first IMAGES (4000) digits and test with as many, if there are so many. ASHA's first rung is after MIN
# (2) epochs. SCHEDULERS ("none asha") may leave one out.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
data=$(realpath "$1") build=$(realpath "${2:-build}")
export PACELINE_BUILD=$build PACELINE_SOURCE=${here%/tests/bench}
source "$here/../support/cluster.sh"
source "$here/../support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2
mkdir -p "$cluster/data/training" "$cluster/data/testing"
python3 - "$data" "$cluster/data" "${IMAGES:-4000}" <<'END' # the first of the digits
import gzip, pathlib, struct, sys
source, to = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
for prefix, folder in ("train", "training"), ("t10k", "testing"):
    count = int(sys.argv[3])
    for name, head, each in ("images-idx3", 16, 784), ("labels-idx1", 8, 1):
        data = gzip.decompress((source / f"{prefix}-{name}-ubyte.gz").read_bytes())
        count = min(count, struct.unpack(">I", data[4:8])[0])
        (to / folder / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(data[:4] + struct.pack(">I", count) + data[8:head + count * each]))
END

# search SEED SCHEDULER: runs both hosts to their end; prints one line.
search() {
  local host begin
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 0
    mkdir -p "$cluster/$host/ml/input/data" "$cluster/$host/ml/code"
    ln -s "$build/libexec/paceline/mnist" "$cluster/$host/ml/code/mnist"
    cp -r "$cluster/data/training" "$cluster/data/testing" "$cluster/$host/ml/input/data/"
    echo '{"training": {"TrainingInputMode": "File"}, "testing": {"TrainingInputMode": "File"}}' >"$cluster/$host/ml/input/config/inputdataconfig.json"
    python3 - "$1" "$2" "${TRIALS:-16}" "${EPOCHS:-9}" "${MIN:-2}" >"$cluster/$host/ml/input/config/hyperparameters.json" <<'END'
import json, sys
seed, scheduler, (trials, epochs, least) = int(sys.argv[1]), sys.argv[2], map(int, sys.argv[3:])
step = {"step": "epoch=([0-9]+)", "min": least, "max": epochs, "factor": 3}
sweep = {"space": {"learning-rate": {"log": [0.001, 0.1]}, "batch-size": [32, 64, 128], "momentum": {"float": [0.5, 0.95]}},
         "search": "random", "trials": trials, "seed": seed, "metric": "test_accuracy", "goal": "maximize", "slots": 2,
         "scheduler": {"asha": step} if scheduler == "asha" else "none"}
print(json.dumps({"sagemaker_program": '"mnist"', "epochs": str(epochs), "paceline_sweep": json.dumps(sweep)}))
END
  done
  begin=$EPOCHREALTIME
  for host in algo-1 algo-2; do host_start $host "$paceline" train; done
  for host in algo-1 algo-2; do
    host_wait $host 1800
    [ "$code" = 0 ] || { cat "$cluster/$host.log"; exit 1; }
  done
  python3 - "$1" "$2" "$begin" "$(cat "$cluster/algo-1.end")" "$cluster/algo-1/ml/output/data/trials.jsonl" "$cluster/full" <<'END'
import json, pathlib, sys
seed, scheduler, begin, end, results, full = sys.argv[1:]
trials = [json.loads(line) for line in open(results)]
wall, seconds = float(end) - float(begin), sum(trial["seconds"] or 0 for trial in trials)
found = {"seed": int(seed), "scheduler": scheduler, "wall_s": round(wall, 1), "trials_s": round(seconds, 1), "ratio": round(wall / (seconds / 4), 3),
         "best": max(trial["test_accuracy"] or 0 for trial in trials), "runs": sum(trial["runs"] for trial in trials)}
if scheduler == "none":
    pathlib.Path(full).write_text(json.dumps(found))
elif pathlib.Path(full).exists():
    before = json.loads(pathlib.Path(full).read_text())
    found.update(of_full=round(wall / before["wall_s"], 3), below_best=round(before["best"] - found["best"], 4))
print(json.dumps(found), flush=True)
END
}

for seed in ${SEEDS:-1 2 3}; do
  rm -f "$cluster/full"
  for scheduler in ${SCHEDULERS:-none asha}; do search "$seed" "$scheduler"; done
done
