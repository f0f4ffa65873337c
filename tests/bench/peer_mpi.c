/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of paceline-bench with the allreduce of any MPI: peer_mpi BYTES LOOP_MS REPEATS. tests/bench/peers.py
 * compiles it with the compiler wrappers of the installed MPIs. Prints the cost of one MPI_Allreduce of float32 in
 * microseconds: the time of produce + allreduce + consume minus that of the same loop without the allreduce, on the
 * slowest rank, median of the repeats.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void produce(uint32_t *words, size_t count, int rank)
{
    uint32_t value = 0x3f800000U + (uint32_t)(rank & 7); /* near 1.0 */

    for (size_t i = 0; i < count; i++) {
        words[i] = value;
    }
}

static uint32_t consume(const uint32_t *words, size_t count)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += words[i];
    }
    return sum;
}

/* Times a loop: microseconds per iteration, on the slowest rank. */
static double time_loop(uint32_t *data, int count, int rank, int with, long iterations)
{
    static volatile uint32_t sink;
    double begin_s = 0;
    double own_s;
    double slowest_s;

    for (long i = -1; i < iterations; i++) { /* the first iteration does not count */
        if (i == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin_s = MPI_Wtime();
        }
        produce(data, (size_t)count, rank);
        if (with) {
            MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        sink = sink + consume(data, (size_t)count);
    }
    own_s = (MPI_Wtime() - begin_s) / (double)iterations;
    MPI_Allreduce(&own_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest_s * 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    double costs_us[100];
    uint32_t *data;
    long iterations;
    int repeats;
    int count;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    count = argc == 4 ? (int)(atol(argv[1]) / 4) : 0;
    repeats = argc == 4 ? atoi(argv[3]) : 0;
    data = count > 0 && repeats > 0 && repeats <= 100 ? aligned_alloc(4096, ((size_t)count * 4 + 4095) / 4096 * 4096)
                                                      : NULL;
    if (!data) {
        fprintf(stderr, "usage: peer_mpi BYTES LOOP_MS REPEATS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    iterations = 1 + (long)(1e3 / time_loop(data, count, rank, 1, 1));
    iterations = 1 + (long)(atof(argv[2]) * 1e3 / time_loop(data, count, rank, 1, iterations));
    for (int i = 0; i < repeats; i++) {
        costs_us[i] = time_loop(data, count, rank, 1, iterations);
        costs_us[i] -= time_loop(data, count, rank, 0, iterations);
    }
    qsort(costs_us, (size_t)repeats, sizeof(*costs_us), compare);
    if (rank == 0) {
        printf("%.3f\n", costs_us[repeats / 2]);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
