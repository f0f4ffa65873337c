#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the digit classifier on this machine as a SageMaker job would: one host, two processes.
#
#   examples/quickstart.sh [--data DIR] [--epochs N] [--processes N] [--tree DIR]
#
#   --data DIR      MNIST's four IDX files, gzip or plain (default: synthetic digits from a small generator)
#   --epochs N      passes over the training digits (default: 3)
#   --processes N   training processes (default: 2)
#   --tree DIR      place of the job's /opt/ml tree (default: build/quickstart, which each run replaces)
#
# Installs missing packages (as root or through sudo, on Debian and Ubuntu), builds into build/, and at the end prints
# the accuracy and the model's path.
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

if [ -e "$tree" ]; then # remove only a tree that an earlier run made
  [ -f "$tree/.quickstart" ] || { echo "quickstart: '$tree' exists and is not a quickstart tree" >&2; exit 1; }
  rm -rf "$tree"
fi
mkdir -p "$tree"/{input/config,input/data/training,input/data/testing,model,output}
touch "$tree/.quickstart"
if [ -n "$data" ]; then
  step "digits from $data"
  cp "$data"/train-*-ubyte* "$tree/input/data/training/"
  cp "$data"/t10k-*-ubyte* "$tree/input/data/testing/"
else
  step "drawing synthetic digits"
  build/libexec/paceline/make_digits "$tree/input/data" 8000 2000 1
fi
cat >"$tree/input/config/hyperparameters.json" <<J
{"epochs": "$epochs", "batch-size": "32", "learning-rate": "0.02",
 "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "$processes"}
J
cat >"$tree/input/config/resourceconfig.json" <<'J'
{"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
J
cat >"$tree/input/config/inputdataconfig.json" <<'J'
{"training": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"},
 "testing": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}}
J

step "paceline train, $processes processes, job tree in $tree"
begin=$SECONDS
log=$tree/training.log
if ! SAGEMAKER_BASE_DIR=$tree build/entrypoint/paceline train 2>&1 | tee "$log"; then
  [ ! -s "$tree/output/failure" ] || { echo "quickstart: the failure file says:"; cat "$tree/output/failure"; } >&2
  exit 1
fi
accuracy=$(grep -o 'test_accuracy=[0-9.]*' "$log" | tail -n 1 | cut -d= -f2)
model=$tree/model/model.safetensors
[ -s "$model" ] && [ -n "$accuracy" ] || { echo "quickstart: the job ended without an accuracy or a model" >&2; exit 1; }
step "accuracy $accuracy after $epochs epochs and $((SECONDS - begin)) s; model in $model"
