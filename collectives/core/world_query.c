/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of a world: its ranks and hosts, its settings, its failure, its description. */
#include "base/clock.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pl_world_has_devices(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    int with = 0;
    int without = -1;

    for (int r = 0; r < world->size; r++) {
        bool has = world->topology.localities[r].device[0] != '\0';

        with += has;
        without = has || without >= 0 ? without : r;
    }
    if (with == 0) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "this world was given no device");
    } else if (without >= 0) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "rank %d was given no device", world->topology.global_ranks[without]);
    }
    return with == world->size;
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

bool pl_world_any_thread(const struct pl_world *world)
{
    return world->bootstrap->any_thread;
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

const char *pl_world_setting(const struct pl_world *world, const char *name)
{
    for (enum pl_knob knob = 0; knob < PL_KNOB_COUNT; knob++) {
        const struct pl_knob_info *info = pl_knob_info(knob);

        if (strcmp(info->name, name) == 0 && (info->type == PL_KNOB_TYPE_TEXT || info->type == PL_KNOB_TYPE_WORD)) {
            return pl_knob_text(&world->knobs, knob);
        }
    }
    return NULL;
}

enum pl_status pl_world_failure(const struct pl_world *world, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    if (reterr && world->failure.status != PL_OK) {
        *reterr = world->failure;
    }
    return world->failure.status;
}

bool pl_world_has_leaked(const struct pl_world *world)
{
    PL_AUTO_HOLD(world);

    return pl_bootstrap_has_leaked(world->bootstrap);
}

void pl_world_describe(const struct pl_world *world, struct pl_text *text)
{
    const struct pl_topology *topology = &world->topology;

    pl_text_printf(text, "ranks %d on %d host%s (%s), this is rank %d: local %d of %d, host %d of %d\n", world->size,
                   topology->hosts, topology->hosts == 1 ? "" : "s",
                   topology->homogeneous ? "equally many on each" : "not equally many on each", world->rank,
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
                pl_text_append(text, "  serves what the backends above do not\n");
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

int pl_world_global_rank(const struct pl_world *world, int rank)
{
    return world->topology.global_ranks[rank];
}

const char *pl_world_rank_name(const struct pl_world *world, int rank, char text[PL_RANK_NAME_BYTES])
{
    snprintf(text, PL_RANK_NAME_BYTES, "rank %d on host %s", world->topology.global_ranks[rank],
             world->topology.localities[rank].host);
    return text;
}

void pl_world_place_error(const struct pl_world *world, const struct pl_device *device, struct pl_error *error)
{
    const struct pl_device_info *info = device ? pl_device_info(device) : NULL;
    char name[PL_RANK_NAME_BYTES], place[PL_RANK_NAME_BYTES + sizeof(info->uuid) + 32];

    pl_world_rank_name(world, world->rank, name);
    if (info) {
        snprintf(place, sizeof(place), "%s, device %d, %s", name, info->ordinal, info->uuid);
    } else {
        snprintf(place, sizeof(place), "%s", name);
    }
    if (error && !strstr(error->cause, place) && !strstr(error->context, place)) {
        pl_error_context(error, "%s", place);
    }
}

struct pl_device *pl_world_device(const struct pl_world *world)
{
    return world->device;
}
