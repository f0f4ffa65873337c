/* SPDX-License-Identifier: Apache-2.0 */
/* The peer of the benchmark: MPI's own collectives. */
#include "programs/bench/bench.h"

#include <limits.h>
#include <mpi.h>

bool pl_bench_peer_start(void)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    return initialized || MPI_Init(NULL, NULL) == MPI_SUCCESS;
}

static MPI_Datatype type_of(enum pl_dtype dtype)
{
    const MPI_Datatype types[PL_DTYPE_COUNT] = {
        [PL_FLOAT32] = MPI_FLOAT,          [PL_FLOAT64] = MPI_DOUBLE, [PL_FLOAT16] = MPI_DATATYPE_NULL,
        [PL_BFLOAT16] = MPI_DATATYPE_NULL, [PL_INT8] = MPI_INT8_T,    [PL_INT16] = MPI_INT16_T,
        [PL_INT32] = MPI_INT32_T,          [PL_INT64] = MPI_INT64_T,  [PL_UINT8] = MPI_UINT8_T,
        [PL_BOOL] = MPI_DATATYPE_NULL};

    return (unsigned)dtype < PL_DTYPE_COUNT ? types[dtype] : MPI_DATATYPE_NULL;
}

bool pl_bench_peer_has(enum pl_dtype dtype)
{
    return type_of(dtype) != MPI_DATATYPE_NULL;
}

bool pl_bench_peer_run(const struct pl_bench *bench, void *data, uint64_t piece_bytes)
{
    MPI_Datatype type = type_of(bench->options->dtype);
    uint64_t item_bytes = pl_dtype_bytes(bench->options->dtype);
    uint64_t piece = piece_bytes / item_bytes;

    piece = piece == 0 ? 1 : piece > INT_MAX / 2 ? INT_MAX / 2 : piece;
    if (bench->options->kind == PL_ALLGATHER) {
        return bench->count <= INT_MAX && MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, (int)bench->count,
                                                        type, MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    for (uint64_t at = 0; at < bench->count; at += piece) {
        char *from = (char *)data + at * item_bytes;
        int now = (int)(bench->count - at < piece ? bench->count - at : piece);
        int result = bench->options->kind == PL_BROADCAST
                         ? MPI_Bcast(from, now, type, 0, MPI_COMM_WORLD)
                         : MPI_Allreduce(MPI_IN_PLACE, from, now, type, MPI_SUM, MPI_COMM_WORLD);

        if (result != MPI_SUCCESS) {
            return false;
        }
    }
    return true;
}

void pl_bench_peer_end(void)
{
    int finalized = 0;

    MPI_Finalized(&finalized);
    if (!finalized) {
        MPI_Finalize();
    }
}
