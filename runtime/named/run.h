/* SPDX-License-Identifier: Apache-2.0 */
/** Starts requests for ready operations. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_RUN_H
#define PL_RUNTIME_NAMED_RUN_H

#include "runtime/named/engine.h"

/** Runs the operations that the table has made ready. */
enum pl_status pl_named_run_ready(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

#endif
