/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/report/summary.c. */
/* The rings have times that are set here. Ranks are slow, wait for data, save, are late once or take turns, or a
 * collective has not ended. */
#include "base/clock.h"
#include "base/memory.h"
#include "programs/report/summary.h"
#include "runtime/trace_ring.h"
#include "tests/support/expect.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, STEPS = 100, COMPUTES_MS = 10, MOVES_MS = 2, START_MS = 50000 };

/* A job whose ranks compute and then reduce. What differs from rank to rank and step to step is in the functions. */
struct job {
    struct scratch scratch;
    int hosts; /* the ranks are divided among them */
    const char *host_names[RANKS];
    int64_t (*computes_ms)(int rank, int step);
    const char *span; /* the part of the computing beyond COMPUTES_MS has this name, unless it is NULL */
    int64_t skew_ms;  /* the clock of host 1 is ahead by this */
    char paths[RANKS][PATH_MAX];
    const char *list[RANKS];
};

static int64_t equal(int rank, int step)
{
    return rank < RANKS && step < STEPS ? COMPUTES_MS : 0;
}

static int64_t rank_two_is_slow(int rank, int step)
{
    return rank == 2 ? 13 + step % 2 : COMPUTES_MS;
}

static int64_t rank_one_is_late_once(int rank, int step)
{
    return rank == 1 && step == 40 ? 12000 : COMPUTES_MS;
}

static int64_t one_after_the_other(int rank, int step)
{
    return step % RANKS == rank ? 15 : COMPUTES_MS;
}

static int64_t those_of_host_one(int rank, int step)
{
    return rank >= 2 && step % 2 == rank - 2 ? 15 : COMPUTES_MS;
}

/* Two late steps of host 1 for one of host 0, as it also happens by chance. */
static int64_t host_one_more_often(int rank, int step)
{
    return step % 6 < 4 ? those_of_host_one(rank, step) : step % 2 == rank ? 15 : COMPUTES_MS;
}

static struct pl_trace *open_ring(struct job *job, int rank)
{
    struct pl_trace *trace = NULL;
    char name[16], path[PATH_MAX];

    snprintf(name, sizeof(name), "rank%d.ring", rank);
    scratch_path(&job->scratch, name, path);
    memcpy(job->paths[rank], path, sizeof(path));
    job->list[rank] = job->paths[rank];
    ck_ok(pl_trace_new,
          &(struct pl_trace_options){.path = job->paths[rank],
                                     .records = 1000,
                                     .rank = rank,
                                     .size = RANKS,
                                     .host = rank * job->hosts / RANKS,
                                     .host_name = job->host_names[rank * job->hosts / RANKS]},
          &trace);
    return trace;
}

/* The hosts of a test have the clock of this one: the file gets the one that it shall have. */
static void set_clock(const char *path, int64_t ms)
{
    const int64_t ns = ms * PL_NS_PER_MS;
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, &ns, sizeof(ns), offsetof(struct pl_ring_head, realtime_minus_monotonic_ns)),
                     sizeof(ns));
    close(fd);
}

static void write_step(struct job *job, struct pl_trace *rings[RANKS], int step, int64_t *now_ms)
{
    int64_t last_ms = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        const int64_t ms = job->computes_ms(rank, step);

        last_ms = ms > last_ms ? ms : last_ms;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const int64_t ms = job->computes_ms(rank, step);
        const int64_t start_ns = (*now_ms + ms) * PL_NS_PER_MS;
        char name[16] = "gradients";

        if (job->span) {
            pl_trace_add(rings[rank], job->span, (*now_ms + COMPUTES_MS - 2) * PL_NS_PER_MS, start_ns);
        }
        pl_trace_note_posted(
            rings[rank],
            &(struct pl_posted){.kind = PL_ALLREDUCE, .name = name, .sequence = (uint64_t)step + 1, .at_ns = start_ns});
        pl_trace_add_event(rings[rank], &(struct pl_event){.kind = PL_ALLREDUCE,
                                                           .name = name,
                                                           .sequence = (uint64_t)step + 1,
                                                           .started_ns = start_ns,
                                                           .ended_ns = (*now_ms + last_ms + MOVES_MS) * PL_NS_PER_MS,
                                                           .waited_for = -1});
        pl_trace_add_event(rings[rank], &(struct pl_event){.kind = PL_ALLREDUCE, .name = "part", .part = 1});
    }
    *now_ms += last_ms + MOVES_MS;
}

static struct job job_of(int hosts, int64_t (*computes_ms)(int, int), const char *span)
{
    return (struct job){.scratch = scratch_new(), .hosts = hosts, .computes_ms = computes_ms, .span = span};
}

static void write_rings(struct job *job, struct pl_trace *ret_rings[RANKS])
{
    int64_t now_ms = START_MS;

    for (int rank = 0; rank < RANKS; rank++) {
        ret_rings[rank] = open_ring(job, rank);
    }
    for (int step = 0; step < STEPS; step++) {
        write_step(job, ret_rings, step, &now_ms);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        set_clock(job->paths[rank], rank * job->hosts / RANKS == 1 ? job->skew_ms : 0);
    }
}

static void close_rings(struct pl_trace *rings[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        pl_trace_free(rings[rank]);
    }
}

static void expect_in(const char *text, const char *sentence)
{
    ck_assert_msg(strstr(text, sentence), "expected \"%s\" in:\n%s", sentence, text);
}

