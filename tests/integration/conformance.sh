#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every collective operation x type x size x in and out of place, with processes as ranks over shared memory and over MPI's messages, in the memory of
# shared devices and by NCCL (on the fake driver), and with threads as ranks on pretended hosts; with the word `full` on other numbers of ranks.
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

mixtures() { # N
    echo "== $1 processes, random mixtures and training programs"
    timeout 500 mpirun --oversubscribe --bind-to none -n "$1" "$program" mixed 1 6
    timeout 500 mpirun --oversubscribe --bind-to none -n "$1" "$program" training 1 8
}

failures() { # N
    echo "== $1 processes, one of which cancels"
    PACELINE_BACKEND=p2p timeout 500 mpirun --oversubscribe --bind-to none -n "$1" "$program" cancels
    echo "== $1 processes, worlds after worlds that have failed"
    PACELINE_BACKEND=p2p timeout 500 mpirun --oversubscribe --bind-to none -n "$1" "$program" fails
}

halves() { # N
    echo "== $1 processes, halves of a program's own MPI"
    timeout 500 mpirun --oversubscribe --bind-to none -n "$1" "$program" halves
}

devices() { # DEVICES FOLDER
    local fakes=$PACELINE_BUILD/tests/fakes
    [ -e "$fakes/nccl/libnccl.so.2" ] || return 0
    echo "== 3 processes, devices and NCCL: $*"
    FAKE_CUDA=devices=3,delay_us=20,leaks LD_LIBRARY_PATH=$fakes/$2:$fakes${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        timeout 500 mpirun --oversubscribe --bind-to none -n 3 "$program" devices "$1"
}

sets() { # DEVICES FOLDER [variable=value...]: sets of ranks that come first in opposite orders
    local fakes=$PACELINE_BUILD/tests/fakes
    [ -e "$fakes/nccl/libnccl.so.2" ] || return 0
    echo "== 3 processes, sets, devices and NCCL: $*"
    env FAKE_CUDA=devices=3,delay_us=20,leaks LD_LIBRARY_PATH="$fakes/$2:$fakes${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${@:3}" \
        timeout 500 mpirun --oversubscribe --bind-to none -n 3 "$program" sets "$1" "$rounds"
}

threads() { # RANKS RANKS_A_HOST
    echo "== threads and ranks a host: $*"
    timeout 500 "$program" threads "$@"
}

if [ "${1:-main}" = main ]; then
    rounds=4
    ranks 3
    ranks 2 PACELINE_BACKEND=p2p
    mixtures 2
    failures 3
    halves 5
    devices 3 nccl
    sets 3 nccl
    sets 1 no_nccl OMPI_MCA_btl=tcp,self
    threads 5 2
else
    rounds=60
    ranks 2
    ranks 5
    ranks 3 PACELINE_BACKEND=p2p
    mixtures 4
    failures 2
    failures 4
    halves 1
    devices 1 no_nccl
    sets 3 nccl OMPI_MCA_btl=tcp,self
    sets 1 no_nccl
    threads 4 2
    threads 7 3
fi
