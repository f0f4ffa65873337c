/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process sets: numbered groups of ranks, each with a world and named tensors of its own. They are added and removed
 * here.
 */
#include "runtime/process_set.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/world_private.h"
#include "runtime/compare_lines.h"
#include "runtime/named/queue.h"
#include "runtime/named/rounds.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "process sets" /* for messages */

/* The members make a set's world right after all ranks have compared what they add. */
static const int64_t MEET_NS = 60 * PL_NS_PER_S;

struct pl_process_sets {
    struct pl_world *world;
    struct pl_named_options options;
    struct pl_process_set *sets; /* indexed by number; a free one has no ranks */
    size_t count, capacity;
};

static void set_release(struct pl_process_sets *sets, struct pl_process_set *set)
{
    pl_named_free(set->named);
    if (set->world != sets->world) {
        pl_world_free(set->world);
    }
    free(set->ranks);
    memset(set, 0, sizeof(*set));
}

void pl_process_sets_free(struct pl_process_sets *sets)
{
    if (!sets) {
        return;
    }
    for (size_t i = sets->count; i-- > 0;) {
        set_release(sets, &sets->sets[i]);
    }
    free(sets->sets);
    free(sets);
}

enum pl_status pl_process_sets_new(struct pl_world *world, const struct pl_named_options *options,
                                   struct pl_process_sets **ret_sets, struct pl_error *reterr)
{
    struct pl_process_sets *sets;
    int size = pl_world_size(world);
    struct pl_process_set *all;

    PL_TRY(pl_memory_alloc(&sets, 1, sizeof(*sets), reterr));
    sets->world = world;
    if (options) {
        sets->options = *options;
    }
    if (pl_memory_grow(&sets->sets, &sets->capacity, 1, sizeof(struct pl_process_set), reterr) != PL_OK) {
        goto fail;
    }
    memset(sets->sets, 0, sets->capacity * sizeof(struct pl_process_set));
    sets->count = 1;
    all = &sets->sets[0];
    all->world = world;
    all->count = size;
    all->ranks = pl_memory_new((size_t)size, sizeof(int), reterr);
    if (!all->ranks || pl_named_new(world, &sets->options, &all->named, reterr) != PL_OK) {
        goto fail;
    }
    for (int i = 0; i < size; i++) {
        all->ranks[i] = i;
    }
    *ret_sets = sets;
    return PL_OK;
fail:
    pl_process_sets_free(sets);
    return PL_MEMORY;
}

/* Returns PL_OK if all ranks make the same call, and no rank has failed before (`own`). */
static enum pl_status compare_ranks(struct pl_process_sets *sets, const char *verb, const int *ranks, int count,
                                    struct pl_error *own, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *line;

    pl_text_append(&text, verb);
    for (int i = 0; i < count; i++) {
        pl_text_printf(&text, i ? ",%d" : " %d", ranks[i]);
    }
    if (own->status == PL_OK) {
        own->status = pl_text_check(&text, own);
    }
    line = pl_text_string(&text);
    return pl_compare_lines(sets->world, WHAT, own, &line, 1, reterr);
}

