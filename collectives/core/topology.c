/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the ranks that share a host. Host names are unreliable (containers, cloned machines), so each rank puts a
 * random number in a memory file, and the others try to open that file through /proc: a rank that reads the number can
 * also share memory. Ranks in separate PID namespaces cannot, and count as separate hosts.
 */
#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { NONCE_BYTES = 16 };

/* The hello that each rank sends to all others. */
struct hello {
    unsigned char nonce[NONCE_BYTES];
    int32_t pid;
    int32_t fd;
    struct pl_cpus cpus; /* CPUs that the rank may run on */
    struct pl_locality place;
};

static void fill_locality(struct pl_locality *place, const struct pl_device *device)
{
    if (gethostname(place->host, sizeof(place->host) - 1) != 0) {
        strcpy(place->host, "unknown");
    }
    if (device) {
        const struct pl_device_info *info = pl_device_info(device);

        snprintf(place->device, sizeof(place->device), "%s", info->uuid);
        place->ordinal = info->ordinal;
    }
}

static enum pl_status make_hello(struct hello *hello, int *ret_fd, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = memfd_create("paceline-nonce", MFD_CLOEXEC);

    if (fd < 0) {
        return pl_error_errno(reterr, "make a memory file");
    }
    if (getrandom(hello->nonce, sizeof(hello->nonce), 0) != sizeof(hello->nonce)) {
        return pl_error_errno(reterr, "get random bytes");
    }
    PL_TRY(pl_file_write_fd(fd, hello->nonce, sizeof(hello->nonce), "the memory file that tells hosts apart", reterr));
    if (sched_getaffinity(0, sizeof(hello->cpus), hello->cpus.sets) != 0) {
        return pl_error_errno(reterr, "read the CPU affinity");
    }
    hello->pid = (int32_t)getpid();
    hello->fd = (int32_t)fd;
    *ret_fd = fd;
    fd = -1;
    return PL_OK;
}

static bool can_read(const struct hello *hello)
{
    unsigned char nonce[NONCE_BYTES];
    char path[64];
    PL_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", hello->pid, hello->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && pread(fd, nonce, sizeof(nonce), 0) == sizeof(nonce) &&
           memcmp(nonce, hello->nonce, sizeof(nonce)) == 0;
}

/* Sets leaders[r], for each rank r, to the lowest rank whose memory r can open. */
static enum pl_status find_leaders(struct pl_bootstrap *bootstrap, const struct pl_device *device, int32_t *leaders,
                                   struct hello *hellos, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;
    struct hello hello;
    int32_t leader = 0;
    enum pl_status status;

    memset(&hello, 0, sizeof(hello));
    fill_locality(&hello.place, device);
    status = make_hello(&hello, &fd, reterr);
    if (status != PL_OK) {
        return pl_bootstrap_abort_collective(bootstrap, status, reterr, deadline_ns);
    }
    PL_TRY(pl_bootstrap_allgather(bootstrap, &hello, hellos, sizeof(hello), deadline_ns, reterr));
    while (leader < bootstrap->rank && !can_read(&hellos[leader])) {
        leader++;
    }
    /* After this second allgather the memory files are not needed any more. */
    return pl_bootstrap_allgather(bootstrap, &leader, leaders, sizeof(leader), deadline_ns, reterr);
}

static void number_hosts(struct pl_topology *topology, const int32_t *leaders, int rank, int size)
{
    int smallest = size;
    int largest = 0;

    topology->hosts = 0;
    for (int r = 0; r < size; r++) {
        int leader = leaders[r];
        int local = 0;

        if (leader == r || leaders[leader] != leader) {
            topology->host_of[r] = topology->hosts++;
        } else {
            topology->host_of[r] = topology->host_of[leader];
        }
        for (int earlier = 0; earlier < r; earlier++) {
            local += topology->host_of[earlier] == topology->host_of[r];
        }
        topology->local_of[r] = local;
    }
    for (int host = 0; host < topology->hosts; host++) {
        int ranks = 0;

        for (int r = 0; r < size; r++) {
            ranks += topology->host_of[r] == host;
        }
        smallest = ranks < smallest ? ranks : smallest;
        largest = ranks > largest ? ranks : largest;
        if (host == topology->host_of[rank]) {
            topology->local_size = ranks;
        }
    }
    topology->homogeneous = smallest == largest;
}

