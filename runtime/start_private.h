/* SPDX-License-Identifier: Apache-2.0 */
/** What the library itself asks of a runtime. Internal to runtime/. */
#ifndef PL_RUNTIME_START_PRIVATE_H
#define PL_RUNTIME_START_PRIVATE_H

#include "base/environment.h"
#include "collectives/bootstrap.h"
#include "runtime/start.h"

/**
 * As pl_runtime_start(), or over ranks that the caller brings as `bootstrap`, which still belongs to the caller; and
 * with Horovod's behaviour: without a deadline for collectives unless the setting timeout_s was set, so that a rank may
 * be late by any time. HOROVOD_TIMELINE is left to the caller and does not start a trace.
 */
enum pl_status pl_runtime_start_unlimited(struct pl_bootstrap *bootstrap, struct pl_runtime **ret_runtime,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the environment as it was at the start. */
const struct pl_environment *pl_runtime_environment(const struct pl_runtime *runtime);

#endif
