#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every collective operation x type x size x in and out of place, with processes as ranks over shared memory and over MPI's messages, in the memory of
# shared devices and by NCCL (on the fake driver), and with threads as ranks on pretended hosts.
set -euo pipefail
program=$PACELINE_BUILD/tests/integration/conformance_ranks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PACELINE_TIMEOUT_S=100
command -v mpirun >/dev/null || { echo "skipped: mpirun is not installed"; exit 77; }

ranks() { # N [variable=value...]: N processes
    local n=$1
    shift
    echo "== $n processes $*"
    env "$@" timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program"
}

ranks 2
ranks 3
ranks 5
ranks 2 PACELINE_BACKEND=exchange
ranks 3 PACELINE_BACKEND=exchange
for n in 2 4; do
    echo "== $n processes, random mixtures and training programs"
    timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program" mixed 1 6
    timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program" training 1 8
done
for n in 2 3 4; do
    echo "== $n processes, one of which cancels"
    PACELINE_BACKEND=exchange timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program" cancels
    echo "== $n processes, worlds after worlds that have failed"
    PACELINE_BACKEND=exchange timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program" fails
done
for n in 1 5; do
    echo "== $n processes, halves of a program's own MPI"
    timeout 500 mpirun --oversubscribe --bind-to none -n "$n" "$program" halves
done
fakes=$PACELINE_BUILD/tests/fakes
if [ -e "$fakes/nccl/libnccl.so.2" ]; then
    for setting in "1 no_nccl" "3 nccl"; do
        echo "== 3 processes, devices and NCCL: $setting"
        FAKE_CUDA=devices=3,delay_us=20,leaks LD_LIBRARY_PATH=$fakes/${setting#* }:$fakes${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
            timeout 500 mpirun --oversubscribe --bind-to none -n 3 "$program" devices "${setting% *}"
    done
fi
for layout in "4 2" "5 2" "7 3"; do
    echo "== threads and ranks a host: $layout"
    # Two words on purpose.
    # shellcheck disable=SC2086
    timeout 500 "$program" threads $layout
done
