/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that processes of one host share: memory files, and passing descriptors over a unix socket. */
#include "base/fd.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int pl_fd_new_memory(const char *name, size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        pl_file_close_at(&fd);
    }
    return fd;
}

int pl_fd_seal_size(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

/* Control data of one message with descriptors, aligned as cmsg(3) requires. */
union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(PL_FD_MOST_PASSED * sizeof(int))];
};

int pl_fd_send_with(int socket_fd, const void *data, size_t bytes, const int *fds, size_t count)
{
    union control control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    PL_BUG_IF(bytes == 0 || count > PL_FD_MOST_PASSED);
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
    }
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes ? 0 : -1;
}

int pl_fd_send(int socket_fd, const int *fds, size_t count)
{
    PL_BUG_IF(count == 0);
    return pl_fd_send_with(socket_fd, "", 1, fds, count);
}

ssize_t pl_fd_receive_with(int socket_fd, void *data, size_t bytes, int ret_fds[PL_FD_MOST_PASSED], size_t *ret_count)
{
    union control control = {.bytes = {0}};
    struct iovec part = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    const struct cmsghdr *head;
    ssize_t got;

    *ret_count = 0;
    do {
        got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    } while (got < 0 && errno == EINTR);
    head = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL; /* even an empty message may have control data */
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *ret_count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(ret_fds, CMSG_DATA(head), *ret_count * sizeof(int));
    }
    return got;
}

int pl_fd_receive(int socket_fd, size_t count, int *ret_fds)
{
    int fds[PL_FD_MOST_PASSED];
    size_t came;
    char byte;
    ssize_t got = pl_fd_receive_with(socket_fd, &byte, 1, fds, &came);

    PL_BUG_IF(count == 0 || count > PL_FD_MOST_PASSED);
    if (got == 1 && came == count) {
        memcpy(ret_fds, fds, count * sizeof(int));
        return 1;
    }
    for (size_t i = 0; i < came; i++) {
        pl_file_close_at(&fds[i]);
    }
    return got < 0 ? -1 : 0;
}

bool pl_fd_peer_is_same_user(int socket_fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}
