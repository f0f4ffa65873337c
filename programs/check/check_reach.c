/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests, before mpirun's daemon starts on another host, that this host can connect back to mpirun. Otherwise the daemon
 * and mpirun would wait for each other without a message.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "programs/check/check.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Reads "tcp://ADDRESS,ADDRESS:PORT"; Open MPI 5 appends more, which is ignored. */
static bool read_contact(const char *at, struct pl_check_contact *contact)
{
    const char *end = at + strcspn(at, ":; \"'"), *port = end + 1;
    size_t digits;

    if (*end != ':') {
        return false;
    }
    digits = strspn(port, "0123456789");
    if (digits == 0 || digits >= sizeof(contact->port)) {
        return false;
    }
    snprintf(contact->port, sizeof(contact->port), "%.*s", (int)digits, port);
    for (contact->count = 0; at < end && contact->count < (int)PL_ARRAY_ITEMS(contact->addresses);) {
        size_t length = strcspn(at, ",:");

        if (length > 0 && length < sizeof(contact->addresses[0])) {
            snprintf(contact->addresses[contact->count++], sizeof(contact->addresses[0]), "%.*s", (int)length, at);
        }
        at += length + 1;
    }
    return contact->count > 0;
}

bool pl_check_reach_find(char *const *words, int count, struct pl_check_contact *ret_contact)
{
    static const char scheme[] = "tcp://";

    for (int i = 0; i < count; i++) {
        const char *at = strstr(words[i], scheme);

        if (at && read_contact(at + strlen(scheme), ret_contact)) {
            return true;
        }
    }
    return false;
}

/* Connects; returns 0 or an errno. */
static int connect_until(const struct addrinfo *to, int64_t deadline_ns)
{
    PL_AUTO_CLOSE int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    socklen_t length = sizeof(int);
    int error = 0, ready;

    if (fd < 0 || (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)) {
        return errno;
    }
    do {
        ready = poll(&wait, 1, pl_deadline_poll_ms(deadline_ns));
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return ETIMEDOUT;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

static int try_host(const char *host, const char *port, int64_t deadline_ns)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error;

    if (getaddrinfo(host, port, &hints, &found) != 0) {
        return EHOSTUNREACH;
    }
    error = connect_until(found, deadline_ns);
    freeaddrinfo(found);
    return error;
}

enum pl_status pl_check_reach_try(const struct pl_check_contact *contact, const char *master, const char *interface,
                                  int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text tried = PL_TEXT_NONE;
    const int64_t share_ns = (deadline_ns - pl_clock_now_ns()) / (contact->count + 1);

    for (int i = 0; i < contact->count; i++) {
        int error = try_host(contact->addresses[i], contact->port, pl_deadline_after_ns(share_ns));

        if (error == 0) {
            return PL_OK;
        }
        pl_text_printf(&tried, "%s%s port %s (%s)", i > 0 ? ", " : "", contact->addresses[i], contact->port,
                       strerror(error));
    }
    if (try_host(master, contact->port, deadline_ns) == 0) {
        return pl_error_set(reterr, PL_PEER,
                            "does not reach %s at %s, but reaches it by its name: the interface %s of "
                            "resourceconfig.json's network_interface_name does not lead there",
                            master, pl_text_string(&tried), interface);
    }
    return pl_error_set(reterr, PL_PEER,
                        "does not reach %s at %s: is a port closed between the hosts (a security group must let them "
                        "reach each other on all ports), or %s the wrong interface?",
                        master, pl_text_string(&tried), interface);
}
