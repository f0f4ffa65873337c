/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/arena.c, collectives/shm/arena.c, collectives/shm/region.c. */
/* Memory that ranks share: valid and invalid requests, and that freed spans are unmapped. */
#include "base/clock.h"
#include "collectives/arena.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/shm/layout.h"

#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ask_differently(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    uint64_t bytes = pl_world_rank(world) == 1 ? *(const uint64_t *)argument : 10000;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span span = {.data = NULL};

    RANKS_NEED(pl_arena_alloc(world, bytes, PL_MEMORY_HOST, &span, &error) == PL_MISMATCH,
               "%llu bytes beside 10000 were given", (unsigned long long)bytes);
    RANKS_NEED(strstr(error.cause, "rank 0 asks for 10000 bytes, rank 1 for"), "%s", error.cause);
    RANKS_NEED(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, NULL) == PL_OK, "the world took harm");
    pl_arena_free(world, &span);
}

TEST(ranks_that_ask_for_more_or_less_report_that)
{
    ck_assert_ranks(2, NULL, ask_differently, &(uint64_t){9999});
    ck_assert_ranks(3, NULL, ask_differently, &(uint64_t){10001});
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_differently, &(uint64_t){10001});
}

static bool is_mapped(const void *data)
{
    unsigned char resident;

    return mincore((void *)(uintptr_t)data, 4096, &resident) == 0;
}

static struct pl_shm *shm_of(const struct pl_world *world)
{
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].backend == &pl_backend_shm) {
            return world->backends[i].state;
        }
    }
    return NULL;
}

/* Frees pieces from the last to the first: each is unmapped when its last rank has freed it, and no other piece is,
 * however many came between. */
static void release_spans(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { PIECES = 3, ELEMS = 20000 };
    struct pl_span spans[PIECES];
    const void *places[PIECES];
    int n = pl_world_size(world);

    for (int i = 0; i < PIECES; i++) {
        RANKS_OK(pl_arena_alloc(world, ELEMS * sizeof(float), PL_MEMORY_HOST, &spans[i], &error));
        places[i] = spans[i].data;
        shm_of(world)->span_number += (1 << 16) - 1;
    }
    for (int i = PIECES - 1; i >= 0; i--) {
        for (int k = 0; k <= i; k++) {
            float *data = spans[k].data;

            for (int e = 0; e < ELEMS; e++) {
                data[e] = (float)(k + 1);
            }
            RANKS_OK(pl_allreduce(world, data, data, ELEMS, PL_FLOAT32, PL_SUM, &error));
            RANKS_NEED(data[0] == (float)(n * (k + 1)) && data[ELEMS - 1] == data[0], "piece %d: %g", k,
                       (double)data[0]);
        }
        pl_arena_free(world, &spans[i]);
        RANKS_NEED(!spans[i].data, "the span still points there");
        RANKS_OK(pl_barrier(world, &error));
        for (int k = 0; k < PIECES; k++) {
            RANKS_NEED(is_mapped(places[k]) == (k < i), "piece %d after %d were given back", k, PIECES - i);
        }
        RANKS_OK(pl_barrier(world, &error));
    }
}

TEST(what_is_given_back_goes_back_and_nothing_else)
{
    ck_assert_ranks(2, NULL, release_spans, NULL);
    ck_assert_ranks(3, NULL, release_spans, NULL);
}

/* A thread with an empty memory budget gets no aligned memory (arena memory of one rank per host) and no memory
 * file. */
static _Thread_local bool alloc_budget_is_empty;

int posix_memalign(void **memory, size_t align, size_t bytes)
{
    *memory = alloc_budget_is_empty ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
    return *memory ? 0 : ENOMEM;
}

int memfd_create(const char *name, unsigned flags)
{
    errno = EMFILE;
    return alloc_budget_is_empty ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

static void ask_where_one_has_none(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    alloc_budget_is_empty = pl_world_rank(world) == 2;
    status = pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &told);
    alloc_budget_is_empty = false;
    RANKS_NEED(status == *(const enum pl_status *)argument, "%s: %s", pl_status_name(status), told.cause);
    RANKS_NEED(strstr(told.cause, "rank 2"), "'%s' does not name rank 2", told.cause);
    RANKS_OK(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &error));
    pl_arena_free(world, &span);
}

TEST(a_rank_without_memory_is_named_and_no_rank_keeps_any)
{
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_where_one_has_none,
                    &(enum pl_status){PL_MEMORY});
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 2}), ask_where_one_has_none,
                    &(enum pl_status){PL_MEMORY});
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), ask_where_one_has_none,
                    &(enum pl_status){PL_SYSTEM});
}

