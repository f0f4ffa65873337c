/* SPDX-License-Identifier: Apache-2.0 */
/**
 * How a rank and the distributor connect: a sequenced-packet unix socket, whose end also reports a dead process. Inside
 * s3io only.
 */
#ifndef PL_S3IO_PIPE_SHARE_LINK_H
#define PL_S3IO_PIPE_SHARE_LINK_H

#include "base/status.h"

/** The first message of a rank. */
struct pl_share_hello {
    uint32_t magic;
    uint32_t local_rank;
    uint32_t local_size;
    uint32_t rank; /* of its shard */
    uint32_t size;
};

enum { PL_SHARE_HELLO_MAGIC = 0x504c5331, PL_SHARE_LINK_FDS = 3 };

/** Listen at `path`, replacing what an earlier run left there. */
enum pl_status pl_share_link_listen(const char *path, int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Accept one process of the same user and read its hello. PL_TIMEOUT; PL_CANCELLED once `stop_fd` is readable. */
enum pl_status pl_share_link_accept(int listen_fd, int stop_fd, int64_t deadline_ns, int *ret_fd,
                                    struct pl_share_hello *ret_hello, struct pl_error *reterr) PL_MUST_CHECK;

/** Connect to `path`, waiting until somebody listens there, and say `hello`. */
enum pl_status pl_share_link_connect(const char *path, const struct pl_share_hello *hello, int64_t deadline_ns,
                                     int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Hand three descriptors over. */
enum pl_status pl_share_link_send_fds(int fd, const int fds[PL_SHARE_LINK_FDS], struct pl_error *reterr) PL_MUST_CHECK;

/** Wait for them. PL_PEER when the other side closed. */
enum pl_status pl_share_link_receive_fds(int fd, int64_t deadline_ns, int ret_fds[PL_SHARE_LINK_FDS],
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
