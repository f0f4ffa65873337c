/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/agree.h"

#include "base/memory.h"
#include "collectives/collective.h"

#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 152 };

struct summary {
    uint64_t count;
    uint64_t hash;
};

uint64_t pl_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    }
    return hash;
}

static uint64_t hash_line(const char *line)
{
    return pl_hash(PL_HASH_START, line, strlen(line) + 1);
}

/* Every rank calls with the same `other` and `most`, both taken from gathered data. */
static enum pl_status explain(struct pl_world *world, const char *what, const char *const *lines, size_t count, int other, uint64_t most,
                              struct pl_error *reterr)
{
    size_t size = (size_t)pl_world_size(world);
    PL_AUTO_FREE uint64_t *mine = pl_memory_new(most, sizeof(*mine), reterr);
    PL_AUTO_FREE uint64_t *all = pl_memory_new(most * size, sizeof(*all), reterr);
    PL_AUTO_FREE char *texts = pl_memory_new(size, LINE_BYTES, reterr);
    char text[LINE_BYTES] = "nothing more";
    uint64_t first = 0;

    if (!mine || !all || !texts) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        mine[i] = hash_line(lines[i]);
    }
    PL_TRY(pl_allgather(world, mine, all, most, PL_INT64, reterr));
    while (first + 1 < most && all[first] == all[(size_t)other * most + first]) {
        first++;
    }
    if (first < count) {
        snprintf(text, sizeof(text), "%.*s", LINE_BYTES - 1, lines[first]);
    }
    PL_TRY(pl_allgather(world, text, texts, LINE_BYTES, PL_UINT8, reterr));
    return pl_error_set(reterr, PL_MISMATCH, "%s: rank 0 has %s, rank %d has %s", what, texts, other, texts + (size_t)other * LINE_BYTES);
}

enum pl_status pl_agree(struct pl_world *world, const char *what, const char *const *lines, size_t count, struct pl_error *reterr)
{
    size_t size = (size_t)pl_world_size(world);
    PL_AUTO_FREE struct summary *all = pl_memory_new(size, sizeof(*all), reterr);
    struct summary mine = {.count = count, .hash = PL_HASH_START};
    uint64_t most = 1;
    int other = -1;

    if (!all) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        mine.hash = pl_hash(mine.hash, lines[i], strlen(lines[i]) + 1);
    }
    PL_TRY(pl_allgather(world, &mine, all, sizeof(mine), PL_UINT8, reterr));
    for (size_t r = 0; r < size; r++) {
        most = all[r].count > most ? all[r].count : most;
        if (other < 0 && (all[r].count != all[0].count || all[r].hash != all[0].hash)) {
            other = (int)r;
        }
    }
    return other < 0 ? PL_OK : explain(world, what, lines, count, other, most, reterr);
}
