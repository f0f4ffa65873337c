/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Rehearsals of what happens to single hosts: a host is switched off, or, in namespaces, its network cable is out for
 * some time.
 *
 * Test  tests/integration/local.sh, tests/integration/containers.sh
 */
#ifndef PL_PROGRAMS_LOCAL_REHEARSE_H
#define PL_PROGRAMS_LOCAL_REHEARSE_H

#include "base/options.h"
#include "programs/local/local.h"

/** Reads seconds with or without the unit, 30 or 30s, into a uint64_t of nanoseconds. */
pl_option_reader pl_local_rehearse_seconds;

/** Reads the value of --lose, HOST@TIME, or of --cut, HOST@TIME,TIME, into a struct pl_local_outage. */
pl_option_reader pl_local_rehearse_read;

/**
 * Checks that the hosts exist and that hosts of this kind can do it. Called before and after the kind is chosen.
 *
 * Errors  PL_INVALID
 */
enum pl_status pl_local_rehearse_check(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** The hosts have started: sets the times. */
void pl_local_rehearse_begin(struct pl_local *local);

/** Returns the earliest time at which pl_local_rehearse_go_on() has something to do, or PL_DEADLINE_NEVER. */
int64_t pl_local_rehearse_next(const struct pl_local *local);

/** Does what is due. */
void pl_local_rehearse_go_on(struct pl_local *local);

/** The job has ended: tells in one sentence each what it made of them, and forgets them. */
void pl_local_rehearse_say(struct pl_local *local);

#endif
