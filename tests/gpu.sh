#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build and test on a machine with an NVIDIA GPU; no network is needed. Exits 77 where there is no GPU, 1 if a step failed.
#
#   tests/gpu.sh                  everything
#   tests/gpu.sh --only STEP      one step and the build (may be given more than once)
#   tests/gpu.sh --list           name the steps
#   --build DIR                   build folder (build-gpu)
#   --packages DIR                Debian packages unpacked below DIR: libraries and tools that the machine lacks, such as Open MPI and Check
#   --json FILE                   steps, figures and goals (BUILD/gpu/results.json), written after each step; what all steps print goes to FILE's
#                                 name with .log instead of .json
#   --limit SECONDS               for everything: what runs then is stopped, what has not begun is left out
#
#   tests/gpu.sh --pack DIR       on a Debian 12 machine with network: fill such a DIR, to be carried to the other
#
# Steps, in this order, each stopped after a time of its own, whatever becomes of the others:
#   unit         device code, the layers and ranks as threads with the real driver
#   kernels      against the card's copy bandwidth
#   step         what the runtime adds to a step of ResNet-50's gradients
#   sharing      allreduces of ranks that share the card, and how much of them a backward pass hides
#   examples     mnist and cifar10 on the GPU against the CPU; two and four processes on one GPU
#   torch        images a second beside PyTorch
#   python       the package paceline with PyTorch's tensors on the GPU, one rank and two that share it
#   horovod      Horovod's own Python with PyTorch's tensors on the GPU, up to four ranks that share it: values, training, figures, ends; Horovod's own tests
#   conformance  the collectives' conformance matrix between processes, in the card's memory
#   sanitizer    compute-sanitizer's memcheck and racecheck over the kernels
#
# What is missing (Open MPI, Check, cuDNN, compute-sanitizer, torch) is named, and what needs it is left out.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
steps=(unit kernels step sharing examples torch python horovod conformance sanitizer)
declare -A most=([build]=420 [unit]=120 [kernels]=90 [step]=60 [sharing]=120 [examples]=180 [torch]=240 [python]=60 [horovod]=400 [conformance]=60 [sanitizer]=180) # seconds
build=$root/build-gpu packages= json= limit=0 only=()

. tests/support/carried.sh

while [ $# -gt 0 ]; do
  case $1 in
    --only) only+=("${2:?--only STEP}"); shift ;;
    --build) build=$(realpath -m "${2:?--build DIR}"); shift ;;
    --packages) packages=$(realpath -e "${2:?--packages DIR}") || exit 2; shift ;;
    --json) json=$(realpath -m "${2:?--json FILE}"); shift ;;
    --limit) limit=${2:?--limit SECONDS}; shift ;;
    --list) echo "${steps[*]}"; exit 0 ;;
    --pack) carried_pack "$(realpath -m "${2:?--pack DIR}")"; exit ;;
    *) sed -n '3,29s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
  esac
  shift
done
for name in "${only[@]+"${only[@]}"}"; do
  [[ " ${steps[*]} " = *" $name "* ]] || { echo "tests/gpu.sh: no step '$name'; --list names them" >&2; exit 2; }
done
[ ${#only[@]} -gt 0 ] || only=("${steps[@]}")

device=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed -n 1p)
if [ -z "$device" ]; then
  echo "no GPU: nvidia-smi finds none, so nothing was built or run"
  exit 77
fi
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
PATH=$PATH:$(python3 -c 'import sysconfig; print(sysconfig.get_path("scripts"))') # meson and ninja, where they came from PyPI
command -v nvcc >/dev/null || { echo "no CUDA toolkit: nvcc is neither on the PATH nor in /usr/local/cuda/bin"; exit 1; }
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sed -n 1p | tr -d .) # of this card: machine code for others is not needed here
device+=", CUDA $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'), $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo 'no commit')"
cuda=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
work=$build/gpu
mkdir -p "$work"
json=${json:-$work/results.json}
log=${json%.json}.log
PATH=$PATH:$cuda/bin:$cuda/compute-sanitizer
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PACELINE_SOURCE=$root PACELINE_BUILD=$build
export OMPI_MCA_plm_rsh_agent= PRTE_MCA_plm_ssh_agent= # one machine needs no ssh, without which mpirun (of Open MPI 4, of 5) may not start there
left_out=()
loads=${LD_LIBRARY_PATH:-} # the machine's own; PyTorch brings its libraries along, and a cuDNN of two versions' parts works for nobody

