/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One Pipe Mode channel that several ranks of a host read. Reads of a FIFO can split records, so only one thread reads:
 * the distributor, a thread of local rank 0. It gives each record to the rank that it belongs to, through a ring in
 * shared memory: a memfd that the rank receives over a unix socket together with two eventfds. All ranks, also local
 * rank 0, are clients of the distributor.
 *
 *   FIFO ──► distributor ──► ring of local rank 0 ──► loader
 *                    ├─────► ring of local rank 1 ──► loader
 *                    └─────► ...
 *
 * A slow rank delays the others as soon as its ring is full. A rank that has left the epoch gets no more of its
 * records. If a rank or the distributor dies, the other ranks get PL_PEER.
 *
 * The head of each ring holds how the epoch ended, and the reason for a wait that lasts long. A rank reads these after
 * the records before them, even if local rank 0 has ended in the meantime. So all ranks report the same error of the
 * FIFO, with file, record and byte, and not the end of a rank that this error has caused.
 *
 * Test  tests/unit/s3io/pipe/test_share.c, tests/integration/cifar10.py
 */
#ifndef PL_S3IO_SHARE_H
#define PL_S3IO_SHARE_H

#include "s3io/stream.h"

/** The origin of the distributor's records. Used on local rank 0 only. */
struct pl_share_feed {
    void *context;
    enum pl_status (*start)(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr);
    /* Returns the next record whose number modulo deal.size is set in `shard_mask` [deal.size]. After PL_TIMEOUT
     * nothing is lost. */
    enum pl_status (*next)(void *context, const bool *shard_mask, int64_t deadline_ns, struct pl_record *ret_record,
                           struct pl_error *reterr);
};

struct pl_share;

/**
 * Connects to the other ranks of the host.
 *
 * Collective  over the host's ranks: each of them calls it, with its own local_rank and deal.
 * Errors      PL_TIMEOUT: not all ranks have connected. PL_INVALID: the path is too long, or the ranks have different
 *             options.
 */
enum pl_status pl_share_open(const struct pl_share_options *options, const struct pl_share_feed *feed,
                             struct pl_share **ret_share, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Asks for `epoch` and leaves an earlier one. The distributor opens the epoch when all ranks have asked for it or for a
 * later one.
 */
void pl_share_start(struct pl_share *share, uint64_t epoch);

/**
 * Returns the next record of this rank; it is valid until the next call. PL_END after the last record.
 *
 * Errors  PL_TIMEOUT at `deadline_ns`: nothing is lost; the text tells what the distributor waits for. The error of the
 *         FIFO; it is also PL_TIMEOUT if no record came for timeout_ns of the options, which ends the epoch on all
 *         ranks. PL_PEER. PL_CANCELLED. PL_INVALID: this rank has read this epoch to its end before.
 */
enum pl_status pl_share_next(struct pl_share *share, int64_t deadline_ns, struct pl_record *ret_record,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * With true, a running pl_share_next() and later ones return PL_CANCELLED; with false, later calls work again. Any
 * thread may call it.
 */
void pl_share_cancel(struct pl_share *share, bool cancelled);

/**
 * Leaves the channel. Local rank 0 waits until the other ranks have the records that they asked for, at most half a
 * minute.
 */
void pl_share_close(struct pl_share *share);

#endif
