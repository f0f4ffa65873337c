/* SPDX-License-Identifier: Apache-2.0 */
/** A channel of an environment. Internal to runtime/. */
#ifndef PL_RUNTIME_CHANNEL_PRIVATE_H
#define PL_RUNTIME_CHANNEL_PRIVATE_H

#include "base/environment.h"
#include "runtime/channel.h"

/** As pl_channel_setup_find(), in `environment`. */
enum pl_status pl_channel_setup_find_in(const struct pl_environment *environment, const char *name,
                                        struct pl_channel_setup *ret_setup, struct pl_error *reterr) PL_MUST_CHECK;

#endif
