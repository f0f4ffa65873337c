#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One stage of the test run: configures, builds and tests one build folder, and keeps the results for report.py.
#
#   stage.sh RESULTS NAME LIMIT_S END_S SOURCE BUILD "SETUP OPTIONS" "TEST OPTIONS" [FOLDERS]
#
# With FOLDERS, an expression for paths in the build folder, only programs and libraries there are built, with what they need.
# The stage is stopped after LIMIT_S seconds, or when the machine has been up for END_S seconds: then the whole run's time is over.
# Stages may run at the same time, also in one build folder. Failed tests that report.py --again names are run once more, each
# alone, when no stage runs tests.
# Leaves RESULTS/NAME.log, RESULTS/NAME.json (meson's own log of each test), RESULTS/NAME.again.json (of those that were run
# once more) and RESULTS/NAME.status (0, or what failed).
# Always exits 0: report.py decides.
set -uo pipefail
results=$1 name=$2 limit_s=$3 end_s=$4 source_dir=$5 build=$6
read -r -a setup_options <<<"$7"
read -r -a test_options <<<"$8"
folders=${9:-}
log=$results/$name.log
begin_s=$SECONDS
report=$(dirname "$0")/report.py

# run_tests OPTIONS...: meson's exit code is the number of tests that failed.
run_tests() {
  meson test -C "$build" --no-rebuild "${test_options[@]}" "$@" </dev/null 2>&1 | (trap '' TERM && exec tee -a "$log") # tee must outlive meson's last output
}

build() {
  if [ -f "$build/build.ninja" ]; then
    meson configure "$build" "${setup_options[@]}" >>"$log" 2>&1 || return
  else
    meson setup "$build" "$source_dir" "${setup_options[@]}" >>"$log" 2>&1 || return
  fi
  targets=$([ -z "$folders" ] || ninja -C "$build" -t targets all | sed -En "s,^(($folders)/[^:]*): .*_LINKER.*,\1,p")
  ninja -C "$build" $targets >>"$log" 2>&1
}

stage() {
  local failed=0 again=0 test
  exec {builds}>"$build.lock" {tests}>"$results/tests.lock"
  flock $builds
  build || return
  flock --unlock $builds
  echo "[$name] built after $((SECONDS - begin_s)) s"
  flock --shared $tests
  run_tests --logbase "$name" || failed=$?
  flock --unlock $tests
  [ $failed != 0 ] || return 0
  flock $tests
  while read -r test; do
    again=$((again + 1))
    echo "[$name] once more, alone: $test"
    ! run_tests --num-processes 1 --logbase "$name-again-$again" "$test" || failed=$((failed - 1))
  done < <("$report" --again "$build/meson-logs/$name.json")
  return $failed
}

mkdir -p "$results"
rm -f "$build/meson-logs/$name".json "$build/meson-logs/$name"-again-*.json "$results/$name".*
read -r up_s _ </proc/uptime
left_s=$((end_s - ${up_s%.*}))
if [ $left_s -le 0 ]; then
  echo "[$name] not begun: the whole run's time is over" | tee -a "$log"
  echo "not begun" >"$results/$name.status"
  exit 0
fi
reason="its limit of $limit_s s"
[ $left_s -ge "$limit_s" ] || { limit_s=$left_s && reason="$left_s s, when the whole run's time was over"; }
echo "[$name] $source_dir in $build"
# `timeout` needs a program, so a timer that ends this stage's process group sets the limit.
set -m
stage &
stage_pid=$!
set +m
trap 'kill -TERM -- -"$stage_pid" ${timer:-} 2>/dev/null; exit 143' TERM INT
(
  sleep "$limit_s" &
  trap 'kill $!; exit' TERM
  wait $!
  echo "[$name] stopped after $reason" | tee -a "$log"
  kill -TERM -- -"$stage_pid"
) 2>/dev/null &
timer=$!
wait "$stage_pid"
status=$?
kill -TERM "$timer" 2>/dev/null
wait "$timer" 2>/dev/null
# When it is told to stop, meson ends the tests that it has started; it gets time for that.
for ((i = 0; i < 100; i++)); do
  kill -0 -- -"$stage_pid" 2>/dev/null || break
  sleep 0.2
done
kill -KILL -- -"$stage_pid" 2>/dev/null
[ ! -f "$build/meson-logs/$name.json" ] || cp "$build/meson-logs/$name.json" "$results/$name.json"
cat "$build/meson-logs/$name"-again-*.json >"$results/$name.again.json" 2>/dev/null
echo "$status" >"$results/$name.status"
echo "[$name] done after $((SECONDS - begin_s)) s"
exit 0
