/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One Pipe Mode channel read by several ranks of a host. Reads of a FIFO are not record-atomic, so one of them reads: a
 * thread of local rank 0, the distributor, gives each record to its rank through a ring in shared memory (a memfd that
 * the rank gets over a unix socket together with two eventfds). All ranks, local rank 0 too, are clients of the
 * distributor.
 *
 *   FIFO ──► distributor ──► ring of local rank 0 ──► loader
 *                    ├─────► ring of local rank 1 ──► loader
 *                    └─────► ...
 *
 * A rank that is too slow delays the others once its ring is full. A rank that left the epoch gets no more records
 * of it. A rank that dies is PL_PEER on the others, and so is a distributor that dies.
 *
 * How an epoch ended, and what a wait is for that lasts, is in each ring's head: a rank reads it there when it has read
 * the records before, also after local rank 0 has ended. So an error of the FIFO is the same on all ranks, with file,
 * record and byte, and a rank that ends because of it is not reported in its place.
 *
 * Test  tests/unit/s3io/pipe/test_share.c, tests/integration/cifar10.py
 */
#ifndef PL_S3IO_SHARE_H
#define PL_S3IO_SHARE_H

#include "s3io/stream.h"

/** Where the distributor gets its records; used on local rank 0 only. */
struct pl_share_feed {
    void *context;
    enum pl_status (*start)(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr);
    /* The next record that `shard_mask` [deal.size] names by its number modulo deal.size; PL_TIMEOUT loses nothing. */
    enum pl_status (*next)(void *context, const bool *shard_mask, int64_t deadline_ns, struct pl_record *ret_record,
                           struct pl_error *reterr);
};

struct pl_share;

/**
 * Connect to the other ranks of the host.
 *
 * Collective  over the host's ranks: each calls it, with its own local_rank and deal.
 * Errors      PL_TIMEOUT when not all connected; PL_INVALID for a path that is too long or ranks that disagree.
 */
enum pl_status pl_share_open(const struct pl_share_options *options, const struct pl_share_feed *feed,
                             struct pl_share **ret_share, struct pl_error *reterr) PL_MUST_CHECK;

/** Ask for `epoch`, leaving an earlier one. The distributor opens it when all ranks asked for it or a later one. */
void pl_share_start(struct pl_share *share, uint64_t epoch);

/**
 * The next record of this rank; valid until the next call. PL_END after the last.
 *
 * Errors  PL_TIMEOUT at `deadline_ns`, which loses nothing, with what the distributor waits for; what the FIFO failed
 *         with, PL_TIMEOUT too when no record came for the options' timeout_ns, which ends the epoch on all ranks;
 *         PL_PEER; PL_CANCELLED; PL_INVALID for an epoch that this rank read to its end before.
 */
enum pl_status pl_share_next(struct pl_share *share, int64_t deadline_ns, struct pl_record *ret_record,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** With true, make a running pl_share_next() and later ones return PL_CANCELLED; with false, end that. Any thread. */
void pl_share_cancel(struct pl_share *share, bool cancelled);

/** Leave. Local rank 0 stays until the others have what they asked for, at most half a minute. */
void pl_share_close(struct pl_share *share);

#endif
