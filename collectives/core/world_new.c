/* SPDX-License-Identifier: Apache-2.0 */
/* Making a world: settings of rank 0, topology, backends, sub-worlds; taking it down and describing it. */
#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/core/types.h"
#include "collectives/reduce/kernel.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank that cannot make a world waits for the others, whose timeout it does not know, to send its error. */
#define REFUSAL_NS (60 * PL_NS_PER_S)

/* In order of preference: the first that runs and takes a collective gets it. */
static const struct pl_backend *const table[] = {
    &pl_backend_self, &pl_backend_solo,      &pl_backend_nccl,     &pl_backend_device,
    &pl_backend_shm,  &pl_backend_hierarchy, &pl_backend_exchange,
};

_Static_assert(PL_ARRAY_ITEMS(table) <= PL_WORLD_MAX_BACKENDS, "the world has room for every backend");

enum pl_status pl_world_share_news(struct pl_world *world, struct pl_news *mine, int64_t deadline_ns,
                                   struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_news *all = pl_memory_new((size_t)world->size, sizeof(*all), reterr);

    if (!all) {
        return pl_bootstrap_refuse(world->bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    PL_TRY(world->bootstrap->allgather(world->bootstrap->context, mine, all, sizeof(*mine), deadline_ns, reterr));
    for (int r = 0; r < world->size; r++) {
        if (all[r].status != PL_OK) {
            *mine = all[r];
            return PL_OK;
        }
    }
    return PL_OK;
}

static enum pl_status share_knobs(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_knobs *all = pl_memory_new((size_t)world->size, sizeof(*all), reterr);

    if (!all) {
        return pl_bootstrap_refuse(world->bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    PL_TRY(
        world->bootstrap->allgather(world->bootstrap->context, &world->knobs, all, sizeof(*all), deadline_ns, reterr));
    world->knobs = all[0];
    return PL_OK;
}

/*
 * Whether the setting `backend` leaves this one out. It chooses among those for host memory or among those for device
 * memory, and leaves the others alone. The internal worlds of hier, where hier itself cannot run, may use any.
 */
static bool is_excluded(const struct pl_world *world, const struct pl_backend *backend)
{
    const char *only = pl_knob_text(&world->knobs, PL_KNOB_BACKEND);
    bool chooses_on_device = strcmp(only, pl_backend_nccl.name) == 0 || strcmp(only, pl_backend_device.name) == 0;
    char reason[PL_BACKEND_REASON_BYTES];

    if (!*only || backend == &pl_backend_self || backend == &pl_backend_solo || strcmp(only, backend->name) == 0 ||
        chooses_on_device != backend->on_device) {
        return false;
    }
    if (chooses_on_device) {
        return true;
    }
    return strcmp(only, pl_backend_hierarchy.name) != 0 || pl_backend_hierarchy.probe(world, reason);
}

bool pl_world_has_devices(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    int with = 0;
    int without = -1;

    for (int r = 0; r < world->size; r++) {
        bool has = world->topology.places[r].device[0] != '\0';

        with += has;
        without = has || without >= 0 ? without : r;
    }
    if (with == 0) {
        (void)snprintf(reason, PL_BACKEND_REASON_BYTES, "this world was given no device");
    } else if (without >= 0) {
        (void)snprintf(reason, PL_BACKEND_REASON_BYTES, "rank %d was given no device", world->topology.labels[without]);
    }
    return with == world->size;
}

static enum pl_status start_backend(struct pl_world *world, const struct pl_backend *backend, int64_t deadline_ns,
                                    struct pl_error *reterr)
{
    struct pl_world_backend *entry = &world->backends[world->backend_count++];
    struct pl_news news;
    enum pl_status status, shared;
    struct pl_error error = PL_ERROR_NONE;

    entry->backend = backend;
    if (backend->on_device && !pl_world_has_devices(world, entry->reason)) {
        return PL_OK;
    }
    if (is_excluded(world, backend)) {
        snprintf(entry->reason, sizeof(entry->reason), "the setting backend asks for %s only",
                 pl_knob_text(&world->knobs, PL_KNOB_BACKEND));
        return PL_OK;
    }
    memset(&news, 0, sizeof(news));
    news.status = backend->probe(world, news.text) ? PL_OK : PL_UNSUPPORTED;
    PL_TRY(pl_world_share_news(world, &news, deadline_ns, reterr));
    if (news.status != PL_OK) {
        memcpy(entry->reason, news.text, sizeof(entry->reason));
        return PL_OK;
    }
    status = backend->init(world, &entry->state, &error);
    news.status = status;
    if (status != PL_OK) {
        pl_error_text(&error, news.text, sizeof(news.text));
    }
    shared = pl_world_share_news(world, &news, deadline_ns, reterr);
    entry->on = shared == PL_OK && news.status == PL_OK;
    if (!entry->on) {
        memcpy(entry->reason, news.text, sizeof(entry->reason));
        if (status == PL_OK) {
            backend->free(entry->state);
        }
        entry->state = NULL;
    }
    return shared;
}

static enum pl_status start_backends(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    bool any = false;

    world->has_notices = world->size > 1 && world->bootstrap->transport;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(table); i++) {
        const struct pl_world_backend *entry = &world->backends[i];

        PL_TRY(start_backend(world, table[i], deadline_ns, reterr));
        any = any || entry->on;
        world->has_notices = world->has_notices && !(entry->on && entry->backend == &pl_backend_shm);
    }
    if (!any) {
        pl_error_set(reterr, PL_UNSUPPORTED, "no backend can run on this world");
        for (int i = 0; i < world->backend_count; i++) {
            pl_error_context(reterr, "%s: %s", world->backends[i].backend->name, world->backends[i].reason);
        }
        return PL_UNSUPPORTED;
    }
    return PL_OK;
}

static enum pl_status resolve_knobs(const struct pl_world_options *options, struct pl_knobs *ret_knobs,
                                    struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    if (options->knobs) {
        *ret_knobs = *options->knobs;
        return PL_OK;
    }
    PL_TRY(pl_environment_new(&environment, reterr));
    return pl_knobs_resolve(environment, ret_knobs, reterr);
}

/* A rank's CPU may be unable to run the kernel that rank 0's settings name: then all ranks report which one. */
static enum pl_status check_kernel(const struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    const char *word = pl_knob_text(&world->knobs, PL_KNOB_KERNEL);
    enum pl_status status = PL_OK;

    if (!word[0]) {
        return PL_OK;
    }
    if (!pl_kernel_named(word)) {
        status = pl_error_set(reterr, PL_INVALID, "%s is '%s', which this CPU cannot run",
                              pl_knob_info(PL_KNOB_KERNEL)->variable, word);
    }
    return pl_bootstrap_ready(world->bootstrap, status, deadline_ns, reterr);
}

static void set_timeout(struct pl_world *world)
{
    world->timeout_ns = pl_knob_real(&world->knobs, PL_KNOB_TIMEOUT_S) > 0
                            ? pl_knob_ns(&world->knobs, PL_KNOB_TIMEOUT_S, PL_NS_PER_S)
                            : -1;
}

/* See pl_world_host_part(). Making it is collective, so a rank that has failed by now votes so first. */
static enum pl_status new_host_part(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ranks = pl_memory_new((size_t)world->size, sizeof(int), reterr);

    for (int r = 0; ranks && r < world->size; r++) {
        ranks[r] = r;
    }
    PL_TRY(pl_bootstrap_ready(world->bootstrap, ranks ? PL_OK : PL_MEMORY, deadline_ns, reterr));
    return pl_world_new_inner(world, ranks, world->size, &world->host_part, reterr);
}

/* What pl_world_new(), pl_world_new_sub() and pl_world_new_inner() share; `parent` NULL for the first. */
static enum pl_status build(struct pl_world *world, const struct pl_world_options *options,
                            const struct pl_world *parent, const int *parent_ranks, struct pl_error *reterr)
{
    char reason[PL_BACKEND_REASON_BYTES];
    int64_t deadline_ns;

    if (parent) {
        world->knobs = parent->knobs;
    } else {
        PL_TRY(resolve_knobs(options, &world->knobs, reterr));
    }
    set_timeout(world);
    deadline_ns = pl_world_deadline_ns(world);
    if (!parent) {
        PL_TRY(share_knobs(world, deadline_ns, reterr));
        set_timeout(world);
    }
    world->spin_ns = pl_knob_ns(&world->knobs, PL_KNOB_SPIN_US, PL_NS_PER_US);
    if (!parent) {
        PL_TRY(check_kernel(world, deadline_ns, reterr));
    }
    world->always_flags = pl_knob_bool(&world->knobs, PL_KNOB_REPRODUCIBLE) ? PL_REPRODUCIBLE : 0;
    world->wire_flag = strcmp(pl_knob_text(&world->knobs, PL_KNOB_WIRE_TYPE), "float16") == 0    ? PL_WIRE_FLOAT16
                       : strcmp(pl_knob_text(&world->knobs, PL_KNOB_WIRE_TYPE), "bfloat16") == 0 ? PL_WIRE_BFLOAT16
                                                                                                 : 0;
    PL_TRY(pl_topology_init(&world->topology, world->bootstrap, options, parent, parent_ranks, deadline_ns, reterr));
    if (world->size > 1 && pl_world_has_devices(world, reason)) {
        PL_TRY(new_host_part(world, deadline_ns, reterr));
    }
    return start_backends(world, deadline_ns, reterr);
}

static atomic_uint parts; /* sub-worlds that this process has made */

static enum pl_status new_world(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                const struct pl_world *parent, const int *parent_ranks, bool inner,
                                struct pl_world **ret_world, struct pl_error *reterr)
{
    struct pl_world *world = pl_memory_new(1, sizeof(*world), reterr);
    enum pl_status status;

    if (!world) {
        (void)pl_bootstrap_refuse(bootstrap, PL_MEMORY, reterr,
                                  parent ? pl_world_deadline_ns(parent) : pl_deadline_after_ns(REFUSAL_NS));
        if (parent) {
            pl_bootstrap_free(bootstrap);
        }
        return PL_MEMORY;
    }
    world->bootstrap = bootstrap;
    world->owns_bootstrap = parent != NULL;
    world->device = options->device;
    world->rank = bootstrap->rank;
    world->size = bootstrap->size;
    if (parent && !inner) {
        world->observer = parent->observer;
        world->part = atomic_fetch_add(&parts, 1) + 1;
    }
    status = build(world, options, parent, parent_ranks, reterr);
    if (status == PL_OK && !inner) {
        status = pl_bootstrap_ready(bootstrap, pl_progress_start(world, reterr), pl_world_deadline_ns(world), reterr);
    }
    if (status != PL_OK) {
        pl_world_free(world);
        return status;
    }
    *ret_world = world;
    return PL_OK;
}

enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr)
{
    static const struct pl_world_options none;

    if (bootstrap->transport && bootstrap->transport->told) {
        (void)pl_error_set(reterr, PL_INVALID,
                           "a world over this bootstrap has failed, and its messages may still come: another world "
                           "needs a bootstrap of its own");
        return pl_bootstrap_refuse(bootstrap, PL_INVALID, reterr, pl_deadline_after_ns(REFUSAL_NS));
    }
    return new_world(bootstrap, options ? options : &none, NULL, NULL, false, ret_world, reterr);
}

static enum pl_status check_list(const struct pl_world *parent, const int *ranks, int count, struct pl_error *reterr)
{
    bool member = false;

    if (count < 1) {
        return pl_error_set(reterr, PL_INVALID, "a sub-world needs at least one rank");
    }
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size) {
            return pl_error_set(reterr, PL_INVALID, "rank %d is not in this world of %d", ranks[i], parent->size);
        }
        for (int earlier = 0; earlier < i; earlier++) {
            if (ranks[earlier] == ranks[i]) {
                return pl_error_set(reterr, PL_INVALID, "rank %d is listed twice for a sub-world", ranks[i]);
            }
        }
        member = member || ranks[i] == parent->rank;
    }
    if (!member) {
        return pl_error_set(reterr, PL_INVALID, "rank %d makes a sub-world that it is not part of", parent->rank);
    }
    return PL_OK;
}

