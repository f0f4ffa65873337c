/* SPDX-License-Identifier: Apache-2.0 */
/* The peer of the benchmark: MPI's own allreduce. */
#include "programs/bench/bench.h"

#include <limits.h>
#include <mpi.h>

bool pl_bench_peer_start(void)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    return initialized || MPI_Init(NULL, NULL) == MPI_SUCCESS;
}

bool pl_bench_peer_allreduce(void *data, uint64_t count, enum pl_dtype dtype, uint64_t piece_bytes)
{
    const MPI_Datatype types[PL_DTYPE_COUNT] = {
        [PL_FLOAT32] = MPI_FLOAT,          [PL_FLOAT64] = MPI_DOUBLE, [PL_FLOAT16] = MPI_DATATYPE_NULL,
        [PL_BFLOAT16] = MPI_DATATYPE_NULL, [PL_INT8] = MPI_INT8_T,    [PL_INT16] = MPI_INT16_T,
        [PL_INT32] = MPI_INT32_T,          [PL_INT64] = MPI_INT64_T,  [PL_UINT8] = MPI_UINT8_T,
        [PL_BOOL] = MPI_DATATYPE_NULL};
    uint64_t piece = piece_bytes / pl_dtype_bytes(dtype);

    if ((unsigned)dtype >= PL_DTYPE_COUNT || types[dtype] == MPI_DATATYPE_NULL) {
        return false;
    }
    piece = piece == 0 ? 1 : piece > INT_MAX / 2 ? INT_MAX / 2 : piece;
    for (uint64_t at = 0; at < count; at += piece) {
        uint64_t now = count - at < piece ? count - at : piece;

        if (MPI_Allreduce(MPI_IN_PLACE, (char *)data + at * pl_dtype_bytes(dtype), (int)now, types[dtype], MPI_SUM,
                          MPI_COMM_WORLD) != MPI_SUCCESS) {
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
