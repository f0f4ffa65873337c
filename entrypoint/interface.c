/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which network interface leads to the other hosts. Local mode of the SDK v3 writes "ethwe", which no container has, and a
 * name that does not exist stops Open MPI and NCCL.
 */
#include "base/memory.h"
#include "entrypoint/launcher.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The address from which this host would send to `host`; false when that cannot be told. Nothing is sent. */
static bool source_address(const char *host, struct sockaddr_in *ret_address)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    socklen_t length = sizeof(*ret_address);
    bool ok = false;
    int fd;

    if (getaddrinfo(host, "9", &hints, &found) != 0) {
        return false;
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        ok = connect(fd, found->ai_addr, found->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)ret_address, &length) == 0;
        (void)close(fd);
    }
    freeaddrinfo(found);
    return ok;
}

static bool is_candidate(const struct ifaddrs *item)
{
    return item->ifa_addr != NULL && item->ifa_addr->sa_family == AF_INET && (item->ifa_flags & IFF_UP) != 0 && (item->ifa_flags & IFF_LOOPBACK) == 0;
}

/* The only interface with an address, else the one whose address leads to a peer, else the first; "lo" when there is none. */
static const char *choose(const struct pl_job *job, const struct ifaddrs *list)
{
    const struct ifaddrs *first = NULL;
    struct sockaddr_in source;
    int count = 0;

    for (const struct ifaddrs *item = list; item != NULL; item = item->ifa_next) {
        if (is_candidate(item)) {
            first = first != NULL ? first : item;
            count++;
        }
    }
    for (size_t i = 0; count > 1 && i < job->hosts.count; i++) {
        if (strcmp(job->hosts.items[i], job->current_host) == 0 || !source_address(job->hosts.items[i], &source)) {
            continue;
        }
        for (const struct ifaddrs *item = list; item != NULL; item = item->ifa_next) {
            if (is_candidate(item) && ((const struct sockaddr_in *)(const void *)item->ifa_addr)->sin_addr.s_addr == source.sin_addr.s_addr) {
                return item->ifa_name;
            }
        }
        break;
    }
    return first != NULL ? first->ifa_name : "lo";
}

enum pl_status pl_launcher_choose_interface(const struct pl_job *job, struct pl_plan *plan, char **ret_name, struct pl_error *reterr)
{
    struct ifaddrs *list = NULL;

    if (if_nametoindex(job->network_interface) != 0 || getifaddrs(&list) != 0) {
        *ret_name = pl_memory_string(job->network_interface, reterr);
        return *ret_name != NULL ? PL_OK : PL_MEMORY;
    }
    *ret_name = pl_memory_string(choose(job, list), reterr);
    freeifaddrs(list);
    if (*ret_name == NULL) {
        return PL_MEMORY;
    }
    return pl_words_printf(&plan->warnings, reterr, "there is no network interface '%s' here; '%s' is used", job->network_interface, *ret_name);
}
