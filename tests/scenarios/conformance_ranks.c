/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The long conformance matrix for processes (under mpirun) or threads:
 *
 *     conformance_ranks [threads N [RANKS_PER_HOST]]
 *     conformance_ranks devices N                 processes in device memory; local rank r has device r mod N
 *     conformance_ranks sets N ROUNDS             the same with sets of processes, whose first operations cross
 *     conformance_ranks mixed SEED WORLDS         random mixtures on worlds of processes that draw their settings and
 * hosts
 *     conformance_ranks training SEED WORLDS      the same with random training programs
 *     conformance_ranks halves                    worlds of a program that starts and ends MPI itself
 *     conformance_ranks cancels                   a rank cancels a collective that all others wait for
 *     conformance_ranks fails                     worlds after worlds that have failed
 */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "tests/scenarios/conformance.h"
#include "tests/scenarios/device_sets.h"
#include "tests/scenarios/mixed.h"
#include "tests/scenarios/training.h"
#include "tests/support/ranks.h"

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

static const uint64_t counts[] = {0, 1, 2, 1023, 40961, 300007};

static void run(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    (void)argument;
    for (int arena = 0; arena < 2; arena++) {
        struct conformance small = {.counts = counts, .count_count = 4, .all_types = true, .arena = arena};
        struct conformance large = {.counts = counts + 4, .count_count = arena ? 2 : 1, .arena = arena};

        conformance_run(world, &small);
        RANKS_NEED(!small.failure[0], "%s", small.failure);
        conformance_run(world, &large);
        RANKS_NEED(!large.failure[0], "%s", large.failure);
        if (pl_world_rank(world) == 0) {
            printf("%d ranks on %d hosts, %s buffers: %llu cases\n", pl_world_size(world), pl_world_cross_size(world),
                   arena ? "arena" : "private", (unsigned long long)(small.cases + large.cases));
        }
    }
}

static void run_on_device(struct pl_world *world, char failure[RANKS_TEXT_BYTES])
{
    for (int arena = 0; arena < 2; arena++) {
        struct conformance conformance = {
            .counts = counts + 1, .count_count = 3, .all_types = true, .arena = arena, .device = true};

        conformance_run(world, &conformance);
        RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
        if (pl_world_rank(world) == 0) {
            printf("%d ranks on %d hosts, %s device buffers: %llu cases\n", pl_world_size(world),
                   pl_world_cross_size(world), arena ? "arena" : "private", (unsigned long long)conformance.cases);
        }
    }
}

/* A failure of one rank that all receive leaves the ranks synchronised: they go on and finalise MPI, since mpirun
 * reports a rank that does not. */
static bool expect_error(struct pl_bootstrap *bootstrap)
{
    bool last = bootstrap->rank == bootstrap->size - 1;

    return pl_bootstrap_vote(bootstrap, last ? PL_MEMORY : PL_OK, pl_deadline_after_ns(60 * PL_NS_PER_S), NULL) ==
           PL_MEMORY;
}

/* Rank 1 cancels an allreduce of `count`. The others are in it, or come to it, and receive the cancellation long
 * before their deadlines, or have all the data that they need. */
static void cancel_one(struct pl_world *world, uint64_t count, bool may_be_done, char failure[RANKS_TEXT_BYTES])
{
    char expected[PL_ERROR_CAUSE_BYTES];
    const struct pl_collective sum = {.kind = PL_ALLREDUCE,
                                      .count = count,
                                      .send = calloc(count, sizeof(float)),
                                      .recv = calloc(count, sizeof(float)),
                                      .deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S)};
    struct pl_error told = PL_ERROR_NONE;
    struct pl_request *request;
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (pl_world_rank(world) == 1) {
        RANKS_OK(pl_collective_post(world, &sum, &request, &error));
        pl_request_cancel(request);
        return; /* MPI may still read the sent data */
    }
    status = pl_collective_run(world, &sum, &told);
    ranks_given_up(world, 1, "collective number 2, allreduce, was cancelled", expected);
    RANKS_NEED((status == PL_OK && may_be_done) || (status == PL_PEER && strcmp(told.cause, expected) == 0),
               "rank %d, %llu elements: %s: %s", pl_world_rank(world), (unsigned long long)count,
               pl_status_name(status), told.cause);
}

