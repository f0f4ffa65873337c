#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Dockerfile's target `cuda` builds on the plain base with this machine's toolkit mounted, and its image trains without a driver, saying so
# in one line. The user's files for EFA are installed.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/containers.sh"
toolkit=/usr/local/cuda
[ -x $toolkit/bin/nvcc ] && [ -e $toolkit/include/cudnn.h ] || skip "no CUDA toolkit with cuDNN in $toolkit"
container_engine
[ "$engine" = podman ] || skip "docker cannot mount the toolkit into a build"
image=paceline-cuda:test
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-cuda-image-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
fail() { echo "FAILED: $*"; tail -n 40 "$work/log"; exit 1; }
mount=(-v "$(realpath $toolkit):$toolkit:ro")

# A context of our own, since the user's files must lie in it: what git tracks, and a tree that stands for EFA's.
mkdir -p "$work/context/efa" "$work/efa/opt/efa"
tar -C "$PACELINE_SOURCE" -c --exclude=.git --exclude='build*' . | tar -C "$work/context" -x
echo "supplied" >"$work/efa/opt/efa/word"
tar -C "$work/efa" -czf "$work/context/efa/efa.tar.gz" opt
container_build "$image" "$work/context" --target cuda --build-arg GPU_ARCHS=75 --build-arg EFA_FILES=efa "${mount[@]}" >"$work/log" 2>&1 ||
  fail "the image does not build"
echo "[$SECONDS s] built, $(podman image inspect --format '{{.Size}}' "$image") bytes without CUDA's libraries"

run() { podman run --rm --network none "${mount[@]}" "$@" >"$work/log" 2>&1; }
run --entrypoint sh "$image" -c '
  for tool in cc gcc g++ nvcc meson; do ! command -v $tool || exit 10; done
  test -e /usr/local/libexec/paceline/libpaceline-nn-cuda.so || exit 11
  test "$(cat /opt/efa/word)" = supplied || exit 12
  ! ls /tmp/image 2>/dev/null || exit 13
  test "$(stat -c %a /etc/paceline/ssh/id_ed25519)" = 600 || exit 14' || fail "the image's content is not as promised ($?)"

mkdir -p "$work"/job/{input/config,input/data,output/data,model}
echo '{"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}' >"$work/job/input/config/resourceconfig.json"
echo '{"epochs": "1", "batch-size": "32"}' >"$work/job/input/config/hyperparameters.json"
echo '{"training": {"TrainingInputMode": "File"}, "testing": {"TrainingInputMode": "File"}}' >"$work/job/input/config/inputdataconfig.json"
"$PACELINE_BUILD/libexec/paceline/make_digits" "$work/job/input/data" 200 100 1
run -v "$work/job:/opt/ml" "$image" train || fail "training without a driver: exit code $?"
[ "$(grep -c 'training on the CPU: no GPU is used: no NVIDIA driver' "$work/log")" = 1 ] || fail "expected one line that says why it trains on the CPU"
grep -q 'test_accuracy=' "$work/log" && [ -s "$work/job/model/model.safetensors" ] || fail "nothing was learnt"
! run -v "$work/job:/opt/ml" --entrypoint /usr/local/libexec/paceline/mnist "$image" --device cuda --data /opt/ml/input/data || fail "--device cuda works without a driver"
grep -q 'no NVIDIA driver' "$work/log" || fail "--device cuda does not say what is missing"
echo "[$SECONDS s] trained on the CPU, with a line that says so"
