/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Control-C and the signals that mean the same, in every phase of a job: the first one asks for an orderly end, each
 * further one ends at once what is done then.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_STOP_H
#define PL_PROGRAMS_LOCAL_STOP_H

#include "programs/local/local.h"

/** Reads the signals that wait. Returns how many stops have come since this program began. */
unsigned pl_local_stops(struct pl_local *local);

/** Returns with how many stops an orderly end still goes on: the first one, and what came before. */
unsigned pl_local_stops_allowed(struct pl_local *local);

/**
 * Waits for the end of `program`. More than `allowed` stops end it: with SIGTERM, and 10 s later or at the next stop
 * with SIGKILL. At the deadline it is killed.
 *
 * Errors  PL_CANCELLED: it was stopped while `what` ("the channel 'a' was fetched"). PL_TIMEOUT. PL_FAILED: it did not
 *         end with 0.
 */
enum pl_status pl_local_await(struct pl_local *local, pid_t program, unsigned allowed, int64_t deadline_ns,
                              const char *what, struct pl_error *reterr) PL_MUST_CHECK;

#endif
