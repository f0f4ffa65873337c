/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce: each rank has a vector, and gets the sum of all vectors.
 *
 *   cc 01_allreduce.c -o allreduce $(pkg-config --cflags --libs paceline)
 *   mpirun -n 2 ./allreduce
 */
#include "runtime/paceline.h"

#include <stdio.h>
#include <stdlib.h>

static enum pl_status run(struct pl_error *reterr)
{
    struct pl_runtime *runtime;
    float x[4];

    /* joins mpirun's ranks; without mpirun this is the only rank */
    PL_TRY(pl_runtime_start(&runtime, reterr));
    struct pl_world *world = pl_runtime_world(runtime);
    const int rank = pl_world_rank(world), ranks = pl_world_size(world);

    for (int i = 0; i < 4; i++) {
        x[i] = (float)(rank + i);
    }
    /* in place: `x` is the send and the receive buffer */
    PL_TRY(pl_allreduce(world, x, x, 4, PL_FLOAT32, PL_SUM, reterr));
    printf("rank %d of %d: %g %g %g %g\n", rank, ranks, (double)x[0], (double)x[1], (double)x[2], (double)x[3]);
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(void)
{
    struct pl_error error = PL_ERROR_NONE;

    /* after a failure a program prints the error and exits at once; mpirun then ends the other ranks */
    if (run(&error) != PL_OK) {
        pl_log_error(&error, "allreduce");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
