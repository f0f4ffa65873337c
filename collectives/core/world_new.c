/* SPDX-License-Identifier: Apache-2.0 */
/* Making a world: settings of rank 0, topology, backends, sub-worlds; also freeing it. */
#include "base/activity.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/reduce/compress.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank that cannot make a world tries to send its error to the others, whose timeout it does not know. */
#define ABORT_COLLECTIVE_NS (60 * PL_NS_PER_S)

static enum pl_status share_knobs(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_knobs *all = NULL;

    PL_TRY(pl_bootstrap_gather(world->bootstrap, &world->knobs, sizeof(*all), deadline_ns, &all, reterr));
    world->knobs = all[0];
    return PL_OK;
}

/* The backend of that name; NULL if there is none. */
static const struct pl_backend *find_backend(const struct pl_backend *const *table, const char *name)
{
    while (*table && strcmp((*table)->name, name) != 0) {
        table++;
    }
    return *table;
}

/*
 * Whether the setting `backend` turns this backend off. The setting names a backend for host memory or one for device
 * memory, and does not affect backends for the other kind. If it names a backend that is made of sub-worlds and cannot
 * run here, this world is one of these sub-worlds, and any backend may run.
 */
static bool is_excluded(const struct pl_world *world, const struct pl_backend *backend)
{
    const char *only = pl_knob_text(&world->knobs, PL_KNOB_BACKEND);
    const struct pl_backend *chosen = find_backend(world->table, only);
    char reason[PL_BACKEND_REASON_BYTES];

    if (!*only || backend->always_on || chosen == backend || (chosen && chosen->on_device) != backend->on_device) {
        return false;
    }
    return !chosen || !chosen->has_sub_worlds || chosen->probe(world, reason);
}

static enum pl_status start_backend(struct pl_world *world, const struct pl_backend *backend, int64_t deadline_ns,
                                    struct pl_error *reterr)
{
    struct pl_world_backend *entry = &world->backends[world->backend_count++];
    PL_AUTO_FREE void *state = NULL;
    struct pl_packed_error vote;
    enum pl_status shared;
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
    memset(&vote, 0, sizeof(vote));
    vote.status = backend->probe(world, vote.text) ? PL_OK : PL_UNSUPPORTED;
    if (vote.status == PL_OK && backend->init) {
        error.status = pl_memory_alloc(&state, 1, backend->state_bytes, &error);
        vote = error.status == PL_OK ? vote : pl_bootstrap_pack_error(&error);
    }
    PL_TRY(pl_world_vote(world, &vote, deadline_ns, reterr));
    if (vote.status != PL_OK) {
        memcpy(entry->reason, vote.text, sizeof(entry->reason));
        return PL_OK;
    }
    error.status = backend->init ? backend->init(world, state, &error) : PL_OK;
    vote = pl_bootstrap_pack_error(&error);
    shared = pl_world_vote(world, &vote, deadline_ns, reterr);
    entry->on = shared == PL_OK && vote.status == PL_OK;
    if (entry->on) {
        entry->state = PL_TAKE(state);
    } else {
        memcpy(entry->reason, vote.text, sizeof(entry->reason));
        if (backend->free) {
            backend->free(state);
        }
    }
    return shared;
}

