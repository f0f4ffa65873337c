#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Smoke test of a training image, for a CI pipeline. It needs docker or podman, and no AWS account.
#
#   examples/ci/smoke.sh IMAGE [--code DIR --program FILE] [--data DIR] [--hyperparameters FILE] [--limit SECONDS]
#
#   --code DIR              folder with the program; it becomes /opt/ml/code (default: the image's own program)
#   --program FILE          the program in that folder, such as train.py
#   --data DIR              folder with one folder per channel (default: drawn digits; the image must have the examples)
#   --hyperparameters FILE  JSON object of the job's hyperparameters (default: one epoch)
#   --limit SECONDS         the longest time that one job may take (default: 600)
#
# The steps: `plan` finds no error; a job with two processes trains and leaves a model; a job on two hosts trains; and a
# job whose program fails ends with an exit code other than 0 and says why. The exit code is 0 only if all of this is so.
set -euo pipefail
engine=${DOCKER:-docker}
image="" code="" program="" data="" hyperparameters="" limit_s=600
usage() { sed -n '3,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
wrong() { echo "smoke: $*; --help lists the options" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --code | --program | --data | --hyperparameters | --limit) [ -n "${2-}" ] || wrong "$1 needs a value" ;;
    -*) wrong "there is no option $1" ;;
    *) [ -z "$image" ] || wrong "two images are named, '$image' and '$1'"; image=$1; shift; continue ;;
  esac
  case $1 in
    --code) code=$(realpath -e "$2") ;;
    --program) program=$2 ;;
    --data) data=$(realpath -e "$2") ;;
    --hyperparameters) hyperparameters=$(cat "$2") ;;
    --limit) limit_s=$2 ;;
  esac
  shift 2
done
[ -n "$image" ] || { usage >&2; exit 2; }
[ -z "$code" ] || [ -n "$program" ] || wrong "--code needs --program"
command -v "$engine" >/dev/null || wrong "there is no $engine; the variable DOCKER names another engine, such as podman"
[ -n "$hyperparameters" ] || hyperparameters='{"epochs": "1"}'

work=$(mktemp -d)
network=paceline-smoke-$$
containers=()
cleanup() {
  [ ${#containers[@]} = 0 ] || "$engine" rm -f "${containers[@]}" >/dev/null 2>&1 || true
  "$engine" network rm "$network" >/dev/null 2>&1 || true
  # The containers' user owns what the jobs have written, and may be another user than this one.
  "$engine" run --rm -v "$work:/mnt" --entrypoint sh "$image" -c 'rm -rf /mnt/*' >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM INT
step() { echo "smoke: $* [$SECONDS s]"; }
fail() {
  echo "smoke: FAILED: $*" >&2
  exit 1
}

# json_with OBJECT MEMBERS: the object with more members. It may be empty.
json_with() {
  local body
  body=$(tr '\n' ' ' <<<"$1" | sed -E 's/^ *\{(.*)\} *$/\1/; s/^ +//; s/ +$//')
  echo "{${body:+$body, }$2}"
}

# tree HOST HOSTS PROCESSES: the job's folders of one host.
tree() {
  local root=$work/$1 members="\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"$3\""
  local channels=""
  mkdir -p "$root"/{input/config,input/data,model,output}
  [ -z "$code" ] || { rm -rf "$root/code" && cp -R "$code" "$root/code"; } # a copy, which the job may change
  [ -z "$program" ] || members+=", \"sagemaker_program\": \"\\\"$program\\\"\""
  json_with "$hyperparameters" "$members" >"$root/input/config/hyperparameters.json"
  echo "{\"current_host\": \"$1\", \"hosts\": [$2], \"network_interface_name\": \"eth0\"}" >"$root/input/config/resourceconfig.json"
  for channel in "$data"/*/; do
    channels+="${channels:+, }\"$(basename "$channel")\": {\"TrainingInputMode\": \"File\"}"
  done
  echo "{$channels}" >"$root/input/config/inputdataconfig.json"
}

# run HOST WORDS...: a container of the image in the background, with that host's folders. The image keeps its /opt/ml/code
# if no code is given.
run() {
  local host=$1 root=$work/$1
  shift
  containers+=("$network-$host")
  "$engine" run -d --name "$network-$host" --network "$network" --network-alias "$host" --hostname "$host" -v "$root/input:/opt/ml/input" \
    -v "$root/model:/opt/ml/model" -v "$root/output:/opt/ml/output" ${code:+-v "$root/code:/opt/ml/code"} -v "$data:/opt/ml/input/data:ro" \
    "$image" "$@" >/dev/null
}

# ended HOST: waits for that container and leaves its exit code in `exit_code`; shows the log if it did not end with 0.
ended() {
  exit_code=$(timeout "$limit_s" "$engine" wait "$network-$1") || {
    "$engine" logs --tail 50 "$network-$1" >&2
    fail "the container of $1 did not end within $limit_s s"
  }
}
ended_well() {
  ended "$1"
  [ "$exit_code" = 0 ] && return
  "$engine" logs --tail 50 "$network-$1" >&2
  fail "$2 ended with exit code $exit_code on $1"
}
forget() {
  "$engine" rm -f "${containers[@]}" >/dev/null
  containers=()
}

"$engine" network create "$network" >/dev/null
if [ -z "$data" ]; then
  data=$work/data
  mkdir "$data"
  "$engine" run --rm -v "$data:/data" --entrypoint /usr/local/libexec/paceline/make_digits "$image" /data 2000 400 1 ||
    fail "the image has no program that draws digits; name a folder with --data"
fi

tree algo-1 '"algo-1"' 2
step "plan"
run algo-1 plan
ended_well algo-1 "plan"
forget

step "two processes on one host"
run algo-1 train
ended_well algo-1 "the job"
[ -n "$(ls -A "$work/algo-1/model")" ] || fail "the job left no model in /opt/ml/model"
forget

step "one process on each of two hosts"
for host in algo-1 algo-2; do
  tree "$host" '"algo-1", "algo-2"' 1
  run "$host" train
done
ended_well algo-1 "the job on two hosts"
ended_well algo-2 "the job on two hosts"
forget

step "a program that fails"
mkdir "$work/failing"
printf '#!/bin/sh\necho "this program fails on purpose" >&2\nexit 7\n' >"$work/failing/fail.sh"
code=$work/failing program=fail.sh
tree fails '"fails"' 2
run fails train
ended fails
[ "$exit_code" != 0 ] || fail "a job whose program exits with 7 ended with 0"
reason=$("$engine" run --rm -v "$work/fails/output:/output:ro" --entrypoint cat "$image" /output/failure)
case $reason in
  *"fails on purpose"*) ;;
  *) fail "the failure file does not hold the last line of the program that failed, but: $reason" ;;
esac
step "passed"
