/* SPDX-License-Identifier: Apache-2.0 */
/** On which CPUs this host's ranks run: one line in the log once all of them have connected. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PLACEMENT_H
#define PL_ENTRYPOINT_SUPERVISE_PLACEMENT_H

#include "base/cpus.h"
#include "entrypoint/ssh/link.h"

#include <stdbool.h>
#include <stddef.h>

struct pl_placement {
    struct pl_cpus_of *ranks; /* in ascending order; owns the texts */
    size_t count;
    bool done; /* the line is written, or cannot be */
};

/** Take a rank's HELLO frame: its number, how many ranks its host has, and the CPUs it was started on. */
void pl_placement_add(struct pl_placement *placement, const struct pl_frame *frame);

void pl_placement_done(struct pl_placement *placement);

#endif