/* Runs cancel_one() in one world of all ranks after the other, with sizes that are small; above MPI's eager limit;
 * and more than all slots of the p2p backend hold at once. With less a rank may have sent all the data that the
 * others need before it cancels. */
static void run_cancels(struct pl_world *world, char failure[RANKS_TEXT_BYTES])
{
    static const uint64_t sizes[] = {5, 3500, 10000007};
    int ranks[RANKS_MOST];

    for (int r = 0; r < pl_world_size(world); r++) {
        ranks[r] = r;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(sizes) && !failure[0]; i++) {
        struct pl_world *part = NULL;

        RANKS_OK(pl_world_new_sub(world, ranks, pl_world_size(world), &part, &error));
        cancel_one(part, sizes[i], i + 1 < PL_ARRAY_ITEMS(sizes), failure);
        pl_world_free(part);
    }
}

/* Rank 0 sends more than rank 1 expects, in data that only the two ranks of a pair compare. */
static void send_too_much(struct pl_world *world, char failure[RANKS_TEXT_BYTES])
{
    const char *words = "rank 0 sent more bytes than rank 1 expected";
    int rank = pl_world_rank(world);
    int32_t send[RANKS_MOST + 1] = {0};
    int32_t recv[RANKS_MOST];
    uint64_t send_counts[RANKS_MOST];
    uint64_t recv_counts[RANKS_MOST];
    struct pl_collective all = {.kind = PL_ALLTOALL,
                                .dtype = PL_INT32,
                                .send = send,
                                .recv = recv,
                                .counts = send_counts,
                                .recv_counts = recv_counts};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    for (int r = 0; r < pl_world_size(world); r++) {
        send_counts[r] = rank == 0 && r == 1 ? 2 : 1;
        recv_counts[r] = 1;
    }
    status = pl_collective_run(world, &all, &told);
    RANKS_NEED(rank != 1 || (status == PL_MISMATCH && strcmp(told.cause, words) == 0), "rank 1: %s: %s",
               pl_status_name(status), told.cause);
    RANKS_NEED(status == PL_OK || strstr(told.cause, words), "rank %d: %s: %s", rank, pl_status_name(status),
               told.cause);
}

/* The last rank comes to a sub-world of `world` when the deadlines of all others have passed: its own deadline
 * passes too, and `world` has failed on all. */
static void come_late(struct pl_world *world, struct pl_world *whole, char failure[RANKS_TEXT_BYTES])
{
    bool late = pl_world_rank(world) == pl_world_size(world) - 1;
    struct pl_error told = PL_ERROR_NONE;
    struct pl_world *part = NULL;
    int ranks[RANKS_MOST];
    enum pl_status status;

    for (int r = 0; r < pl_world_size(world); r++) {
        ranks[r] = r;
    }
    if (late) {
        RANKS_OK(pl_barrier(whole, &error));
    }
    world->timeout_ns = 200 * PL_NS_PER_MS;
    status = pl_world_new_sub(world, ranks, pl_world_size(world), &part, &told);
    if (!late) {
        RANKS_OK(pl_barrier(whole, &error));
    }
    RANKS_NEED(status == PL_TIMEOUT && strstr(told.cause, "making a sub-world: rank "), "rank %d: %s: %s",
               pl_world_rank(world), pl_status_name(status), told.cause);
    RANKS_NEED(pl_world_failure(world, &told) == PL_TIMEOUT && strstr(told.cause, "making a sub-world: rank "),
               "rank %d: %s: %s", pl_world_rank(world), pl_status_name(told.status), told.cause);
    RANKS_NEED(pl_world_new_sub(world, ranks, 1, &part, NULL) != PL_OK, "rank %d made a sub-world of a failed world",
               pl_world_rank(world));
}

