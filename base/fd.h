/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Descriptors that processes of one host share: memory files, and handing descriptors over a unix socket. Functions
 * that fail say so by -1 and errno; the caller knows what it was about.
 *
 * Source  memfd_create(2), fcntl(2) on file sealing, unix(7) on SCM_RIGHTS and SO_PEERCRED.
 * Test    tests/unit/base/test_fd.c
 */
#ifndef PL_BASE_FD_H
#define PL_BASE_FD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** A memory file of `bytes` bytes that can be sealed; `name` shows in /proc. Its pages are taken at first use. */
int pl_fd_new_memory(const char *name, size_t bytes) PL_MUST_CHECK;

/** Keep a memory file's size as it is, for every process that has it: what is mapped stays there. 0 or -1. */
int pl_fd_seal_size(int fd);

enum { PL_FD_MOST_PASSED = 4 };

/** Send `count` descriptors, at most PL_FD_MOST_PASSED, as one message; they stay the caller's. 0 or -1. */
int pl_fd_send(int socket_fd, const int *fds, size_t count) PL_MUST_CHECK;
/** The same with `data` [bytes], above 0, and with `count` from 0 on. */
int pl_fd_send_with(int socket_fd, const void *data, size_t bytes, const int *fds, size_t count) PL_MUST_CHECK;

/**
 * Receive a message of `count` descriptors, which are the caller's then, close-on-exec. Returns 1; 0 where the other
 * side has closed, or sent something else; or -1.
 */
int pl_fd_receive(int socket_fd, size_t count, int *ret_fds) PL_MUST_CHECK;
/**
 * Receive what a unix socket has, with any number of descriptors. Where it keeps messages apart, a message's whole
 * length, even where `data` [bytes] is shorter and has its beginning; 0: the other side has closed; or -1. `*ret_count`
 * descriptors, which are the caller's, are in `ret_fds`; more than PL_FD_MOST_PASSED are closed.
 */
ssize_t pl_fd_receive_with(int socket_fd, void *data, size_t bytes, int ret_fds[PL_FD_MOST_PASSED],
                           size_t *ret_count) PL_MUST_CHECK;

/** Whether the process at the other end of a unix socket runs for this process's user. */
bool pl_fd_peer_is_same_user(int socket_fd);

#endif
