/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the network interface that leads to the other hosts. Local mode of the SDK v3 writes "ethwe", which no
 * container has, and Open MPI and NCCL fail if they get a name that does not exist.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/launch/launcher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* After this time no other host's name is resolved: a stop is not seen meanwhile. */
#define RESOLVE_NS PL_NS_PER_S

/* Get the address from which this host would send to `host`. Returns false if it is unknown. Sends nothing. */
static bool source_address(const char *host, struct sockaddr_storage *ret_address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    bool ok = false;

    if (getaddrinfo(host, "9", &hints, &found) != 0) {
        return false;
    }
    for (const struct addrinfo *item = found; item && !ok; item = item->ai_next) {
        PL_AUTO_CLOSE int fd = socket(item->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t length = sizeof(*ret_address);

        ok = fd >= 0 && connect(fd, item->ai_addr, item->ai_addrlen) == 0 &&
             getsockname(fd, (struct sockaddr *)ret_address, &length) == 0;
    }
    freeaddrinfo(found);
    return ok;
}

/* Whether the interface has an address that other hosts beyond its link can reach. */
static bool is_candidate(const struct ifaddrs *item)
{
    const struct sockaddr *address = item->ifa_addr;

    return address && (item->ifa_flags & IFF_UP) != 0 && (item->ifa_flags & IFF_LOOPBACK) == 0 &&
           (address->sa_family == AF_INET ||
            (address->sa_family == AF_INET6 &&
             !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr)));
}

static bool is_same(const struct sockaddr *one, const struct sockaddr *other)
{
    const struct sockaddr_in6 *six = (const void *)one, *other_six = (const void *)other;
    const struct sockaddr_in *four = (const void *)one, *other_four = (const void *)other;

    if (one->sa_family != other->sa_family) {
        return false;
    }
    return one->sa_family == AF_INET6 ? IN6_ARE_ADDR_EQUAL(&six->sin6_addr, &other_six->sin6_addr)
                                      : four->sin_addr.s_addr == other_four->sin_addr.s_addr;
}

/* Choose the only interface with such an address, else the one whose address is used to reach another host, else the
 * first; "lo" if there is none. */
static const char *choose(const struct pl_job *job, const struct ifaddrs *list)
{
    const struct ifaddrs *first = NULL;
    const int64_t end_ns = pl_deadline_after_ns(RESOLVE_NS);
    struct sockaddr_storage source;
    bool several = false;

    for (const struct ifaddrs *item = list; item; item = item->ifa_next) {
        if (is_candidate(item)) {
            first = first ? first : item;
            several = several || strcmp(item->ifa_name, first->ifa_name) != 0;
        }
    }
    for (size_t i = 0; several && i < job->hosts.count && !pl_deadline_passed(end_ns); i++) {
        if (strcmp(job->hosts.items[i], job->current_host) == 0 || !source_address(job->hosts.items[i], &source)) {
            continue;
        }
        for (const struct ifaddrs *item = list; item; item = item->ifa_next) {
            if (is_candidate(item) && is_same(item->ifa_addr, (const struct sockaddr *)&source)) {
                return item->ifa_name;
            }
        }
        break;
    }
    return first ? first->ifa_name : "lo";
}

/* Write the interface's name into `name` and return it. */
static const char *find(const struct pl_job *job, char name[static IF_NAMESIZE])
{
    struct ifaddrs *list = NULL;

    if (if_nametoindex(job->network_interface) != 0 || getifaddrs(&list) != 0) {
        return job->network_interface;
    }
    snprintf(name, IF_NAMESIZE, "%s", choose(job, list));
    freeifaddrs(list);
    return name;
}

const char *pl_interface_choose(const struct pl_job *job, struct pl_launch_plan *plan)
{
    char name[IF_NAMESIZE];
    const char *chosen = pl_pool_string(&plan->pool, find(job, name));

    if (strcmp(job->network_interface, chosen) != 0) {
        pl_strv_printf(&plan->warnings, "there is no network interface '%s' here; '%s' is used", job->network_interface,
                       chosen);
    }
    return chosen;
}

enum pl_status pl_interface_set(const struct pl_job *job, struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const names[] = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"};
    char name[IF_NAMESIZE];
    const char *interface = find(job, name);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (!pl_environment_get(job->process, names[i])) {
            PL_TRY(pl_environment_set(environment, names[i], interface, reterr));
        }
    }
    return PL_OK;
}

/* Returns the interface's first address of that family, or NULL. */
static const struct sockaddr *first_of(const struct ifaddrs *list, const char *interface, int family)
{
    for (const struct ifaddrs *item = list; item; item = item->ifa_next) {
        if (strcmp(item->ifa_name, interface) == 0 && is_candidate(item) && item->ifa_addr->sa_family == family) {
            return item->ifa_addr;
        }
    }
    return NULL;
}

enum pl_status pl_interface_address(const struct pl_job *job, char text[static INET6_ADDRSTRLEN],
                                    struct pl_error *reterr)
{
    char name[IF_NAMESIZE];
    const char *interface = find(job, name);
    const struct sockaddr *four, *six;
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0) {
        return pl_error_errno(reterr, "list the network interfaces");
    }
    four = first_of(list, interface, AF_INET);
    six = first_of(list, interface, AF_INET6);
    if (four) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)four)->sin_addr, text, INET6_ADDRSTRLEN);
    } else if (six) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)six)->sin6_addr, text, INET6_ADDRSTRLEN);
    }
    freeifaddrs(list);
    return four || six ? PL_OK
                       : pl_error_set(reterr, PL_NOT_FOUND,
                                      "the network interface '%s' has no address at which other hosts reach this one",
                                      interface);
}

bool pl_interface_has(const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const void *)address;
    struct ifaddrs *list = NULL;
    bool has = address->sa_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;

    if (getifaddrs(&list) == 0) {
        for (const struct ifaddrs *item = list; item && !has; item = item->ifa_next) {
            has = item->ifa_addr && is_same(address, item->ifa_addr);
        }
        freeifaddrs(list);
    }
    return has;
}
