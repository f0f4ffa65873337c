#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what is missing, build with -Werror, and run every test that needs no GPU.
#
#   tests/run.sh                 all stages, about half an hour on two cores
#   tests/run.sh --quick         the unit tests of the plain build only
#   tests/run.sh --stage NAME    one stage: unit, asan, tsan or integration (may be given more than once)
#   tests/run.sh --list          name the stages
#
# Stages:
#   unit         plain build; Check tests, replay of the fuzz targets, layer check
#   asan         unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan         unit tests under ThreadSanitizer; ranks are threads there
#   integration  plain build; real processes, hosts in namespaces, containers, servers
#
# The last line is "N passed, N failed, N skipped"; the exit code is 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."
stages=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) stages+=(unit) ;;
    --stage) stages+=("${2:?--stage NAME}"); shift ;;
    --list) echo "unit asan tsan integration"; exit 0 ;;
    *) sed -n '3,16s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
  esac
  shift
done
[ ${#stages[@]} -gt 0 ] || stages=(unit asan tsan integration)

tests/support/packages.sh install build test
tests/support/packages.sh install format || echo "the layout of the code will not be checked"
for role in python torch; do
  tests/support/packages.sh install $role || echo "tests of Python programs will skip what they lack"
done
root=$PWD
work=$root/build-tests
results=$work/results
rm -rf "$results"
# A sanitizer that finds something must fail the test, and says where.
supp=$root/tests/support
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
# Left off: detect_stack_use_after_return, whose frames GCC 12 aligns too little for AVX-512.
export ASAN_OPTIONS="strict_string_checks=1:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$supp/lsan.supp:print_suppressions=0"
export TSAN_OPTIONS="suppressions=$supp/tsan.supp:print_suppressions=0:halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1"

export CK_TIMEOUT_MULTIPLIER=5 # for the sanitizers' sake

stage=$root/tests/support/stage.sh
trap 'kill "${child:-}" 2>/dev/null || true; wait; exit 143' TERM INT
set -m # a background job of a shell without job control would ignore SIGINT and SIGQUIT, and so would every test
# -Werror is the plain build's: instrumented code makes GCC warn of what cannot happen.
for name in "${stages[@]}"; do
  case $name in
    unit) arguments=(1200 "$root" "$work/plain" "-Dwerror=true" "--suite unit") ;;
    asan) arguments=(1800 "$root" "$work/asan" "-Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false -Dgpu_archs=90" "--suite unit --no-suite house --timeout-multiplier 3") ;;
    tsan) arguments=(2400 "$root" "$work/tsan" "-Dwerror=false -Db_sanitize=thread -Db_lundef=false -Dgpu_archs=90" "--suite unit --no-suite house --timeout-multiplier 5") ;;
    integration) arguments=(3600 "$root" "$work/plain" "-Dwerror=true" "--suite integration --num-processes 1") ;;
    *) echo "tests/run.sh: no stage '$name'; --list names them" >&2; exit 2 ;;
  esac
  "$stage" "$results" "$name" "${arguments[@]}" &
  child=$!
  wait "$child"
done
echo "all stages took $SECONDS s"
"$root/tests/support/report.py" "$results" "${stages[@]}"
