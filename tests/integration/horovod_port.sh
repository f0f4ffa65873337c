#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/horovod_port on 1, 2 and 3 ranks, uneven batches included: it learns, and rank 0 saves the model.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
"$PACELINE_BUILD/libexec/paceline/make_digits" "$scratch/data" 2000 500 1
# Test images of another size than the training's are refused, not read beyond their end: here the training's as 28 rows of 14.
cp -r "$scratch/data" "$scratch/odd"
python3 - "$scratch/odd/training" <<'PY'
import pathlib, struct, sys
images = next(pathlib.Path(sys.argv[1]).glob('*images*'))
images.write_bytes(struct.pack('>4I', 0x803, 2000, 28, 14) + images.read_bytes()[16:16 + 2000 * 28 * 14])
PY
if "$PACELINE_BUILD/examples/horovod_port/horovod_port" "$scratch/odd" "$scratch" 2>"$scratch/log"; then
  echo "images of two sizes were taken"
  exit 1
fi
grep -q "channel 'testing' have 784 bytes, expected 392" "$scratch/log"
for ranks in 1 2 3; do
  timeout 250 mpirun --oversubscribe --bind-to none -n "$ranks" "$PACELINE_BUILD/examples/horovod_port/horovod_port" \
    "$scratch/data" "$scratch/model$ranks" | tee "$scratch/log"
  accuracy=$(sed -n 's/^test_accuracy=//p' "$scratch/log")
  awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy >= 0.85) }' || { echo "$ranks ranks: accuracy '$accuracy' is below 0.85"; exit 1; }
  [ -s "$scratch/model$ranks/model.safetensors" ] || { echo "$ranks ranks: no model"; exit 1; }
done
