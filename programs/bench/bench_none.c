/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for bench_mpi.c in a build without MPI. */
#include "programs/bench/bench.h"

bool pl_bench_peer_start(void)
{
    return false;
}

bool pl_bench_peer_has(enum pl_dtype dtype)
{
    (void)dtype;
    return false;
}

bool pl_bench_peer_run(const struct pl_bench *bench, void *data, uint64_t piece_bytes)
{
    (void)bench;
    (void)data;
    (void)piece_bytes;
    return false;
}

void pl_bench_peer_end(void)
{
}
