/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks share: who may ask for what, and that what is given back goes back. */
#include "base/clock.h"
#include "collectives/arena.h"
#include "collectives/world_private.h"

#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static void ask_differently(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    uint64_t bytes = pl_world_rank(world) == 1 ? *(const uint64_t *)argument : 10000;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span span = {.data = NULL};

    RANKS_NEED(pl_arena_alloc(world, bytes, PL_MEMORY_HOST, &span, &error) == PL_MISMATCH, "%llu bytes beside 10000 were given",
               (unsigned long long)bytes);
    RANKS_NEED(strstr(error.cause, "rank 0 asks for 10000 bytes, rank 1 for") != NULL, "%s", error.cause);
    RANKS_NEED(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, NULL) == PL_OK, "the world took harm");
    pl_arena_free(world, &span);
}

START_TEST(ranks_that_ask_for_more_or_less_are_told_so)
{
    ck_assert_ranks(2, NULL, ask_differently, &(uint64_t){9999});
    ck_assert_ranks(3, NULL, ask_differently, &(uint64_t){10001});
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_differently, &(uint64_t){10001});
}
END_TEST

static bool is_mapped(const void *data)
{
    unsigned char resident;

    return mincore((void *)(uintptr_t)data, 4096, &resident) == 0;
}

/* Pieces are given back in the order they came; each goes when its last rank has given it back, and no other does. */
static void give_back(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { PIECES = 3, ELEMS = 20000 };
    struct pl_span spans[PIECES];
    const void *places[PIECES];
    int n = pl_world_size(world);

    (void)argument;
    for (int i = 0; i < PIECES; i++) {
        RANKS_OK(pl_arena_alloc(world, ELEMS * sizeof(float), PL_MEMORY_HOST, &spans[i], &error));
        places[i] = spans[i].data;
    }
    for (int i = 0; i < PIECES; i++) {
        for (int k = i; k < PIECES; k++) {
            float *data = spans[k].data;

            for (int e = 0; e < ELEMS; e++) {
                data[e] = (float)(k + 1);
            }
            RANKS_OK(pl_allreduce(world, data, data, ELEMS, PL_FLOAT32, PL_SUM, &error));
            RANKS_NEED(data[0] == (float)(n * (k + 1)) && data[ELEMS - 1] == data[0], "piece %d: %g", k, (double)data[0]);
        }
        pl_arena_free(world, &spans[i]);
        RANKS_NEED(!spans[i].data, "the span still points there");
        RANKS_OK(pl_barrier(world, &error));
        for (int k = 0; k < PIECES; k++) {
            RANKS_NEED(is_mapped(places[k]) == (k > i), "piece %d after %d were given back", k, i + 1);
        }
        RANKS_OK(pl_barrier(world, &error));
    }
}

START_TEST(what_is_given_back_goes_back_and_nothing_else)
{
    ck_assert_ranks(2, NULL, give_back, NULL);
    ck_assert_ranks(3, NULL, give_back, NULL);
}
END_TEST

/* A thread with an empty purse finds no memory where this program asks for some that is aligned, as arena memory of one rank a host is. */
static _Thread_local bool purse_is_empty;

int posix_memalign(void **memory, size_t align, size_t bytes)
{
    *memory = purse_is_empty ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
    return *memory ? 0 : ENOMEM;
}

static void ask_where_one_has_none(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};
    struct pl_error told = PL_ERROR_NONE;
    enum pl_status status;

    (void)argument;
    purse_is_empty = pl_world_rank(world) == 2;
    status = pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &told);
    purse_is_empty = false;
    RANKS_NEED(status == PL_MEMORY, "%s: %s", pl_status_name(status), told.cause);
    RANKS_NEED(strstr(told.cause, "rank 2") != NULL, "'%s' does not name rank 2", told.cause);
    RANKS_OK(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, &error));
    pl_arena_free(world, &span);
}

START_TEST(a_rank_without_memory_is_named_and_no_rank_keeps_any)
{
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_where_one_has_none, NULL);
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 2}), ask_where_one_has_none, NULL);
}
END_TEST

static void ask_alone(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};

    (void)argument;
    if (pl_world_rank(world) == 0) {
        world->timeout_ns = 100 * PL_NS_PER_MS;
        RANKS_NEED(pl_arena_alloc(world, 10000, PL_MEMORY_HOST, &span, NULL) == PL_TIMEOUT, "a piece for one of two ranks was given");
        RANKS_NEED(pl_world_failure(world, NULL) == PL_TIMEOUT, "the failure did not stay with the world");
    }
}

START_TEST(a_rank_that_asks_alone_ends_the_world)
{
    ck_assert_ranks(2, NULL, ask_alone, NULL);
}
END_TEST

static void ask_for_nonsense(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_span span = {.data = NULL};

    (void)argument;
    RANKS_NEED(pl_arena_alloc(world, 0, PL_MEMORY_HOST, &span, NULL) == PL_INVALID, "no bytes were given");
    RANKS_NEED(pl_arena_alloc(world, UINT64_MAX, PL_MEMORY_HOST, &span, NULL) == PL_INVALID, "all bytes were given");
    RANKS_NEED(pl_arena_alloc(world, 10, PL_MEMORY_DEVICE, &span, NULL) == PL_UNSUPPORTED, "device memory was given");
    pl_arena_free(world, &span); /* nothing */
}

START_TEST(nonsense_is_refused)
{
    ck_assert_ranks(2, NULL, ask_for_nonsense, NULL);
    ck_assert_ranks(2, &((struct pl_world_options){.pretend_ranks_per_host = 1}), ask_for_nonsense, NULL);
}
END_TEST

UNIT_MAIN("collectives/arena", ranks_that_ask_for_more_or_less_are_told_so, what_is_given_back_goes_back_and_nothing_else,
          a_rank_without_memory_is_named_and_no_rank_keeps_any, a_rank_that_asks_alone_ends_the_world, nonsense_is_refused)
