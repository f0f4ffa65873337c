/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a list of lines over all ranks, and reports the first line that differs on every rank. */
#include "runtime/compare_lines.h"

#include "base/hash.h"
#include "base/memory.h"
#include "collectives/collective.h"
#include "collectives/world_private.h"

#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 152 };

/*
 * First values to compare, by an allreduce with MAX for each field. With both x and ~x it tells whether x is equal on
 * all ranks, and no rank allocates memory.
 */
struct summary {
    /* size minus rank if the rank has failed, so that the lowest failed rank has the greatest value; else 0 */
    int64_t failed;
    int64_t count;
    int64_t hash;
    int64_t not_hash;
};

/* The error text that a failed rank sends to the others. */
struct words {
    enum pl_status status;
    char text[PL_ERROR_CAUSE_BYTES];
};

static uint64_t hash_line(const char *line)
{
    return pl_hash(PL_HASH_START, line, strlen(line) + 1);
}

/* Reduces `mine` over all ranks. If a rank has failed, all ranks get its error. */
static enum pl_status reduce_summary(struct pl_world *world, const char *what, const struct pl_error *own,
                                     struct summary *mine, struct pl_error *reterr)
{
    struct pl_collective greatest = {.kind = PL_ALLREDUCE,
                                     .dtype = PL_INT64,
                                     .op = PL_MAX,
                                     .count = sizeof(*mine) / sizeof(int64_t),
                                     .send = mine,
                                     .recv = mine,
                                     .name = what};
    char name[PL_RANK_NAME_BYTES];
    struct words words;
    int failed_rank;

    mine->failed = own->status == PL_OK ? 0 : pl_world_size(world) - pl_world_rank(world);
    PL_TRY(pl_collective_run(world, &greatest, reterr));
    if (mine->failed == 0) {
        return PL_OK;
    }
    failed_rank = pl_world_size(world) - (int)mine->failed;
    memset(&words, 0, sizeof(words));
    words.status = own->status;
    pl_error_text(own, words.text, sizeof(words.text));
    PL_TRY(pl_broadcast(world, &words, sizeof(words), PL_UINT8, failed_rank, reterr));
    if (own->status == PL_OK) {
        pl_error_raise(reterr, words.status, PL_DOMAIN_RANK, pl_world_global_rank(world, failed_rank), "%s: %s",
                       pl_world_rank_name(world, failed_rank, name), words.text);
        pl_error_context(reterr, "%s", what);
        return words.status;
    }
    if (reterr) {
        *reterr = *own;
        pl_error_context(reterr, "%s, %s", what, pl_world_rank_name(world, pl_world_rank(world), name));
    }
    return own->status;
}

enum pl_status pl_compare_gather(struct pl_world *world, const void *send, void **recv_at, size_t bytes,
                                 struct pl_error *reterr)
{
    enum pl_status status = pl_allgather(world, send, *recv_at, bytes, PL_UINT8, reterr);

    if (status != PL_OK && pl_world_has_leaked(world)) {
        *recv_at = NULL;
    }
    return status;
}

/*
 * Reports the first line that differs between rank 0 and the lowest rank whose list differs. `most` is the number of
 * lines of the longest list, at least 1.
 */
static enum pl_status explain(struct pl_world *world, const char *what, uint64_t hash, const char *const *lines,
                              size_t count, size_t most, struct pl_error *reterr)
{
    size_t size = (size_t)pl_world_size(world);
    size_t width = most + 1; /* one hash of the whole list, and one per line */
    size_t other = 1, first = 0;
    struct pl_error own = PL_ERROR_NONE;
    PL_AUTO_FREE uint64_t *mine = pl_memory_new(width, sizeof(*mine), &own);
    PL_AUTO_FREE void *gathered = pl_memory_new(width * size, sizeof(uint64_t), &own);
    PL_AUTO_FREE void *texts = pl_memory_new(size, LINE_BYTES, &own);
    char text[LINE_BYTES] = "nothing more";
    const uint64_t *all = gathered;

    PL_TRY(reduce_summary(world, what, &own, &(struct summary){0}, reterr));
    mine[0] = hash;
    for (size_t i = 0; i < count; i++) {
        mine[i + 1] = hash_line(lines[i]);
    }
    PL_TRY(pl_compare_gather(world, mine, &gathered, width * sizeof(*mine), reterr));
    while (other + 1 < size && all[other * width] == all[0]) {
        other++;
    }
    while (first + 1 < most && all[first + 1] == all[other * width + first + 1]) {
        first++;
    }
    if (first < count) {
        snprintf(text, sizeof(text), "%.*s", LINE_BYTES - 1, lines[first]);
    }
    PL_TRY(pl_compare_gather(world, text, &texts, LINE_BYTES, reterr));
    return pl_error_set(reterr, PL_MISMATCH, "%s: rank %d has %s, rank %d has %s", what, pl_world_global_rank(world, 0),
                        (const char *)texts, pl_world_global_rank(world, (int)other),
                        (const char *)texts + other * LINE_BYTES);
}

enum pl_status pl_compare_lines(struct pl_world *world, const char *what, const struct pl_error *own,
                                const char *const *lines, size_t count, struct pl_error *reterr)
{
    struct summary mine;
    uint64_t hash = PL_HASH_START;

    for (size_t i = 0; i < count && own->status == PL_OK; i++) {
        hash = pl_hash(hash, lines[i], strlen(lines[i]) + 1);
    }
    mine = (struct summary){.count = (int64_t)count, .hash = (int64_t)hash, .not_hash = (int64_t)~hash};
    PL_TRY(reduce_summary(world, what, own, &mine, reterr));
    return mine.hash == ~mine.not_hash ? PL_OK : explain(world, what, hash, lines, count, (size_t)mine.count, reterr);
}
