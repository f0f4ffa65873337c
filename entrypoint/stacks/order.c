/* SPDX-License-Identifier: Apache-2.0 */
/* The odd one out among programs, by where their main threads' stacks part. */
#include "entrypoint/stacks/order.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* the kind of state, the functions, the end of the stack with the wait */
enum { MOST_ITEMS = 1 + PL_STACKS_MOST_FRAMES + 1 };

/* A program and its row. */
struct place {
    const struct pl_stacks_program *program;
    size_t item_count;
    uint32_t shared_with[MOST_ITEMS]; /* programs whose row begins alike, up to this item, itself among them */
};

/* Running and sleeping are one kind: what polls is seen in both. So is a wait that only one of two looks found
 * uninterruptible: a page fault is one. */
static char kind_of(const struct pl_stacks_program *program)
{
    bool is_short = program->state == 'D' && program->threads[0].state != 'D';

    return program->state == 'S' || program->state == 'I' || is_short ? 'R' : program->state;
}

static bool is_stopped(const struct pl_stacks_program *program)
{
    return program->state == 'T' || program->state == 't';
}

/* Is the function at `depth`, counted from the outermost, the same? Without a name the address in its file is. */
static bool is_same_frame(const struct pl_stacks_thread *left, const struct pl_stacks_thread *right, size_t depth)
{
    const struct pl_stacks_frame *a = &left->frames[left->frame_count - 1 - depth];
    const struct pl_stacks_frame *b = &right->frames[right->frame_count - 1 - depth];

    return strcmp(a->function, b->function) == 0 && strcmp(a->module, b->module) == 0 &&
           (a->function[0] != '\0' || a->offset == b->offset);
}

/* How many items of their rows are alike. */
static size_t count_alike(const struct pl_stacks_program *left, const struct pl_stacks_program *right)
{
    const struct pl_stacks_thread *a = &left->threads[0], *b = &right->threads[0];
    size_t least = a->frame_count < b->frame_count ? a->frame_count : b->frame_count, depth = 0;

    if (kind_of(left) != kind_of(right)) {
        return 0;
    }
    while (depth < least && is_same_frame(a, b, depth)) {
        depth++;
    }
    if (depth == a->frame_count && depth == b->frame_count && a->state == b->state && strcmp(a->wait, b->wait) == 0) {
        depth++;
    }
    return 1 + depth;
}

static int by_place(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    size_t least = a->item_count < b->item_count ? a->item_count : b->item_count;

    if (is_stopped(a->program) != is_stopped(b->program)) {
        return is_stopped(a->program) ? -1 : 1;
    }
    for (size_t i = 0; i < least; i++) {
        if (a->shared_with[i] != b->shared_with[i]) {
            return a->shared_with[i] < b->shared_with[i] ? -1 : 1;
        }
    }
    if (a->program->rank != b->program->rank) {
        return a->program->rank < b->program->rank ? -1 : 1;
    }
    return (a->program->pid > b->program->pid) - (a->program->pid < b->program->pid);
}

enum pl_status pl_order_programs(const struct pl_stacks_program **programs, size_t count, struct pl_error *reterr)
{
    PL_AUTO_FREE struct place *places = pl_memory_new(count + 1, sizeof(*places), reterr);

    PL_TRY(places != NULL ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < count; i++) {
        places[i].program = programs[i];
        places[i].item_count = 2 + programs[i]->threads[0].frame_count;
        for (size_t j = 0; j < count; j++) {
            size_t alike = i == j ? places[i].item_count : count_alike(programs[i], programs[j]);

            for (size_t item = 0; item < alike; item++) {
                places[i].shared_with[item]++;
            }
        }
    }
    qsort(places, count, sizeof(*places), by_place);
    for (size_t i = 0; i < count; i++) {
        programs[i] = places[i].program;
    }
    return PL_OK;
}