static enum pl_status start_backends(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    bool any = false;

    world->can_revoke = world->size > 1 && world->bootstrap->transport;
    for (int i = 0; world->table[i]; i++) {
        const struct pl_world_backend *entry = &world->backends[i];

        PL_BUG_IF(i >= PL_WORLD_MAX_BACKENDS);
        PL_TRY(start_backend(world, world->table[i], deadline_ns, reterr));
        any = any || entry->on;
        world->can_revoke = world->can_revoke && !(entry->on && entry->backend->abort);
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

/* Checks that this CPU can run the kernel that rank 0's settings name; otherwise all ranks report the rank that
 * cannot. */
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
    return pl_bootstrap_vote(world->bootstrap, status, deadline_ns, reterr);
}

static void set_timeout(struct pl_world *world)
{
    world->timeout_ns = pl_knob_real(&world->knobs, PL_KNOB_TIMEOUT_S) > 0
                            ? pl_knob_ns(&world->knobs, PL_KNOB_TIMEOUT_S, PL_NS_PER_S)
                            : -1;
}

/* Makes the host world. That is collective, so a rank that has failed by now reports it by a vote first. */
static enum pl_status new_host_world(struct pl_world *world, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE int *ranks = pl_memory_new((size_t)world->size, sizeof(int), reterr);

    for (int r = 0; ranks && r < world->size; r++) {
        ranks[r] = r;
    }
    PL_TRY(pl_bootstrap_vote(world->bootstrap, ranks ? PL_OK : PL_MEMORY, deadline_ns, reterr));
    return pl_world_new_internal(world, ranks, world->size, &world->host_world, reterr);
}

/* Chooses the device and reads the topology again: the ranks have devices now, and may run on other CPUs. */
static enum pl_status choose_device(struct pl_world *world, const struct pl_world_options *options,
                                    const struct pl_device_chooser *chooser, struct pl_error *reterr)
{
    struct pl_world_options with = *options;

    PL_TRY(chooser->choose(chooser->context, world, &world->device, reterr));
    if (!world->device) {
        return PL_OK;
    }
    with.device = world->device;
    pl_topology_done(&world->topology);
    return pl_topology_init(&world->topology, world->bootstrap, &with, NULL, NULL, pl_world_deadline_ns(world), reterr);
}

/* Does the work of pl_world_new_with_table(), pl_world_new_sub() and pl_world_new_internal(); `parent` is NULL for
 * the first. */
static enum pl_status build(struct pl_world *world, const struct pl_world_options *options,
                            const struct pl_device_chooser *chooser, const struct pl_world *parent,
                            const int *parent_ranks, struct pl_error *reterr)
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
    world->wire_flag = pl_compress_named(pl_knob_text(&world->knobs, PL_KNOB_WIRE_TYPE));
    PL_TRY(pl_topology_init(&world->topology, world->bootstrap, options, parent, parent_ranks, deadline_ns, reterr));
    if (chooser) {
        PL_TRY(choose_device(world, options, chooser, reterr));
    }
    if (world->size > 1 && pl_world_has_devices(world, reason)) {
        PL_TRY(new_host_world(world, deadline_ns, reterr));
    }
    return start_backends(world, deadline_ns, reterr);
}

static atomic_uint sub_world_count; /* number of sub-worlds that this process has made */

static enum pl_status new_world(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                const struct pl_backend *const *table, const struct pl_device_chooser *chooser,
                                const struct pl_world *parent, const int *parent_ranks, bool inner,
                                struct pl_world **ret_world, struct pl_error *reterr)
{
    struct pl_world *world = pl_memory_new(1, sizeof(*world), reterr);
    enum pl_status status;

    if (!world) {
        pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr,
                                      parent ? pl_world_deadline_ns(parent)
                                             : pl_deadline_after_ns(ABORT_COLLECTIVE_NS));
        if (parent) {
            pl_bootstrap_free(bootstrap);
        }
        return PL_MEMORY;
    }
    pl_activity_start();
    world->bootstrap = bootstrap;
    world->table = table;
    world->owns_bootstrap = parent;
    world->device = options->device;
    world->rank = bootstrap->rank;
    world->size = bootstrap->size;
    world->is_subset = parent && (parent->is_subset || bootstrap->size < parent->size);
    if (parent && !inner) {
        world->observer = parent->observer;
        world->part = atomic_fetch_add(&sub_world_count, 1) + 1;
    }
    status = build(world, options, chooser, parent, parent_ranks, reterr);
    if (status == PL_OK && !inner) {
        status = pl_bootstrap_vote(bootstrap, pl_progress_start(world, reterr), pl_world_deadline_ns(world), reterr);
    }
    if (status != PL_OK) {
        pl_world_free(world);
        return status;
    }
    *ret_world = world;
    return PL_OK;
}

enum pl_status pl_world_new_with_table(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                       const struct pl_backend *const *table, const struct pl_device_chooser *chooser,
                                       struct pl_world **ret_world, struct pl_error *reterr)
{
    static const struct pl_world_options none;

    if (bootstrap->transport && bootstrap->transport->revoked) {
        pl_error_set(reterr, PL_INVALID,
                     "a world over this bootstrap has failed, and its messages may still come: another world "
                     "needs a bootstrap of its own");
        return pl_bootstrap_abort_collective(bootstrap, PL_INVALID, reterr, pl_deadline_after_ns(ABORT_COLLECTIVE_NS));
    }
    return new_world(bootstrap, options ? options : &none, table, chooser, NULL, NULL, false, ret_world, reterr);
}

static enum pl_status check_list(const struct pl_world *parent, const int *ranks, int count, struct pl_error *reterr)
{
    bool member = false;

    PL_TRY(pl_ranks_check("a sub-world", ranks, count, parent->size, reterr));
    for (int i = 0; i < count; i++) {
        member = member || ranks[i] == parent->rank;
    }
    if (!member) {
        return pl_error_set(reterr, PL_INVALID, "rank %d makes a sub-world that does not include it", parent->rank);
    }
    return PL_OK;
}