static enum pl_status new_part(struct pl_world *parent, bool inner, const int *ranks, int count,
                               struct pl_world **ret_world, struct pl_error *reterr)
{
    const struct pl_world_options options = {.device = inner ? NULL : parent->device};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap;
    enum pl_status status;

    PL_TRY(check_list(parent, ranks, count, reterr));
    status = parent->bootstrap->split(parent->bootstrap->context, ranks, count, pl_world_deadline_ns(parent),
                                      &bootstrap, &error);
    if (status != PL_OK) {
        if (!inner && pl_bootstrap_is_out_of_step(&error)) {
            PL_AUTO_HOLD(parent);

            pl_world_give_up(parent, &error);
        }
        if (reterr) {
            *reterr = error;
        }
        return status;
    }
    return new_world(bootstrap, &options, parent, ranks, inner, ret_world, reterr);
}

enum pl_status pl_world_new_sub(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                struct pl_error *reterr)
{
    PL_TRY(pl_world_failure(parent, reterr));
    return new_part(parent, false, ranks, count, ret_world, reterr);
}

enum pl_status pl_world_new_inner(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                  struct pl_error *reterr)
{
    return new_part(parent, true, ranks, count, ret_world, reterr);
}

void pl_world_free(struct pl_world *world)
{
    if (!world) {
        return;
    }
    pl_progress_stop(world);
    pl_request_drop_all(world);
    pl_notice_done(world);
    pl_arena_drop_all(world);
    for (int i = world->backend_count - 1; i >= 0; i--) {
        if (world->backends[i].on) {
            world->backends[i].backend->free(world->backends[i].state);
        }
    }
    pl_world_free(world->host_part);
    pl_topology_done(&world->topology);
    if (world->owns_bootstrap) {
        pl_bootstrap_free(world->bootstrap);
    }
    free(world);
}

