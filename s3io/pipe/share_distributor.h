/* SPDX-License-Identifier: Apache-2.0 */
/** The distributor of a shared channel: a thread of local rank 0. Inside s3io only. */
#ifndef PL_S3IO_PIPE_SHARE_DISTRIBUTOR_H
#define PL_S3IO_PIPE_SHARE_DISTRIBUTOR_H

#include "s3io/share.h"

struct pl_share_distributor;

/** Listen and start the thread, which waits for the ranks. */
enum pl_status pl_share_distributor_start(const struct pl_share_options *options, const struct pl_share_feed *feed,
                                          struct pl_share_distributor **ret_distributor,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Show all ranks that local rank 0's own last call ended at its deadline, or no longer. Local rank 0, connected. */
void pl_share_distributor_set_timed_out(struct pl_share_distributor *distributor, bool timed_out);

/**
 * End the thread, at once or when the other ranks have what they asked for, and wait for it. `error` gets what
 * stopped it before.
 */
void pl_share_distributor_stop(struct pl_share_distributor *distributor, bool at_once, struct pl_error *error);

#endif
