/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/core/failure.c, collectives/core/request.c, collectives/core/request_wait.c. */
/* Revoking a world: when a rank ends its world the others fail at once, and each reports that rank's error, through
 * however many ranks it was relayed. */
#include "base/clock.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"

#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

enum { MOST_ELEMS = 50000 };

static float room[2][RANKS_MOST][MOST_ELEMS];

static enum pl_status add_up(struct pl_world *world, uint64_t count, int64_t timeout_ns, struct pl_error *reterr)
{
    int rank = pl_world_rank(world);

    return pl_collective_run(world,
                             &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                     .count = count,
                                                     .send = room[0][rank],
                                                     .recv = room[1][rank],
                                                     .deadline_ns = pl_deadline_after_ns(timeout_ns)},
                             reterr);
}

static void revoke(struct pl_world *world, const struct pl_error *why)
{
    PL_AUTO_HOLD(world);

    pl_request_revoke_world(world, why);
}

/* Rank 1 ends `world` with the error `why`; the others are in an allreduce of `count` or come to it, and report
 * `words`. */
struct revocation {
    struct pl_error why;
    const char *words;
    bool is_cut; /* they are longer than a report */
    uint64_t count;
};

static void one_revokes(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct revocation *revocation = argument;
    char expected[PL_ERROR_CAUSE_BYTES];
    int64_t begin_ns = pl_clock_now_ns();
    struct pl_error told = PL_ERROR_NONE;
    bool first = pl_world_rank(world) == 1;
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (first) {
        revoke(world, &revocation->why);
    }
    status = add_up(world, revocation->count, 60 * PL_NS_PER_S, &told);
    RANKS_NEED(status == (first ? revocation->why.status : PL_PEER), "%s: %s", pl_status_name(status), told.cause);
    ranks_given_up(world, 1, revocation->words, expected);
    memcpy(expected + sizeof(expected) - 4, revocation->is_cut ? "..." : "", revocation->is_cut ? 4 : 1);
    RANKS_NEED(strcmp(told.cause, first ? revocation->why.cause : expected) == 0, "'%s' is told (%s)", told.cause,
               told.context);
    RANKS_NEED(first || (told.domain == PL_DOMAIN_RANK && told.code == 1), "domain %d, code %d", (int)told.domain,
               (int)told.code);
    RANKS_NEED(pl_clock_now_ns() - begin_ns < 20 * PL_NS_PER_S, "it took %g s",
               (double)(pl_clock_now_ns() - begin_ns) * 1e-9);
    RANKS_NEED(pl_world_failure(world, NULL) == status, "the failure did not stay with the world");
}

TEST(all_ranks_report_the_words_of_the_one_that_revoked)
{
    struct revocation revocation = {.words = "the fan has stopped (rack 7)"};
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_BACKEND, "p2p");

    pl_error_set(&revocation.why, PL_LIBRARY, "the fan has stopped");
    pl_error_context(&revocation.why, "rack 7");
    for (revocation.count = 5; revocation.count <= MOST_ELEMS; revocation.count *= 10000) {
        ck_assert_ranks(2, NULL, one_revokes, &revocation);
        ck_assert_ranks(3, NULL, one_revokes, &revocation);
        ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), one_revokes, &revocation);
        ck_assert_ranks(7, &((struct pl_world_options){.pretend_ranks_per_host = 3}), one_revokes, &revocation);
        ck_assert_ranks(2, &((struct pl_world_options){.knobs = &knobs}), one_revokes, &revocation);
        ck_assert_ranks(6, &((struct pl_world_options){.knobs = &knobs}), one_revokes, &revocation);
    }
}

TEST(words_too_long_are_cut_where_they_end)
{
    struct revocation revocation = {.count = 5, .is_cut = true};

    pl_error_set(&revocation.why, PL_LIBRARY, "%0*d", PL_ERROR_CAUSE_BYTES - 1, 7);
    revocation.words = revocation.why.cause;
    ck_assert_ranks(3, NULL, one_revokes, &revocation);
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), one_revokes, &revocation);
}

/* Rank 1 sends its error to rank 2 in a world of two; that relays it to rank 3 in a second world, and that to rank
 * 0. */
static void relay_failure(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    char expected[PL_ERROR_CAUSE_BYTES];
    struct pl_error told = PL_ERROR_NONE;
    struct pl_world *before = NULL;
    struct pl_world *after = NULL;

    if (rank != 1) {
        RANKS_OK(pl_world_new_internal(world, (int[]){(rank + 3) % 4, rank}, 2, &before, &error));
    }
    if (rank != 0) {
        RANKS_OK(pl_world_new_internal(world, (int[]){rank, (rank + 1) % 4}, 2, &after, &error));
    }
    if (before) {
        (void)!add_up(before, 5, 60 * PL_NS_PER_S, &told);
        pl_error_context(&told, "seen by rank %d", rank);
    } else {
        pl_error_set(&told, PL_LIBRARY, "the fan has stopped");
    }
    if (after) {
        pl_request_revoke_world(after, &told);
    }
    pl_world_free(before);
    pl_world_free(after);
    ranks_given_up(world, 1, "the fan has stopped", expected);
    RANKS_NEED(rank == 1 || (strcmp(told.cause, expected) == 0 && told.status == PL_PEER && told.code == 1),
               "%s: %s (%s)", pl_status_name(told.status), told.cause, told.context);
}

