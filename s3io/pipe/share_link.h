/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The connection between a rank and the distributor: a sequenced-packet unix socket. Its end also shows that a process
 * has died. Internal to s3io/.
 */
#ifndef PL_S3IO_PIPE_SHARE_LINK_H
#define PL_S3IO_PIPE_SHARE_LINK_H

#include "base/status.h"
#include "s3io/share.h"

/** The first message of a rank. */
struct pl_share_hello {
    uint32_t magic;
    uint32_t local_rank;
    uint32_t local_size;
    uint32_t rank; /* the shard's rank */
    uint32_t size;
};

enum { PL_SHARE_HELLO_MAGIC = 0x504c5331, PL_SHARE_LINK_FDS = 3 };

/** Listens at `path`, after removing the socket of an earlier run. */
enum pl_status pl_share_link_listen(const char *path, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Accepts one process of the same user and reads its hello. PL_TIMEOUT. PL_CANCELLED when `stop_fd` becomes readable.
 */
enum pl_status pl_share_link_accept(int listen_fd, int stop_fd, int64_t deadline_ns, int *ret_fd,
                                    struct pl_share_hello *ret_hello, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits until a process listens at `path`, connects to it, and sends `hello`. */
enum pl_status pl_share_link_connect(const char *path, const struct pl_share_hello *hello, int64_t deadline_ns,
                                     int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Sends three descriptors. */
enum pl_status pl_share_link_send_fds(int fd, const int fds[PL_SHARE_LINK_FDS], struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for three descriptors. PL_PEER if the other side has closed the connection. */
enum pl_status pl_share_link_receive_fds(int fd, int64_t deadline_ns, int ret_fds[PL_SHARE_LINK_FDS],
                                         struct pl_error *reterr) PL_MUST_CHECK;

/* The distributor of a shared channel: a thread of local rank 0. */

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
