#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every interleaving of the shared-memory protocols, by the model checker spin: each model holds, and its variant with a mistake does not.
# With the word `long`: a stop likewise, and the staged protocol among three ranks.
set -euo pipefail
models=$PACELINE_SOURCE/tests/models
for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# check MODEL WANTED_ERRORS [spin flags]: explores all states, or stops at the first error.
check() {
  local model=$1 wanted=$2 errors
  shift 2
  spin -a "$@" "$models/$model.pml" >spin.log || { cat spin.log; exit 1; }
  gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
  ./pan -m1000000 >pan.log || true
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
  if grep -q 'max search depth too small' pan.log || [ "$((errors > 0))" != "$wanted" ]; then
    cat pan.log
    echo "model $model $*: errors: $errors"
    exit 1
  fi
  echo "model $model $*: errors: $errors, $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states"
}

checked="eventcount headers zero_copy staged hosts"
[ "${1:-main}" = main ] || checked=stop
for model in $checked; do
  check "$model" 0
  check "$model" 1 -DBROKEN
done
[ "${1:-main}" = main ] || check staged 0 -DRANKS=3
