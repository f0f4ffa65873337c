#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `paceline local`: a plain host and hosts in namespaces see the tree that SageMaker lays out; the log, the exit code, the status, the reason of a
# failure and the metrics are those of the job; a stop, a limit and a spot stop reach it; nothing is left when it is stopped in any phase, or killed.
set -euo pipefail
paceline=$PACELINE_BUILD/entrypoint/paceline
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-local-test-XXXXXX")
trap 'jobs=$(jobs -p); [ -z "$jobs" ] || kill $jobs 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; [ ! -e log ] || cat log; exit 1; }
step() { echo "[$SECONDS s] $*"; }
# Runs a job; its exit code is $code, what it prints is in the file log.
job() { code=0; "$paceline" local "$@" >log 2>&1 </dev/null || code=$?; }
# Sends Control-C to the job in the background, and waits until the job has taken it: two that wait at once would be one.
interrupt() { kill -INT $job; while grep -qs '^ShdPnd:.*[2367abef]$' /proc/$job/status; do [ $SECONDS -lt 500 ] || fail "Control-C is not taken"; sleep 0.01; done; }
# ends CODE NAME: the job in the background, NAME, ends with CODE and leaves nothing but the files of its folder.
ends() {
  code=0
  wait $job || code=$?
  [ $code = "$1" ] || fail "it ended with $code, not $1"
  ! pgrep -f "$work/" >left || fail "processes are left: $(ps -fp "$(paste -sd, left)")"
  ! grep "$work" /proc/mounts || fail "a mount is left"
  [ -z "$(find paceline-local -type p)" ] || fail "a FIFO is left"
  [ -z "$(find "paceline-local/$2" -mindepth 2)" ] || fail "files are left: $(find "paceline-local/$2")"
}
# Waits until the line is in the log of the job that runs in the background.
start() { : >log; "$@" >log 2>&1 </dev/null & job=$!; } # the log is empty before anything is awaited in it
await() { until grep -q "$1" log; do kill -0 $job || fail "the job ended before '$1'"; [ $SECONDS -lt 500 ] || fail "no '$1'"; sleep 0.05; done; }

mkdir data
for i in 1 2 3 4 5; do echo "record $i" >data/file-$i; done
echo '[{"prefix": "s3://bucket/"}, "file-5", "file-4", "file-1"]' >data.manifest
cat >program <<'END'
#!/bin/sh
echo "loss=0.5 and host=$(hostname)"
echo "loss=0.25 at the end"
cat /proc/self/mountinfo >/dev/null
ls "$SM_CHANNEL_TRAINING" | tr '\n' ' '
echo "are the files"
echo here >"$SM_MODEL_DIR/model-of-$SM_CURRENT_HOST"
mkdir "$SM_OUTPUT_DATA_DIR/folder"
echo here >"$SM_OUTPUT_DATA_DIR/same"
exit "${CODE:-0}"
END
chmod +x program

step "bad input is told before a host starts"
job --hosts 0 -- true && [ $code = 2 ] && grep -q "hosts is '0'" log || fail "--hosts 0: code $code"
job --channel training=missing -- true && [ $code = 2 ] && grep -q "channel 'training': there is no folder 'missing'$" log || fail "a missing folder: code $code"
job --channel training=data:pip -- true && [ $code = 2 ] && grep -q "no folder 'data:pip'; the words after a colon are pipe, " log || fail "an unknown word: code $code"
job --engine podman -- true && [ $code = 2 ] && grep -q "engine is for containers: give --image IMAGE too" log || fail "--engine without --image: code $code"
job --channel training=data --channel training=data -- true && [ $code = 2 ] && grep -q training log || fail "a channel twice: code $code"
job --kind plain --hosts 2 -- true && [ $code = 2 ] && grep -q "found 2 hosts" log || fail "two plain hosts: code $code"
job --metric 'loss=loss=(' -- true && [ $code = 2 ] && grep -q "metric 'loss'" log || fail "a wrong expression: code $code"
job --none && [ $code = 2 ] || fail "an unknown option: code $code"
job --lose algo-2@1 -- true && [ $code = 2 ] && grep -q "lose names algo-2, and the job has 1 host" log || fail "--lose of a missing host: code $code"
job --lose algo-1@1s --kind plain -- true && [ $code = 2 ] && grep -q "lose is not for a plain host" log || fail "--lose of a plain host: code $code"
job --hosts 2 --cut algo-1@1s,1s --image missing -- true && [ $code = 2 ] && grep -q "image has containers" log || fail "--cut of a container: code $code"
job --kind plain --image missing -- true && [ $code = 2 ] && grep -q "found --kind and --image" log || fail "--kind of containers: code $code"
job --lose algo-1 -- true && [ $code = 2 ] && grep -q "expected a host and a time such as algo-2@30s" log || fail "--lose without a time: code $code"
job --hosts 2 --cut algo-2@1s -- true && [ $code = 2 ] && grep -q "such as algo-2@30s,5s" log || fail "--cut without a length: code $code"
job --cut algo-1@1s,1s -- true && [ $code = 2 ] && grep -q "a single one has no network" log || fail "--cut of one host: code $code"
[ -z "$(find . -name algo-1.log)" ] || fail "a host started: $(find .)"
[ -z "$(ls paceline-local)" ] || fail "refused jobs left folders: $(ls paceline-local)"