void pl_world_free_at(struct pl_world **world_at)
{
    pl_world_free(*world_at);
}

int64_t pl_world_deadline_ns(const struct pl_world *world)
{
    return pl_deadline_after_ns(world->timeout_ns);
}

int pl_world_rank(const struct pl_world *world)
{
    return world->rank;
}

int pl_world_size(const struct pl_world *world)
{
    return world->size;
}

int pl_world_local_rank(const struct pl_world *world)
{
    return world->topology.local_of[world->rank];
}

int pl_world_local_size(const struct pl_world *world)
{
    return world->topology.local_size;
}

int pl_world_cross_rank(const struct pl_world *world)
{
    return world->topology.host_of[world->rank];
}

int pl_world_cross_size(const struct pl_world *world)
{
    return world->topology.hosts;
}

bool pl_world_is_homogeneous(const struct pl_world *world)
{
    return world->topology.homogeneous;
}

int pl_world_host_of(const struct pl_world *world, int rank)
{
    return world->topology.host_of[rank];
}

const struct pl_knobs *pl_world_knobs(const struct pl_world *world)
{
    return &world->knobs;
}

enum pl_status pl_world_failure(const struct pl_world *world, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    if (reterr && world->failure.status != PL_OK) {
        *reterr = world->failure;
    }
    return world->failure.status;
}