int pl_process_sets_find(const struct pl_process_sets *sets, const int *ranks, int count)
{
    for (size_t i = 0; i < sets->count; i++) {
        const struct pl_process_set *set = &sets->sets[i];

        if (count > 0 && set->count == count && memcmp(set->ranks, ranks, (size_t)count * sizeof(int)) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static enum pl_status check_list(const struct pl_process_sets *sets, const int *ranks, int count,
                                 struct pl_error *reterr)
{
    int found;

    PL_TRY(pl_ranks_check("a process set", ranks, count, pl_world_size(sets->world), reterr));
    found = pl_process_sets_find(sets, ranks, count);
    return found < 0 ? PL_OK : pl_error_set(reterr, PL_INVALID, "these ranks are process set %d already", found);
}

/* Does the members' part when a set is added. */
static enum pl_status open_member(struct pl_process_sets *sets, struct pl_process_set *set, struct pl_error *reterr)
{
    for (int i = 0; i < set->count; i++) {
        if (set->ranks[i] == pl_world_rank(sets->world)) {
            PL_TRY(pl_world_new_sub_until(sets->world, set->ranks, set->count, pl_deadline_after_ns(MEET_NS),
                                          &set->world, reterr));
            PL_TRY(pl_named_new(set->world, &sets->options, &set->named, reterr));
            pl_named_use_device(set->named, sets->sets[0].named->device.device);
            pl_named_link(sets->sets[0].named, set->named);
            return PL_OK;
        }
    }
    return PL_OK;
}

/* Allocates the memory that a set needs on every rank. */
static enum pl_status make_room(struct pl_process_sets *sets, size_t number, struct pl_process_set *set,
                                const int *ranks, struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&sets->sets, &sets->capacity, number + 1, sizeof(struct pl_process_set), reterr));
    PL_TRY(pl_memory_alloc(&set->ranks, (size_t)set->count, sizeof(int), reterr));
    memcpy(set->ranks, ranks, (size_t)set->count * sizeof(int));
    return PL_OK;
}

enum pl_status pl_process_sets_add(struct pl_process_sets *sets, const int *ranks, int count, int *ret_set,
                                   struct pl_error *reterr)
{
    struct pl_process_set set = {.count = count};
    struct pl_error own = PL_ERROR_NONE;
    enum pl_status status;
    size_t number = 1;

    while (number < sets->count && sets->sets[number].count > 0) {
        number++;
    }
    if (count > 0) {
        own.status = make_room(sets, number, &set, ranks, &own);
    }
    status = compare_ranks(sets, "add ranks", ranks, count, &own, reterr);
    if (status == PL_OK) {
        status = check_list(sets, ranks, count, reterr); /* all ranks have the same list, and so the same answer */
    }
    if (status == PL_OK) {
        own.status = open_member(sets, &set, &own);
        status = pl_compare_lines(sets->world, WHAT, &own, NULL, 0, reterr);
    }
    if (status != PL_OK) {
        set_release(sets, &set);
        return status;
    }
    if (number == sets->count) {
        sets->count++;
    }
    sets->sets[number] = set;
    *ret_set = (int)number;
    return PL_OK;
}

static struct pl_process_set *find(const struct pl_process_sets *sets, int set)
{
    return set >= 0 && (size_t)set < sets->count && sets->sets[set].count > 0 ? &sets->sets[set] : NULL;
}

static enum pl_status unknown(int set, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "there is no process set %d", set);
}

/*
 * Returns PL_OK if no member has an operation of `set` in flight; else every rank reports the name of one. `*all_at`
 * has room for every rank's name. Collective.
 */
static enum pl_status check_idle(struct pl_process_sets *sets, int set, void **all_at, struct pl_error *reterr)
{
    const struct pl_process_set *found = find(sets, set);
    const char *name = found->named ? pl_named_name_under_way(found->named) : NULL;
    const char *agreed = found->named ? pl_named_name_agreed(found->named) : NULL;
    size_t size = (size_t)pl_world_size(sets->world);
    char own[PL_NAMED_MAX_NAME_BYTES] = "";

    name = name ? name : agreed ? agreed : "";
    memcpy(own, name, strlen(name));
    PL_TRY(pl_compare_gather(sets->world, own, all_at, sizeof(own), reterr));
    for (size_t rank = 0; rank < size; rank++) {
        const char *other = (const char *)*all_at + rank * sizeof(own);

        if (*other) {
            return pl_error_set(reterr, PL_INVALID, "process set %d cannot be removed: '%s' is under way on rank %d",
                                set, other, pl_world_global_rank(sets->world, (int)rank));
        }
    }
    return PL_OK;
}

enum pl_status pl_process_sets_remove(struct pl_process_sets *sets, int set, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;
    PL_AUTO_FREE void *all = pl_memory_new((size_t)pl_world_size(sets->world), PL_NAMED_MAX_NAME_BYTES, &own);

    PL_TRY(compare_ranks(sets, "remove set", &set, 1, &own, reterr));
    if (set == 0) {
        return pl_error_set(reterr, PL_INVALID, "process set 0 is the whole world and stays");
    }
    if (!find(sets, set)) {
        return unknown(set, reterr);
    }
    PL_TRY(check_idle(sets, set, &all, reterr));
    set_release(sets, find(sets, set));
    return PL_OK;
}

int pl_process_sets_list(const struct pl_process_sets *sets, int *ret_sets, int room)
{
    int count = 0;

    for (size_t i = 0; i < sets->count; i++) {
        if (sets->sets[i].count > 0) {
            if (count < room) {
                ret_sets[count] = (int)i;
            }
            count++;
        }
    }
    return count;
}

enum pl_status pl_process_set_get(const struct pl_process_sets *sets, int set, const struct pl_process_set **ret_set,
                                  struct pl_error *reterr)
{
    *ret_set = find(sets, set);
    return *ret_set ? PL_OK : unknown(set, reterr);
}

enum pl_status pl_process_set_named(const struct pl_process_sets *sets, int set, struct pl_named **ret_named,
                                    struct pl_error *reterr)
{
    const struct pl_process_set *found;

    PL_TRY(pl_process_set_get(sets, set, &found, reterr));
    if (!found->named) {
        return pl_error_set(reterr, PL_INVALID, "rank %d is not in process set %d",
                            pl_world_global_rank(sets->world, pl_world_rank(sets->world)), set);
    }
    *ret_named = found->named;
    return PL_OK;
}