/* The purpose of a sub-world. */
enum purpose { FOR_PROGRAM, FOR_BACKEND, FOR_DEVICE };

static enum pl_status new_sub_world(struct pl_world *parent, enum purpose purpose,
                                    const struct pl_world_options *options, const int *ranks, int count,
                                    int64_t deadline_ns, struct pl_world **ret_world, struct pl_error *reterr)
{
    const int64_t own_deadline_ns = pl_world_deadline_ns(parent);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap;
    enum pl_status status;

    PL_TRY(check_list(parent, ranks, count, reterr));
    status = parent->bootstrap->split(
        parent->bootstrap->context, ranks, count, purpose == FOR_DEVICE ? PL_SPLIT_FOR_DEVICES : PL_SPLIT_FOR_SUB_WORLD,
        own_deadline_ns < deadline_ns ? own_deadline_ns : deadline_ns, &bootstrap, &error);
    if (status != PL_OK) {
        if (purpose == FOR_PROGRAM && pl_bootstrap_is_desynchronised(&error)) {
            PL_AUTO_HOLD(parent);

            pl_request_revoke_world(parent, &error);
        }
        if (reterr) {
            *reterr = error;
        }
        return status;
    }
    return new_world(bootstrap, options, parent->table, NULL, parent, ranks, purpose == FOR_BACKEND, ret_world, reterr);
}

enum pl_status pl_world_new_sub_until(struct pl_world *parent, const int *ranks, int count, int64_t deadline_ns,
                                      struct pl_world **ret_world, struct pl_error *reterr)
{
    const struct pl_world_options options = {.device = parent->device};

    PL_TRY(pl_world_failure(parent, reterr));
    return new_sub_world(parent, FOR_PROGRAM, &options, ranks, count, deadline_ns, ret_world, reterr);
}

enum pl_status pl_world_new_sub(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                struct pl_error *reterr)
{
    return pl_world_new_sub_until(parent, ranks, count, PL_DEADLINE_NEVER, ret_world, reterr);
}

enum pl_status pl_world_new_internal(struct pl_world *parent, const int *ranks, int count, struct pl_world **ret_world,
                                     struct pl_error *reterr)
{
    const struct pl_world_options options = {.device = NULL};

    return new_sub_world(parent, FOR_BACKEND, &options, ranks, count, PL_DEADLINE_NEVER, ret_world, reterr);
}

enum pl_status pl_world_new_twin(struct pl_world *parent, struct pl_device *device, int64_t deadline_ns,
                                 struct pl_world **ret_world, struct pl_error *reterr)
{
    const struct pl_world_options options = {.device = device, .has_own_device = true};
    PL_AUTO_FREE int *ranks = pl_memory_new((size_t)parent->size, sizeof(int), reterr);

    if (!ranks) {
        return PL_MEMORY; /* the other ranks wait until their deadlines */
    }
    for (int r = 0; r < parent->size; r++) {
        ranks[r] = r;
    }
    return new_sub_world(parent, FOR_DEVICE, &options, ranks, parent->size, deadline_ns, ret_world, reterr);
}

void pl_world_free(struct pl_world *world)
{
    if (!world) {
        return;
    }
    pl_progress_stop(world);
    pl_request_drop_all(world);
    pl_revoke_done(world);
    pl_late_done(world);
    pl_arena_drop_all(world);
    for (int i = world->backend_count - 1; i >= 0; i--) {
        if (world->backends[i].on && world->backends[i].backend->free) {
            world->backends[i].backend->free(world->backends[i].state);
            free(world->backends[i].state);
        }
    }
    pl_world_free(world->host_world);
    if (world->bootstrap->transport) {
        world->bootstrap->transport->localities = NULL;
    }
    pl_topology_done(&world->topology);
    if (world->owns_bootstrap) {
        pl_bootstrap_free(world->bootstrap);
    }
    free(world);
}

enum pl_status pl_ranks_check(const char *what, const int *ranks, int count, int size, struct pl_error *reterr)
{
    if (count < 1 || count > size) {
        return pl_error_set(reterr, PL_INVALID, "%s needs 1 to %d ranks, found %d", what, size, count);
    }
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= size) {
            return pl_error_set(reterr, PL_INVALID, "%s: %d is not a rank; there are %d ranks", what, ranks[i], size);
        }
        for (int earlier = 0; earlier < i; earlier++) {
            if (ranks[earlier] == ranks[i]) {
                return pl_error_set(reterr, PL_INVALID, "%s: rank %d is in the list twice", what, ranks[i]);
            }
        }
    }
    return PL_OK;
}
