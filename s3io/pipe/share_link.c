/* SPDX-License-Identifier: Apache-2.0 */
/* The unix socket by which ranks of a host connect to the distributor and receive their rings. */
#include "s3io/pipe/share_link.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* There is no event when a process begins to listen, so the connection is tried again after this time. */
#define TRY_AGAIN_NS (20 * PL_NS_PER_MS)

static enum pl_status address_of(const char *path, struct sockaddr_un *address, struct pl_error *reterr)
{
    size_t bytes = strlen(path);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (bytes >= sizeof(address->sun_path)) {
        return pl_error_set(reterr, PL_INVALID, "socket path '%s' is longer than %zu bytes", path,
                            sizeof(address->sun_path) - 1);
    }
    memcpy(address->sun_path, path, bytes + 1);
    return PL_OK;
}

enum pl_status pl_share_link_listen(const char *path, int *ret_fd, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;

    if (fd < 0) {
        return pl_error_errno(reterr, "make a unix socket");
    }
    PL_TRY(address_of(path, &address, reterr));
    if (unlink(path) != 0 && errno != ENOENT) {
        return pl_error_errno(reterr, "remove the old socket '%s'", path);
    }
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, SOMAXCONN) != 0) {
        return pl_error_errno(reterr, "bind or listen at unix socket '%s'", path);
    }
    *ret_fd = fd;
    fd = -1;
    return PL_OK;
}

/* Waits until `fd` is readable. PL_CANCELLED if `stop_fd` is readable. */
static enum pl_status wait_readable(int fd, int stop_fd, int64_t deadline_ns, const char *what, struct pl_error *reterr)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};

    for (;;) {
        int ready = poll(fds, 2, pl_deadline_poll_ms(deadline_ns));

        if (ready < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "poll a unix socket");
        }
        if (ready > 0 && fds[1].revents) {
            return pl_error_set(reterr, PL_CANCELLED, "waiting for %s was cancelled", what);
        }
        if (ready > 0) {
            return PL_OK;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "%s did not come before the deadline", what);
        }
    }
}

enum pl_status pl_share_link_accept(int listen_fd, int stop_fd, int64_t deadline_ns, int *ret_fd,
                                    struct pl_share_hello *ret_hello, struct pl_error *reterr)
{
    for (;;) {
        PL_AUTO_CLOSE int fd = -1;
        ssize_t got;

        PL_TRY(wait_readable(listen_fd, stop_fd, deadline_ns, "a rank of this host", reterr));
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            return pl_error_errno(reterr, "accept a connection on a unix socket");
        }
        /* A process of another user, or one that closes at once, is not a rank. The ranks may still connect. */
        if (!pl_fd_peer_is_same_user(fd) || wait_readable(fd, stop_fd, deadline_ns, "a rank's hello", NULL) != PL_OK) {
            continue;
        }
        got = recv(fd, ret_hello, sizeof(*ret_hello), 0);
        if (got == (ssize_t)sizeof(*ret_hello) && ret_hello->magic == PL_SHARE_HELLO_MAGIC) {
            *ret_fd = fd;
            fd = -1;
            return PL_OK;
        }
    }
}

enum pl_status pl_share_link_connect(const char *path, const struct pl_share_hello *hello, int64_t deadline_ns,
                                     int *ret_fd, struct pl_error *reterr)
{
    struct sockaddr_un address;

    PL_TRY(address_of(path, &address, reterr));
    for (;;) {
        PL_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (fd < 0) {
            return pl_error_errno(reterr, "make a unix socket");
        }
        errno = EAGAIN; /* if another user's process listens, try again as if nobody listened */
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && pl_fd_peer_is_same_user(fd) &&
            send(fd, hello, sizeof(*hello), MSG_NOSIGNAL) == (ssize_t)sizeof(*hello)) {
            *ret_fd = fd;
            fd = -1;
            return PL_OK;
        }
        if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR && errno != EPIPE &&
            errno != ECONNRESET) {
            return pl_error_errno(reterr, "connect to unix socket '%s'", path);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(
                reterr, PL_TIMEOUT,
                "no process listened at unix socket '%s' before the deadline: see whether local rank 0 runs", path);
        }
        pl_clock_nap(TRY_AGAIN_NS, deadline_ns);
    }
}

enum pl_status pl_share_link_send_fds(int fd, const int fds[PL_SHARE_LINK_FDS], struct pl_error *reterr)
{
    if (pl_fd_send(fd, fds, PL_SHARE_LINK_FDS) != 0) {
        return pl_error_raise(reterr, PL_PEER, PL_DOMAIN_ERRNO, errno, "cannot send a ring's descriptors to a rank");
    }
    return PL_OK;
}

enum pl_status pl_share_link_receive_fds(int fd, int64_t deadline_ns, int ret_fds[PL_SHARE_LINK_FDS],
                                         struct pl_error *reterr)
{
    PL_TRY(wait_readable(fd, -1, deadline_ns, "the ring from local rank 0", reterr));
    if (pl_fd_receive(fd, PL_SHARE_LINK_FDS, ret_fds) <= 0) {
        return pl_error_set(reterr, PL_PEER,
                            "local rank 0 closed the connection before it sent a ring: see the error of local rank 0");
    }
    return PL_OK;
}
