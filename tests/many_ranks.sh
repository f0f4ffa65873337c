#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collectives of 2 to 16 ranks on one machine beside Open MPI's best; no network is needed.
#
#   tests/many_ranks.sh [--build DIR] [--packages DIR] [words of tests/bench/many_ranks.py]
#   tests/many_ranks.sh --pack DIR    on a Debian 12 machine with network: fill such a DIR, to be carried to the other machine
#
#   --build DIR       build folder (build-ranks); made if it is absent
#   --packages DIR    Debian packages that --pack, or tests/gpu.sh --pack, unpacked: Open MPI and what the build needs
#
# The other words are --ranks 2,4, --operations allreduce, --min-bytes 64, --max-bytes 1048576, --repeats 3, --limit SECONDS and --json FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/support/carried.sh
build=$PWD/build-ranks words=()
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$(realpath -m "${2:?--build DIR}"); shift ;;
    --packages) carried_use_all "$(realpath -e "${2:?--packages DIR}")"; shift ;;
    --pack) carried_pack "$(realpath -m "${2:?--pack DIR}")"; exit ;;
    *) words+=("$1") ;;
  esac
  shift
done
command -v mpirun >/dev/null || { echo "no Open MPI: mpirun is not on the PATH; --packages DIR brings it along"; exit 77; }
PATH=$PATH:$(python3 -c 'import sysconfig; print(sysconfig.get_path("scripts"))') # meson and ninja, where they came from PyPI
if [ ! -e "$build/build.ninja" ]; then meson setup "$build" . --buildtype=release -Dmpi=enabled -Dcuda=disabled -Dtests=auto >/dev/null; fi
ninja -C "$build" programs/paceline-bench tests/bench/step_mpi >/dev/null
exec python3 tests/bench/many_ranks.py --build "$build" "${words[@]+"${words[@]}"}"
