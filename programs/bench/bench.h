/* SPDX-License-Identifier: Apache-2.0 */
/** The interface between the files of paceline-bench: options, device memory and the peer. */
#ifndef PL_PROGRAMS_BENCH_BENCH_H
#define PL_PROGRAMS_BENCH_BENCH_H

#include "base/dtype.h"
#include "base/status.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_bootstrap;
struct pl_device;
struct pl_world;

enum pl_bench_peer { PEER_NONE, PEER_MPI, PEER_MPI_BEST };

enum pl_bench_wire { WIRE_SAME, WIRE_FLOAT16, WIRE_BFLOAT16 };

enum pl_bench_buffers { BUFFERS_ARENA, BUFFERS_PRIVATE, BUFFERS_DEVICE };

enum { BENCH_MOST_THREADS = 64 };

struct pl_bench_options {
    enum pl_kind kind; /* PL_ALLREDUCE, PL_ALLGATHER or PL_BROADCAST (from rank 0) */
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint64_t factor;
    enum pl_dtype dtype;
    enum pl_bench_peer peer;
    enum pl_bench_buffers buffers;
    enum pl_bench_wire wire;
    bool json;
    bool alone; /* time the operation alone, without produce and consume */
    bool bound; /* also measure the time to read and write every buffer once */
    int pairs;
    int threads;
    unsigned flags;
    double loop_ms;
};

struct pl_bench {
    const struct pl_bench_options *options;
    struct pl_world *world;
    int rank;
    int size;
    void *ours;               /* buffer of the kind that is measured */
    void *theirs;             /* the peer's buffer, private memory */
    uint64_t count;           /* elements of struct pl_collective */
    uint64_t bytes;           /* bytes of the result on each rank */
    struct pl_device *device; /* NULL for host memory */
    void *stream;
    bool slow; /* one operation lasts so long that an untimed one before each loop would only cost time */
};

/* ---- bench_options.c ---- */

/** Read the options. PL_INVALID names the wrong one, PL_END: --help was printed. */
enum pl_status pl_bench_options_parse(int argc, char **argv, struct pl_bench_options *options,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/* ---- bench_device.c ---- */

/**
 * Make a world in which each rank has a GPU, `room` bytes of its arena as `ours`, and a stream. PL_UNSUPPORTED without
 * GPUs. Collective.
 */
enum pl_status pl_bench_device_open(struct pl_bench *bench, struct pl_bootstrap *bootstrap, uint64_t room,
                                    struct pl_error *reterr) PL_MUST_CHECK;
void pl_bench_device_close(struct pl_bench *bench);

/** Run `iterations` allreduces of `ours`, one after the other on the stream, and wait for the last. */
enum pl_status pl_bench_device_loop(struct pl_bench *bench, int64_t iterations, struct pl_error *reterr) PL_MUST_CHECK;

/** Copy between host and device memory and wait for it. */
enum pl_status pl_bench_device_copy(struct pl_bench *bench, void *to, const void *from, uint64_t bytes,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* ---- bench_mpi.c, bench_none.c ---- */

/** Initialise MPI as a plain MPI program would, so that the peer does not pay for thread support. False without MPI. */
bool pl_bench_peer_start(void);

/** Whether MPI can sum this type. */
bool pl_bench_peer_has(enum pl_dtype dtype);

/**
 * Run MPI's operation of the benchmark's kind on `data`, in place: MPI_Allreduce of a sum and MPI_Bcast in calls of at
 * most `piece_bytes`, MPI_Allgather in one. False if MPI fails.
 */
bool pl_bench_peer_run(const struct pl_bench *bench, void *data, uint64_t piece_bytes);

void pl_bench_peer_end(void);

#endif
