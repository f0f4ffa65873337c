/* SPDX-License-Identifier: Apache-2.0 */
/** Runs a job on its hosts until all have ended, prints their log, and stops them when asked to. */
#ifndef PL_PROGRAMS_LOCAL_RUN_H
#define PL_PROGRAMS_LOCAL_RUN_H

#include "programs/local/local.h"

/**
 * Starts every host and waits for the end of all. Sets `local->end` and each host's code. After it, also after an
 * error, nothing that it started runs.
 */
enum pl_status pl_local_run(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the first exit code that is not 0, in the order of the hosts, with a host that was switched off as the last;
 * `*ret_host` is that host, or NULL.
 */
int pl_local_run_code(const struct pl_local *local, const struct pl_local_host **ret_host);

/*
 * Control-C and the signals that mean the same, in every phase of a job: the first one asks for an orderly end, each
 * further one ends at once what is done then.
 */

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
