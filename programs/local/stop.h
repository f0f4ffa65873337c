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
 * Runs a program; its output and errors go to `output_fd`, -1: to this program's own. More than `allowed` stops end it:
 * with SIGTERM, and 10 s later or at the next stop with SIGKILL. At the deadline it is killed.
 *
 * Errors  PL_CANCELLED: it was stopped while `what` ("the channel 'a' was fetched"). PL_TIMEOUT. PL_FAILED: it did not
 *         end with 0. Those of pl_process_spawn().
 */
enum pl_status pl_local_run_program(struct pl_local *local, const char *const *argv, int output_fd, unsigned allowed,
                                    int64_t deadline_ns, const char *what, struct pl_error *reterr) PL_MUST_CHECK;

#endif
