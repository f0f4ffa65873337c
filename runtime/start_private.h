/* SPDX-License-Identifier: Apache-2.0 */
/** Functions of a runtime that only the library uses. Internal to runtime/. */
#ifndef PL_RUNTIME_START_PRIVATE_H
#define PL_RUNTIME_START_PRIVATE_H

#include "base/environment.h"
#include "collectives/bootstrap.h"
#include "runtime/start.h"

/**
 * Like pl_runtime_start(), but with Horovod's behaviour: collectives have no deadline unless the setting timeout_s was
 * set, so a rank may be late by any time, and HOROVOD_TIMELINE does not start a trace: the caller handles it.
 * `bootstrap`, if not NULL, has the ranks; it still belongs to the caller.
 */
enum pl_status pl_runtime_start_unlimited(struct pl_bootstrap *bootstrap, struct pl_runtime **ret_runtime,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the environment as it was at the start. */
const struct pl_environment *pl_runtime_environment(const struct pl_runtime *runtime);

#endif