step "a plain host"
job --kind plain --name plain --channel training=data --metric 'loss=loss=([0-9.]+)' --metric 'accuracy=accuracy=([0-9.]+)' --keep -- ./program
[ $code = 0 ] || fail "it ended with $code"
grep -q '^\[algo-1\] loss=0.5 and host=' log || fail "no line with the host's name"
grep -q '^Status: Completed$' log || fail "no status"
grep -qF 'Metric loss: last 0.25, lowest 0.25, highest 0.5, 2 values; first in: loss=0.5' log || fail "another metric"
grep -qF "metric 'accuracy': no line of the log matches" log || fail "no warning of a metric without a value"
tar tzf paceline-local/plain/model.tar.gz | grep -x model-of-algo-1 >/dev/null || fail "no model"
[ -L paceline-local/plain/algo-1/input/data/training ] || fail "the channel is not a link"
for name in hyperparameters resourceconfig inputdataconfig; do python3 -m json.tool paceline-local/plain/algo-1/input/config/$name.json >/dev/null || fail "$name.json"; done
SAGEMAKER_BASE_DIR=$PWD/paceline-local/plain/algo-1 "$paceline" env >env.json && grep -q '"SM_CHANNEL_TRAINING"' env.json || fail "Paceline does not read the tree"

step "a metric whose group is not a number, and one whose search ends with an error"
job --kind plain --name words --metric 'loss=loss: (\S+)' --metric 'rate=rate(=[0-9.]+)?' --metric 'loop=((?1)|x)' --metric 'late=late: (\S+)' -- \
  printf '%s\n' 'at step 1 loss: 0.5, and more' 'loss: 0.4, too' 'rate of one' 'late: none' 'late: 3'
[ $code = 0 ] || fail "it ended with $code"
grep -qF "metric 'loss': the group of 'loss: (\S+)' is '0.5,', expected a number; the first such line: at step 1 loss: 0.5, and more" log || fail "a group that is not a number"
grep -qF "metric 'rate': the group of 'rate(=[0-9.]+)?' is '', expected a number; the first such line: rate of one" log || fail "a group that is not there"
grep -q "metric 'loop': the search of a line was given up: .*recurs" log && ! grep -q "metric 'loop'.* steps" log || fail "another error of a search"
grep -qF 'Metric late: last 3, lowest 3, highest 3, 1 value; first in: late: 3' log && ! grep -q "metric 'late'" log || fail "a metric that has a value later"

step "empty folders are packed, with their modes; what is no file is told"
job --kind plain --name folders -- sh -c 'cd "$SM_MODEL_DIR"; mkdir -p 1/assets 1/variables; echo x >1/variables/data; ln -s 1 latest; chmod 0750 1/assets; mkfifo 1/pipe
  python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\"s\")"; mkdir "$SM_OUTPUT_DATA_DIR/none"'
[ $code = 0 ] || fail "it ended with $code"
[ "$(tar tzf paceline-local/folders/model.tar.gz | paste -sd ' ')" = "1/ 1/assets/ 1/variables/ 1/variables/data latest" ] || fail "another model: $(tar tvzf paceline-local/folders/model.tar.gz)"
tar tvzf paceline-local/folders/model.tar.gz | grep '^drwxr-x--- .* 1/assets/$' >/dev/null && [ "$(tar tzf paceline-local/folders/output.tar.gz)" = none/ ] || fail "another mode, or another output"
[ "$(grep -c 'FIFOs, sockets and devices are not packed' log)" = 1 ] || fail "other warnings of what is not packed"
grep -Eq "model.tar.gz: FIFOs, sockets and devices are not packed: 2 of them are left out, the first one: 'model/(1/pipe|s)' of algo-1" log || fail "another warning of what is not packed"

step "a failure"
job --kind plain --name failing --environment CODE=7 --channel training=data -- ./program
[ $code != 0 ] && grep -q '^Status: Failed$' log && grep -q 'FailureReason (algo-1): AlgorithmError: .*7' log || fail "code $code"
[ ! -e paceline-local/failing/algo-1 ] && [ -s paceline-local/failing/algo-1.log ] || fail "it kept $(ls paceline-local/failing)"

