#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the digit classifier on this machine as a SageMaker job would: one host, two processes.
#
#   examples/quickstart.sh [--data DIR] [--epochs N] [--processes N] [--tree DIR]
#
#   --data DIR      MNIST's four IDX files, gzip or plain (default: drawn digits)
#   --epochs N      passes over the training digits (default: 3)
#   --processes N   training processes (default: 2)
#   --tree DIR      where the job's files and the model are (default: build/quickstart, which each run replaces)
#
# Installs missing packages (as root or through sudo, on Debian and Ubuntu), builds into build/, and runs `paceline demo`:
# a call of `paceline local`, after which it prints the accuracy, the model's path, and how to go on.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
data="" epochs=3 processes=2 tree=$root/build/quickstart
usage() { sed -n '3,13s/^# \{0,1\}//p' "$root/examples/quickstart.sh"; }
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage && exit 0 ;;
    --data | --epochs | --processes | --tree) [ -n "${2-}" ] || { echo "quickstart: $1 needs a value; --help lists the options" >&2; exit 2; } ;;
    *) echo "quickstart: there is no option $1; --help lists them" >&2; exit 2 ;;
  esac
  case $1 in
    --data) data=$(realpath -e "$2") ;;
    --epochs) epochs=$2 ;;
    --processes) processes=$2 ;;
    --tree) tree=$(realpath -m "$2") ;;
  esac
  shift 2
done
step() { echo "quickstart: $*"; }

tests/support/packages.sh install build
step "building (log in build/quickstart.log)"
mkdir -p build
{
  [ -f build/build.ninja ] || meson setup build -Dtests=auto
  ninja -C build
} >build/quickstart.log 2>&1 || { tail -n 30 build/quickstart.log >&2; exit 1; }

exec build/entrypoint/paceline demo --keep "$tree" --epochs "$epochs" --processes "$processes" ${data:+--data "$data"}
