/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/shm/shm.c, collectives/shm/region.c, collectives/shm/eventcount.c. */
/**
 * The shared-memory backend with processes as ranks: right results, and killed and stopped ranks are noticed and named.
 */
#include "base/clock.h"
#include "collectives/arena.h"
#include "collectives/collective.h"
#include "collectives/world.h"

#include "base/knob.h"
#include "collectives/bootstrap.h"
#include "collectives/world_private.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 1, EXCHANGE_BYTES = 64 << 10, ELEMS = 300000 };

/* The forked ranks share a page of memory and a barrier. */
struct rendezvous {
    pthread_barrier_t barrier;
    pid_t pids[RANKS];
    char bytes[RANKS][EXCHANGE_BYTES];
};

struct seat {
    struct rendezvous *rendezvous;
    int rank;
};

static enum pl_status meet(void *context, const struct pl_error *failed, const void *send, void *recv, size_t bytes,
                           int64_t deadline_ns, struct pl_error *reterr)
{
    struct seat *seat = context;

    (void)failed, (void)deadline_ns;
    if (bytes > EXCHANGE_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "%zu bytes to exchange", bytes);
    }
    memcpy(seat->rendezvous->bytes[seat->rank], bytes ? send : "", bytes);
    pthread_barrier_wait(&seat->rendezvous->barrier);
    for (int r = 0; r < RANKS && bytes; r++) {
        memcpy((char *)recv + (size_t)r * bytes, seat->rendezvous->bytes[r], bytes);
    }
    pthread_barrier_wait(&seat->rendezvous->barrier);
    return PL_OK;
}

/* A rank has no Check: a failed condition is printed and becomes an exit status. */
#define MUST(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s: ", seat->rank, __LINE__, #condition);                               \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

typedef void rank_body(struct seat *seat, struct pl_world *world);

static void run_rank(struct seat *seat, rank_body *body)
{
    struct pl_bootstrap bootstrap = {
        .name = "fork", .context = seat, .rank = seat->rank, .size = RANKS, .exchange = meet};
    struct pl_knobs knobs;
    struct pl_world_options options = {.knobs = &knobs};
    struct pl_world *world = NULL;
    struct pl_error error = PL_ERROR_NONE;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a stopped rank would outlive a failed test */
    pl_knobs_default(&knobs);
    MUST(pl_knob_set(&knobs, PL_KNOB_BACKEND, "shm", "test", &error) == PL_OK, "%s", error.cause);
    MUST(pl_world_new(&bootstrap, &options, &world, &error) == PL_OK, "%s (%s)", error.cause, error.context);
    body(seat, world);
    pl_world_free(world);
    _exit(0);
}

/* Forks the ranks and waits for them; `victim` may end in any way. */
static void run_ranks(rank_body *body, int victim)
{
    struct rendezvous *rendezvous =
        mmap(NULL, sizeof(*rendezvous), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;

    ck_assert(rendezvous != MAP_FAILED);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&rendezvous->barrier, &attributes, RANKS);
    for (int r = 0; r < RANKS; r++) {
        struct seat seat = {.rendezvous = rendezvous, .rank = r};
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        rendezvous->pids[r] = pid ? pid : getpid(); /* in shared memory: parent and child write the same value */
        if (pid == 0) {
            run_rank(&seat, body);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        int how = 0;

        if (r == victim) {
            continue;
        }
        ck_assert_int_eq(waitpid(rendezvous->pids[r], &how, 0), rendezvous->pids[r]);
        ck_assert_msg(WIFEXITED(how) && WEXITSTATUS(how) == 0, "rank %d ended with %x", r, how);
    }
    if (victim >= 0) {
        kill(rendezvous->pids[victim], SIGKILL);
        waitpid(rendezvous->pids[victim], NULL, 0);
    }
    pthread_barrierattr_destroy(&attributes);
    munmap(rendezvous, sizeof(*rendezvous));
}

static void allreduces(struct seat *seat, struct pl_world *world)
{
    struct pl_span span;
    struct pl_error error = PL_ERROR_NONE;
    float *heap = malloc(ELEMS * sizeof(float));

    MUST(pl_arena_alloc(world, ELEMS * sizeof(float), PL_MEMORY_HOST, &span, &error) == PL_OK, "%s", error.cause);
    for (int round = 0; round < 30; round++) {
        float *data = round % 2 == 0 ? span.data : heap;
        uint64_t count = (uint64_t)(1 + round * (ELEMS / 30));

        for (uint64_t i = 0; i < count; i++) {
            data[i] = (float)((int)i % 100 + seat->rank + round);
        }
        MUST(pl_allreduce(world, data, data, count, PL_FLOAT32, PL_SUM, &error) == PL_OK, "%s", error.cause);
        for (uint64_t i = 0; i < count; i++) {
            MUST(data[i] == (float)(RANKS * ((int)i % 100 + round) + 3), "round %d, element %d: %g", round, (int)i,
                 (double)data[i]);
        }
    }
    pl_arena_free(world, &span);
    free(heap);
}

UNIT_TEST(processes_reduce_arena_and_heap, run_ranks(allreduces, -1))

/* Runs collectives of many sizes until one fails; it is random which one the signal hits. Only rank 0 limits its
 * wait to `timeout_ns`, and only after the signal: on a busy machine others are late, too. */
static enum pl_status loop_until_failure(struct seat *seat, struct pl_world *world, int64_t timeout_ns, int kill_with,
                                         struct pl_error *error)
{
    struct pl_span span;
    float *heap = calloc(ELEMS, sizeof(float));
    enum pl_status status = pl_arena_alloc(world, ELEMS * sizeof(float), PL_MEMORY_HOST, &span, error);

    memset(span.data, 0, ELEMS * sizeof(float));
    for (int i = 0; status == PL_OK && i < 100000; i++) {
        float *data = i % 3 == 0 ? span.data : heap;
        struct pl_collective collective = {
            .kind = PL_ALLREDUCE,
            .dtype = PL_FLOAT32,
            .op = PL_MAX,
            .count = i % 5 == 0 ? 3 : ELEMS,
            .send = data,
            .recv = data,
            .deadline_ns = pl_deadline_after_ns(seat->rank == 0 && i >= 20 ? timeout_ns : 60 * PL_NS_PER_S)};

        if (i == 20 && seat->rank == 0) {
            kill(seat->rendezvous->pids[VICTIM], kill_with);
        }
        status = pl_collective_run(world, &collective, error);
    }
    free(heap);
    return status;
}

static void killed(struct seat *seat, struct pl_world *world)
{
    struct pl_error error = PL_ERROR_NONE;
    int64_t start_ns = pl_clock_now_ns();
    enum pl_status status = loop_until_failure(seat, world, 60 * PL_NS_PER_S, SIGKILL, &error);

    MUST(status == PL_PEER && strstr(error.cause, "the process of rank 1 on host ") &&
             strstr(error.cause, " has ended"),
         "%s: %s", pl_status_name(status), error.cause);
    MUST(error.domain == PL_DOMAIN_RANK && error.code == VICTIM, "domain %d, code %d", (int)error.domain,
         (int)error.code);
    MUST(pl_clock_now_ns() - start_ns < 20 * PL_NS_PER_S, "after %d ms",
         (int)((pl_clock_now_ns() - start_ns) / PL_NS_PER_MS));
}

UNIT_TEST(a_killed_rank_is_named_by_all_others_long_before_the_deadline, run_ranks(killed, VICTIM))

static void stopped(struct seat *seat, struct pl_world *world)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = loop_until_failure(seat, world, 3 * PL_NS_PER_S, SIGSTOP, &error);
    char text[1200];

    pl_error_text(&error, text, sizeof(text));
    MUST(status == PL_TIMEOUT && strstr(text, "waiting for rank 1"), "%s: %s", pl_status_name(status), text);
}

