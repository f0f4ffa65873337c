/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the ranks of this host by the CPUs on which mpirun, torchrun or their daemons have started them. */
#include "entrypoint/supervise/placement.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* The line is only helpful, and no job depends on it: without memory it is left out. */
static bool insert(struct pl_placement *placement, int rank, const char *cpus)
{
    struct pl_cpus_of *ranks = realloc(placement->ranks, (placement->count + 1) * sizeof(*ranks));
    char *copy = pl_memory_string(cpus, NULL);
    size_t at = placement->count;

    if (ranks) {
        placement->ranks = ranks;
    }
    if (!ranks || !copy) {
        free(copy);
        return false;
    }
    for (; at > 0 && ranks[at - 1].rank > rank; at--) {
        ranks[at] = ranks[at - 1];
    }
    ranks[at] = (struct pl_cpus_of){.rank = rank, .cpus = copy};
    placement->count++;
    return true;
}

void pl_placement_add(struct pl_placement *placement, const struct pl_frame *frame)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int64_t rank, local_size;

    if (placement->done || pl_link_frame_number(frame, 2, 0, INT32_MAX, &rank, NULL) != PL_OK ||
        pl_link_frame_number(frame, 3, 1, INT32_MAX, &local_size, NULL) != PL_OK || frame->count < 5) {
        return;
    }
    placement->done = !insert(placement, (int)rank, frame->fields[4]);
    if (!placement->done && placement->count == (size_t)local_size) {
        pl_cpus_describe(placement->ranks, placement->count, &text);
        pl_log(PL_LOG_DEBUG, "%s", pl_text_string(&text));
        pl_placement_done(placement);
        placement->done = true;
    }
}

void pl_placement_done(struct pl_placement *placement)
{
    for (size_t i = 0; i < placement->count; i++) {
        free(placement->ranks[i].cpus);
    }
    free(placement->ranks);
    *placement = (struct pl_placement){.ranks = NULL};
}
