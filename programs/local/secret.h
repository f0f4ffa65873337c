/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The secret from which the hosts of a job derive their ssh keys. A host in namespaces has it in its own memory only,
 * which ends with the host. Containers mount a file of the job's folder; where a killed call left one, the next call
 * removes it.
 *
 * Test  tests/integration/local.sh, tests/integration/containers.sh
 */
#ifndef PL_PROGRAMS_LOCAL_SECRET_H
#define PL_PROGRAMS_LOCAL_SECRET_H

#include "programs/local/local.h"

/** Where a host finds it. */
#define PL_LOCAL_SECRET_PATH "/run/paceline-secret"

/** Draws the secret of a job with several hosts, and for containers writes FOLDER/NAME/secret. */
enum pl_status pl_local_secret_make(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** In the host, which has a /run of its own. */
enum pl_status pl_local_secret_show(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes what calls that do not run any more left below `folder`, which holds the folders of all names. */
void pl_local_secret_remove_left(const char *folder);

#endif
