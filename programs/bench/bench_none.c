/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for bench_mpi.c in a build without MPI. */
#include "programs/bench/bench.h"

bool pl_bench_peer_start(void)
{
    return false;
}

bool pl_bench_peer_allreduce(void *data, uint64_t count, enum pl_dtype dtype, uint64_t piece_bytes)
{
    (void)data;
    (void)count;
    (void)dtype;
    (void)piece_bytes;
    return false;
}

void pl_bench_peer_end(void)
{
}