/* Every second world of all ranks is revoked, by one rank after the other: the next world, in which those messages
 * wait, must not receive them. Two of the worlds fail in a different way. */
static void run_fails(struct pl_world *world, char failure[RANKS_TEXT_BYTES])
{
    int size = pl_world_size(world);
    int rank = pl_world_rank(world);
    int ranks[RANKS_MOST];
    struct pl_error why = PL_ERROR_NONE;

    pl_error_set(&why, PL_LIBRARY, "the fan has stopped");
    for (int r = 0; r < size; r++) {
        ranks[r] = r;
    }
    for (int i = 0; i < 6 && !failure[0]; i++) {
        struct pl_world *part = NULL;

        RANKS_OK(pl_world_new_sub(world, ranks, size, &part, &error));
        if (i % 2 == 0) {
            PL_AUTO_HOLD(part);

            pl_clock_nap(rank * 20 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
            pl_request_revoke_world(part, &why);
        }
        for (int late = 0; late < size && i % 2 == 1; late++) {
            pl_clock_nap(late == rank ? 20 * PL_NS_PER_MS : 0, PL_DEADLINE_NEVER);
            RANKS_OK(pl_barrier(part, &error));
        }
        if (i == 3) {
            come_late(part, world, failure);
        } else if (i == 5 && !failure[0]) {
            send_too_much(part, failure);
        }
        pl_world_free(part);
    }
}

/* Runs processes: their world, with a device of `devices` if that is not 0; or the worlds of `special`. */
static int run_processes(int devices, void (*special)(struct pl_world *world, char *failure),
                         char failure[RANKS_TEXT_BYTES])
{
    struct pl_world_options options = {.knobs = NULL};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL;

    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK || !expect_error(bootstrap) ||
        (devices && pl_device_open(bootstrap->rank % devices, &options.device, &error) != PL_OK) ||
        pl_world_new(bootstrap, &options, &world, &error) != PL_OK) {
        fprintf(stderr, "cannot make the world: %s\n", error.cause);
        return 1;
    }
    if (devices) {
        run_on_device(world, failure);
    } else if (special) {
        special(world, failure);
    } else {
        run(world, NULL, failure);
    }
    if (pl_bootstrap_leave(bootstrap, pl_world_deadline_ns(world), &error) != PL_OK) {
        fprintf(stderr, "leaving: %s\n", error.cause);
    }
    pl_world_free(world);
    pl_device_close(options.device);
    pl_bootstrap_free(bootstrap);
    return 0;
}

/* Runs processes whose world has no device; their sets make worlds that have. */
static int run_sets(int devices, int rounds, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL;

    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK ||
        pl_world_new(bootstrap, NULL, &world, &error) != PL_OK) {
        fprintf(stderr, "cannot make the world: %s\n", error.cause);
        return 1;
    }
    device_sets_beside(world, rounds, failure);
    if (!failure[0]) {
        device_sets_run(world, devices, rounds, failure);
    }
    if (failure[0]) {
        fprintf(stderr, "rank %d: %s\n", bootstrap->rank, failure);
        _exit(1);
    }
    if (bootstrap->rank == 0) {
        printf("%d ranks, %d devices, sets of ranks %d times\n", bootstrap->size, devices, rounds);
    }
    if (pl_bootstrap_leave(bootstrap, pl_world_deadline_ns(world), &error) != PL_OK) {
        fprintf(stderr, "leaving: %s\n", error.cause);
    }
    pl_world_free(world);
    pl_bootstrap_free(bootstrap);
    return 0;
}

/* The program owns MPI: ranks with even and with odd numbers, the last one first, form a world each, and MPI goes on
 * after them. */
