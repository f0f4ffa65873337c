#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers examples/quickstart.sh, examples/ci/smoke.sh, entrypoint/bash-env.sh, tests/run.sh.
# shellcheck has no warning about the scripts that users run: the product's, the examples', and those that build the image.
set -euo pipefail
cd "$1"
command -v shellcheck >/dev/null || { echo "shellcheck is not installed"; exit 77; }
scripts=(tests/run.sh tests/support/{packages,image,foreign,deb,wheel}.sh)
while IFS= read -r file; do
  scripts+=("$file")
done < <(grep -rlE '^#!.*\b(ba|da)?sh$|^# shellcheck shell=' base collectives device entrypoint examples programs runtime s3io | sort)
printf '%s\n' "${scripts[@]}"
[ ${#scripts[@]} -ge 6 ] || { echo "expected bash-env.sh, quickstart.sh, smoke.sh and more"; exit 1; }
printf '#!/bin/sh\nrm -r $folder\n' | shellcheck - >/dev/null && { echo "shellcheck finds nothing in a wrong script"; exit 1; }
shellcheck -x -S warning "${scripts[@]}"