[ -z "$packages" ] || carried_use_all "$packages"
inherited=${LD_LIBRARY_PATH:-} # and what the caller had in it
carried_use "$cuda"

# from_python NAME HEADER [FOLDER]: Python's packages carry these libraries without the names that a linker looks for.
from_python() {
  local folder
  echo "#include <$2>" | cc -E -x c - >/dev/null 2>&1 && return
  folder=$(python3 - "$2" "$1" ${3:+"$3"} <<'END' 2>/dev/null
import importlib.util, os, sys
folders = [folder for name in sys.argv[2:] if (found := importlib.util.find_spec("nvidia." + name)) for folder in found.submodule_search_locations]
print(next(folder for folder in folders if os.path.exists(os.path.join(folder, "include", sys.argv[1]))))
END
  ) || { left_out+=("$1: no $2 in the toolkit or among Python's packages"); return; }
  mkdir -p "$work/$1/lib"
  ln -sfn "$folder/include" "$work/$1/include"
  for library in "$folder"/lib/*.so*; do
    ln -sf "$library" "$work/$1/lib/"
    ln -sf "$library" "$work/$1/lib/$(basename "$library" | sed 's/\.so.*/.so/')"
  done
  carried_use "$work/$1"
}
from_python cublas cublas_v2.h cu13
from_python cudnn cudnn.h
from_python nccl nccl.h

has() { pkg-config --exists "$1" 2>/dev/null; }
mpi=enabled check=enabled
has ompi-c || { mpi=disabled; left_out+=("Open MPI: one process at a time, ranks as threads"); }
has check || { check=auto; left_out+=("Check: no unit tests"); }

report() { "$root/tests/bench/gpu_report.py" "$work" "$json" "$device" "${left_out[@]+"${left_out[@]}"}"; }

# step NAME COMMAND...: run it for as long as it may, keep its output in the log, its last line in the table and, if it failed, more lines for the JSON.
step() {
  local name=$1 began=$SECONDS code=0 pid watch stopped= what result=FAILED may=${most[$1]} start
  shift
  [ "$limit" = 0 ] || [ $((limit - SECONDS)) -ge "$may" ] || may=$((limit - SECONDS))
  if [ "$may" -lt 5 ]; then
    printf '%s\tskipped\t0\tno time was left\n' "$name" >>"$work/steps.tsv"
    return 77
  fi
  echo "---- $name" | tee -a "$log"
  start=$(stat -c %s "$log")
  set -m # a process group of its own, so that all of it can be stopped
  "$@" >>"$log" 2>&1 </dev/null &
  pid=$!
  { sleep "$may"; kill -- "-$pid"; sleep 3; kill -KILL -- "-$pid"; } 2>/dev/null &
  watch=$!
  set +m
  wait $pid || code=$?
  { kill -- "-$watch"; wait "$watch"; } 2>/dev/null
  [ $code -le 128 ] || [ $((SECONDS - began)) -lt "$may" ] || stopped="stopped after $may s: "
  tail -c +$((start + 1)) "$log" | grep -av '^[[:space:]]*$' >"$work/said"
  what=$(tail -n 1 "$work/said")
  [ $code = 0 ] || [ $code = 77 ] || what=$(grep -a -m 1 '^ERROR:' "$work/said" || grep -a -m 1 -E 'ERROR:|error:' "$work/said" || echo "$what")
  case $code in
    0) result=passed ;;
    77) result=skipped ;;
    *) { head -n -30 "$work/said" | grep -a -A 9 -E '^FAILED|ERROR:|error:' | sed -n 1,10p && echo ...; tail -n 30 "$work/said"; } | tee "$work/$name.end" ;;
  esac
  printf '%s\t%s\t%d\t%s\n' "$name" "$result" $((SECONDS - began)) "$stopped${what:0:110}" >>"$work/steps.tsv"
  report >/dev/null
  return $code
}
wanted() { [[ " ${only[*]} " = *" $1 "* ]]; }

