/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/failure.c, runtime/named/rounds.c. */
/* A rank that does not come to named tensors is named by whoever gives up first, also where that one waits for another
 * that waits for it. */
#include "base/clock.h"
#include "base/knob.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "tests/unit/runtime/named/engine.h"

#include <pthread.h>
#include <string.h>

enum { RANKS = 4 };

/* Four ranks on two hosts, and as many worlds: in world r rank r does not come, and the second rank of the other host
 * has the deadline. */
struct attempt {
    pthread_barrier_t met;
    int64_t deadline_ns;
    pthread_mutex_t lock;
    struct {
        char wrong
            [RANKS_TEXT_BYTES]; /* words without the late rank, this one or the operation; "" where all are right */
    } synced;
};

static void compare_words(const struct pl_world *world, struct attempt *attempt, int rank, int late,
                          const struct pl_error *told)
{
    char expected[PL_RANK_NAME_BYTES + 30], text[RANKS_TEXT_BYTES - 100], name[PL_RANK_NAME_BYTES];

    pl_error_text(told, text, sizeof(text));
    snprintf(expected, sizeof(expected), "still waiting for %s", pl_world_rank_name(world, late, name));
    if (told->status == PL_TIMEOUT && strstr(text, expected) && strstr(text, "'gradient'") &&
        strstr(text, pl_world_rank_name(world, rank, name))) {
        return;
    }
    pthread_mutex_lock(&attempt->lock);
    snprintf(attempt->synced.wrong, sizeof(attempt->synced.wrong), "rank %d, rank %d is late: %s", rank, late, text);
    pthread_mutex_unlock(&attempt->lock);
}

static void await_late_ranks(struct rank *self)
{
    struct attempt *attempt = self->data;
    float values[RANKS] = {1, 1, 1, 1};
    engine_handle handles[RANKS] = {0};
    struct pl_named *engines[RANKS];
    struct pl_world *worlds[RANKS];
    struct pl_error error = PL_ERROR_NONE;
    int waiting = RANKS - 1;

    for (int late = 0; late < RANKS; late++) {
        expect_ok(pl_world_new_sub(self->world, (int[]){0, 1, 2, 3}, RANKS, &worlds[late], &error));
        expect_ok(pl_named_new(worlds[late], NULL, &engines[late], &error));
        worlds[late]->timeout_ns = 120 * PL_NS_PER_S;
    }
    for (int deadlines = 0; deadlines < 2; deadlines++) {
        for (int late = 0; late < RANKS; late++) {
            struct pl_named_op op = sum_of("gradient", &values[late], 1);
            bool has_deadline = self->rank == (late < 2 ? 3 : 1);

            if (self->rank != late && has_deadline == (deadlines == 1)) {
                worlds[late]->timeout_ns = has_deadline ? attempt->deadline_ns : worlds[late]->timeout_ns;
                expect_ok(engine_submit(engines[late], &op, &handles[late], &error));
                engine_flush(engines[late]);
            }
        }
        pthread_barrier_wait(&attempt->met);
    }
    while (waiting) {
        for (int late = 0; late < RANKS; late++) {
            bool done = false;

            if (handles[late]) {
                done = engine_poll(engines[late], handles[late]);
            }
            if (done) {
                expect(engine_wait(engines[late], handles[late], NULL, &error) != PL_OK, "a sum without rank %d", late);
                compare_words(self->world, attempt, self->rank, late, &error);
                handles[late] = 0;
                waiting--;
            }
        }
        pl_clock_nap(50 * PL_NS_PER_US, PL_DEADLINE_NEVER);
    }
    pthread_barrier_wait(&attempt->met);
    for (int late = 0; late < RANKS; late++) {
        engine_free(engines[late]);
        pl_world_free(worlds[late]);
    }
}

/* A rank that the machine halts for half of the deadline is late, too: then once more, with a longer one. */
TEST(the_rank_that_all_wait_for_is_named_over_hosts)
{
    struct attempt attempt = {.deadline_ns = PL_NS_PER_S};
    struct rank_body body = {.body = await_late_ranks, .data = &attempt};
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    ck_assert_int_eq(pl_knob_set(&knobs, PL_KNOB_PROGRESS, "off", "test", NULL), PL_OK);
    pthread_barrier_init(&attempt.met, NULL, RANKS);
    pthread_mutex_init(&attempt.lock, NULL);
    do {
        attempt.synced.wrong[0] = '\0';
        ck_assert_ranks(RANKS, (&(struct pl_world_options){.knobs = &knobs, .pretend_ranks_per_host = 2}), expect_rank,
                        &body);
        attempt.deadline_ns *= 2;
    } while (attempt.synced.wrong[0] && attempt.deadline_ns <= 16 * PL_NS_PER_S);
    ck_assert_msg(!attempt.synced.wrong[0], "%s", attempt.synced.wrong);
    pthread_mutex_destroy(&attempt.lock);
    pthread_barrier_destroy(&attempt.met);
}

UNIT_MAIN("runtime/named_late")