TEST(what_is_passed_on_stays_what_the_first_has_said)
{
    ck_assert_ranks(4, NULL, relay_failure, NULL);
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), relay_failure, NULL);
}

/* Rank 1 comes when the others have left; rank 0 has a short deadline, and rank 2 a long one. */
static void wait_with_another(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const char *scratch = "collective number 2, allreduce, did not end before rank 0's deadline";
    pthread_barrier_t *all_informed = argument;
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    char text[1200], waits[200], name[PL_RANK_NAME_BYTES], given_up[PL_ERROR_CAUSE_BYTES];
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (rank == 1) {
        pthread_barrier_wait(all_informed);
        if (pl_world_cross_size(world) == 1) {
            return; /* the data that others have left in shared memory would be enough */
        }
    }
    status = add_up(world, 5, rank == 0 ? 100 * PL_NS_PER_MS : 60 * PL_NS_PER_S, &told);
    pl_error_text(&told, text, sizeof(text));
    if (rank != 1) {
        pthread_barrier_wait(all_informed);
    }
    RANKS_NEED(status == PL_TIMEOUT, "%s: %s", pl_status_name(status), told.cause);
    snprintf(waits, sizeof(waits), "(still waiting for %s; with paceline_hang_s set, ",
             pl_world_rank_name(world, 1, name));
    RANKS_NEED(strstr(text, scratch) && strstr(text, waits), "%s", text);
    RANKS_NEED(rank == 0 || strstr(text, ranks_given_up(world, 0, "", given_up)) == text, "%s", text);
}

TEST(ranks_that_share_a_wait_or_come_late_name_the_deadline_and_the_late_rank)
{
    pthread_barrier_t all_informed;

    pthread_barrier_init(&all_informed, NULL, 3);
    ck_assert_ranks(3, NULL, wait_with_another, &all_informed);
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), wait_with_another, &all_informed);
    pthread_barrier_destroy(&all_informed);
}

/* Rank 1 cancels a collective that rank 2 waits for and rank 0 comes to later: before all ranks of its host are
 * there, rank 1 cannot have done its part. */
static void cancel(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const char *words = "collective number 2, allreduce, was cancelled";
    char expected[PL_ERROR_CAUSE_BYTES];
    pthread_barrier_t *cancelled = argument;
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    struct pl_request *request;
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (rank == 1) {
        status = pl_collective_post(
            world,
            &((struct pl_collective){
                .kind = PL_ALLREDUCE, .count = MOST_ELEMS, .send = room[0][rank], .recv = room[1][rank]}),
            &request, &told);
        if (status == PL_OK) {
            pl_request_cancel(request);
        }
        pthread_barrier_wait(cancelled);
        RANKS_NEED(status == PL_OK, "%s: %s", pl_status_name(status), told.cause);
        RANKS_NEED(pl_world_failure(world, &told) == PL_CANCELLED && strcmp(told.cause, words) == 0, "%s", told.cause);
        return;
    }
    if (rank == 0) {
        pthread_barrier_wait(cancelled);
    }
    status = add_up(world, MOST_ELEMS, 60 * PL_NS_PER_S, &told);
    ranks_given_up(world, 1, words, expected);
    RANKS_NEED(status == PL_PEER && strcmp(told.cause, expected) == 0, "%s: %s", pl_status_name(status), told.cause);
}

TEST(ranks_that_wait_for_one_that_cancels_report_that)
{
    pthread_barrier_t cancelled;

    pthread_barrier_init(&cancelled, NULL, 2);
    ck_assert_ranks(3, NULL, cancel, &cancelled);
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), cancel, &cancelled);
    ck_assert_ranks(4, &((struct pl_world_options){.pretend_ranks_per_host = 2}), cancel, &cancelled);
    ck_assert_ranks(7, &((struct pl_world_options){.pretend_ranks_per_host = 3}), cancel, &cancelled);
    pthread_barrier_destroy(&cancelled);
}

/* Rank 2 has failed and does not receive from rank 3, which is below it in the tree of their host: that send never
 * ends. */
static enum pl_status (*real_test)(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                   struct pl_error *reterr);

static enum pl_status end_receives_only(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                        struct pl_error *reterr)
{
    *ret_done = false;
    return transfer->scratch[0] ? real_test(context, transfer, ret_done, ret_bytes, reterr) : PL_OK;
}