step "a feeder that fails in the middle of an epoch ends the job, whose program saw no end of the data"
cat >reads <<'END'
#!/bin/sh
exec 3<"$SM_CHANNEL_TRAINING"_0
truncate -s 0 "$1/b"
cat <&3 >/dev/null
echo "the end of the data"
END
chmod +x reads
mkdir large
truncate -s 32M large/a large/b # more than the feeder can write before the program reads
job --kind plain --name unfed --channel training=large:pipe:recordio -- ./reads "$work/large"
[ $code != 0 ] && grep -q '^Status: Failed$' log || fail "code $code"
grep -q "FailureReason (algo-1): ClientError: Data download failed: channel 'training': '.*/large/b' has changed" log || fail "another reason"
! grep -q 'the end of the data' log || fail "the program took a part of the data for the whole"

step "the next call removes a secret that a killed one left, not that of one that runs"
mkdir -p paceline-local/left
touch paceline-local/left/lock paceline-local/left/secret
flock paceline-local/left/lock "$paceline" local --kind plain --name other -- true >log 2>&1 || fail "it ended with $?"
[ -e paceline-local/left/secret ] || fail "the secret of a call that runs is gone"
job --kind plain --name other -- true
[ $code = 0 ] && [ ! -e paceline-local/left/secret ] && grep -q "removed 'paceline-local/left/secret'" log || fail "code $code"

cat >wordy <<'END'
#!/usr/bin/env python3
import os
open(os.environ["SAGEMAKER_BASE_DIR"] + "/output/failure", "w", encoding="utf-8").write("é€𝄞" * 1000)
raise SystemExit(3)
END
chmod +x wordy
job --kind plain --name wordy -- ./wordy
python3 - <<'END' || fail "the FailureReason of a long text is another"
[line] = [line for line in open("log", encoding="utf-8") if line.startswith("FailureReason (algo-1): ")]
reason = line.split(": ", 1)[1].rstrip("\n")
assert len(reason) == 1024 and reason == ("AlgorithmError: " + "é€𝄞" * 1000)[:1024], (len(reason), reason[:60], reason[-4:])
END

step "a name in use, Control-C, and a stop"
start "$paceline" local --kind plain --name used -- sh -c 'trap "echo stopped; exit 0" TERM; echo runs; while :; do sleep 0.1; done'
await '^\[algo-1\] runs'
code=0
"$paceline" local --kind plain --name used -- true >second.log 2>&1 || code=$?
[ $code = 2 ] && grep -q "a job with the name 'used' runs" second.log || { cat second.log; fail "a name in use: code $code"; }
kill -INT $job
code=0
wait $job || code=$?
grep -q '^\[algo-1\] stopped' log && grep -q '^Status: Stopped$' log || fail "Control-C: code $code"
job --kind plain --name stopping --stop 1 -- sh -c 'trap "echo stopped; exit 0" TERM; while :; do sleep 0.1; done'
grep -q '^\[algo-1\] stopped' log && grep -q '^Status: Stopped$' log || fail "--stop: code $code"
job --kind plain --name limit --max-run 1 --stop-time 1 -- sh -c 'trap "" TERM; while :; do sleep 0.1; done'
grep -q 'stop: 1 of 1 hosts were killed' log || fail "no sentence about the kill"
grep -q '^Status: Stopped (MaxRuntimeExceeded)$' log && [ $code != 0 ] || fail "--max-run: code $code"

step "a program that prints without a pause is stopped by its longest time and by a signal"
slow=() # with so much to search in each line the output is never read to its end
for i in 1 2 3 4 5 6 7 8; do slow+=(--metric "m$i=(?:y|n)+([0-9.]+)"); done
code=0
timeout -s KILL 200 "$paceline" local --kind plain --name endless --max-run 1 --stop-time 1 "${slow[@]}" -- yes >log 2>&1 </dev/null || code=$?
grep -q '^Status: Stopped (MaxRuntimeExceeded)$' log && grep -q '^\[algo-1\] y$' log || { sed -i '/algo-1/d' log; fail "--max-run: code $code"; }
start timeout -s KILL 200 "$paceline" local --kind plain --name endless --max-run 1000 --stop-time 1 "${slow[@]}" -- yes
await '^\[algo-1\] y$'
kill -TERM $job # timeout passes it on
code=0
wait $job || code=$?
grep -q '^Status: Stopped$' log || { sed -i '/algo-1/d' log; fail "SIGTERM: code $code"; }
rm -r log paceline-local/endless

step "calls of one name at the same time: one runs, or one after the other, and none removes the folder of another"
for round in $(seq 20); do
  rm -rf paceline-local/race
  for i in 1 2 3 4; do
    { code=0; "$paceline" local --kind plain --name race -- sleep 0.05 >race.$i 2>&1 </dev/null || code=$?; echo $code >code.$i; } &
  done
  wait $(jobs -p)
  cat race.? >log
  case $(sort -u code.? | tr -d '\n') in 0 | 02) ;; *) fail "round $round: codes $(cat code.?)" ;; esac
  [ "$(grep -c "a job with the name 'race' runs in" log)" = "$(cat code.? | grep -cx 2)" ] || fail "round $round: another message"
  for name in lock job.json algo-1.log model.tar.gz; do [ -e paceline-local/race/$name ] || fail "round $round: no $name in the folder: $(ls -a paceline-local/race)"; done