/* Writes the rings of a job, and expects a sentence in their summary. */
static void expect_summary(struct job job, const char *sentence)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_trace *rings[RANKS];

    write_rings(&job, rings);
    close_rings(rings);
    ck_ok(pl_trace_summarise, job.list, RANKS, &text);
    expect_in(text.data, sentence);
    ck_lacks(text.data, "has not ended");
    scratch_done(&job.scratch);
}

TEST(the_rank_that_others_wait_for_is_named_with_the_reason)
{
    expect_summary(job_of(1, equal, NULL), "No rank held up the others: they waited 0.0 % of the time");
    expect_summary(job_of(2, rank_two_is_slow, NULL),
                   "Rank 2 (host 1) was waited for in 99 of 99 collectives, 23 % of the time: it computes 1.4 times as "
                   "long as the others.");
    expect_summary(job_of(1, rank_two_is_slow, "data"), "23 % of the time: it waits for data, 22.6 % of the time");
    expect_summary(job_of(1, rank_two_is_slow, "save"), "23 % of the time: it saves, 22.6 % of the time");
    expect_summary(job_of(1, rank_two_is_slow, "forward"), "it computes 1.4 times as long");
    expect_summary(job_of(1, rank_one_is_late_once, NULL),
                   "Rank 1 (host 0) was late once: the others waited 11.990 s for it in collective 41 (allreduce "
                   "gradients).");
    expect_summary(job_of(1, one_after_the_other, NULL), "late in turn, no one rank: they waited 29 % of the time");
    expect_summary(job_of(2, those_of_host_one, NULL), "The ranks of host 1 were late in turn");
    expect_summary(job_of(2, host_one_more_often, NULL), "The ranks were late in turn, no one rank");
}

TEST(hosts_are_named_if_their_names_tell_them_apart)
{
    static const struct {
        const char *names[2], *sentence;
    } cases[] = {{{"algo-1", "algo-2"}, "Rank 2 (algo-2) was waited for in 99"},
                 {{"algo-1", "algo-2"}, "The clock of algo-2 is 3.000 s ahead of that of algo-1;"},
                 {{"algo-1", "algo-2"}, "\n  rank  host    computes "},
                 {{"algo-1", "algo-2"}, "\n     2  algo-2 "},
                 {{"desk", "desk"}, "Rank 2 (host 1) was waited for in 99"},
                 {{"algo-1", NULL}, "Rank 2 (host 1) was waited for in 99"},
                 {{"algo-1", "algo-2\x1b[31m"}, "Rank 2 (host 1) was waited for in 99"},
                 {{"algo-1", "a-name-that-is-longer-than-its-place"}, "(a-name-that-is-longer-than-its-)"}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct job job = job_of(2, rank_two_is_slow, NULL);

        job.skew_ms = 3000;
        memcpy(job.host_names, cases[i].names, sizeof(cases[i].names));
        expect_summary(job, cases[i].sentence);
    }
}

TEST(hosts_whose_clocks_differ_are_put_on_one)
{
    for (int64_t skew_ms = -3000; skew_ms <= 3000; skew_ms += 6000) {
        struct job job = job_of(2, rank_two_is_slow, NULL);

        job.skew_ms = skew_ms;
        expect_summary(job, "Rank 2 (host 1) was waited for in 99 of 99 collectives, 23 % of the time");
        job.scratch = scratch_new();
        expect_summary(job, skew_ms > 0 ? "The clock of host 1 is 3.000 s ahead of that of host 0"
                                        : "The clock of host 1 is 3.000 s behind that of host 0");
    }
}

TEST(a_collective_that_has_not_ended_names_who_is_in_it_and_who_is_not)
{
    struct job job = job_of(2, equal, NULL);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_trace *rings[RANKS];

    write_rings(&job, rings);
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != 2) {
            pl_trace_note_posted(
                rings[rank], &(struct pl_posted){.kind = PL_BARRIER, .name = "before the save", .sequence = STEPS + 1});
        }
    }
    ck_ok(pl_trace_summarise, job.list, RANKS, &text); /* while the ranks have their rings */
    expect_in(text.data,
              "Collective 101 (barrier before the save) has not ended. In it: rank 0, 1, 3. Not in it: rank 2. "
              "Rank 2 came to collective 100 last.");
    close_rings(rings);
    scratch_done(&job.scratch);
}

TEST(rings_that_do_not_belong_together_are_refused_and_missing_ones_named)
{
    struct job job = job_of(1, equal, NULL);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_trace *rings[RANKS], *empty = NULL;
    char path[PATH_MAX];
    const char *list[2];

    write_rings(&job, rings);
    close_rings(rings);
    ck_ok(pl_trace_summarise, job.list + 2, 2, &text);
    expect_in(text.data, "Without the rings of rank 0, 1: what follows is about the others.");
    list[0] = list[1] = job.list[3];
    ck_assert_int_eq(pl_trace_summarise(list, 2, &text, &error), PL_INVALID);
    expect_in(error.cause, "are both of rank 3");
    scratch_path(&job.scratch, "other", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .records = 10, .rank = 1, .size = 8}, &empty);
    pl_trace_free(empty);
    list[0] = path;
    ck_assert_int_eq(pl_trace_summarise(list, 2, &text, &error), PL_INVALID);
    expect_in(error.cause, "is of a job with 8 ranks");
    pl_text_clear(&text);
    ck_ok(pl_trace_summarise, list, 1, &text);
    expect_in(text.data, "too few to compare");
    scratch_done(&job.scratch);
}

UNIT_MAIN("programs/summary")