bool pl_world_is_stranded(const struct pl_world *world)
{
    PL_AUTO_HOLD(world);

    return pl_bootstrap_is_stranded(world->bootstrap);
}

void pl_world_abort(struct pl_world *world, int code)
{
    world->bootstrap->abort(world->bootstrap->context, code);
    abort();
}

void pl_world_describe(const struct pl_world *world, struct pl_text *text)
{
    const struct pl_topology *topology = &world->topology;

    pl_text_printf(text, "ranks %d on %d host%s (%s), this is rank %d: local %d of %d, host %d of %d\n", world->size,
                   topology->hosts, topology->hosts == 1 ? "" : "s",
                   topology->homogeneous ? "as many on each" : "not as many on each", world->rank,
                   topology->local_of[world->rank], topology->local_size, topology->host_of[world->rank],
                   topology->hosts);
    pl_text_printf(text, "messages by %s; %s\n",
                   world->bootstrap->transport ? world->bootstrap->transport->name : "nothing",
                   topology->oversubscribed ? "more ranks than CPUs here: waiting ranks yield"
                                            : "a CPU for each rank here: waiting ranks spin first");
    pl_text_printf(text, "collectives advance %s%s\n",
                   world->progress ? "while the program computes, in a thread" : "inside calls only: ",
                   world->progress ? "" : world->no_progress);
    for (int host = 0; host < topology->hosts; host++) {
        pl_text_printf(text, "host %d: ranks", host);
        for (int r = 0; r < world->size; r++) {
            if (topology->host_of[r] == host) {
                pl_text_printf(text, " %d", r);
            }
        }
        pl_text_append(text, "\n");
    }
    for (int i = 0; i < world->backend_count; i++) {
        const struct pl_world_backend *entry = &world->backends[i];

        if (!entry->on) {
            pl_text_printf(text, "backend %s: off, %s\n", entry->backend->name, entry->reason);
            continue;
        }
        pl_text_printf(text, "backend %s: on\n", entry->backend->name);
        for (int earlier = 0; earlier < i; earlier++) {
            if (world->backends[earlier].on &&
                world->backends[earlier].backend->on_device == entry->backend->on_device) {
                pl_text_append(text, "  takes what the backends above leave\n");
                break;
            }
        }
        if (entry->backend->describe) {
            entry->backend->describe(entry->state, text);
        }
    }
}

struct pl_bootstrap *pl_world_bootstrap(const struct pl_world *world)
{
    return world->bootstrap;
}

pid_t pl_world_pid_of(const struct pl_world *world, int rank)
{
    return world->topology.pid_of[rank];
}

int pl_world_label(const struct pl_world *world, int rank)
{
    return world->topology.labels[rank];
}

struct pl_device *pl_world_device(const struct pl_world *world)
{
    return world->device;
}

const struct pl_place *pl_world_place(const struct pl_world *world, int rank)
{
    return &world->topology.places[rank];
}

struct pl_world *pl_world_host_part(const struct pl_world *world)
{
    return world->host_part;
}

int pl_world_local_of(const struct pl_world *world, int rank)
{
    return world->topology.local_of[rank];
}

bool pl_world_is_one_process(const struct pl_world *world)
{
    return world->topology.one_process;
}

const int *pl_world_ring_order(const struct pl_world *world)
{
    return world->topology.order;
}
