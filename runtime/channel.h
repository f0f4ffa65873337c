/* SPDX-License-Identifier: Apache-2.0 */
/** A channel of the job, by its name (s3io/channel.h). */
#ifndef PL_RUNTIME_CHANNEL_H
#define PL_RUNTIME_CHANNEL_H

#include "runtime/start.h"
#include "s3io/channel.h"

/**
 * Calls pl_channel_setup_find_in() with the environment of `runtime`. After pl_stop_watch() a read of the channel's
 * FIFO can be stopped: if this process is asked to stop, a wait for a feeder, or for its next data, ends with
 * PL_CANCELLED.
 */
enum pl_status pl_channel_setup_find(const struct pl_runtime *runtime, const char *name,
                                     struct pl_channel_setup *ret_setup, struct pl_error *reterr) PL_MUST_CHECK;

#endif