done

step "Control-C while a channel is fetched, before a FIFO is there, and while a container engine does not answer"
mkdir objects
head -c 3000000 /dev/zero >objects/large
serve() { python3 "$PACELINE_SOURCE/tests/fakes/fake_s3.py" "${@:2}" objects >"$1" & until grep -q '^port' "$1"; do [ $SECONDS -lt 500 ] || fail "no S3 server"; sleep 0.05; done; }
serve half.log --stall 1000000
half=$!
serve silent.log --latency 3600000
silent=$!
# from SERVER NAME CHANNEL has a job whose channel is read from that server.
from() {
  AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(sed -n 's/^port //p' "$1") AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x \
    start "$paceline" local --kind plain --name "$2" --channel "$3" "${@:4}" -- true
}
until_there() { until "$@" >/dev/null; do kill -0 $job || fail "the job ended before: $*"; [ $SECONDS -lt 500 ] || fail "not there: $*"; sleep 0.05; done; }
from half.log fetching training=s3://bkt/ --keep
until_there grep '^stalls /bkt/large' half.log
until_there find paceline-local/fetching/input -type f
interrupt
ends 1 fetching
grep -q "error: stopped while the channel 'training' was fetched" log || fail "a stop while a channel is fetched"
from half.log fetching training=s3://bkt/
until_there pgrep -f "cp --recursive s3://bkt/ $work/"
program=$(pgrep -f "cp --recursive s3://bkt/ $work/")
kill -STOP "$program" # it cannot end by itself
until_there grep '^State:.T' "/proc/$program/status"
interrupt
until_there grep '^ShdPnd:.*[4-7c-f]...$' "/proc/$program/status"
interrupt
ends 1 fetching
from silent.log feeding training=s3://bkt/:pipe
until_there pgrep -f "feed --failure --quiet s3://bkt/ $work/"
interrupt
ends 1 feeding
grep -q "error: stopped before the channel 'training' had its FIFO" log || fail "a stop before a FIFO is there"
kill $half $silent
for name in old new; do # the second call's prefix has another file, and the first one's is gone
  rm -f objects/*
  echo here >objects/$name
  serve $name.log
  whole=$!
  from $name.log again training=s3://bkt/ --keep
  wait $job || fail "a job whose channel is fetched ended with $?"
  [ "$(cd paceline-local/again/input/training && echo *)" = $name ] || fail "the channel has $(ls paceline-local/again/input/training), not $name alone"
  kill $whole
done
printf '#!/bin/sh\necho "$@" >asked\nexec sleep 1000\n' >engine
chmod +x engine
start "$paceline" local --engine "$work/engine" --image none --name engine -- true
until_there test -s asked
interrupt
kill -0 $job || fail "the first Control-C does not wait for the engine"
interrupt
ends 1 engine
grep -q "error: stopped while '$work/engine ps --all' ran" log || fail "a stop while the engine does not answer"

step "a second Control-C kills, and one while the results are packed drops them"
start "$paceline" local --kind plain --name killed -- sh -c 'trap "" TERM; echo runs; while :; do sleep 0.1; done'
await '^\[algo-1\] runs'
interrupt
await 'a second Control-C kills it'
interrupt
ends 137 killed
grep -q 'killing the job' log && grep -q '^Status: Stopped$' log && grep -q 'stop: 1 of 1 hosts were killed' log || fail "a second Control-C"
# packs BYTES has a job with a model of so many bytes; it returns while this is packed.
packs() {
  rm -rf paceline-local/packing
  start "$paceline" local --kind plain --name packing -- sh -c "truncate -s $1"' "$SM_MODEL_DIR/large"'
  until [ -e paceline-local/packing/model.tar.gz ] || ! kill -0 $job 2>/dev/null; do [ $SECONDS -lt 500 ] || fail "no model is packed"; sleep 0.01; done
}
packs 200M
interrupt
ends 0 packing
grep -q '^Status: Completed$' log && [ "$(tar tvzf paceline-local/packing/model.tar.gz | awk '{ print $3 }')" = 209715200 ] || fail "the first Control-C while the model is packed"
packs 1T
interrupt
await 'a second Control-C ends this without them'
interrupt
ends 1 packing
grep -q '^Status: Failed$' log && grep -q 'Artifact upload failed: stopped while the results were packed' log && [ ! -e paceline-local/packing/model.tar.gz ] ||
  fail "the second Control-C while the model is packed: $(ls paceline-local/packing)"

step "Pipe mode"
job --kind plain --name pipe --channel training=data:pipe -- sh -c 'cat "$SAGEMAKER_BASE_DIR/input/data/training_0" "$SAGEMAKER_BASE_DIR/input/data/training_1"'
[ $code = 0 ] && [ "$(grep -c '^\[algo-1\] record' log)" = 10 ] || fail "two epochs of 5 records: code $code"

step "manifests"
mkdir deep && mkdir deep/sub && for i in 1 2 3; do echo "record $i" >deep/sub/f-$i; done
echo '[{"prefix": "s3://bucket/data/"}, "sub/f-3", "sub/f-1", "sub/f-3"]' >some.manifest
echo '[{"prefix": "s3://bucket/data/"}, "sub/f-4"]' >wrong.manifest
echo '[{"prefix": "s3://bucket/data/"}, "../data/file-1"]' >outside.manifest
job --kind plain --name manifest --channel training=deep:manifest=some.manifest -- sh -c 'cd "$SAGEMAKER_BASE_DIR/input/data/training" && find . -type l | sort | tr "\n" " " && cat sub/*'
[ $code = 0 ] && grep -qF '[algo-1] ./sub/f-1 ./sub/f-3 record 1' log && grep -qx '\[algo-1\] record 3' log || fail "the files of a manifest: code $code"
job --kind plain --name manifest --channel training=deep:pipe:manifest=some.manifest -- sh -c 'cat "$SAGEMAKER_BASE_DIR/input/data/training_0"'
[ $code = 0 ] && [ "$(grep '^\[algo-1\] record' log)" = "[algo-1] record 1"$'\n'"[algo-1] record 3" ] || fail "a manifest in Pipe mode: code $code"
for kind in wrong outside; do
  job --kind plain --name manifest --channel training=deep:manifest=$kind.manifest -- true
  [ $code = 2 ] && ! grep -q '^\[algo-1\]' log || fail "the $kind manifest: code $code"
done
job --kind plain --name manifest --channel training=deep:manifest=wrong.manifest -- true
grep -q "'wrong.manifest' names 'sub/f-4', and '$work/deep' has no such file (channel 'training')" log || fail "another message of a file that is not there"

[ "$(id -u)" = 0 ] || { echo "SKIP: the rest needs root"; exit 77; }
unshare --mount --pid --fork --net true 2>/dev/null || { echo "SKIP: this machine allows no namespaces"; exit 77; }

step "hosts in namespaces: read-only data, shards, names that two hosts wrote"
job --name one --channel training=data -- sh -c 'hostname; touch /opt/ml/input/data/training/new'
[ $code != 0 ] && grep -q "^\[algo-1\] algo-1$" log && grep -q "Read-only file system" log || fail "code $code"
job --name two --hosts 2 --channel training=data:sharded -- ./program
[ $code = 0 ] || fail "two hosts ended with $code"
grep -q '^\[algo-1\] file-1 file-3 file-5 are the files' log && grep -q '^\[algo-2\] file-2 file-4 are the files' log || fail "other shards"
[ "$(tar tzf paceline-local/two/model.tar.gz | sort | tr '\n' ' ')" = "model-of-algo-1 model-of-algo-2 " ] || fail "another model"
grep -q "'same' of algo-2 exists on an earlier host too" log && ! grep -q "'folder' of algo-2" log || fail "no warning of a name that two hosts wrote"
[ "$(tar tzf paceline-local/two/output.tar.gz | sort | paste -sd ' ')" = "folder/ same" ] || fail "another output of two hosts"
job --name manifest --hosts 2 --channel training=data:sharded:manifest=data.manifest -- ./program
[ $code = 0 ] && grep -q '^\[algo-1\] file-1 file-5 are the files' log && grep -q '^\[algo-2\] file-4 are the files' log || fail "other shards of a manifest: code $code"
job --name half --hosts 2 -- sh -c 'getent hosts algo-1 algo-2; [ "$(hostname)" = algo-2 ] || exit 3; exec sleep 1000'
[ $code = 3 ] && grep -q 'FailureReason (algo-1): .*exited with code 3' log || fail "one of two hosts fails: code $code"
grep -q '^\[algo-2\] 10.78.0.1 *algo-1' log || fail "algo-2 knows no address of algo-1"

step "Control-C while hosts start: one does not answer"
# starts WORDS... has a job of two hosts whose second one is halted before its ssh server is there.
starts() {
  start "$paceline" local --name starting --hosts 2 --processes-per-host 1 --stop-time "$1" -- sh -c 'echo runs'
  second=
  until [ -n "$second" ]; do
    [ $SECONDS -lt 500 ] || fail "no second host"
    for child in $(pgrep -P $job); do ! grep -qsz '^HOSTNAME=algo-2$' /proc/$child/environ || second=$child; done
  done
  kill -STOP "$second"
  until grep -q '^State:.T' "/proc/$second/status"; do [ $SECONDS -lt 500 ] || fail "the second host is not halted"; sleep 0.01; done
}
if command -v mpirun >/dev/null; then
  starts 1
  interrupt
  ends 137 starting
  grep -q '^Status: Stopped$' log && grep -q 'stop: [12] of 2 hosts were killed' log && ! grep -q '\] runs' log || fail "Control-C"
  starts 1000
  interrupt
  await 'a second Control-C kills it'
  interrupt
  ends 137 starting
  grep -q 'killing the job' log && grep -q '^Status: Stopped$' log && ! grep -q '\] runs' log || fail "a second Control-C"
fi

step "a host that is switched off, and one whose cable is out"
job --name lost --hosts 2 --lose algo-2@3s --environment PACELINE_SILENCE_S=3 -- sh -c 'trap "echo ended" EXIT TERM; while :; do sleep 0.1; done'
[ $code != 0 ] && grep -q '^Status: Failed$' log && ! grep -q '^\[algo-2\] ended' log || fail "--lose: code $code"
if sed '/switched off/,$d' log | grep 'all 2 hosts are linked' >/dev/null; then
  grep -Eq 'lose: algo-2 was switched off after 3 s; the job ended [0-9.]+ s later with exit code 1: host algo-2 went away: nothing was received' log || fail "--lose: another sentence"
else # this machine is slow: the host went before the other one knew it
  grep -Eq 'lose: algo-2 was switched off after 3 s; the (job ended|other hosts did not end)' log || fail "--lose: another sentence before the link"
fi
cat >changes <<'END'
#!/bin/sh
# On algo-2 it ends when the network has gone and come back, which the kernel counts.
count() { ip -s -s -j link show eth0 | sed 's/.*"carrier_changes":\([0-9]*\).*/\1/'; }
first=$(count)
[ "$(hostname)" = algo-1 ] || until [ "$(count)" -ge $((first + 2)) ]; do sleep 0.1; done
END
chmod +x changes
job --name cut --hosts 2 --cut algo-2@4,1s --max-run 300 -- ./changes
[ $code = 0 ] && grep -Eq 'cut: algo-2 had no network for [1-9][0-9.]* s; the job went on$' log || fail "--cut: code $code"
job --name early --hosts 2 --cut algo-2@1000,1s --lose algo-1@1000 -- true
[ $code = 0 ] && grep -q 'cut: the network of algo-2 was not cut' log && grep -q 'lose: algo-1 was not switched off' log || fail "simulations that are not reached: code $code"

