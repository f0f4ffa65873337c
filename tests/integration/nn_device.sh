#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples without a GPU: a build with CUDA starts without its libraries, says in one line that it trains on the CPU, and refuses what only a GPU
# can do.
set -euo pipefail
export OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mnist=$PACELINE_BUILD/libexec/paceline/mnist
plugin=$PACELINE_BUILD/libexec/paceline/libpaceline-nn-cuda.so
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-device-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/err"; exit 1; }

ldconfig -p | grep 'libcuda\.so\.1 ' >/dev/null && { echo "a driver is installed: tests/gpu.sh tests with one"; exit 77; }
"$PACELINE_BUILD/libexec/paceline/make_digits" "$work" 64 20 1

# run RANKS WORDS...: leaves `code`, out and err.
run() {
  local ranks=$1 launcher=()
  shift
  [ "$ranks" = 1 ] || launcher=(mpirun --oversubscribe --bind-to none -n "$ranks")
  code=0
  "${launcher[@]}" "$mnist" --data "$work" --epochs 1 --batch-size 16 "$@" >"$work/out" 2>"$work/err" || code=$?
}
lines_with() { grep -c -- "$1" "$work/err" || true; }

run 1 --device cpu
[ "$code" = 0 ] && [ "$(lines_with GPU)" = 0 ] || fail "--device cpu speaks of GPUs or fails ($code)"
line=$(grep -o '.*test_accuracy=[0-9.]*' "$work/out")
! readelf -d "$mnist" | grep -E 'NEEDED.*lib(cuda|cublas|cudnn|nccl)' || fail "the program needs CUDA's libraries to start"

expected=0
[ ! -e "$plugin" ] || expected=1
for ranks in 1 2; do
  run $ranks
  [ "$code" = 0 ] || fail "auto on $ranks rank(s): exit code $code"
  [ "$(lines_with 'training on the CPU: .*no NVIDIA driver')" = $expected ] && [ "$(lines_with 'training on the CPU')" = $expected ] ||
    fail "auto on $ranks rank(s): expected $expected line(s) that say why it trains on the CPU"
  [ $ranks != 1 ] || [ "$(grep -o '.*test_accuracy=[0-9.]*' "$work/out")" = "$line" ] || fail "auto computes something else than --device cpu"
done

run 1 --device cuda
[ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "--device cuda without a driver: exit code $code"
reason='libpaceline-nn-cuda.so) are not installed'
[ $expected = 0 ] || reason='no NVIDIA driver'
grep -q "$reason" "$work/err" || fail "the message lacks '$reason'"
mkdir "$work/alone"
cp "$mnist" "$work/alone"
mnist=$work/alone/mnist run 1 --device cuda
[ "$code" = 1 ] && grep -q 'libpaceline-nn-cuda.so) are not installed' "$work/err" || fail "without the layers for GPUs next to it: exit code $code"
mnist=$work/alone/mnist run 1
[ "$code" = 0 ] && [ "$(lines_with GPU)" = 0 ] || fail "a program that was never built for GPUs speaks of them ($code)"
run 1 --device cpu --precision bf16
[ "$code" = 1 ] && grep -q 'the CPU works in float32 only' "$work/err" || fail "bf16 on the CPU: exit code $code"
run 1 --device tpu
[ "$code" = 1 ] && grep -q "expected auto, cpu, cuda or cuda:N" "$work/err" || fail "--device tpu: exit code $code"
echo "done; layers for GPUs were $([ $expected = 1 ] || echo not )built"
