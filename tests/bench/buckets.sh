#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares sizes of a plan's buckets (setting bucket_bytes): examples/synthetic on one host and on two.
#
#   tests/bench/buckets.sh one BUILD_DIR ROUNDS BACKWARD_MS LIST.json...     2 ranks of this machine, a backward pass that keeps the CPU busy
#   tests/bench/buckets.sh two BUILD_DIR ROUNDS BACKWARD_MS LIST.json...     2 hosts in network namespaces, 1 Gbit/s; it leaves the CPU alone;
#                                                                            needs root
#
# LIST.json holds gradients as examples/synthetic reads them. The sizes take turns, ROUNDS times; the table has medians of the rounds:
# communication alone, and the step with its backward pass of BACKWARD_MS, in milliseconds. `over` is the step's time divided by that of the
# best size in the same round (median): the cost of choosing this size.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
where=${1:?one or two}
build=$(realpath "${2:?build folder}")
rounds=${3:?rounds}
backward=${4:?milliseconds}
shift 4
sizes=(256KiB 1MiB 2MiB 4MiB 8MiB 16MiB 64MiB)
results=$(mktemp)
trap 'rm -f "$results"' EXIT
if [ "$where" = two ]; then
    source "$here/../support/cluster.sh"
    trap 'rm -f "$results"; cluster_down' EXIT
    trap 'exit 143' TERM INT
    cluster_up 2
    for host in "${cluster_hosts[@]}"; do host_rate "$host" 1gbit; done
    hosts_listen
    run() { cluster_mpirun 1 env PACELINE_DEVICE=off "$@" --work timer --steps 5 --warmup 1; }
else
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    run() { mpirun --oversubscribe --bind-to none -n 2 env PACELINE_DEVICE=off "$@" --work busy --steps 15 --warmup 3; }
fi
for round in $(seq "$rounds"); do
    for list in "$@"; do
        for size in "${sizes[@]}"; do
            line=$(run PACELINE_BUCKET_BYTES="$size" "$build/libexec/paceline/synthetic" --gradients "$(realpath "$list")" --backward-ms "$backward" --json 1)
            echo "{\"round\": $round, \"size\": \"$size\", \"result\": $line}" >>"$results"
        done
    done
done
python3 - "$results" "${sizes[@]}" <<'PYTHON'
import collections, json, statistics, sys
found = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    entry = json.loads(line)
    found[entry["result"]["model"], entry["round"]][entry["size"]] = entry["result"]
print("| model | bucket | communication ms | step ms | over |\n|---|---|---|---|---|")
for model in dict.fromkeys(model for model, _ in found):
    rounds = [cases for (name, _), cases in found.items() if name == model]
    for size in sys.argv[2:]:
        over = statistics.median(cases[size]["step_ms"] / min(case["step_ms"] for case in cases.values()) for cases in rounds)
        print(f"| {model} | {size} | {statistics.median(c[size]['communication_ms'] for c in rounds):.2f} | "
              f"{statistics.median(c[size]['step_ms'] for c in rounds):.2f} | {over:.3f} |")
PYTHON