step "two hosts of an ordinary user are linked; a user that cannot log in is refused"
# as_user PASSWORD SHELL WORDS... has a job of a user that this machine does not know.
as_user() {
  printf 'root:x:0:0::/root:/bin/sh\ntrainer:%s:4242:4242::/tmp:%s\n' "$1" "$2" >passwd
  shift 2
  code=0
  unshare --mount sh -c 'mount --bind passwd /etc/passwd && cd user && exec setpriv --reuid=4242 --regid=4242 --clear-groups env HOME=/tmp "$@"' sh \
    "$paceline" local "$@" >log 2>&1 </dev/null || code=$?
}
chmod 0711 .
mkdir user
chown 4242:4242 user
if setpriv --reuid=4242 --regid=4242 --clear-groups unshare --user --mount true 2>/dev/null && setpriv --reuid=4242 --regid=4242 --clear-groups test -x "$paceline"; then
  as_user x /bin/sh --hosts 2 --name half -- sh -c 'id -u; [ "$(hostname)" = algo-2 ] || exit 3; exec sleep 1000'
  [ $code = 3 ] && grep -q '^\[algo-2\] 4242$' log && grep -q '^\[algo-2\] .*the program on host algo-1 exited with code 3' log || fail "an ordinary user: code $code"
  as_user x /usr/sbin/nologin --hosts 2 --name refused -- true
  [ $code = 2 ] && grep -q "expected a shell such as /bin/sh for 'trainer'.*/usr/sbin/nologin" log && grep -q -e '--image IMAGE' log || fail "no shell: code $code"
  as_user '!' /bin/sh --hosts 2 --name refused -- true
  [ $code = 2 ] && grep -q "whose password is locked: that of 'trainer' begins with '!'" log || fail "a locked password: code $code"
  as_user '!' /bin/sh --name one -- true
  [ $code = 0 ] || fail "one host needs no login: code $code"
