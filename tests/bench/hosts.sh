#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Allreduce between hosts in network namespaces, beside Open MPI's own: one JSON line a case.
#
#   tests/bench/hosts.sh CLUSTER [BUILD_DIR]
#
# CLUSTER is a script that makes such hosts: `up N RATE`, `exec HOST CMD...`, `down`. Needs root. `goodput_mbs` is what one TCP stream carries on the
# same link in the same run; share = 2(H-1)/H * bytes / goodput / time.
set -euo pipefail
cluster=${1:?usage: hosts.sh CLUSTER [BUILD_DIR]}
build=$(realpath "${2:-build}")
bench=$build/collectives/paceline-bench
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
[ -x "$cluster" ] || { echo "skipped: no script $cluster"; exit 77; }
trap '"$cluster" down >/dev/null 2>&1 || true' EXIT

support=$(dirname "$(realpath "$0")")/../support
goodput() { # bytes a second that one TCP stream carries from host 2 to host 1
    "$cluster" exec algo-1 "$support/goodput.py" serve &
    sleep 0.5
    "$cluster" exec algo-2 "$support/goodput.py" algo-1
    wait
}

measure() { # hosts, ranks a host, rate, goodput, further options
    local hosts=$1 per_host=$2 rate=$3 bytes_per_s=$4 list="" i
    shift 4
    for i in $(seq "$hosts"); do list+=,algo-$i:$per_host; done
    "$cluster" exec algo-1 timeout 300 mpirun --allow-run-as-root --host "${list#,}" -n $((hosts * per_host)) --oversubscribe --bind-to none \
        --mca mpi_yield_when_idle 1 "$bench" allreduce --json --peer mpi "$@" 2>/dev/null |
        python3 -c '
import json, sys
rate, goodput = sys.argv[1], float(sys.argv[2])
for line in sys.stdin:
    case = json.loads(line)
    case["rate"] = rate
    if goodput:
        h = case["hosts"]
        case["goodput_mbs"] = round(goodput / 1e6, 1)
        case["share"] = round(2 * (h - 1) / h * case["bytes"] / goodput / (case["time_us"] / 1e6), 3)
    print(json.dumps(case), flush=True)' "$rate" "$bytes_per_s"
}

for setting in "2 1gbit" "4 1gbit" "4 200mbit"; do
    read -r hosts rate <<<"$setting"
    "$cluster" up "$hosts" "$rate" >/dev/null
    bytes_per_s=$(goodput)
    for per_host in 1 2; do
        measure "$hosts" "$per_host" "$rate" "$bytes_per_s" --min-bytes 64 --max-bytes 256KiB --factor 64 --pairs 7
        measure "$hosts" "$per_host" "$rate" "$bytes_per_s" --min-bytes 64MiB --max-bytes 64MiB --pairs 3 --loop-ms 1
    done
    "$cluster" down >/dev/null
done