static void send_to_who_revoked(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_transport *transport = pl_world_bootstrap(world)->transport;
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    char expected[PL_ERROR_CAUSE_BYTES];
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (rank == 2) {
        pl_error_set(&told, PL_LIBRARY, "the fan has stopped");
        revoke(world, &told);
        return;
    }
    if (rank == 3) {
        PL_AUTO_HOLD(world);

        real_test = transport->test;
        transport->test = end_receives_only;
    }
    status = add_up(world, 2000, 30 * PL_NS_PER_S, &told);
    RANKS_NEED(status == PL_PEER && strcmp(told.cause, ranks_given_up(world, 2, "the fan has stopped", expected)) == 0,
               "%s: %s", pl_status_name(status), told.cause);
}

UNIT_TEST(a_failed_rank_need_not_take_a_message_for_others_to_receive_its_error,
          ck_assert_ranks(8, &((struct pl_world_options){.pretend_ranks_per_host = 4}), send_to_who_revoked, NULL))

/* Rank 0 has failed, and two of the others disagree: whichever error comes first, all report the same one. */
static void disagree_where_one_revoked(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    int rank = pl_world_rank(world);
    struct pl_error told = PL_ERROR_NONE;
    char expected[PL_ERROR_CAUSE_BYTES];
    enum pl_status status;

    RANKS_OK(pl_barrier(world, &error));
    if (rank == 0) {
        pl_error_set(&told, PL_LIBRARY, "the fan has stopped");
        revoke(world, &told);
        return;
    }
    status = add_up(world, rank == 3 ? 1999 : 2000, 30 * PL_NS_PER_S, &told);
    RANKS_NEED(
        (status == PL_MISMATCH && strstr(told.cause, "rank 3 calls allreduce of 1999")) ||
            (status == PL_PEER && strcmp(told.cause, ranks_given_up(world, 0, "the fan has stopped", expected)) == 0),
        "%s: %s", pl_status_name(status), told.cause);
}

UNIT_TEST(ranks_that_disagree_where_one_has_failed_report_one_of_both,
          ck_assert_ranks(8, &((struct pl_world_options){.pretend_ranks_per_host = 4}), disagree_where_one_revoked,
                          NULL))

/* Rank 1 revokes its world as soon as it has its sum, which others may still compute: their sums succeed too. */
static void revoke_after_a_sum(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct pl_error told = PL_ERROR_NONE;
    char expected[PL_ERROR_CAUSE_BYTES];
    enum pl_status status;

    for (int i = 0; i < 3; i++) {
        RANKS_OK(add_up(world, *(const uint64_t *)argument, 60 * PL_NS_PER_S, &error));
    }
    if (pl_world_rank(world) == 1) {
        pl_error_set(&told, PL_LIBRARY, "the fan has stopped");
        revoke(world, &told);
        return;
    }
    status = add_up(world, 5, 60 * PL_NS_PER_S, &told);
    RANKS_NEED(status == PL_PEER && strcmp(told.cause, ranks_given_up(world, 1, "the fan has stopped", expected)) == 0,
               "%s: %s", pl_status_name(status), told.cause);
}

TEST(what_a_rank_has_taken_part_in_ends_well)
{
    for (int i = 0; i < 20; i++) {
        ck_assert_ranks(5, &((struct pl_world_options){.pretend_ranks_per_host = 1}), revoke_after_a_sum,
                        &((uint64_t){MOST_ELEMS}));
        ck_assert_ranks(6, &((struct pl_world_options){.pretend_ranks_per_host = 2}), revoke_after_a_sum,
                        &((uint64_t){MOST_ELEMS}));
    }
}

/* Rank 1 revokes its world, and all but perhaps rank 0 receive that; a second world over the same bootstrap could
 * receive it, too. */
static void start_again(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const char *scratch =
        "a world over this bootstrap has failed, and its messages may still come: another world needs "
        "a bootstrap of its own";
    int rank = pl_world_rank(world);
    struct pl_error why = PL_ERROR_NONE;
    struct pl_world *second = NULL;
    enum pl_status status;

    if (rank == 1) {
        pl_error_set(&why, PL_LIBRARY, "the fan has stopped");
        revoke(world, &why);
    } else if (rank > 1) {
        (void)!pl_barrier(world, &why);
    }
    pthread_barrier_wait(argument);
    status = pl_world_new(pl_world_bootstrap(world), NULL, &second, &why);
    pl_world_free(second);
    RANKS_NEED(status == PL_INVALID && strstr(why.cause, scratch), "rank %d, %s: %s", rank, pl_status_name(status),
               why.cause);
    RANKS_NEED((strcmp(why.cause, scratch) == 0) == (rank > 0), "rank %d: %s", rank, why.cause);
}

TEST(after_a_revoke_no_second_world_is_made_over_the_same_bootstrap_and_all_report_why)
{
    pthread_barrier_t all_informed;

    pthread_barrier_init(&all_informed, NULL, 3);
    ck_assert_ranks(3, &((struct pl_world_options){.pretend_ranks_per_host = 1}), start_again, &all_informed);
    pthread_barrier_destroy(&all_informed);
}

UNIT_MAIN("collectives/revoke")
