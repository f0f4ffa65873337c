#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The image of the Dockerfile trains: alone, on two hosts, and in the trees of the SDK's two local modes. With the word `long`: a program in Python
# in an image made from it, the smoke test for CI pipelines, the pods of a job on Kubernetes, an image without examples, and one without ssh keys. With
# the word `full`: a job is started again ten times, two builds of one tree have the same files, and a scanner finds no secret in them.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/containers.sh"
container_engine
image=paceline:test
run_id=pl$$
network=$run_id-net
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-containers-XXXXXX")
containers=()
cleanup() {
  [ ${#containers[@]} = 0 ] || "$engine" rm -f "${containers[@]}" >/dev/null 2>&1 || true
  "$engine" network rm "$network" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM INT

fail() {
  echo "FAILED: $*"
  for name in "${containers[@]}"; do
    echo "---- $name"
    "$engine" logs --tail 60 "$name" 2>&1 || true
  done
  exit 1
}
step() { echo "[$SECONDS s] $*"; }

# config ROOT HOST HOSTS_JSON INTERFACE HYPERPARAMETERS_JSON: a host's input/config.
config() {
  mkdir -p "$1"/input/config "$1"/output/data
  echo "{\"current_host\": \"$2\", \"hosts\": $3, \"network_interface_name\": \"$4\"}" >"$1/input/config/resourceconfig.json"
  echo "$5" >"$1/input/config/hyperparameters.json"
  echo '{"training": {"TrainingInputMode": "File"}, "testing": {"TrainingInputMode": "File"}}' >"$1/input/config/inputdataconfig.json"
}

# start NAME OPTIONS... -- WORDS...: a container of the image in the background; its result is checked later.
start() {
  local name=$run_id-$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  containers+=("$name")
  "$engine" run -d --name "$name" "${options[@]}" "$image" "$@" >/dev/null
}

# ends NAME LIMIT_S: wait for a container and leave its exit code in `code`.
ends() {
  code=$(timeout "$2" "$engine" wait "$run_id-$1") || fail "$1 did not end within $2 s"
}

# end_well NAME...: checks that all of them end with 0.
end_well() {
  local host
  for host in "$@"; do
    ends "$host" 400
    [ "$code" = 0 ] || fail "$host: exit code $code"
  done
}

finished_ns() {
  local at
  at=$("$engine" inspect --format '{{.State.FinishedAt}}' "$run_id-$1")
  date -d "$(sed -E 's/ [+-][0-9]{4} .*//' <<<"$at")" +%s%N
}

says() { "$engine" logs "$run_id-$1" 2>&1 | grep -E -- "$2" || fail "the log of $1 lacks '$2'"; }

forget() {
  [ ${#containers[@]} = 0 ] || "$engine" rm -f "${containers[@]}" >/dev/null 2>&1
  containers=()
}

the_image_is_built() {
  container_build "$image" "$PACELINE_SOURCE" >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; fail "the image does not build"; }
  start look --entrypoint sh -- -c '
    for tool in cc gcc g++ clang make meson python3; do ! command -v $tool || exit 10; done
    for tool in mpirun ssh paceline; do command -v $tool || exit 11; done
    test "$(stat -c %a /etc/paceline/ssh/id_ed25519 /etc/paceline/ssh/host_ed25519 | sort -u)" = 600 || exit 12
    ! ls /etc/ssh/ssh_host_* 2>/dev/null || exit 13
    test -d /usr/local/share/paceline/examples/mnist || exit 14
    for module in horovod horovod-torch horovod-tensorflow; do test -f "/usr/local/libexec/paceline/libpaceline-$module.so" || exit 17; done
    ldconfig -p | grep "libpaceline.so.0 .*=> /opt/paceline/lib/" >/dev/null && test -f /usr/local/lib/pkgconfig/paceline.pc || exit 16
    ! find /opt/paceline/bin /opt/paceline/lib /opt/paceline/libexec -type f -exec ldd {} + 2>/dev/null | grep -E "libcuda|libnccl" || exit 15
    ! ldd /opt/paceline/bin/* /opt/paceline/lib/libpaceline*.so.0 /opt/paceline/libexec/paceline/paceline-* 2>/dev/null | grep "not found" || exit 18'
  ends look 400
  [ "$code" = 0 ] || fail "the image's content is not as promised ($code)"
  forget
}

no_job_means_help_and_exit_2() {
  start help -- 
  ends help 400
  [ "$code" = 2 ] || fail "without a job and without words: exit code $code, expected 2"
  forget
}

one_host_trains() {
  config "$work/one" algo-1 '["algo-1"]' eth0 '{"epochs": "1", "batch-size": "32"}'
  mkdir -p "$work/one/model" && cp -r "$work/digits" "$work/one/input/data"
  start one --network none -v "$work/one:/opt/ml" -- train
  end_well one
  says one 'epoch=1 .*test_accuracy=0\.[0-9]+'
  [ -s "$work/one/model/model.safetensors" ] || fail "no model"
  [ ! -e "$work/one/output/failure" ] || fail "a failure file although the job succeeded"
  forget
}

mpi='"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"'

two_hosts_train_over_mpi() {
  for host in algo-1 algo-2; do
    config "$work/two/$host" "$host" '["algo-1", "algo-2"]' eth0 "{\"epochs\": \"1\", \"batch-size\": \"32\", $mpi}"
    mkdir -p "$work/two/$host/model"
    start "$host" --network "$network" --network-alias "$host" --hostname "$host" -v "$work/two/$host:/opt/ml" -v "$work/digits:/opt/ml/input/data:ro" -- train
  done
  end_well algo-1 algo-2
  says algo-1 'epoch=1 .*test_accuracy=0\.[0-9]+'
  [ -s "$work/two/algo-1/model/model.safetensors" ] || fail "no model on the master"
  [ ! -e "$work/two/algo-2/model/model.safetensors" ] || fail "rank 0 is not the only one that saves"
  forget
}

a_failing_rank_fails_both_hosts() {
  mkdir -p "$work/code"
  cat >"$work/code/program.sh" <<'S'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && echo "rank one gives up" >&2 && exit 3
sleep 300
S
  for host in algo-1 algo-2; do
    config "$work/fail/$host" "$host" '["algo-1", "algo-2"]' eth0 "{\"sagemaker_program\": \"program.sh\", $mpi}"
    mkdir -p "$work/fail/$host/model"
    start "$host" --network "$network" --network-alias "$host" --hostname "$host" -v "$work/fail/$host:/opt/ml" -v "$work/code:/opt/ml/code" -- train
  done
  for host in algo-1 algo-2; do
    ends "$host" 400
    [ "$code" != 0 ] || fail "$host: exit code 0 although rank 1 failed"
    for word in algo-2 'rank 1' 3; do
      grep -q -- "$word" "$work/fail/$host/output/failure" || { cat "$work/fail/$host/output/failure" || true; fail "$host: the failure file lacks '$word'"; }
    done
  done
  forget
}

# `docker compose up --abort-on-container-exit` needs this: a worker that ends before the master would end the master.
master_ended_first() {
  [ "$(finished_ns "$1")" -le "$(finished_ns "$2")" ] || fail "the worker $2 ended before the master $1"
}

local_mode_of_sdk_v2_runs() {
  local root=$work/v2 hosts='["algo-1-abcde", "algo-2-abcde"]'
  mkdir -p "$root/model" "$root/shared"
  for host in algo-1-abcde algo-2-abcde; do
    config "$root/$host" "$host" "$hosts" eth0 \
      '{"epochs": "1", "batch-size": "32", "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1", "sagemaker_job_name": "\"digits\"", "sagemaker_region": "\"eu-west-1\""}'
    mkdir -p "$root/$host/input/data"
    start "$host" -i -t --network "$network" --network-alias "$host" -e AWS_REGION=eu-west-1 -e TRAINING_JOB_NAME=digits -e AWS_ENDPOINT_URL_S3= \
      -v "$root/$host/output:/opt/ml/output" -v "$root/$host/output/data:/opt/ml/output/data" -v "$root/$host/input:/opt/ml/input" -v "$root/model:/opt/ml/model" \
      -v "$work/digits/training:/opt/ml/input/data/training" -v "$work/digits/testing:/opt/ml/input/data/testing" -- train
  done
  end_well algo-1-abcde algo-2-abcde
  [ -s "$root/model/model.safetensors" ] || fail "no model in the shared model directory"
  says algo-1-abcde 'test_accuracy=0\.[0-9]+'
  master_ended_first algo-1-abcde algo-2-abcde
  forget
}

local_mode_of_sdk_v3_runs() {
  local root=$work/v3
  mkdir -p "$root/model"
  for host in algo-1 algo-2; do
    config "$root/$host" "$host" '["algo-1", "algo-2"]' ethwe "{\"epochs\": \"1\", \"batch-size\": \"32\", $mpi}"
    mkdir -p "$root/$host/input/data"
    start "$host" --network "$network" --network-alias "$host" -e TRAINING_JOB_NAME=digits -e AWS_REGION=eu-west-1 \
      -v "$root/$host/output:/opt/ml/output" -v "$root/$host/output/data:/opt/ml/output/data" -v "$root/$host/input:/opt/ml/input" -v "$root/model:/opt/ml/model" \
      -v "$work/digits/training:/opt/ml/input/data/training" -v "$work/digits/testing:/opt/ml/input/data/testing" --
  done
  end_well algo-1 algo-2
  [ -s "$root/model/model.safetensors" ] || fail "no model in the shared model directory"
  master_ended_first algo-1 algo-2
  forget
}

# As README.md shows: an image FROM this one, with the program in /opt/ml/code and Python from Debian. Its ranks meet in mpi4py and in the package paceline.
a_python_program_runs_in_an_image_of_its_own() {
  mkdir -p "$work/python"
  cat >"$work/python/Dockerfile" <<D
FROM $image
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-mpi4py python3-numpy && /opt/paceline/install
COPY train.py /opt/ml/code/train.py
ENV SAGEMAKER_PROGRAM=train.py
D
  cat >"$work/python/train.py" <<'P'
import argparse, os
import numpy
import paceline
from mpi4py import MPI
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
arguments = parser.parse_args()
paceline.init()
ranks = int(paceline.allreduce(numpy.array([MPI.COMM_WORLD.allreduce(1)]), name="ranks", op=paceline.Max)[0])
files = sorted(os.listdir(os.environ["SM_CHANNEL_TRAINING"]))
if MPI.COMM_WORLD.Get_rank() == 0:
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as model:
        model.write(f"{ranks} ranks, rate {arguments.learning_rate}, {len(files)} files")
P
  container_build "$image-python" "$work/python" >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; fail "the derived image does not build"; }
  for host in algo-1 algo-2; do
    config "$work/py/$host" "$host" '["algo-1", "algo-2"]' eth0 "{\"learning-rate\": \"0.1\", $mpi}"
    mkdir -p "$work/py/$host/model"
    image=$image-python start "$host" --network "$network" --network-alias "$host" --hostname "$host" -v "$work/py/$host/input:/opt/ml/input" \
      -v "$work/py/$host/output:/opt/ml/output" -v "$work/py/$host/model:/opt/ml/model" -v "$work/digits:/opt/ml/input/data:ro" -- train
  done
  end_well algo-1 algo-2
  [ "$(cat "$work/py/algo-1/model/model.txt")" = "2 ranks, rate 0.1, 2 files" ] || fail "the Python program's model is not as expected"
  forget
}

an_image_without_examples_has_no_openblas_and_asks_for_a_program() {
  container_build "$image-bare" "$PACELINE_SOURCE" --build-arg EXAMPLES=no >"$work/build.log" 2>&1 ||
    { tail -n 40 "$work/build.log"; fail "the image without examples does not build"; }
  image=$image-bare start look --entrypoint sh -- -c '
    ! ls /usr/lib/*/libopenblas* /usr/lib/*/openblas-pthread 2>/dev/null || exit 10
    ! ls /usr/local/libexec/paceline/mnist 2>/dev/null || exit 11
    test -e /usr/local/share/paceline/python/paceline/__init__.py || exit 12
    paceline info >/dev/null || exit 13'
  end_well look
  forget
  config "$work/bare" algo-1 '["algo-1"]' eth0 "{}"
  image=$image-bare start bare -v "$work/bare:/opt/ml" -- plan
  [ "$("$engine" wait "$run_id-bare")" != 0 ] || fail "a job without a program has a plan"
  says bare "built without the example program: set the hyperparameter sagemaker_program"
  forget
}

# Only algo-1 is started first: it waits for nobody. Then both, with a secret in a channel.
without_keys_hosts_say_what_to_do_and_a_secret_is_enough() {
  container_build "$image-nokeys" "$PACELINE_SOURCE" --build-arg SSH_KEYS=no >"$work/build.log" 2>&1 ||
    { tail -n 40 "$work/build.log"; fail "the image without keys does not build"; }
  image=$image-nokeys start look --entrypoint sh -- -c '
    ! grep -rlI "^-----BEGIN.* PRIVATE KEY-----" /etc /opt /root /home /usr/local /var || exit 10
    paceline info | grep -E "^ +keys: +no$" || exit 11'
  end_well look
  forget
  for host in algo-1 algo-2; do
    config "$work/keys/$host" "$host" '["algo-1", "algo-2"]' eth0 "{\"epochs\": \"1\", \"batch-size\": \"32\", $mpi}"
    mkdir -p "$work/keys/$host/model"
    image=$image-nokeys start "$host" --network "$network" --hostname "$host" -v "$work/keys/$host:/opt/ml" -v "$work/digits:/opt/ml/input/data:ro" -- train
    ends "$host" 400
    [ "$code" != 0 ] || fail "$host runs without keys"
    for words in "the training image that this job names has no ssh keys ('/etc/paceline/ssh/id_ed25519' is missing)" \
      "the Dockerfile that builds this training image" "\"PACELINE_SSH_SECRET\": \"/opt/ml/input/data/secret/FILE\""; do
      grep -q -- "$words" "$work/keys/$host/output/failure" || fail "the failure file of $host lacks '$words'"
    done
    forget
    rm "$work/keys/$host/output/failure"
  done
  mkdir "$work/secret" && head -c 48 /dev/urandom >"$work/secret/key"
  for host in algo-1 algo-2; do
    image=$image-nokeys start "$host" --network "$network" --network-alias "$host" --hostname "$host" -v "$work/keys/$host:/opt/ml" \
      -v "$work/digits:/opt/ml/input/data:ro" -v "$work/secret:/run/secret:ro" -e PACELINE_SSH_SECRET=/run/secret/key -- train
  done
  end_well algo-1 algo-2
  [ -s "$work/keys/algo-1/model/model.safetensors" ] || fail "no model with keys from a secret"
  forget
}

# Two ranks on each of two hosts, without faults and with ten restarts: in each of the first ten attempts another rank is killed a second after its start. Process 1
# is a shell, which sees what is left.
ten_restarts_leave_dockers_shared_memory_empty() {
  local name host mpi=${mpi/'"1"'/'"2"'} program mnist=/usr/local/libexec/paceline/mnist
  mkdir "$work/dies"
  cat >"$work/dies/program.sh" <<S
#!/bin/sh
[ "\$PACELINE_RESTART" -lt 10 ] && [ "\$OMPI_COMM_WORLD_RANK" = \$((PACELINE_RESTART % 4)) ] || exec $mnist "\$@"
$mnist "\$@" &
sleep 1
kill -KILL \$! \$\$
S
  chmod +x "$work/dies/program.sh"
  for name in calm dies; do
    program=
    [ $name = calm ] || program='"sagemaker_program": "program.sh", '
    for host in algo-1 algo-2; do
      config "$work/ten-$name/$host" "$host" '["algo-1", "algo-2"]' eth0 "{\"epochs\": \"10\", \"batch-size\": \"32\", $program$mpi}"
      mkdir -p "$work/ten-$name/$host/model"
      start "$host" --network "$network" --network-alias "$host" --hostname "$host" --shm-size 64m -v "$work/ten-$name/$host:/opt/ml" \
        -v "$work/digits:/opt/ml/input/data:ro" ${program:+-v "$work/dies:/opt/ml/code:ro"} -e PACELINE_MAX_RESTARTS=10 -e PACELINE_REPRODUCIBLE=1 --entrypoint sh -- \
        -c 'paceline train; code=$?; find /dev/shm -mindepth 1 >/opt/ml/output/left; exit $code'
    done
    end_well algo-1 algo-2
    [ $name = calm ] || says algo-1 'restart 10 of 10: rank [0-3] on host algo-[12] was killed by signal 9'
    forget
    for host in algo-1 algo-2; do [ ! -s "$work/ten-$name/$host/output/left" ] || fail "left in /dev/shm of $host: $(cat "$work/ten-$name/$host/output/left")"; done
  done
  [ "$(grep -c '"cause"' "$work/ten-dies/algo-1/output/data/restarts.jsonl")" = 10 ] || fail "not ten restarts"
  cmp "$work/ten-calm/algo-1/model/model.safetensors" "$work/ten-dies/algo-1/model/model.safetensors" || fail "the models differ"
}

# Files of an image, and what else is in it; without what the engine itself writes.
list_image() {
  "$engine" run --rm --entrypoint sh "$1" -c '
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /etc/hosts -o -path /etc/hostname -o -path /etc/resolv.conf \) -prune \
      -o -type f -print | sort | xargs -d "\n" sha256sum
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run \) -prune -o -printf "%M %u %g %p %l\n" | sort'
}

two_builds_have_the_same_files() {
  local build
  for build in first second; do
    container_build "$image-$build" "$PACELINE_SOURCE" --build-arg SSH_KEYS=no $([ $build = first ] || echo --no-cache) >"$work/build.log" 2>&1 ||
      { tail -n 40 "$work/build.log"; fail "the $build build fails"; }
    list_image "$image-$build" >"$work/$build"
  done
  [ "$(wc -l <"$work/first")" -gt 1000 ] || fail "the list of files is short"
  diff "$work/first" "$work/second" || fail "two builds of one tree have other files"
}

# secrets_in IMAGE: a line for each secret that PyPI's detect-secrets finds in /etc, /opt and /usr/local. Lines of Debian's such as `passwd: files` in
# /etc/nsswitch.conf, which it takes for passwords, are left out.
secrets_in() {
  local id folder=$work/scanned
  mkdir "$folder"
  id=$("$engine" create "$1" none)
  "$engine" export "$id" | tar -x -C "$folder" etc opt usr/local
  "$engine" rm "$id" >/dev/null
  (cd "$folder" && "$work/scanner/bin/detect-secrets" scan --all-files etc opt usr/local) >"$work/found.json"
  [ "$(find "$folder" -type f | wc -l)" -gt 300 ] || fail "$1 has few files"
  rm -rf "$folder"
  python3 -c 'import json, sys
for file, secrets in json.load(sys.stdin)["results"].items():
    for secret in secrets:
        if secret["type"] != "Secret Keyword" or not file.startswith("etc/"):
            print(file, secret["line_number"], secret["type"], sep=":")' <"$work/found.json"
}

a_scanner_finds_the_keys_and_nothing_without_them() {
  local found
  { python3 -m venv "$work/scanner" && "$work/scanner/bin/python" -m pip install -q detect-secrets==1.5.0; } >"$work/pip.log" 2>&1 ||
    { echo "a_scanner_finds_the_keys_and_nothing_without_them: left out: $(tail -n 1 "$work/pip.log")"; return; }
  found=$(secrets_in "$image")
  [ "$found" = "etc/paceline/ssh/host_ed25519:1:Private Key"$'\n'"etc/paceline/ssh/id_ed25519:1:Private Key" ] || fail "with keys the scanner finds '$found'"
  container_build "$image-nokeys" "$PACELINE_SOURCE" --build-arg SSH_KEYS=no >"$work/build.log" 2>&1 ||
    { tail -n 40 "$work/build.log"; fail "the image without keys does not build"; }
  found=$(secrets_in "$image-nokeys")
  [ -z "$found" ] || fail "without keys the scanner finds '$found'"
}

# Runs the pods of examples/kubernetes/job.yaml with its script, files, capabilities and a secret, in an image without a key.
two_pods_train_without_keys_in_the_image() {
  local yaml=$PACELINE_SOURCE/examples/kubernetes/job.yaml job=$work/pods name
  mkdir -p "$job/image"
  printf 'FROM %s\nRUN rm -r /etc/paceline/ssh\n' "$image" >"$job/image/Dockerfile"
  container_build "$image-keyless" "$job/image" >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; fail "the image without keys does not build"; }
  for name in hyperparameters.json inputdataconfig.json start.sh; do
    awk -v "begin=  $name: |" '$0 == begin { on = 1; next } on && /^    / { print substr($0, 5); next } { on = 0 }' "$yaml" >"$job/$name"
    [ -s "$job/$name" ] || fail "job.yaml has no $name"
  done
  mkdir "$job/secret"
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$job/secret/key"
  chmod 400 "$job/secret/key"
  grep -q 'add: \["SETGID", "SETUID", "SYS_CHROOT", "NET_BIND_SERVICE"\]' "$yaml" || fail "job.yaml names other capabilities than this test"
  for index in 0 1; do
    image=$image-keyless start "pod-$index" --network "$network" --network-alias "digits-$index.digits" --hostname "digits-$index" \
      --cap-drop ALL --cap-add SETGID,SETUID,SYS_CHROOT,NET_BIND_SERVICE --security-opt no-new-privileges --entrypoint sh -e "JOB_COMPLETION_INDEX=$index" \
      -e TRAINING_JOB_NAME=digits -e PODS=2 -e PACELINE_SSH_SECRET=/secret/key -v "$job:/job:ro" -v "$job/secret:/secret:ro" \
      -v "$work/digits:/opt/ml/input/data:ro" -- /job/start.sh
  done
  end_well pod-0 pod-1
  says pod-0 'epoch=1 .*test_accuracy=0\.[0-9]+'
  forget
}

# examples/ci/smoke.sh accepts an image that works, and rejects images that do not.
# until_containers COUNT PROCESS: waits until so many containers carry the label of this `paceline local`.
until_containers() {
  local begin_s=$SECONDS
  until [ "$("$engine" ps --quiet --filter "label=paceline-local=$2-$(stat -Lc %i /proc/self/ns/pid)" | wc -l)" = "$1" ]; do
    [ $((SECONDS - begin_s)) -lt 300 ] || { "$engine" ps; fail "there are not $1 containers of paceline local"; }
    sleep 0.2
  done
}

paceline_local_runs_jobs_in_containers() {
  local call=("$PACELINE_BUILD/entrypoint/paceline" local --engine "$engine" --folder "$work/local") log=$work/local.log process code
  mkdir -p "$work/shards"
  echo one >"$work/shards/a"
  echo two >"$work/shards/b"
  if "${call[@]}" --image nosuch:1 -- true >"$log" 2>&1 || ! grep -q "there is no image 'nosuch:1' here" "$log"; then
    cat "$log"
    fail "an image that is absent is not told"
  fi
  # Two hosts with MPI, which find each other and share no keys but by the secret; a shard each; models of both are packed.
  "${call[@]}" --image "$image" --name two --hosts 2 --processes-per-host 2 --channel "training=$work/shards:sharded" -- sh -c \
    'echo "rank $OMPI_COMM_WORLD_RANK has $(cat /opt/ml/input/data/training/*)"; : >"/opt/ml/model/$OMPI_COMM_WORLD_RANK"' >"$log" 2>&1 ||
    { cat "$log"; fail "two containers do not train"; }
  for words in "rank 1 has one" "rank 3 has two" "Status: Completed"; do grep -q "$words" "$log" || { cat "$log"; fail "the log lacks '$words'"; }; done
  [ "$(tar -tzf "$work/local/two/model.tar.gz" | grep -c '^[0-3]$')" = 4 ] || fail "the models of both hosts are not packed"
  # Data is read-only, variables arrive, and the exit code is the program's.
  code=0
  "${call[@]}" --image "$image" --name fails --environment "WORD=a b" --channel "training=$work/shards:fastfile" -- sh -c \
    'echo "here is $WORD"; touch /opt/ml/input/data/training/c; exit 3' >"$log" 2>&1 || code=$?
  [ "$code" = 3 ] && grep -q "here is a b" "$log" && grep -q "Read-only file system" "$log" && [ ! -e "$work/shards/c" ] ||
    { cat "$log"; fail "a failing program in a container: exit code $code"; }
  # A program that ignores SIGTERM is killed. The job's file names an entry point of its own.
  printf '%s' '{"TrainingJobName": "stubborn", "AlgorithmSpecification": {"TrainingInputMode": "File", "ContainerEntrypoint": ["sh", "-c"],
    "ContainerArguments": ["trap \"\" TERM; echo ready; while :; do sleep 0.1; done"]}}' >"$work/stubborn.json"
  "${call[@]}" --image "$image" --job "$work/stubborn.json" --stop 3 --stop-time 2 >"$log" 2>&1 || true
  grep -q "Status: Stopped" "$log" && grep -q "1 of 1 hosts were killed" "$log" || { cat "$log"; fail "a program that ignores SIGTERM"; }
  # A container that is switched off closes no connection.
  if "${call[@]}" --image "$image" --name lost --hosts 2 --lose algo-2@8s --environment PACELINE_SILENCE_S=3 -- sleep 1000 >"$log" 2>&1 || ! grep -Eq \
    'lose: algo-2 was switched off after 8 s; the (job ended [0-9.]+ s later with exit code 1: host algo-2 went away: nothing was received|other hosts did not)' "$log"; then
    cat "$log"
    fail "a container that is switched off"
  fi
  # After SIGKILL of a call its containers end, and the next call removes what is left and names it.
  "${call[@]}" --image "$image" --name killed --hosts 2 -- sleep 1000 >"$log" 2>&1 &
  process=$!
  until_containers 2 $process
  kill -KILL $process
  wait $process || true
  until_containers 0 $process
  "${call[@]}" --image "$image" --name after -- true >"$log" 2>&1 || { cat "$log"; fail "a job after a killed one"; }
  grep -q "removed the network paceline-local-$process" "$log" || { cat "$log"; fail "the network of a killed call is not removed"; }
  grep -q "removed '$work/local/killed/secret'" "$log" && [ ! -e "$work/local/killed/secret" ] || { cat "$log"; fail "the secret of a killed call is not removed"; }
  [ -z "$("$engine" ps --all --quiet --filter label=paceline-local)" ] || fail "a container is left"
}

the_smoke_test_tells_good_images_from_bad_ones() {
  local smoke=$PACELINE_SOURCE/examples/ci/smoke.sh name
  mkdir -p "$work/smoke/code"
  printf '#!/bin/sh\necho "trained"; echo "$SM_HP_EPOCHS" >"$SM_MODEL_DIR/model"\n' >"$work/smoke/code/train.sh"
  echo '{"epochs": "2"}' >"$work/smoke/hyperparameters.json"
  DOCKER=$engine "$smoke" "$image" || fail "the smoke test refuses the image"
  DOCKER=$engine "$smoke" "$image" --code "$work/smoke/code" --program train.sh --data "$work/digits" --hyperparameters "$work/smoke/hyperparameters.json" ||
    fail "the smoke test refuses the image with a program"
  # A program that saves nothing, a program that fails, an entry point that forgets the exit code, a program that is not there.
  printf '#!/bin/sh\nexit 0\n' >"$work/smoke/code/saves-nothing.sh"
  printf '#!/bin/sh\necho broken >&2; exit 1\n' >"$work/smoke/code/fails.sh"
  for name in saves-nothing.sh fails.sh not-there.sh; do
    if DOCKER=$engine "$smoke" "$image" --code "$work/smoke/code" --program "$name" --data "$work/digits" >"$work/smoke.log" 2>&1; then
      cat "$work/smoke.log"
      fail "the smoke test passes a job with $name"
    fi
  done
  mkdir "$work/smoke/forgets"
  printf 'FROM %s\nENTRYPOINT ["sh", "-c", "paceline $0 || true"]\n' "$image" >"$work/smoke/forgets/Dockerfile"
  container_build "$image-forgets" "$work/smoke/forgets" >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; fail "the image with a wrong entry point does not build"; }
  if DOCKER=$engine "$smoke" "$image-forgets" >"$work/smoke.log" 2>&1 || ! grep -q "ended with 0" "$work/smoke.log"; then
    cat "$work/smoke.log"
    fail "the smoke test does not see an entry point that forgets the exit code"
  fi
}

mkdir -p "$work/digits"
"$PACELINE_BUILD/libexec/paceline/make_digits" "$work/digits" 2000 400 1
step "engine $engine"
the_image_is_built
"$engine" network create "$network" >/dev/null
checks="no_job_means_help_and_exit_2 one_host_trains two_hosts_train_over_mpi a_failing_rank_fails_both_hosts local_mode_of_sdk_v2_runs local_mode_of_sdk_v3_runs paceline_local_runs_jobs_in_containers"
case ${1:-main} in
  long) checks="the_smoke_test_tells_good_images_from_bad_ones two_pods_train_without_keys_in_the_image a_python_program_runs_in_an_image_of_its_own an_image_without_examples_has_no_openblas_and_asks_for_a_program without_keys_hosts_say_what_to_do_and_a_secret_is_enough" ;;
  full) checks="ten_restarts_leave_dockers_shared_memory_empty two_builds_have_the_same_files a_scanner_finds_the_keys_and_nothing_without_them" ;;
esac
for check in $checks; do
  step "$check"
  "$check"
done
step "all done"