else
  echo "hosts of an ordinary user were not tried: user 4242 makes no namespaces here, or does not reach $paceline"
fi

step "what an earlier job of an ordinary user left is not a part of the next one's model"
ordinary=(setpriv --reuid=4242 --regid=4242 --clear-groups env HOME=/tmp)
mine() { code=0; (cd user && "${ordinary[@]}" "$paceline" local --kind plain --name left "$@") >log 2>&1 </dev/null || code=$?; }
if "${ordinary[@]}" test -x "$paceline"; then
  mine --keep -- sh -c 'cd "$SAGEMAKER_BASE_DIR"; mkdir model/closed; echo old >model/closed/old; chmod 0555 model/closed; mkdir input/shut; echo old >input/shut/old; chmod 0 input/shut'
  [ $code = 0 ] && [ -e user/paceline-local/left/algo-1/model/closed/old ] || fail "folders that their modes close: code $code"
  mine -- sh -c 'echo new >"$SM_MODEL_DIR/new"'
  [ $code = 0 ] && [ "$(tar tzf user/paceline-local/left/model.tar.gz)" = new ] && [ ! -e user/paceline-local/left/algo-1 ] ||
    fail "the next job: code $code, $(tar tzf user/paceline-local/left/model.tar.gz)"
  mkdir -p user/paceline-local/left/algo-1/model/closed
  touch user/paceline-local/left/algo-1/model/closed/old
  mine -- echo runs
  [ $code = 1 ] && ! grep -q '\] runs\|^Status' log || fail "files of another user: code $code"
  tree=$work/user/paceline-local/left/algo-1
  grep -q "'$tree/model/closed/old' of an earlier job of this name cannot be removed (Permission denied): remove '$tree', or give this job another --name" log ||
    fail "files of another user: another message"
