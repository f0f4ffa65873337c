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

#endif
