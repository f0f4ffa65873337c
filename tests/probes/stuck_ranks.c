/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of which one hangs: the rank that the first argument names, else rank 2, loops in stuck_here() until it gets
 * SIGUSR2. The others wait for it in MPI_Allreduce().
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t is_released;

static void release(int number)
{
    (void)number;
    is_released = 1;
}

__attribute__((noinline)) static void stuck_here(void)
{
    while (!is_released) {
    }
}

int main(int argc, char **argv)
{
    int stuck = argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9' ? atoi(argv[1]) : 2;
    int rank, one = 1, sum = 0;

    signal(SIGUSR2, release);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == stuck) {
        stuck_here();
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d sum %d\n", rank, sum);
    MPI_Finalize();
    return 0;
}
