/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a program, it limits every TCP flow between inet sockets to PACELINE_FLOW_MBIT Mbit/s, as clouds limit
 * one flow to a part of an instance's link: the kernel paces the sockets.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

static void hold(int socket_fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    const char *text = getenv("PACELINE_FLOW_MBIT");
    uint64_t bytes_per_s = text ? strtoull(text, NULL, 10) * 1000000 / 8 : 0;
    int kept = errno;

    if (bytes_per_s > 0 && getsockname(socket_fd, (struct sockaddr *)&address, &length) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6) &&
        setsockopt(socket_fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof(bytes_per_s)) != 0) {
        abort(); /* with an unlimited flow any result would look good */
    }
    errno = kept;
}

int connect(int socket_fd, const struct sockaddr *address, socklen_t length)
{
    int (*original)(int, const struct sockaddr *, socklen_t) =
        (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");

    hold(socket_fd);
    return original(socket_fd, address, length);
}

int accept(int socket_fd, struct sockaddr *address, socklen_t *length)
{
    int (*original)(int, struct sockaddr *, socklen_t *) =
        (int (*)(int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "accept");
    int accepted_fd = original(socket_fd, address, length);

    if (accepted_fd >= 0) {
        hold(accepted_fd);
    }
    return accepted_fd;
}

int accept4(int socket_fd, struct sockaddr *address, socklen_t *length, int flags)
{
    int (*original)(int, struct sockaddr *, socklen_t *, int) =
        (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    int accepted_fd = original(socket_fd, address, length, flags);

    if (accepted_fd >= 0) {
        hold(accepted_fd);
    }
    return accepted_fd;
}
