#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paceline demo [OPTION...]
#
# Draws digits or copies MNIST's files, and runs `paceline local` on them: two processes train the digit classifier of
# the examples. At the end it prints the accuracy, the path of the model, and further commands to try.
# Test  tests/integration/demo.sh
set -u
export LC_ALL=C

# fail CODE WORDS: `paceline help` lists the exit codes.
fail() { echo "paceline demo: error: $2" >&2; exit "$1"; }

here=$(realpath "${0%/*}") || exit
for paceline in "$here/../../bin/paceline" "$here/../entrypoint/paceline" "$here/paceline"; do [ ! -x "$paceline" ] || break; done
paceline=$(realpath "$paceline") || exit

keep='' data='' epochs=2 processes=2
# whole NAME VALUE MOST
whole() {
  case $2 in
  '' | *[!0-9]* | ?????*) ;;
  *) [ "$2" -lt 1 ] || [ "$2" -gt "$3" ] || return 0 ;;
  esac
  fail 2 "--$1 is '$2', expected a whole number from 1 to $3"
}
while [ $# -gt 0 ]; do
  word=${1%%=*} option=
  for name in --help --keep --data --epochs --processes; do # each has a first letter of its own
    case $name in "$word"*) [ ${#word} -le 2 ] || option=$name ;; esac
  done
  case $1 in
  -h) option=--help ;;
  -*) [ "$option" ] || fail 2 "there is no option $word; --help lists the options" ;;
  *) fail 2 "expected only options, found '$1'; --help tells more" ;;
  esac
  [ $option != --help ] || exec "$paceline" help demo
  case $1 in
  *=*) value=${1#*=} ;;
  *) [ $# -gt 1 ] || fail 2 "$option needs a value; --help tells more"; shift; value=$1 ;;
  esac
  shift
  case $option in
  --keep) keep=$value ;;
  --data) data=$value ;;
  --epochs) whole epochs "$value" 1000; epochs=$value ;;
  *) whole processes "$value" 64; processes=$value ;;
  esac
done
[ -x "$here/make_digits" ] ||
  fail 1 "this Paceline was built without the examples: expected the digit classifier that the demo trains"

# run WORDS: waits for the program and passes stops on to it. A session of its own keeps those of a terminal from it.
run() {
  setsid "$@" &
  child=$!
  trap 'kill -TERM $child' HUP INT QUIT TERM
  code=0
  wait $child || code=$?
  while kill -0 $child 2>/dev/null; do # a trap has ended the wait
    code=0
    wait $child || code=$?
  done
  trap - HUP INT QUIT TERM
}

# A folder with files that no demo has made is somebody else's; what an earlier demo left in its own goes.
if [ "$keep" ]; then
  mkdir -p -- "$keep" && tree=$(realpath -- "$keep") || fail 1 "make the folder '$keep'"
else
  tree=$(mktemp -d "${TMPDIR:-/tmp}/paceline-demo-XXXXXX") && chmod 0755 "$tree" ||
    fail 1 "make the folder '${TMPDIR:-/tmp}/paceline-demo-XXXXXX' (name a folder by --keep DIR, or give a read-only container a writable /tmp: docker run --tmpfs /tmp)"
fi
[ -z "$(ls -A "$tree")" ] || [ -e "$tree/.paceline-demo" ] ||
  fail 1 "'$keep' is not empty: expected a new folder, an empty folder, or a folder that an earlier demo made"
rm -rf "$tree/input" "$tree/model" "$tree/output" "$tree/local"
mkdir -p "$tree/input/data/training" "$tree/input/data/testing" && : >"$tree/.paceline-demo" || fail 1 "write into '$tree'"

if [ "$data" ]; then # MNIST's four files, plain or gzip
  count=0
  for file in "$data"/train-*-ubyte* "$data"/t10k-*-ubyte*; do
    [ -e "$file" ] || continue
    case ${file##*/} in train-*) channel=training ;; *) channel=testing ;; esac
    cp -- "$file" "$tree/input/data/$channel/" || exit 1
    count=$((count + 1))
  done
  [ $count = 4 ] || fail 1 "'$data' has $count of MNIST's files: expected train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k-, plain or with .gz"
else
  run "$here/make_digits" "$tree/input/data" 1500 500 1
  [ $code = 0 ] || fail 1 "drawing digits failed with code $code, see above"
fi

began=$(date +%s)
run "$paceline" local --kind plain --keep --folder "$tree" --name local --channel "training=$tree/input/data/training" \
  --channel "testing=$tree/input/data/testing" --processes-per-host "$processes" --hyperparameter "epochs=$epochs" \
  --hyperparameter batch-size=32 --hyperparameter learning-rate=0.02
[ $code = 0 ] || fail $code "the job ended with code $code; the reason is above, and its files are in $tree/local"
seconds=$(($(date +%s) - began))

# Puts what the job has left where SageMaker has it; where `paceline local` had it is a link then.
host=$tree/local/algo-1
mv "$host/input/config" "$tree/input/" && mv "$host/model" "$host/output" "$tree/" && rm -rf "$host" && ln -s .. "$host" || exit 1
accuracy=$(sed -n '$s/.*"test_accuracy": *\([0-9.]*\).*/\1/p' "$tree/output/data/metrics.jsonl" 2>/dev/null)
[ "$accuracy" ] || fail 1 "the job ended before its first epoch"
model=$tree/model/model.safetensors
bytes=$(wc -c <"$model") || fail 1 "find the model '$model'"
tenths=$(((bytes + 50000) / 100000))

# command_line WHAT TREE WORDS: what a command does, and the command as the user types it; TREE is that of a kept job.
front=$paceline
[ "$(realpath "$(command -v paceline)" 2>/dev/null)" != "$paceline" ] || front=paceline
command_line() {
  echo "  # $1"
  if [ $$ = 1 ]; then # in a container, whose folders differ from those of the host
    echo "  docker run --rm -v \"\$PWD/job:/opt/ml\" paceline $3"
  else
    echo "  ${2:+SAGEMAKER_BASE_DIR=$2 }$front $3"
  fi
}
at='' where=job
[ "$processes" != 1 ] && more=es || more=
[ $$ != 1 ] || where=/opt/ml
[ $$ != 1 ] || [ "$keep" ] || at=', in this container'
printf '\nTrained by %d process%s in %d s: accuracy %.3f on digits that the model has not seen\n' "$processes" "$more" $seconds "$accuracy"
printf 'Model: %s (%d.%d MB)%s\n\nTo go on:\n' "$model" $((tenths / 10)) $((tenths % 10)) "$at"
# shellcheck disable=SC2016 # the user's shell has $PWD
[ "$keep" ] && base=\'$(printf %s "$tree" | sed "s/'/'\\\\''/g")\' || base='$PWD/job'
[ "$keep" ] || command_line "keep the job's files and the model in ./job" '' "demo --keep $where"
command_line "print what the job runs" "$base" plan
command_line "run the job again; its hyperparameters are in input/config/hyperparameters.json" "$base" train
[ -z "$keep" ] || command_line "run another program instead of the classifier" "$base" "-- COMMAND"
