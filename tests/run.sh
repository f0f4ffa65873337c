#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what is missing, build with -Werror, and run tests that need no GPU.
#
#   tests/run.sh                 unit tests and each integration test's main case, about 12 minutes on two cores
#   tests/run.sh --all           all stages, and the long cases too, about half an hour on two cores
#   tests/run.sh --full          every test that needs no GPU: also what repeats others with more versions, seeds and faults, up to two hours
#   tests/run.sh --quick         the unit tests of the plain build only
#   tests/run.sh --stage NAME    one stage (may be given more than once; --all and --full add cases)
#   tests/run.sh --list          name the stages
#
# Stages:
#   unit         plain build; Check tests, replay of the fuzz targets, layer check
#   waiting      plain build; integration tests that mostly wait (meson's suite `waiting`), beside the stages that follow
#   integration  plain build; the other integration tests: real processes, containers, servers
#   asan         unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan         unit tests under ThreadSanitizer, but those of meson's suite `serial`, which have one thread; ranks are threads there
#
# Long cases are the tests of meson's suite `long`, repeats those of `full`. A test that fails is run once more, alone, when no stage runs tests. If it
# passes then, it counts as passed and is listed under "Flaky:". The whole run stops itself after 80 minutes, with --full after 130.
#
# A run without --stage says near its end what it leaves out. The last line is "N passed, N failed, N skipped"; the exit code is 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."
read -r up_s _ </proc/uptime
most_s=4740 # a minute is left for stopping and reporting
stages=() archs=90
left_out="--no-suite long --no-suite full"
while [ $# -gt 0 ]; do
  case $1 in
    --all) left_out="--no-suite full" archs="" ;;
    --full) left_out="" archs="" most_s=7740 ;;
    --quick) stages+=(unit) ;;
    --stage) stages+=("${2:?--stage NAME}"); shift ;;
    --list) echo "unit waiting integration asan tsan"; exit 0 ;;
    *) sed -n '3,24s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
  esac
  shift
done
whole=no
if [ ${#stages[@]} = 0 ]; then
  whole=yes
  stages=(unit waiting integration)
  case $left_out in *long*) ;; *) stages+=(asan tsan) ;; esac
fi
end_s=$((${up_s%.*} + most_s))

install() { timeout --foreground 900 tests/support/packages.sh install "$@"; }
install build test || { echo "packages could not be installed"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
install format || echo "the layout of the code will not be checked"
for role in python torch; do
  install $role || echo "tests of Python programs will skip what they lack"
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
trap 'exit 143' TERM INT
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
set -m # a background job of a shell without job control would ignore SIGINT and SIGQUIT, and so would every test
# Four unit tests at a time, on two cores: some wait, as those on the fake driver do for its streams.
# The short run makes the kernels for one of the GPUs' architectures. -Werror is the plain build's: instrumented code makes GCC warn of what cannot happen. The sanitizers' are made in half the time with less optimization.
plain="-Dwerror=true -Dc_args=-g1 -Dgpu_archs=$archs"
sanitized="-Dwerror=false -Doptimization=1 -Dc_args=-g1 -Db_lundef=false -Dgpu_archs=90"
for name in "${stages[@]}"; do
  case $name in
    unit) arguments=("$plain" "--suite unit $left_out --num-processes 4") build=plain ;;
    waiting) arguments=("$plain" "--suite waiting $left_out --num-processes 6") build=plain ;;
    integration) arguments=("$plain" "--suite integration --no-suite waiting $left_out --num-processes 2") build=plain ;;
    asan) arguments=("$sanitized -Db_sanitize=address,undefined" "--suite unit $left_out --no-suite house --no-suite gpu --num-processes 4 --timeout-multiplier 3" "tests/(fakes|fuzz|unit)|programs") build=asan ;;
    tsan) arguments=("$sanitized -Db_sanitize=thread" "--suite unit $left_out --no-suite house --no-suite gpu --no-suite serial --num-processes 4 --timeout-multiplier 5" "tests/(fakes|unit/(base|device|collectives|s3io|runtime|examples|programs))") build=tsan ;;
    *) echo "tests/run.sh: no stage '$name'; --list names them" >&2; exit 2 ;;
  esac
  "$stage" "$results" "$name" $most_s $end_s "$root" "$work/$build" "${arguments[@]}" &
  [ "$name" = waiting ] || wait $!
done
wait
echo "all stages took $SECONDS s"
[ $whole = no ] || meson introspect --tests "$work/plain" >"$results/tests.json" 2>/dev/null || rm -f "$results/tests.json" # it did not even configure
"$root/tests/support/report.py" "$results" "${stages[@]}"
