#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One stage of the test run: configure, build and test one build folder, and keep what happened for report.py.
#
#   stage.sh RESULTS NAME LIMIT_S SOURCE BUILD "SETUP OPTIONS" "TEST OPTIONS"
#
# Leaves RESULTS/NAME.log, RESULTS/NAME.json (meson's own log of each test) and RESULTS/NAME.status (0, or what failed).
# Always exits 0: report.py judges.
set -uo pipefail
results=$1 name=$2 limit_s=$3 source_dir=$4 build=$5
read -r -a setup_options <<<"$6"
read -r -a test_options <<<"$7"
log=$results/$name.log
begin_s=$SECONDS

stage() {
  if [ -f "$build/build.ninja" ]; then
    meson configure "$build" "${setup_options[@]}" >>"$log" 2>&1 || return
  else
    meson setup "$build" "$source_dir" "${setup_options[@]}" >>"$log" 2>&1 || return
  fi
  ninja -C "$build" >>"$log" 2>&1 || return
  echo "[$name] built after $((SECONDS - begin_s)) s"
  meson test -C "$build" --no-rebuild "${test_options[@]}" </dev/null 2>&1 | (trap '' TERM && exec tee -a "$log") # it outlives meson's last words
}

mkdir -p "$results"
rm -f "$build/meson-logs/testlog.json" "$results/$name".*
echo "[$name] $source_dir in $build"
# `timeout` needs a program, so the limit is a watcher that ends this stage's process group.
set -m
stage &
stage_pid=$!
set +m
trap 'kill -TERM -- -"$stage_pid" 2>/dev/null; exit 143' TERM INT
(
  sleep "$limit_s" &
  trap 'kill $!; exit' TERM
  wait $!
  echo "[$name] stopped after its limit of $limit_s s" | tee -a "$log"
  kill -TERM -- -"$stage_pid"
) 2>/dev/null &
watcher=$!
wait "$stage_pid"
status=$?
kill -TERM "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
# Told to stop, meson ends the tests it had started; it gets the time for that.
for ((i = 0; i < 100; i++)); do
  kill -0 -- -"$stage_pid" 2>/dev/null || break
  sleep 0.2
done
kill -KILL -- -"$stage_pid" 2>/dev/null
[ ! -f "$build/meson-logs/testlog.json" ] || cp "$build/meson-logs/testlog.json" "$results/$name.json"
echo "$status" >"$results/$name.status"
echo "[$name] done after $((SECONDS - begin_s)) s"
exit 0
