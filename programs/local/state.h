/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which hosts of a job run, for `paceline local shell`. It stands in the file FOLDER/NAME/lock, which is locked as long
 * as the job's `paceline local` runs: its kind of host, its process number and the container engine, then a line for
 * each host with its first process or its container.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_STATE_H
#define PL_PROGRAMS_LOCAL_STATE_H

#include "programs/local/local.h"

struct pl_local_state {
    char name[64]; /* of the job */
    enum pl_local_kind kind;
    pid_t local;           /* the job's `paceline local` */
    char engine[PATH_MAX]; /* of containers */
    char hosts[16384];     /* "algo-1 WHERE algo-2 WHERE " */
};

/** Writes it again: a host has started or ended. A failure is a warning. */
void pl_local_state_write(const struct pl_local *local);

/**
 * Finds the job `name` below `folder`, or with NULL the only one that runs there.
 *
 * Errors  PL_NOT_FOUND: none runs. PL_INVALID: several run, and it names them.
 */
enum pl_status pl_local_state_find(const char *folder, const char *name, struct pl_local_state *ret_state,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns in `where` the first process or the container of a host.
 *
 * Errors  PL_NOT_FOUND: it does not run; it names those that do.
 */
enum pl_status pl_local_state_host(const struct pl_local_state *state, const char *host, char where[static 64],
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