compile() {
  local tool missing=
  for tool in cc pkg-config meson ninja python3; do command -v $tool >/dev/null || missing+=" $tool"; done
  [ -z "$missing" ] || { echo "ERROR: not on this machine:$missing (--packages DIR brings them along)"; return 1; }
  if [ ! -e "$build/build.ninja" ]; then
    meson setup "$build" "$root" --buildtype=release -Dmpi=$mpi -Dtests=$check -Dcuda=enabled -Dgpu_archs="$arch" || return
  fi
  ninja -C "$build"
}

# Programs of the unit tests, or cases of one, that work with the real driver as with the tests' own; the others order faults from that one.
real_tests=(device_kernel device_device:new_memory_is_zero_and_copies_go_both_ways device_device:memory_that_exists_is_pinned_once
  device_device:a_stream_waits_for_another_ones_event device_device:another_process_opens_the_memory_and_writes_to_it
  collectives_gpu_device:every_operation_is_right_on_a_shared_device collectives_gpu_device:long_vectors_go_through_in_segments
  collectives_gpu_device:reproducible_sums_have_the_bits_of_host_memory runtime_named_named_device runtime_gradient_plan_device examples_cuda)

# within SECONDS COMMAND...: what hangs is stopped, so that the rest of its step is run.
within() {
  local code=0
  timeout --foreground -k 3 "$@" || code=$?
  [ $code != 124 ] && [ $code != 137 ] || echo "ERROR: stopped after $1 s: ${*:2}" >&2
  return $code
}