/* Rank 1 has the memory, but no room in its list of spans. */
static void ask_without_a_note(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_shm *shm = shm_of(world);
    struct pl_span span = {.data = NULL};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    shm->span_count = pl_world_rank(world) == 1 ? SIZE_MAX / 2 : 0;
    status = pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &told);
    shm->span_count = 0;
    RANKS_NEED(status == PL_MEMORY && strstr(told.cause, "rank 1"), "%s: %s", pl_status_name(status), told.cause);
    RANKS_OK(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &error));
    memset(span.data, 0, 10000);
    RANKS_OK(pl_allreduce(world, span.data, span.data, 2500, PL_FLOAT32, PL_SUM, &error));
    pl_arena_free(world, &span);
}

UNIT_TEST(a_rank_that_cannot_note_its_piece_holds_nobody_up, ck_assert_ranks(3, NULL, ask_without_a_note, NULL))

/* Acts as kernels whose posix_fallocate() ends with any signal, with a timer that is faster than the call. */
static _Atomic int interruptions;

int posix_fallocate(int fd, off_t at, off_t bytes)
{
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGPROF) && interruptions < 1000) {
        interruptions++;
        return EINTR;
    }
    return syscall(SYS_fallocate, fd, 0, at, bytes) == 0 ? 0 : errno;
}

static void ask_beside_a_timer(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span;

    RANKS_OK(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &error));
    RANKS_NEED(interruptions == 0, "%d timers have interrupted it", interruptions);
}

UNIT_TEST(a_timer_does_not_keep_memory_from_being_made, ck_assert_ranks(2, NULL, ask_beside_a_timer, NULL))

/* Rank 1's exchange number `steps_left` fails as MPI's do; rank 0 then waits for it in vain. */
static enum pl_status (*real_exchange)(void *context, const struct pl_error *failed, const void *send, void *recv,
                                       size_t bytes, int64_t deadline_ns, struct pl_error *reterr);
static _Thread_local int steps_left;

static enum pl_status fail_step(void *context, const struct pl_error *failed, const void *send, void *recv,
                                size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    if (steps_left-- == 0) {
        return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_MPI, 15, "the wire broke");
    }
    return real_exchange(context, failed, send, recv, bytes, deadline_ns, reterr);
}

static void ask_over_a_broken_wire(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int64_t begin_ns = pl_clock_now_ns();
    struct pl_span span = {.data = NULL};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    world->timeout_ns = 100 * PL_NS_PER_MS;
    if (pl_world_rank(world) == 1) {
        steps_left = *(const int *)argument;
        real_exchange = world->bootstrap->exchange;
        world->bootstrap->exchange = fail_step;
    }
    status = pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &told);
    RANKS_NEED(status == PL_TIMEOUT || (status == PL_LIBRARY && strcmp(told.cause, "the wire broke") == 0), "%s: %s",
               pl_status_name(status), told.cause);
    RANKS_NEED(!span.data && pl_world_failure(world, NULL) == status, "the failure did not stay with the world");
    RANKS_NEED(pl_clock_now_ns() - begin_ns < 20 * PL_NS_PER_S, "it took %g s",
               (double)(pl_clock_now_ns() - begin_ns) * 1e-9);
}

TEST(ranks_that_do_not_meet_any_more_end_the_world_within_its_timeout)
{
    for (int step = 0; step < 4; step++) {
        ck_assert_ranks(2, NULL, ask_over_a_broken_wire, &step);
    }
}

static void ask_alone(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};

    if (pl_world_rank(world) == 0) {
        world->timeout_ns = 100 * PL_NS_PER_MS;
        RANKS_NEED(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, NULL) == PL_TIMEOUT,
                   "a piece for one of two ranks was given");
        RANKS_NEED(pl_world_failure(world, NULL) == PL_TIMEOUT, "the failure did not stay with the world");
    }
}

UNIT_TEST(a_rank_that_asks_alone_ends_the_world, ck_assert_ranks(2, NULL, ask_alone, NULL))

static void ask_for_nonsense(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};

    RANKS_NEED(pl_arena_alloc(world, 0, PL_MEMORY_HOST, &span, NULL) == PL_INVALID, "no bytes were given");
    RANKS_NEED(pl_arena_alloc(world, UINT64_MAX, PL_MEMORY_HOST, &span, NULL) == PL_INVALID, "all bytes were given");
    RANKS_NEED(pl_arena_alloc(world, 10, PL_MEMORY_DEVICE, &span, NULL) == PL_UNSUPPORTED, "device memory was given");
    pl_arena_free(world, &span); /* no effect */
}

static void ask_for_too_much(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};
    struct pl_error told = PL_ERROR_NONE;

    RANKS_NEED(pl_arena_alloc(world, UINT64_C(1) << 44, PL_MEMORY_HOST, &span, &told) == PL_MEMORY &&
                   strstr(told.cause, "more than this machine has"),
               "%s: %s", pl_status_name(told.status), told.cause);
}

TEST(nonsense_is_refused)
{
    ck_assert_ranks(2, NULL, ask_for_nonsense, NULL);
    ck_assert_ranks(2, NULL, ask_for_too_much, NULL);
    ck_assert_ranks(2, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_for_nonsense, NULL);
}

UNIT_MAIN("collectives/arena")
