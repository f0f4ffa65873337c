#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `paceline demo`: two processes learn drawn digits by `paceline local` in a folder of its own; the commands that it prints run as they are; it replaces the files of an
# earlier demo and nobody else's; a stop reaches the job.
set -euo pipefail
paceline=$PACELINE_BUILD/entrypoint/paceline
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-demo-test-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
command -v mpirun >/dev/null || { echo "no mpirun on this machine"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail() { echo "FAILED: $*"; exit 1; }
step() { echo "[$SECONDS s] $*"; }

step "a demo in a folder of its own"
mkdir tmp
TMPDIR=$work/tmp "$paceline" demo >first.log 2>&1 || { cat first.log; fail "the demo ended with $?"; }
cat first.log
accuracy=$(sed -n 's/^Trained by 2 processes in .* accuracy \(0\.[0-9]*\|1\.000\) on digits.*/\1/p' first.log)
awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy > 0.8) }' || fail "the accuracy is '$accuracy'"
model=$(sed -n 's/^Model: \(.*\) ([0-9.]* MB)$/\1/p' first.log | tail -n 1) # after that of paceline local
[[ $model = "$work"/tmp/paceline-demo-*/model/model.safetensors && -s $model ]] || fail "the model is in '$model'"

grep -q '^\[algo-1\] .*epoch=1 ' first.log && grep -qx "Status: Completed" first.log || fail "it is not a job of paceline local"
tree=${model%/model/*}
tar tzf "$tree/local/model.tar.gz" | grep -x model.safetensors >/dev/null && [ -s "$tree/local/algo-1/input/config/hyperparameters.json" ] || fail "the packed model or the paths of the log lead nowhere"

step "the three commands that it prints"
mapfile -t commands < <(sed -n '/^To go on:/,$s/^  \([^#].*\)/\1/p' first.log)
[ ${#commands[@]} = 3 ] || fail "it prints ${#commands[@]} commands"
for command in "${commands[@]}"; do
  echo "\$ $command"
  bash -c "$command" >command.log 2>&1 || { cat command.log; fail "'$command' ended with $?"; }
  case $command in
    *" plan "*) grep -q '"mpirun"' command.log || { cat command.log; fail "the plan has no mpirun"; } ;;
    *) [ -s job/model/model.safetensors ] || fail "no model after '$command'" ;;
  esac
done

step "other values; it replaces an earlier demo's files"
echo old >job/model/old
echo old >job/local/old
"$PACELINE_BUILD/libexec/paceline/make_digits" digits 300 100 2
mv digits/*/* digits
"$paceline" demo --keep job --epochs 1 --processes 1 --data digits >second.log 2>&1 || { cat second.log; fail "the second demo ended with $?"; }
cat second.log
grep -q "^Trained by 1 process in .* accuracy 0\.[0-9]* on" second.log || fail "no accuracy of one process"
grep -q '"epochs": *"1"' job/input/config/hyperparameters.json || fail "the number of epochs is another"
[ ! -e job/model/old ] && [ ! -e job/local/old ] || fail "the earlier demo's model is still there"
grep -q "^  SAGEMAKER_BASE_DIR='$work/job' .* -- COMMAND" second.log || fail "it names no way to run another program"

step "it touches nobody else's files"
mkdir other && echo data >other/file
code=0
"$paceline" demo --keep other >third.log 2>&1 || code=$?
[ $code = 1 ] && [ "$(ls other)" = file ] || fail "code $code, $(ls other)"
grep -qx "paceline demo: error: 'other' is not empty: expected a new folder, an empty folder, or a folder that an earlier demo made" third.log || { cat third.log; fail "another message"; }
code=0
"$paceline" demo --keep new --data other >third.log 2>&1 || code=$?
[ $code = 1 ] && grep -q "'other' has 0 of MNIST's files: expected train-images-idx3-ubyte" third.log || { cat third.log; fail "data that is none: code $code"; }

code=0
TMPDIR=$work/none "$paceline" demo >third.log 2>&1 || code=$?
[ $code = 1 ] && grep -q "make the folder '$work/none/paceline-demo-.*' (name a folder by --keep DIR, or give a read-only container" third.log || { cat third.log; fail "no room for temporary files: code $code"; }

step "a stop reaches the job"
"$paceline" demo --keep stopped --epochs 1000 >fourth.log 2>&1 &
demo=$!
until grep -q "epoch=1 " fourth.log; do
  kill -0 $demo || { cat fourth.log; fail "it ended before its first epoch"; }
  [ $SECONDS -lt 500 ] || fail "no epoch in $SECONDS s"
  sleep 0.1
done
kill -TERM $demo
code=0
wait $demo || code=$?
cat fourth.log
[ $code = 143 ] || [ $code = 0 ] || fail "a stopped demo ended with $code"
grep -q "SIGTERM" fourth.log || fail "the job was not told of SIGTERM"
step "all done"