# run_tests ENTRY... -- WORDS...: those programs or cases, each after the words; one that hangs is stopped after a minute.
run_tests() {
  local entry name only program found=0 failed= code entries=()
  while [ "$1" != -- ]; do entries+=("$1"); shift; done
  shift
  for entry in "${entries[@]}"; do
    name=${entry%%:*} only=
    [ "$name" = "$entry" ] || only=${entry#*:}
    program=$(find "$build/tests/unit" -name "test_$name" -type f | sed -n 1p)
    [ -n "$program" ] || { echo "== $entry: not built"; continue; }
    found=$((found + 1)) code=0
    echo "== $entry"
    # CUDA does not survive Check's fork; a case that forks by itself does so before it uses a device.
    within 60 env CK_FORK=no ${only:+"CK_RUN_CASE=$only"} "$@" "$program" || code=$?
    [ $code = 0 ] || [ $code = 77 ] || failed+=" $entry"
  done
  [ $found -gt 0 ] || { echo "no unit tests were built"; return 77; }
  [ -z "$failed" ] || { echo "ERROR: failed:$failed, of $found run"; return 1; }
  echo "$found of ${#entries[@]} run, none failed"
}
unit_tests() { run_tests "${real_tests[@]}" --; }
sanitize() {
  local tool code=0
  local tests=(device_kernel runtime_named_named_device runtime_gradient_plan_device:a_run_resumed_on_the_device_ends_in_the_same_bits)
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
  for tool in memcheck racecheck; do
    # Calls that answer with an error are none of its business: whether memory is the device's is asked like that.
    run_tests "${tests[@]}" -- compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 --print-limit 5 || code=$?
  done
  return $code
}
conformance() {
  [ $mpi = enabled ] || { echo "no Open MPI"; return 77; }
  [ -x "$build/tests/integration/conformance_ranks" ] || { echo "not built"; return 77; }
  local ranks code=0
  for ranks in 2 4; do
    echo "== $ranks processes on one GPU"
    within 28 mpirun --oversubscribe --bind-to none -n $ranks "$build/tests/integration/conformance_ranks" devices 1 || code=$?
  done
  return $code
}
python_binding() {
  local code=0
  export LD_LIBRARY_PATH=$inherited
  within 28 "$root/tests/integration/python_gpu.py" || code=$?
  if [ $code = 0 ] && [ $mpi = enabled ]; then
    within 28 env PACELINE_SHARE_DEVICE=1 mpirun --oversubscribe --bind-to none -n 2 python3 "$root/tests/integration/python_gpu.py" || code=$?
  fi
  return $code
}
horovod_tensors() {
  [ $mpi = enabled ] || { echo "no Open MPI"; return 77; }
  [ -e "$build/programs/libpaceline-horovod-torch.so" ] || { echo "the module for torch was not built: no Python.h"; return 77; }
  export LD_LIBRARY_PATH=$inherited
  if [ -d "$packages/python" ]; then # a copy, because links are put into it
    rm -rf "$work/python"
    cp -a "$packages/python" "$work/python" && export PYTHONPATH=$work/python${PYTHONPATH:+:$PYTHONPATH}
  fi
  "$build/entrypoint/paceline" horovod install --python python3 || { echo "no Horovod for python3; --pack brings it along"; return 77; }
  local code=0 own=0
  "$root/tests/integration/horovod_device.py" --json "$work/horovod.json" || code=$?
  PACELINE_BUILD=$build HVD_SOURCE=$([ ! -d "$packages/horovod" ] || echo "$packages/horovod") "$root/tests/integration/horovod_own.py" --device cuda --seconds 150 || own=$?
  [ $own = 0 ] || [ $own = 77 ] || code=$own
  return $code
}
gradients=$root/examples/synthetic/resnet50.json
bench_step() { "$build/tests/bench/step_device" --gradients "$gradients" --json "$work/step_device.json"; }
bench_kernels() { "$build/tests/bench/bench_device" --gradients "$gradients" --json "$work/bench_device.json"; }
bench_sharing() {
  local kind ranks code=0
  local words=(allreduce --buffers device --min-bytes 4KiB --max-bytes 256MiB --factor 8 --pairs 5 --json)
  local step=("$build/libexec/paceline/synthetic" --gradients "$gradients" --backward-ms 20 --json 1)
  export PACELINE_SHARE_DEVICE=1
  within 10 "$build/libexec/paceline/paceline-info" || code=$?
  within 20 "${step[@]}" --device cuda | tee -a "$work/synthetic.json" || code=$?
  if [ $mpi = enabled ]; then
    for kind in busy timer; do
      within 20 mpirun --oversubscribe --bind-to none -n 2 "${step[@]}" --device cuda:0 --work $kind | tee -a "$work/synthetic.json" || code=$?
    done
    for ranks in 2 4; do
      within 20 mpirun --oversubscribe --bind-to none -n $ranks "$build/libexec/paceline/paceline-bench" "${words[@]}" | tee "$work/allreduce_$ranks.json" || code=$?
    done
  else
    "$build/libexec/paceline/paceline-bench" "${words[@]}" --threads 2 | tee "$work/allreduce_2.json" || code=$?
    echo "no Open MPI: one rank's overlap only"
  fi
  return $code
}

cd "$work" || exit 1
rm -f "$work"/*.{json,end} # figures of this run only
: >"$work/steps.tsv"
for tool in nvidia-smi "nvcc --version" "cc --version" "python3 --version" "mpirun --version"; do echo "---- $tool"; $tool; done >"$log" 2>&1
if step build compile; then
  ! wanted unit || step unit unit_tests
  ! wanted kernels || step kernels bench_kernels
  ! wanted step || step step bench_step
  ! wanted sharing || step sharing bench_sharing
  ! wanted examples || step examples "$root/tests/integration/gpu_examples.py" --json "$work/examples.json"
  ! wanted torch || step torch env "LD_LIBRARY_PATH=$loads" "$root/tests/bench/torch_peer.py" --build "$build" --libraries "${LD_LIBRARY_PATH:-}" --rounds 2 --json "$work/torch.json"
  ! wanted python || step python python_binding
  ! wanted horovod || step horovod horovod_tensors
  ! wanted conformance || step conformance conformance
  ! wanted sanitizer || step sanitizer sanitize
fi
echo
echo "what the steps printed is in $log"
report