else
  echo "what an ordinary user's job left was not tried: user 4242 does not reach $paceline"
fi

step "root gives a job's folder to the owner of the folder that it was called in, and nothing else"
mkdir -p theirs/shared/other outside
chown 4242:4242 theirs
install -m 4755 /bin/true theirs/shared/setuid
touch theirs/shared/foreign theirs/shared/other/of-root outside/linked outside/secret
chown 4343:4343 theirs/shared/foreign
(cd theirs && exec "$paceline" local --kind plain --folder shared --name given --keep -- sh -c 'cd "$SM_MODEL_DIR"
  mkdir deep; touch deep/own deep/foreign; chown 4343 deep/foreign; ln ../../../../../outside/linked same; ln -s ../../../../../outside out; mknod zero c 1 5' >log 2>&1) || fail "it ended with $?"
of() { stat -c '%u %a' "theirs/$1"; }
[ "$(of shared/setuid)" = "0 4755" ] && [ "$(of shared/other/of-root)" = "0 644" ] && [ "$(of shared/foreign)" = "4343 644" ] && [ "$(of shared)" = "0 755" ] ||
  fail "files beside the job's folder have other owners: $(ls -lnR theirs/shared)"
for name in . lock algo-1.log model.tar.gz algo-1 algo-1/model algo-1/model/deep algo-1/model/deep/own algo-1/model/out; do
  [ "$(stat -c %u theirs/shared/given/$name)" = 4242 ] || fail "$name is of $(of shared/given/$name)"
done
[ "$(of shared/given/algo-1/model/deep/foreign)" = "4343 644" ] || fail "a file of another user in the job's folder has another owner"
[ "$(of shared/given/algo-1/model/same) $(stat -c %u outside outside/linked outside/secret | paste -sd ' ')" = "0 644 0 0 0" ] || fail "a link leads out of the job's folder: $(ls -ln outside)"
[ ! -e theirs/shared/given/algo-1/model/zero ] || [ "$(stat -c %u theirs/shared/given/algo-1/model/zero)" = 0 ] || fail "a device is given away"
(cd theirs && "$paceline" local --kind plain --folder made/here --name given -- true >log 2>&1) || fail "it ended with $?"
[ "$(stat -c %u theirs/made/here theirs/made/here/given | paste -sd ' ')" = "4242 4242" ] || fail "the folder that the call made: $(ls -ln theirs/made)"

step "a refused call leaves what an earlier one has kept"
job --kind plain --name kept --keep -- sh -c 'echo old >"$SM_MODEL_DIR/old"'
[ $code = 0 ] && [ -e paceline-local/kept/algo-1/model/old ] || fail "nothing was kept: code $code"
job --kind plain --name kept --channel training=missing -- true
[ $code = 2 ] && [ -e paceline-local/kept/algo-1/model/old ] || fail "a refused call removed it: code $code"

step "where namespaces are refused"
refused=(setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin)
"${refused[@]}" "$paceline" local --name refused -- true >log 2>&1 || fail "one host ended with $?"
grep -q "this machine refuses namespaces" log && grep -q "on a plain host" log || fail "one host: another message"
code=0
"${refused[@]}" "$paceline" local --name refused --hosts 2 -- true >log 2>&1 || code=$?
[ $code = 1 ] && grep -q "refuses namespaces: .*--image IMAGE.*--hosts 1" log || fail "two hosts: code $code"

step "a spot stop: the second run has the checkpoints of the first, and nothing else"
cat >saves <<'END'
#!/bin/sh
if [ -e /opt/ml/checkpoints/step ]; then
  cat /opt/ml/checkpoints/step
  [ ! -e /opt/ml/model/left ]
  exit
fi
echo left >/opt/ml/model/left
trap "echo went on >/opt/ml/checkpoints/step; exit 0" TERM
while :; do sleep 0.1; done
END
chmod +x saves
job --name spot --spot 1 -- ./saves
grep -q 'stop: every host ended by itself' log || fail "no sentence about the stop"
[ $code = 0 ] && grep -q '^\[algo-1\] went on' log && grep -q '^Status: Completed$' log || fail "code $code"
grep -Eq "spot stop: the job wrote 1 file to /opt/ml/checkpoints, the last one [0-9.]+ s after SIGTERM; the second run did not print 'resuming after step N'$" log || fail "another sentence"
# tells NAME COMMANDS OPTION... has a spot stop of a program that runs COMMANDS before its loop, and says in its second run after which step it goes on.
tells() { job --name "$1" --kind plain --spot 1 --max-run 300 "${@:3}" -- sh -c 'cd "$SAGEMAKER_BASE_DIR/checkpoints"; [ ! -e second ] || { echo "resuming after step 7, and on"; exit 0; }
  touch second; '"$2; while :; do sleep 0.1; done"; }
tells steps 'trap "echo stopped after step 9; echo {} >checkpoint-9.json; exit 0" TERM'
[ $code = 0 ] && grep -Eq 'spot stop: rank 0 saved step 9 in [0-9.]+ s; the second run went on after step 7, 2 steps repeated$' log || fail "known steps: code $code"
tells nothing 'trap "exit 0" TERM'
[ $code = 0 ] && grep -q 'spot stop: the job wrote nothing to /opt/ml/checkpoints after SIGTERM; the second run went on after step 7$' log || fail "nothing saved: code $code"
tells ignores 'trap "" TERM' --stop-time 1
[ $code = 0 ] && grep -q 'spot stop: the job saved nothing until it was killed; the second run went on after step 7$' log || fail "SIGTERM ignored: code $code"
job --name none --spot 1000 -- true
[ $code = 0 ] && grep -q 'spot stop: there was none' log || fail "a spot stop that is not reached: code $code"

step "a spot stop of the digit classifier: the model has the same bits as without it"
"$PACELINE_BUILD/libexec/paceline/make_digits" digits 640 10 1
digits() { job --name "$1" --channel training=digits/training --hyperparameter epochs=4 --hyperparameter batch_size=16 "${@:2}"; }
digits whole
[ $code = 0 ] || fail "the run without a stop ended with $code"
took=$(sed -n 's/^Seconds: .*program \([0-9.]*\),.*/\1/p' log)
for part in 2 3 5 10 20 40; do # a machine that halts may take longer or less: until the stop comes before the end
  rm -rf paceline-local/halves
  digits halves --spot "$(awk -v took="$took" -v part=$part 'BEGIN { print took / part }')"
  [ $code = 0 ] || fail "the run with a stop ended with $code"
  ! grep -q 'spot stop: there was none\|resuming after step 160,' log || continue
  break
done
grep -Eq 'spot stop: rank 0 saved step ([0-9]+) in [0-9.]+ s; the second run went on after step \1, 0 steps repeated$' log || fail "no stop on the way"
mkdir whole halves
for name in whole halves; do tar xzf paceline-local/$name/model.tar.gz -C $name; done
cmp whole/model.safetensors halves/model.safetensors || fail "the models differ"

step "SIGKILL leaves nothing"
for hosts in 1 2; do
  start "$paceline" local --name killed --hosts $hosts --channel training=data:pipe -- sh -c "echo runs; exec sleep 10$hosts$$"
  await '\] runs'
  kill -KILL $job
  wait $job 2>/dev/null || true
  until ! pgrep -f "sleep 10$hosts$$" >/dev/null && ! pgrep -f "feed .*$work" >/dev/null; do [ $SECONDS -lt 500 ] || fail "processes are left"; sleep 0.05; done
  ! grep -q "$work" /proc/mounts || fail "a mount is left"
  ! ip link show sw0 >/dev/null 2>&1 || fail "a bridge is left"
  [ ! -e paceline-local/killed/secret ] || fail "the secret of the ssh keys is left"
  ! ls paceline-local/killed | grep -x 'job.json\|model.tar.gz\|report.html' >/dev/null || fail "results of an earlier job of this name: $(ls paceline-local/killed)"
  job --name killed -- true
  [ $code = 0 ] || fail "the next run of the name ended with $code"
  grep -Eq "^Model: .*/model.tar.gz \\([0-9.]+ (bytes|kB)\\)$" log && [ ! -e paceline-local/killed/algo-2.log ] || fail "the next run of the name: $(ls paceline-local/killed)"
done

command -v mpirun >/dev/null || { echo "no mpirun: MNIST was not trained"; exit 77; }
step "MNIST on two hosts"
mkdir training testing
cp "$PACELINE_SOURCE"/tests/data/mnist/train-* training
cp "$PACELINE_SOURCE"/tests/data/mnist/t10k-* testing
job --name mnist --hosts 2 --processes-per-host 1 --channel training=training --channel testing=testing --hyperparameter epochs=1 \
  --metric 'accuracy=test_accuracy=([0-9.]+)'
[ $code = 0 ] || fail "it ended with $code"
accuracy=$(sed -n 's/^Metric accuracy: last \([0-9.]*\),.*/\1/p' log)
awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy > 0.9) }' || fail "the accuracy is '$accuracy'"
tar tzf paceline-local/mnist/model.tar.gz | grep -x model.safetensors >/dev/null || fail "no model"
