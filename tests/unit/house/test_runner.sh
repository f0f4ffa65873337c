#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers tests/run.sh, tests/support/stage.sh, tests/support/report.py.
# The test runner tells a failing test, a passing one, a skipped one, a stage that cannot build and one that hangs; it runs
# a failed test once more, forgives what time can have decided and nothing else, and stops when the whole run's time is over.
set -euo pipefail
support=$(cd "$(dirname "$0")/../../support" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MESON_TESTTHREADS

# run NAME LIMIT_S SOURCE "TEST OPTIONS" [SECONDS LEFT FOR THE WHOLE RUN]
run() {
  local up_s
  read -r up_s _ </proc/uptime
  "$support/stage.sh" "$work/results" "$1" "$2" $((${up_s%.*} + ${5:-1000})) "$3" "$work/build-${folder:-$1}" "" "$4" >/dev/null
}

# expect EXIT_CODE LAST_LINE STAGE...
expect() {
  local code=$1 line=$2 got=0
  shift 2
  "$support/report.py" "$work/results" "$@" >"$work/report" || got=$?
  if [ "$got" != "$code" ] || [ "$(tail -n 1 "$work/report")" != "$line" ]; then
    echo "stages $*: expected exit code $code and '$line', got $got and:"
    cat "$work/report"
    exit 1
  fi
}

says() {
  grep -qF -- "$1" "$work/report" || { echo "the report lacks '$1':"; cat "$work/report"; exit 1; }
}

run pass 60 "$support/runner_fixture" "--suite pass"
expect 0 "1 passed, 0 failed, 0 skipped" pass
run fail 60 "$support/runner_fixture" "--suite fail"
expect 1 "0 passed, 1 failed, 0 skipped" fail
says "this is why"
run mixed 60 "$support/runner_fixture" "--suite pass --suite fail --suite skip"
expect 1 "1 passed, 1 failed, 1 skipped" mixed
says "always-skip: no such device"
grep -A 3 "^The longest:" "$work/report" | grep " s mixed: always-" >/dev/null || { echo "the report does not name the longest tests:"; cat "$work/report"; exit 1; }
expect 1 "2 passed, 2 failed, 1 skipped" pass fail mixed
run skip 60 "$support/runner_fixture" "--suite skip"
expect 1 "0 passed, 0 failed, 1 skipped" skip # a run in which nothing passed proves nothing
run none 60 "$support/runner_fixture" "--suite nosuchsuite"
expect 1 "0 passed, 1 failed, 0 skipped" none
run absent 60 "$work/nosuchsource" ""
expect 1 "0 passed, 1 failed, 0 skipped" absent
run slow 2 "$support/runner_fixture" "--suite slow"
expect 1 "0 passed, 1 failed, 0 skipped" slow
expect 1 "0 passed, 1 failed, 0 skipped" neverstarted

# What failed first and passed then.
run forgiven 60 "$support/runner_fixture" "--suite first-assertion --suite first-timeout --suite pass --suite skip"
expect 0 "3 passed, 0 failed, 1 skipped" forgiven
says "Flaky:"
says "first-assertion: passed when it was run once more, alone; at first:"
says "    | waited too long"
says "first-timeout: passed when it was run once more, alone; at first:"
for name in company long-company; do # two stages at once, in one build folder
  folder=shared run $name 60 "$support/runner_fixture" "--suite $name" &
done
wait
expect 0 "2 passed, 0 failed, 0 skipped" company long-company
says "company: passed when it was run once more, alone; at first:"
run forgiven 60 "$support/runner_fixture" "--suite first-assertion" # this build folder has seen it fail
expect 0 "1 passed, 0 failed, 0 skipped" forgiven
! grep -q Flaky: "$work/report" || { cat "$work/report"; exit 1; }
suites="--suite pass"
for name in signal signal-of-a-child signal-in-check asan tsan lsan ubsan bits values; do suites+=" --suite first-$name"; done
run unforgiven 60 "$support/runner_fixture" "$suites"
expect 1 "1 passed, 9 failed, 0 skipped" unforgiven
! grep -q Flaky: "$work/report" || { cat "$work/report"; exit 1; }
[ ! -s "$work/results/unforgiven.again.json" ] || { echo "these were run once more:"; cat "$work/results/unforgiven.again.json"; exit 1; }
run fail 60 "$support/runner_fixture" "--suite fail"
expect 1 "0 passed, 1 failed, 0 skipped" fail
says "once more, alone: FAIL"

# The whole run's time: the stage that runs is stopped, the next one does not begin, both have failed and the last line stands.
run cut 60 "$support/runner_fixture" "--suite slow" 2
run late 60 "$support/runner_fixture" "--suite pass" 0
expect 1 "1 passed, 2 failed, 0 skipped" pass cut late
says "not begun: the whole run's time is over"