UNIT_TEST(a_stopped_rank_is_late_and_named_at_the_deadline, run_ranks(stopped, VICTIM))

static void look_in_fork(struct seat *seat, struct pl_world *world)
{
    struct pl_span span;
    struct pl_error error = PL_ERROR_NONE;
    unsigned char resident;

    MUST(pl_arena_alloc(world, 8192, PL_MEMORY_HOST, &span, &error) == PL_OK, "%s", error.cause);
    if (seat->rank == 0) {
        int how = 0;
        pid_t child = fork();

        if (child == 0) {
            _exit(mincore(span.data, 4096, &resident) == 0 ? 1 : 0); /* ENOMEM: nothing is mapped there */
        }
        waitpid(child, &how, 0);
        MUST(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child of a fork maps the arena");
    }
    MUST(pl_barrier(world, &error) == PL_OK, "%s", error.cause);
    pl_arena_free(world, &span);
}

UNIT_TEST(the_child_of_a_fork_does_not_get_the_arena, run_ranks(look_in_fork, -1))

/* The limit of one rank's descriptors grows one by one: until it is enough, all ranks report the reason, and no rank
 * waits for the one that cannot take part. */
static void short_of_descriptors(struct seat *seat, struct pl_world *world, int who)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span span;
    struct rlimit before, now;
    enum pl_status status = PL_SYSTEM;
    int fd = dup(STDERR_FILENO), refused;

    close(fd);
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0, "%d", errno);
    for (refused = 0; status != PL_OK; refused++) {
        now = (struct rlimit){.rlim_cur = (rlim_t)(fd + refused), .rlim_max = before.rlim_max};
        MUST(seat->rank != who || setrlimit(RLIMIT_NOFILE, &now) == 0, "%d", errno);
        status = pl_arena_alloc(world, 4096, PL_MEMORY_HOST, &span, &error);
        MUST(status == PL_OK || status == PL_SYSTEM, "room for %d: %s: %s", refused, pl_status_name(status),
             error.cause);
        MUST(status == PL_OK || strstr(error.cause, who == 0 ? "rank 0: " : "rank 1: "), "room for %d: %s", refused,
             error.cause);
    }
    MUST(refused >= 3, "%d descriptors are enough", refused - 1);
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0, "%d", errno);
    pl_arena_free(world, &span);
    MUST(pl_barrier(world, &error) == PL_OK, "%s", error.cause);
}

static void rank_0_is_short(struct seat *seat, struct pl_world *world)
{
    short_of_descriptors(seat, world, 0);
}

static void rank_1_is_short(struct seat *seat, struct pl_world *world)
{
    short_of_descriptors(seat, world, 1);
}

TEST(a_rank_without_a_free_descriptor_is_named_and_nobody_waits_for_it)
{
    run_ranks(rank_0_is_short, -1);
    run_ranks(rank_1_is_short, -1);
}

UNIT_MAIN("collectives/shm_processes")
