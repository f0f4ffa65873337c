/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a job made of a rehearsed spot stop, as far as it is known: from the checkpoints that it wrote after SIGTERM,
 * and from two lines of its log, "stopped after step N" and, in the second run, "resuming after step N".
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_SPOT_H
#define PL_PROGRAMS_LOCAL_SPOT_H

#include "programs/local/local.h"

/** SIGTERM is sent now. */
void pl_local_spot_begin(struct pl_local *local);

/** A line of the log. */
void pl_local_spot_read(struct pl_local *local, const char *line, size_t bytes);

/** The first run has ended: looks for what it saved. */
void pl_local_spot_look(struct pl_local *local);

/** The second run has ended: says it in one sentence. */
void pl_local_spot_say(const struct pl_local *local);

#endif