/* Fills the ring order. Rings visit host after host, and on each host the local ranks in the order of gpu_indices. */
static enum pl_status order_ring(struct pl_topology *topology, const struct pl_world_options *options, int size,
                                 struct pl_error *reterr)
{
    int place = 0;

    for (int host = 0; host < topology->hosts; host++) {
        int ranks = 0;

        for (int r = 0; r < size; r++) {
            ranks += topology->host_of[r] == host;
        }
        if (options->gpu_indices && options->gpu_count != (size_t)ranks) {
            return pl_error_set(reterr, PL_INVALID, "gpu_indices lists %zu local ranks, but host %d has %d ranks",
                                options->gpu_count, host, ranks);
        }
        for (int local = 0; local < ranks; local++) {
            int wanted = options->gpu_indices ? options->gpu_indices[local] : local;
            int found = -1;

            for (int r = 0; r < size; r++) {
                if (topology->host_of[r] == host && topology->local_of[r] == wanted) {
                    found = r;
                }
            }
            for (int earlier = 0; earlier < place; earlier++) {
                found = topology->order[earlier] == found ? -1 : found;
            }
            if (found < 0) {
                return pl_error_set(reterr, PL_INVALID, "gpu_indices is not a permutation of 0 to %d: entry %d is %d",
                                    ranks - 1, local, wanted);
            }
            topology->order[place++] = found;
        }
    }
    return PL_OK;
}

/* Whether this host has more ranks (those with this rank's leader) than CPUs that they may run on. */
static bool too_few_cpus(const struct hello *hellos, const int32_t *leaders, int rank, int size)
{
    struct pl_cpus cpus;
    int ranks = 0;

    memset(&cpus, 0, sizeof(cpus));
    for (int r = 0; r < size; r++) {
        if (leaders[r] == leaders[rank]) {
            CPU_OR_S(sizeof(cpus), cpus.sets, cpus.sets, hellos[r].cpus.sets);
            ranks++;
        }
    }
    return CPU_COUNT_S(sizeof(cpus), cpus.sets) < ranks;
}

/* Asks the ranks of a twin for their devices. */
static enum pl_status gather_places(struct pl_bootstrap *bootstrap, const struct pl_device *device,
                                    struct hello *hellos, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_locality *places = NULL;
    struct pl_locality own;

    memset(&own, 0, sizeof(own));
    fill_locality(&own, device);
    PL_TRY(pl_bootstrap_gather(bootstrap, &own, sizeof(own), deadline_ns, &places, reterr));
    for (int r = 0; r < bootstrap->size; r++) {
        hellos[r].place = places[r];
    }
    return PL_OK;
}

/* Takes hosts, processes and places of a sub-world's ranks from its parent. */
static void inherit(const struct pl_topology *parent, const int *parent_ranks, int size, bool has_device,
                    int32_t *leaders, struct hello *hellos)
{
    for (int r = 0; r < size; r++) {
        hellos[r].pid = (int32_t)parent->pid_of[parent_ranks[r]];
        hellos[r].place = parent->localities[parent_ranks[r]];
        if (!has_device) {
            hellos[r].place.device[0] = '\0'; /* an internal world for hosts: see pl_world_new_internal() */
        }
        while (parent->host_of[parent_ranks[leaders[r]]] != parent->host_of[parent_ranks[r]]) {
            leaders[r]++;
        }
    }
}

