#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults of one program on one host, on which `paceline` is process 1: exit codes, failure text, survivors.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 1

# run CODE WORDS CMD...: a job of one host whose program is CMD.
run() {
  local wanted=$1 words=$2
  shift 2
  job_config algo-1 algo-1 0
  host_start algo-1 "$paceline" -- "$@"
  ends "$wanted" "$words"
}
ends() { case_ends 60 algo-1 "$1" "$2"; } # ends CODE WORDS
expect_line() { grep -q -- "$1" "$cluster/algo-1.log" || case_failed "the output has no '$1'"; }

for number in 0 1 2 41 126 127 128 255; do
  case_begin "the program exits with $number"
  words="exited with code $number"
  [ $number != 0 ] || words=
  run $number "$words" sh -c "echo out; echo err >&2; exit $number"
  [ $number = 0 ] || expect_failure algo-1 "^err\$"
  expect_line '^out$'
done

for name in KILL SEGV TERM ABRT; do
  number=$(kill -l $name)
  case_begin "the program is killed by SIG$name"
  run $((128 + number)) "killed by signal $number \(SIG$name\)" sh -c "kill -$name \$\$"
done

case_begin "the program does not exist"
run bad "/nonexistent/program" /nonexistent/program

case_begin "a daemon holds stdout and ignores SIGTERM"
run 0 '' sh -c "(trap '' TERM; setsid sleep 300) & echo started; exit 0"

