#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The synthetic step on two hosts of two ranks: buckets and small collectives in flight at the same time, moved by the progress thread while the backward
# pass goes on. Every average is checked by the program itself.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
program=$PACELINE_BUILD/libexec/paceline/synthetic
lists=$PACELINE_SOURCE/examples/synthetic
command -v mpirun >/dev/null || { echo "skipped: mpirun is not installed"; exit 77; }
cluster_up 2
hosts_listen

step() { # what is expected of the one line, words for the program
    local expected=$1 line
    shift
    echo "== $*"
    line=$(cluster_mpirun 2 -x PACELINE_DEVICE=off -x PACELINE_TIMEOUT_S=60 timeout 150 "$program" --json 1 "$@")
    echo "$line"
    [[ $line == *"$expected"* ]] || { echo "FAILED: no '$expected'"; exit 1; }
}

step '"ranks": 4, "hosts": 2' --work timer --steps 30 --warmup 1 --backward-ms 20
step '"ranks": 4, "hosts": 2' --work busy --poll 1 --steps 10 --warmup 1 --backward-ms 20
step '"model": "resnet50"' --gradients "$lists/resnet50.json" --work timer --steps 3 --warmup 1 --backward-ms 400