static void run_halves(char failure[RANKS_TEXT_BYTES])
{
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL;
    int rank = 0, size = 0, sum = 0;
    MPI_Comm half;

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    RANKS_OK(pl_bootstrap_new_mpi(&half, &bootstrap, &error));
    RANKS_OK(pl_world_new(bootstrap, NULL, &world, &error));
    RANKS_NEED(pl_world_size(world) == (size + 1 - rank % 2) / 2, "rank %d: %d ranks", rank, pl_world_size(world));
    RANKS_NEED(pl_world_rank(world) == (size - 1 - rank) / 2, "rank %d is rank %d", rank, pl_world_rank(world));
    RANKS_OK(pl_allreduce(world, &rank, &sum, 1, PL_INT32, PL_SUM, &error));
    RANKS_OK(pl_bootstrap_leave(bootstrap, pl_world_deadline_ns(world), &error));
    pl_world_free(world);
    pl_bootstrap_free(bootstrap);
    MPI_Comm_free(&half);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    RANKS_NEED(sum == size * size / 4, "the larger sum is %d", sum);
}

/* Runs `program` in `worlds` drawn worlds. If one rank fails all fail, at the latest when their deadlines have
 * passed. */
static int run_drawn(void (*program)(struct pl_world *world, uint64_t seed, int steps, char *failure), uint64_t seed,
                     uint64_t worlds)
{
    enum { STEPS = 20 };
    _Static_assert((int)TRAINING_TEXT_BYTES <= (int)MIXED_TEXT_BYTES, "the text fits");
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    char failure[MIXED_TEXT_BYTES] = "";

    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK) {
        fprintf(stderr, "cannot make the world: %s\n", error.cause);
        return 1;
    }
    for (uint64_t i = 0; i < worlds; i++) {
        struct pl_knobs knobs;
        struct pl_world_options options = {.knobs = &knobs};
        struct pl_world *world = NULL;
        uint64_t draws = seed + i;

        options.pretend_ranks_per_host = mixed_settings(&draws, bootstrap->size, &knobs);
        if (pl_world_new(bootstrap, &options, &world, &error) == PL_OK) {
            program(world, seed + i, STEPS, failure);
        } else {
            snprintf(failure, sizeof(failure), "cannot make the world: %s", error.cause);
        }
        pl_world_free(world);
        if (failure[0]) {
            fprintf(stderr, "seed %llu, rank %d: %s\n", (unsigned long long)(seed + i), bootstrap->rank, failure);
            _exit(1);
        }
    }
    if (bootstrap->rank == 0) {
        printf("%d ranks, seeds %llu to %llu\n", bootstrap->size, (unsigned long long)seed,
               (unsigned long long)(seed + worlds - 1));
    }
    if (pl_bootstrap_leave(bootstrap, pl_deadline_after_ns(60 * PL_NS_PER_S), &error) != PL_OK) {
        fprintf(stderr, "leaving: %s\n", error.cause);
    }
    pl_bootstrap_free(bootstrap);
    return 0;
}

int main(int argc, char **argv)
{
    char failure[RANKS_TEXT_BYTES] = "";
    int devices = argc == 3 && strcmp(argv[1], "devices") == 0 ? atoi(argv[2]) : 0;
    void (*special)(struct pl_world * world, char *text) = argc != 2                         ? NULL
                                                           : strcmp(argv[1], "cancels") == 0 ? run_cancels
                                                           : strcmp(argv[1], "fails") == 0   ? run_fails
                                                                                             : NULL;

    if (argc == 4 && strcmp(argv[1], "sets") == 0) {
        return run_sets(atoi(argv[2]), atoi(argv[3]), failure);
    }
    if (argc == 4 && strcmp(argv[1], "mixed") == 0) {
        return run_drawn(mixed_run, strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
    }
    if (argc == 4 && strcmp(argv[1], "training") == 0) {
        return run_drawn(training_run, strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
    }
    if (argc == 2 && strcmp(argv[1], "halves") == 0) {
        run_halves(failure);
    } else if (argc >= 3 && !devices) {
        ranks_run_on(atoi(argv[2]), 0,
                     &(struct pl_world_options){.pretend_ranks_per_host = argc > 3 ? atoi(argv[3]) : 0}, run, NULL,
                     failure);
    } else if (run_processes(devices, special, failure) != 0) {
        return 1;
    }
    if (failure[0]) {
        fprintf(stderr, "%s\n", failure);
        return 1;
    }
    return 0;
}
