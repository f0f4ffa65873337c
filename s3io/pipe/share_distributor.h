/* SPDX-License-Identifier: Apache-2.0 */
/** The distributor of a shared channel: a thread of local rank 0. Internal to s3io/. */
#ifndef PL_S3IO_PIPE_SHARE_DISTRIBUTOR_H
#define PL_S3IO_PIPE_SHARE_DISTRIBUTOR_H

#include "s3io/share.h"

struct pl_share_distributor;

/** Listens and starts the thread, which waits for the ranks. */
enum pl_status pl_share_distributor_start(const struct pl_share_options *options, const struct pl_share_feed *feed,
                                          struct pl_share_distributor **ret_distributor,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Tells all ranks whether local rank 0's own last call has ended at its deadline. Called by local rank 0 after it has
 * connected.
 */
void pl_share_distributor_set_timed_out(struct pl_share_distributor *distributor, bool timed_out);

/**
 * Ends the thread and waits for it: at once, or when the other ranks have the records that they asked for. If the
 * thread ended earlier because of an error, `error` gets it.
 */
void pl_share_distributor_stop(struct pl_share_distributor *distributor, bool at_once, struct pl_error *error);

#endif
