/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Descriptors that processes of one host share: memory files, and passing descriptors over a unix socket. A failure is
 * -1 and errno; the caller makes the error text, because it knows the descriptor's purpose.
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

/**
 * Makes a memory file of `bytes` bytes that can be sealed; /proc shows `name`. Pages are allocated at their first use.
 */
int pl_fd_new_memory(const char *name, size_t bytes) PL_MUST_CHECK;

/** Fixes a memory file's size for all processes, so that its mappings stay valid. Returns 0 or -1. */
int pl_fd_seal_size(int fd);

enum { PL_FD_MOST_PASSED = 4 };

/**
 * Sends `count` descriptors, at most PL_FD_MOST_PASSED, as one message. They still belong to the caller. Returns 0 or
 * -1.
 */
int pl_fd_send(int socket_fd, const int *fds, size_t count) PL_MUST_CHECK;
/** Like pl_fd_send(), with `data` of `bytes` bytes (above 0) in the message; `count` may be 0. */
int pl_fd_send_with(int socket_fd, const void *data, size_t bytes, const int *fds, size_t count) PL_MUST_CHECK;

/**
 * Receives a message of `count` descriptors, close-on-exec, which then belong to the caller. Returns 1; 0 if the other
 * side has closed or sent something else; or -1.
 */
int pl_fd_receive(int socket_fd, size_t count, int *ret_fds) PL_MUST_CHECK;
/**
 * Receives data from a unix socket, with any number of descriptors. Returns the number of bytes; for a socket of
 * packets the packet's whole length, even if it is above `bytes` and `data` gets only the beginning; 0 if the other
 * side has closed; or -1. `ret_fds` gets `*ret_count` descriptors, which belong to the caller. Descriptors beyond
 * PL_FD_MOST_PASSED are closed.
 */
ssize_t pl_fd_receive_with(int socket_fd, void *data, size_t bytes, int ret_fds[PL_FD_MOST_PASSED],
                           size_t *ret_count) PL_MUST_CHECK;

/** Returns whether the process at the other end of a unix socket has the same user as this process. */
bool pl_fd_peer_is_same_user(int socket_fd);

#endif