static enum pl_status fill(struct pl_topology *topology, struct pl_bootstrap *bootstrap,
                           const struct pl_world_options *options, const struct pl_world *parent,
                           const int *parent_ranks, int64_t deadline_ns, struct pl_error *reterr)
{
    size_t size = (size_t)bootstrap->size;
    PL_AUTO_FREE int32_t *leaders = pl_memory_new(size, sizeof(*leaders), reterr);
    PL_AUTO_FREE struct hello *hellos = pl_memory_new(size, sizeof(*hellos), reterr);
    enum pl_status status;

    if (!leaders || !hellos) {
        return pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    if (parent) {
        inherit(&parent->topology, parent_ranks, bootstrap->size, options->device || options->has_own_device, leaders,
                hellos);
        if (options->has_own_device) {
            PL_TRY(gather_places(bootstrap, options->device, hellos, deadline_ns, reterr));
        }
    } else {
        PL_TRY(find_leaders(bootstrap, options->device, leaders, hellos, deadline_ns, reterr));
    }
    /* The other ranks of a parent world compete for the CPUs as well, and pretended hosts share theirs. */
    topology->oversubscribed =
        parent ? parent->topology.oversubscribed : too_few_cpus(hellos, leaders, bootstrap->rank, bootstrap->size);
    topology->one_process = true;
    for (int r = 0; r < bootstrap->size; r++) {
        topology->one_process = topology->one_process && leaders[r] == 0 && hellos[r].pid == (int32_t)getpid();
    }
    for (int r = 0; r < bootstrap->size && options->pretend_ranks_per_host > 0; r++) {
        leaders[r] = r / options->pretend_ranks_per_host * options->pretend_ranks_per_host;
    }
    number_hosts(topology, leaders, bootstrap->rank, bootstrap->size);
    for (int r = 0; r < bootstrap->size; r++) {
        topology->pid_of[r] = topology->host_of[r] == topology->host_of[bootstrap->rank] ? (pid_t)hellos[r].pid : 0;
        topology->localities[r] = hellos[r].place;
    }
    status = order_ring(topology, options, bootstrap->size, reterr);
    if (status == PL_OK && options->has_own_device) {
        memcpy(topology->order, parent->topology.order, size * sizeof(*topology->order));
    }
    return status == PL_OK ? PL_OK : pl_bootstrap_abort_collective(bootstrap, status, reterr, deadline_ns);
}

enum pl_status pl_topology_init(struct pl_topology *topology, struct pl_bootstrap *bootstrap,
                                const struct pl_world_options *options, const struct pl_world *parent,
                                const int *parent_ranks, int64_t deadline_ns, struct pl_error *reterr)
{
    size_t size = (size_t)bootstrap->size;
    enum pl_status status;

    topology->host_of = pl_memory_new(size, sizeof(int), reterr);
    topology->local_of = pl_memory_new(size, sizeof(int), reterr);
    topology->pid_of = pl_memory_new(size, sizeof(pid_t), reterr);
    topology->order = pl_memory_new(size, sizeof(int), reterr);
    topology->global_ranks = pl_memory_new(size, sizeof(int), reterr);
    topology->localities = pl_memory_new(size, sizeof(*topology->localities), reterr);
    for (int r = 0; topology->global_ranks && topology->localities && r < bootstrap->size; r++) {
        topology->global_ranks[r] = parent ? parent->topology.global_ranks[parent_ranks[r]] : r;
        if (parent) {
            topology->localities[r] = parent->topology.localities[parent_ranks[r]];
        }
    }
    if (bootstrap->transport) {
        bootstrap->transport->global_ranks = parent ? topology->global_ranks : NULL;
        bootstrap->transport->localities = parent ? topology->localities : NULL;
    }
    if (topology->host_of && topology->local_of && topology->pid_of && topology->order && topology->global_ranks &&
        topology->localities) {
        status = fill(topology, bootstrap, options, parent, parent_ranks, deadline_ns, reterr);
    } else {
        status = pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    if (bootstrap->transport) {
        bootstrap->transport->global_ranks = status == PL_OK && parent ? topology->global_ranks : NULL;
        bootstrap->transport->localities = status == PL_OK ? topology->localities : NULL;
    }
    if (status != PL_OK) {
        pl_topology_done(topology);
    }
    return status;
}

void pl_topology_done(struct pl_topology *topology)
{
    free(topology->host_of);
    free(topology->local_of);
    free(topology->pid_of);
    free(topology->order);
    free(topology->global_ranks);
    free(topology->localities);
    memset(topology, 0, sizeof(*topology));
}
