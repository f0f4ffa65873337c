/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/fd.c. */
#include "base/fd.h"
#include "base/file.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(descriptors_that_are_sent_arrive_in_their_order_and_close_on_exec)
{
    int pair[2], sent[3], got[3] = {-1, -1, -1};

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (size_t i = 0; i < 3; i++) {
        sent[i] = pl_fd_new_memory("test", 100 * i);
        ck_assert_int_ge(sent[i], 0);
    }
    ck_assert_int_eq(pl_fd_send(pair[0], sent, 3), 0);
    ck_assert_int_eq(pl_fd_receive(pair[1], 3, got), 1);
    for (size_t i = 0; i < 3; i++) {
        struct stat one, other;

        ck_assert_int_eq(fstat(sent[i], &one), 0);
        ck_assert_int_eq(fstat(got[i], &other), 0);
        ck_assert_uint_eq(one.st_ino, other.st_ino);
        ck_assert_int_eq(other.st_size, (off_t)(100 * i));
        ck_assert_int_eq(fcntl(got[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        ck_assert_int_ne(got[i], sent[i]);
        pl_file_close_at(&sent[i]);
        pl_file_close_at(&got[i]);
    }
    pl_file_close_at(&pair[0]);
    pl_file_close_at(&pair[1]);
}

TEST(what_brings_no_descriptors_is_told_apart_from_an_error)
{
    int pair[2], got[2] = {-1, -1};

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(write(pair[0], "x", 1), 1);
    ck_assert_int_eq(pl_fd_receive(pair[1], 1, got), 0);
    pl_file_close_at(&pair[0]);
    ck_assert_int_eq(pl_fd_receive(pair[1], 1, got), 0);
    ck_assert_int_eq(got[0], -1);
    ck_assert_int_eq(pl_fd_send(pair[1], (const int[]){0}, 1), -1); /* and it must not raise a signal */
    ck_assert_int_eq(errno, EPIPE);
    pl_file_close_at(&pair[1]);
    ck_assert_int_eq(pl_fd_receive(pair[1], 1, got), -1);
    ck_assert_int_eq(errno, EBADF);
}

TEST(a_memory_file_keeps_the_size_that_is_sealed)
{
    PL_AUTO_CLOSE int fd = pl_fd_new_memory("test", 8192);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pl_fd_seal_size(fd), 0);
    ck_assert_int_eq(ftruncate(fd, 4096), -1);
    ck_assert_int_eq(ftruncate(fd, 16384), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(pl_file_allocate(fd, 0, 8192), 0);
}

TEST(the_other_end_of_a_socket_pair_runs_for_the_same_user)
{
    int pair[2];
    PL_AUTO_CLOSE int no_socket = pl_fd_new_memory("test", 1);

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert(pl_fd_peer_is_same_user(pair[0]));
    ck_assert(!pl_fd_peer_is_same_user(no_socket));
    pl_file_close_at(&pair[0]);
    pl_file_close_at(&pair[1]);
}

UNIT_MAIN("base/fd")
