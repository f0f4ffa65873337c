/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts above 31 bits: 2^31 + 5 bytes on two ranks that are threads, summed over messages and over shared memory, and
 * summed, broadcast and gathered in the arena. Every byte is checked. Needs 5 GiB of memory, and says so if they are
 * not free. Without a word only the arena's cases run; with the word `long` all others.
 */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/arena.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t LARGE = (UINT64_C(1) << 31) + 5;
static const uint64_t NEEDED_KIB = UINT64_C(5) << 20;

enum { ROW_BYTES = 512 };

/*
 * Byte i of a rank's input is i + shift(i / ROW_BYTES), modulo 256, so that rows are made and compared quickly. Two
 * places that differ only in a few high bits have different bytes.
 */
static uint8_t shift(int rank, uint64_t row)
{
    return (uint8_t)(3 * row + 5 * (row >> 8) + 11 * (row >> 19) + (uint64_t)rank * 101);
}

static void make_row(uint8_t *restrict data, size_t bytes, int first_rank, int ranks, uint64_t row)
{
    unsigned add = shift(first_rank, row) + (ranks == 2 ? shift(first_rank + 1, row) : 0U);

    for (unsigned i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * (unsigned)ranks + add);
    }
}

static size_t row_length(uint64_t at, uint64_t count)
{
    return count - at < ROW_BYTES ? (size_t)(count - at) : ROW_BYTES;
}

static void fill(uint8_t *data, int rank, uint64_t count)
{
    for (uint64_t at = 0; at < count; at += ROW_BYTES) {
        make_row(data + at, row_length(at, count), rank, 1, at / ROW_BYTES);
    }
}

/* Returns the beginning of the first row in [0, count) that is not the sum of the inputs of `ranks` ranks from
 * `first_rank` on, or `count`. */
static uint64_t first_wrong(const uint8_t *data, int first_rank, int ranks, uint64_t count)
{
    uint8_t row[ROW_BYTES];

    for (uint64_t at = 0; at < count; at += ROW_BYTES) {
        make_row(row, row_length(at, count), first_rank, ranks, at / ROW_BYTES);
        if (memcmp(row, data + at, row_length(at, count)) != 0) {
            return at;
        }
    }
    return count;
}

struct job {
    const char *what;
    bool arena;
    bool all_kinds;
};

static void run_allreduce(struct pl_world *world, uint8_t *data, const struct job *job, char failure[RANKS_TEXT_BYTES])
{
    enum pl_dtype dtype = job->arena ? PL_INT8 : PL_UINT8; /* sums of both types wrap in the same way */
    uint64_t wrong;

    fill(data, pl_world_rank(world), LARGE);
    RANKS_OK(pl_allreduce(world, data, data, LARGE, dtype, PL_SUM, &error));
    wrong = first_wrong(data, 0, 2, LARGE);
    RANKS_NEED(wrong == LARGE, "%s: row at %" PRIu64 " of the sum is wrong", job->what, wrong);
}

static void run_others(struct pl_world *world, uint8_t *data, const struct job *job, char failure[RANKS_TEXT_BYTES])
{
    uint64_t counts[2] = {LARGE - 4000, 4000}; /* the second block lies beyond 31 bits */
    int rank = pl_world_rank(world);
    uint64_t wrong;

    fill(data, rank, LARGE);
    RANKS_OK(pl_broadcast(world, data, LARGE, PL_UINT8, 1, &error));
    wrong = first_wrong(data, 1, 1, LARGE);
    RANKS_NEED(wrong == LARGE, "%s: row at %" PRIu64 " of the broadcast is wrong", job->what, wrong);
    /* in place; the blocks of the other ranks are not there yet */
    fill(data + (rank == 0 ? 0 : counts[0]), rank, counts[rank]);
    RANKS_OK(pl_collective_run(world,
                               &((struct pl_collective){.kind = PL_ALLGATHER,
                                                        .dtype = PL_UINT8,
                                                        .counts = counts,
                                                        .send = data + (rank == 0 ? 0 : counts[0]),
                                                        .recv = data}),
                               &error));
    wrong = first_wrong(data, 0, 1, counts[0]);
    RANKS_NEED(wrong == counts[0], "%s: row at %" PRIu64 " of rank 0's block is wrong", job->what, wrong);
    wrong = first_wrong(data + counts[0], 1, 1, counts[1]);
    RANKS_NEED(wrong == counts[1], "%s: row at %" PRIu64 " of rank 1's block is wrong", job->what, wrong);
}

static void run(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct job *job = argument;
    struct pl_span span = {.data = NULL};
    PL_AUTO_FREE uint8_t *heap = job->arena ? NULL : malloc(LARGE);
    uint8_t *data = heap;

    if (job->arena) {
        RANKS_OK(pl_arena_alloc(world, LARGE, PL_MEMORY_HOST, &span, &error));
        data = span.data;
    }
    RANKS_NEED(data, "no memory");
    run_allreduce(world, data, job, failure);
    if (!failure[0] && job->all_kinds) {
        run_others(world, data, job, failure);
    }
    pl_arena_free(world, &span);
}

static uint64_t available_kib(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[200];

    while (file && fgets(line, sizeof(line), file) && sscanf(line, "MemAvailable: %llu", &kib) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

int main(int argc, char **argv)
{
    bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    static const struct {
        const char *backend;
        struct job job;
    } cases[] = {{"shm", {.what = "arena", .arena = true, .all_kinds = true}},
                 {"p2p", {.what = "messages"}},
                 {"shm", {.what = "shared memory"}}};
    char failure[RANKS_TEXT_BYTES] = "";

    for (size_t i = is_long ? 1 : 0; i < (is_long ? PL_ARRAY_ITEMS(cases) : 1); i++) {
        struct job job = cases[i].job;
        int64_t begin_ns = pl_clock_now_ns();
        struct pl_knobs knobs;

        if (available_kib() < NEEDED_KIB) {
            printf("SKIP: %s: %" PRIu64 " MiB of memory are free, %" PRIu64 " are needed\n", job.what,
                   available_kib() >> 10, NEEDED_KIB >> 10);
            return 77;
        }
        pl_knobs_default(&knobs);
        if (pl_knob_set(&knobs, PL_KNOB_BACKEND, cases[i].backend, "test", NULL) != PL_OK ||
            pl_knob_set(&knobs, PL_KNOB_SEGMENT_BYTES, "4194304", "test", NULL) != PL_OK) {
            return 1;
        }
        ranks_run_on(2, 0, &(struct pl_world_options){.knobs = &knobs}, run, &job, failure);
        if (failure[0]) {
            fprintf(stderr, "%s\n", failure);
            return 1;
        }
        printf("%s: %" PRIu64 " elements, %.1f s\n", job.what, LARGE,
               (double)(pl_clock_now_ns() - begin_ns) / (double)PL_NS_PER_S);
        fflush(stdout);
    }
    return 0;
}
