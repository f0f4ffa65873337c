/* SPDX-License-Identifier: Apache-2.0 */
/** Logs on which CPUs this host's ranks run, in one line, once all of them have connected. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PLACEMENT_H
#define PL_ENTRYPOINT_SUPERVISE_PLACEMENT_H

#include "base/cpus.h"
#include "entrypoint/ssh/link.h"

#include <stdbool.h>
#include <stddef.h>

struct pl_placement {
    struct pl_cpus_of *ranks; /* in ascending order; owns the texts */
    size_t count;
    bool done; /* the line is logged, or cannot be */
};

/** Takes a rank's HELLO frame: its number, the number of ranks on its host, and the CPUs on which it was started. */
void pl_placement_add(struct pl_placement *placement, const struct pl_frame *frame);

void pl_placement_done(struct pl_placement *placement);

#endif