case_begin "a script that logs through tee loses no line"
if command -v bash >/dev/null; then
  for code in 0 0 0 3; do
    run $code '' bash -c 'exec > >(tee /opt/ml/output/log.txt) 2>&1; head -c 60000 /dev/zero | tr "\0" x | fold -w 99; echo; echo "the last line"; exit $1' bash $code
    for file in ml/output/log.txt .log; do
      [ "$(grep -Ec '^x+$|^the last line$' "$cluster/algo-1${file/#ml//ml}")" = 608 ] || case_failed "lines are missing in $file"
    done
  done
else
  echo "$case_name: left out, there is no bash"
fi

case_begin "output passes byte for byte, without a carriage return in any case"
job_config algo-1 algo-1 0
head -c 300000 /dev/urandom >"$cluster/bytes"
for progress in keep 10; do
  cluster_environment=(PACELINE_LOG=warning PACELINE_PROGRESS_S=$progress) # no line of Paceline's own
  host_start algo-1 sh -c '"$1" -- cat "$2" >"$3" && "$1" -- sh -c "cat \"\$1\" >&2" sh "$2" 2>"$4"' sh "$paceline" "$cluster/bytes" "$cluster/out" "$cluster/err"
  ends 0 ''
  cmp "$cluster/bytes" "$cluster/out" || case_failed "stdout is not what the program wrote"
  cmp "$cluster/bytes" "$cluster/err" || case_failed "stderr is not what the program wrote"
  tr -d '\r' <"$cluster/bytes" >"$cluster/bytes.new"
  echo >>"$cluster/bytes.new" # a last line has its end
  mv "$cluster/bytes.new" "$cluster/bytes"
done

case_begin "a line of stderr reaches the log while the program waits for it there"
run 0 '' sh -c 'echo first >&2; until grep -q "^first\$" "$1"; do sleep 0.01; done; echo second' sh "$cluster/algo-1.log"
[ "$(grep -x 'first\|second' "$cluster/algo-1.log" | tr '\n' ' ')" = "first second " ] || case_failed "the lines are not in order"

case_begin "a killed Python program's lines are in the log"
if command -v python3 >/dev/null; then
  unset PYTHONUNBUFFERED # the machine's own
  run 137 '' python3 -c 'import os, signal
for number in range(5):
    print("line", number)
os.kill(os.getpid(), signal.SIGKILL)'
  for number in 0 1 2 3 4; do expect_line "^line $number\$"; done
else
  echo "$case_name: left out, there is no python3"
fi

case_begin "every exit code from 1 to 255 passes through"
job_config algo-1 algo-1 0
host_start algo-1 sh -c 'number=1; while [ $number -le 255 ]; do
    "$1" -- sh -c "exit $number" 2>/dev/null; code=$?
    [ $code = $number ] && grep -q "exited with code $number\$\|exited with code $number " /opt/ml/output/failure || { echo "exit $number gave $code: $(cat /opt/ml/output/failure)"; exit 1; }
    number=$((number + 1))
  done' sh "$paceline"
case_ends 200 algo-1 any ''
expect_code algo-1 0

case_begin "the program's own failure file stays in front"
run 9 "exited with code 9" sh -c 'echo "loss is NaN" >/opt/ml/output/failure; exit 9'
[ "$(failure_of algo-1 | sed -n 1p)" = "loss is NaN" ] || case_failed "the program's words are not in front"

# stop_case NAME STOP_S SIGNAL CODE WORDS CMD...: the program says "ready", then process 1 gets SIGNAL and has STOP_S seconds.
stop_case() {
  local signal=$3 wanted=$4 words=$5
  case_begin "$1"
  cluster_environment=("PACELINE_STOP_S=$2")
  shift 5
  job_config algo-1 algo-1 0
  host_start algo-1 "$paceline" -- "$@"
  await_log algo-1 ready 60
  case_mark
  host_signal algo-1 "$signal"
  ends "$wanted" "$words"
}
expect_saved() { [ -e "$cluster/algo-1/ml/model/saved" ] || case_failed "nothing was saved"; }
stop_case "SIGTERM: the program saves and ends well" 110 TERM 0 '' sh -c 'trap "sleep 1; echo saved >/opt/ml/model/saved; exit 0" TERM; echo ready; while :; do sleep 0.1; done'
expect_saved
stop_case "SIGTERM: the program dies of it" 110 TERM 143 "stopped by SIGTERM" sh -c 'echo ready; sleep 300'
stop_case "SIGINT: the program dies of it" 110 INT 130 '' sh -c 'echo ready; exec sleep 300'
stop_case "SIGTERM: the program ignores it" 4 TERM 143 "did not end within" sh -c 'trap "" TERM; echo ready; while :; do sleep 1; done'
expect_line "SIGTERM: stopping, 3 s for the program to save and end"

# Programs of several processes, of which one saves. In the first, a worker that dies fails the program, as in torch's DataLoader, and one has the program's handler.
save='import signal, sys, time
def save(number, frame):
    print("saving", flush=True)
    time.sleep(1.5)
    open("/opt/ml/model/saved", "x").close()
    print("it is saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.1)'
workers='import multiprocessing, os, signal, sys, time
def save(number, frame):
    time.sleep(1.5)
    dead = [worker.exitcode for worker in workers if not worker.is_alive()]
    if dead:
        sys.exit(f"workers have ended: {dead}")
    open("/opt/ml/model/saved", "x").close()
    for worker in workers:
        worker.kill()
    os._exit(0)
def work(number):
    if number == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    events.send(number)
    while True:
        time.sleep(0.1)
signal.signal(signal.SIGTERM, save)
begun, events = multiprocessing.Pipe(False)
workers = [multiprocessing.get_context("fork").Process(target=work, args=(number,)) for number in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    begun.recv()
print("ready", flush=True)
while True:
    time.sleep(0.1)'
if command -v python3 >/dev/null; then
  stop_case "SIGTERM: a program with workers saves" 110 TERM 0 '' python3 -c "$workers"
  expect_saved
  for shell in sh bash; do
    stop_case "SIGTERM: a program below $shell saves" 110 TERM 0 '' $shell -c 'python3 -c "$1" | tee /opt/ml/output/copy; echo "the shell ends"' $shell "$save"
    expect_saved
    grep -q '^it is saved$' "$cluster/algo-1/ml/output/copy" || case_failed "the pipe was cut"
    expect_line '^the shell ends$'
  done
  stop_case "SIGTERM: a shell does not go on after a program that saves" 110 TERM 143 "stopped by SIGTERM" \
    sh -c 'python3 -c "$1"; echo "the second begins"; sleep 300; touch /opt/ml/model/second' sh "$save"
  expect_saved
  expect_line '^the second begins$' # it was not stopped before its program had saved
  [ ! -e "$cluster/algo-1/ml/model/second" ] || case_failed "the shell went on"
else
  echo "SIGTERM to programs of several processes: left out, there is no python3"
fi

begin_with "SIGTERM while waiting for a host name" PACELINE_PEER_WAIT_S=60
job_config algo-1 "algo-1 algo-unknown" 0
host_start algo-1 "$paceline" -- true
case_mark
signal_until_end algo-1 TERM 60
ends 143 "stopped by SIGTERM before its program started"

# Preparation steps: an interpreter whose pip hangs, and an archive that never ends (a FIFO that nobody writes).
begin_with "SIGTERM while requirements are installed" "PATH=/opt/ml/bin:$PATH"
job_config algo-1 algo-1 0
hanging_pip algo-1
echo 'print("never")' >"$cluster/algo-1/ml/code/train.py"
echo '{"sagemaker_program": "train.py"}' >"$cluster/algo-1/ml/input/config/hyperparameters.json"
host_start algo-1 "$paceline" train
await_log algo-1 "pip is at work" 60
case_mark
host_signal algo-1 TERM
ends 143 "stopped by SIGTERM"
expect_failure algo-1 "pip install"

case_begin "SIGTERM while code is unpacked"
job_config algo-1 algo-1 0
echo '{"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz"}' \
  >"$cluster/algo-1/ml/input/config/hyperparameters.json"
mkdir -p "$cluster/algo-1/ml/input/data/code"
: >"$cluster/algo-1/ml/input/data/code/sourcedir.tar.gz"
printf '#!/bin/sh\necho "the archive is at work"\nexec sleep 1000\n' >"$cluster/algo-1/ml/unpack"
chmod +x "$cluster/algo-1/ml/unpack"
host_start algo-1 sh -c 'mount --bind /opt/ml/unpack "${1%/*}/../libexec/paceline/paceline-unpack" && exec "$@"' sh "$paceline" train
await_log algo-1 "the archive is at work" 60
case_mark
host_signal algo-1 TERM
ends 143 "stopped by SIGTERM"
expect_failure algo-1 "unpack"

begin_with "a host name that never resolves" PACELINE_PEER_WAIT_S=1
job_config algo-1 "algo-1 algo-unknown" 0
host_start algo-1 "$paceline" -- true
ends bad "'algo-unknown' does not resolve"

# After its program has ended, a host is gone, and so is its name.
for setting in PACELINE_LINK=0 PACELINE_SSH_DIR=/nonexistent; do
  for hosts in "algo-1 algo-unknown" "algo-unknown algo-1"; do
    begin_with "plain programs on $hosts with $setting" PACELINE_PEER_WAIT_S=1
    job_config algo-1 "$hosts" 0
    host_start algo-1 env "$setting" "$paceline" -- true
    ends 0 ''
  done
done

full_disk_case() { # full_disk_case NAME SIZE COMMAND: the program runs COMMAND, then fills the disk of SIZE
  case_begin "$1"
  job_config algo-1 algo-1 0
  host_start algo-1 sh -c 'mount -t tmpfs -o size=$1 tmpfs /opt/ml/output; shift; "$@"; code=$?; mkdir /opt/ml/kept; cp /opt/ml/output/failure /opt/ml/kept; exit $code' sh \
    "$2" "$paceline" -- sh -c "mkdir -p /opt/ml/output/data; $3; cat /dev/zero >/opt/ml/output/data/big"
  ends 1 ''
  grep -aq "exited with code 1: the disk is full under /opt/ml/output" "$cluster/algo-1/ml/kept/failure" || case_failed "the failure file does not name the full disk"
}
full_disk_case "the disk under /opt/ml/output is full" 64k true
full_disk_case "the disk is full, and the program's own failure file is long" 256k 'head -c 100000 /dev/zero | tr "\0" x >/opt/ml/output/failure'
[ "$(head -c 4096 "$cluster/algo-1/ml/kept/failure" | tr -d x)" = '' ] || case_failed "the program's words are not in front"

case_begin "the disk is full before the job starts"
job_config algo-1 algo-1 0
host_start algo-1 sh -c 'mount -t tmpfs -o size=64k tmpfs /opt/ml/output; mkdir /opt/ml/output/data; cat /dev/zero >/opt/ml/output/big 2>/dev/null; exec "$@"' sh "$paceline" -- true
ends any ''
[ "$(grep -c "the disk is full under /opt/ml/output before the job starts" "$cluster/algo-1.log")" = 1 ] || case_failed "that is not said once"

for code in 0 7; do
  case_begin "a program that makes directories in the files' places exits with $code"
  job_config algo-1 algo-1 0
  host_start algo-1 "$paceline" -- sh -c "mkdir /opt/ml/output/failure /opt/ml/output/success; touch /opt/ml/output/failure/kept; exit $code"
  ends any '' # what is in the places of the files is looked at here
  expect_code algo-1 $code
  if [ $code = 0 ]; then name=success; else name=failure; fi
  [ -f "$cluster/algo-1/ml/output/$name" ] || case_failed "there is no file $name"
  expect_line "/opt/ml/output/$name is a directory, but a file of this name is needed: the directory is renamed to $name.1\$"
  [ $code = 0 ] || [ -e "$cluster/algo-1/ml/output/failure.1/kept" ] || case_failed "what was in the directory is gone"
done

case_begin "/opt/ml/output is read-only"
job_config algo-1 algo-1 0
mkdir -p "$cluster/algo-1/ml/output/data"
host_start algo-1 sh -c 'mount --bind /opt/ml/output /opt/ml/output; mount -o remount,bind,ro /opt/ml/output; exec "$@"' sh "$paceline" -- sh -c 'exit 5'
ends 5 ''
expect_line "error: failed after [0-9]* s: the program on host algo-1 exited with code 5"
expect_line "write /opt/ml/output/failure: .*Read-only"
! grep -q "the old file" "$cluster/algo-1.log" || case_failed "a file that is not there is said to be in the way"

case_begin "/opt/ml/model is read-only"
job_config algo-1 algo-1 0
host_start algo-1 sh -c 'mount --bind /opt/ml/model /opt/ml/model; mount -o remount,bind,ro /opt/ml/model; exec "$@"' sh \
  "$paceline" -- sh -c 'echo x >/opt/ml/model/m || exit 5'
ends 5 "exited with code 5"
expect_failure algo-1 "Read-only"

# A cgroup of our own, version 2 or 1, entered by the host's process 1 before `paceline` takes its place.
limit_case() { # limit_case NAME CONTROLLER LIMIT CODE WORDS CMD...
  local group type file controller=$2 limit=$3 wanted=$4 words=$5
  case_begin "$1"
  shift 5
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/pl-limit-$$ type="cgroup2 none /sys/fs/cgroup" file=$controller.max
  else
    group=/sys/fs/cgroup/$controller$(sed -n "s/^[0-9]*:$controller://p" /proc/self/cgroup)/pl-limit-$$
    type="cgroup -o $controller none /sys/fs/cgroup/$controller" file=$controller.max
    [ "$controller" != memory ] || file=memory.limit_in_bytes
  fi
  if ! mkdir "$group" 2>/dev/null || ! { [ -e "$group/$file" ] && echo "$limit" >"$group/$file"; } 2>/dev/null; then
    rmdir "$group" 2>/dev/null || true
    echo "$case_name: left out, this machine lends no $controller cgroup"
    return
  fi
  [ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
  job_config algo-1 algo-1 0
  host_start algo-1 sh -c "until [ -e /opt/ml/go ]; do sleep 0.02; done
    exec unshare --cgroup sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir -p /sys/fs/cgroup/$controller; mount -t $type; exec \"\$@\"' sh \"\$@\"" sh \
    "$paceline" -- "$@"
  until [ -n "$(host_first algo-1)" ]; do sleep 0.02; done
  host_first algo-1 >"$group/cgroup.procs"
  touch "$cluster/algo-1/ml/go"
  wait_host algo-1 60
  rmdir "$group" || true
  ends "$wanted" "$words"
}
limit_case "the memory limit kills the program" memory 64M 137 "was killed by signal 9 \(SIGKILL\): out of memory" tail /dev/zero
limit_case "the memory limit kills what the program started" memory 64M 7 "exited with code 7: out of memory, the kernel's OOM killer ended a process" \
  sh -c 'tail /dev/zero || exit 7'
limit_case "the memory limit kills the shim" memory 64M 137 "was killed by signal 9 \(SIGKILL\): out of memory" \
  sh -c 'echo 1000 >/proc/$PPID/oom_score_adj; exec tail /dev/zero'
limit_case "the limit of processes is reached" pids 16 7 "exited with code 7: the container's limit of processes and threads was reached" \
  sh -c 'sh -c "while sleep 60 & do :; done" || exit 7'
echo "direct faults: all cases passed"
