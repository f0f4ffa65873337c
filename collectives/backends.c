/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of backends, the worlds that run on it, and the backend of a world of one rank: every collective is a copy,
 * scaled if the caller asks for it.
 *
 * In a world with a GPU for each rank the ranks of a host choose among the devices that they see, after it is known who
 * shares a host and before the backends start.
 */
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"
#include "device/choose.h"
#include "device/device_private.h"

#include <stdlib.h>
#include <string.h>

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    strcpy(reason, "there is more than one rank");
    return pl_world_size(world) == 1;
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &request->collective;
    uint64_t count = pl_counts_get(c->counts, c->count, 0);

    (void)state;
    (void)reterr;
    *ret_done = true;
    if (!count || !c->send) {
        return PL_OK; /* nothing to move, or a broadcast, whose data is in place already */
    }
    if (pl_kind_reduces(c->kind)) {
        const struct pl_reduction reduction = {.dtype = c->dtype,
                                               .op = c->op,
                                               .divisor = c->divisor,
                                               .prescale = c->prescale,
                                               .postscale = c->postscale,
                                               .store = PL_KERNEL_STORE_CACHED};
        const void *source = c->send;
        void *dest = c->recv;
        /* if nothing is scaled in place, only bool needs work: values become 0 or 1 */
        bool unscaled = c->prescale == 1 && c->postscale == 1 && c->divisor == 1;

        if (source == dest && unscaled && c->dtype != PL_BOOL) {
            return PL_OK;
        }
        pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, &source, 1, count);
    } else if (c->send != c->recv) {
        memcpy(c->recv, c->send, count * pl_dtype_bytes(c->dtype));
    }
    return PL_OK;
}

static const struct pl_backend self = {.name = "self", .always_on = true, .probe = probe, .post = post};

const struct pl_backend *const pl_backends[] = {
    &self,           &pl_backend_nccl, &pl_backend_self_gpu, &pl_backend_device,
    &pl_backend_shm, &pl_backend_hier, &pl_backend_p2p,      NULL,
};

_Static_assert(PL_ARRAY_ITEMS(pl_backends) - 1 <= PL_WORLD_MAX_BACKENDS, "the world has room for every backend");

enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr)
{
    return pl_world_new_with_table(bootstrap, options, pl_backends, NULL, ret_world, reterr);
}

/* ---- with a GPU for each rank ---- */

enum { NONE = -1, FAILED = -2 }; /* sent instead of a device's ordinal */

/* Gathers the device lists of the ranks on this rank's host, by local rank. */
static enum pl_status gather_device_lists(struct pl_world *world, struct pl_device_list **ret_device_lists,
                                          struct pl_error *reterr)
{
    int size = pl_world_size(world), host = pl_world_host_of(world, pl_world_rank(world));
    struct pl_device_list own;
    struct pl_device_list *all;

    memset(&own, 0, sizeof(own));
    pl_device_list_read(&own);
    PL_TRY(
        pl_bootstrap_gather(pl_world_bootstrap(world), &own, sizeof(own), pl_world_deadline_ns(world), &all, reterr));
    for (int rank = 0, local = 0; rank < size; rank++) {
        if (pl_world_host_of(world, rank) == host) {
            all[local++] = all[rank];
        }
    }
    *ret_device_lists = all;
    return PL_OK;
}

/* Chooses a device and opens it. `*ret_ordinal` does not change if no device is used. */
static enum pl_status open_chosen(struct pl_world *world, const char *wanted, const struct pl_device_list *lists,
                                  int *ret_ordinal, struct pl_device **ret_device, struct pl_error *reterr)
{
    const struct pl_knobs *knobs = pl_world_knobs(world);
    struct pl_device_request wanted_device;

    PL_TRY(pl_device_request_parse(wanted ? wanted : pl_knob_text(knobs, PL_KNOB_DEVICE), &wanted_device, reterr));
    PL_TRY(pl_device_choose(lists, pl_world_local_size(world), pl_world_local_rank(world), wanted_device,
                            pl_knob_bool(knobs, PL_KNOB_SHARE_DEVICE), ret_ordinal, reterr));
    return *ret_ordinal >= 0 ? pl_device_open(*ret_ordinal, ret_device, reterr) : PL_OK;
}

/* Checks that all ranks have devices or none has one. Otherwise every rank reports two ranks that differ. */
static enum pl_status compare_devices(struct pl_world *world, int32_t own, struct pl_error *reterr)
{
    int size = pl_world_size(world);
    PL_AUTO_FREE int32_t *all = NULL;

    PL_TRY(
        pl_bootstrap_gather(pl_world_bootstrap(world), &own, sizeof(own), pl_world_deadline_ns(world), &all, reterr));
    for (int rank = 0; rank < size; rank++) {
        if (all[rank] == FAILED) {
            char name[PL_RANK_NAME_BYTES];

            return pl_error_set(reterr, PL_PEER, "%s could not open a GPU; its own message says why",
                                pl_world_rank_name(world, rank, name));
        }
    }
    for (int rank = 1; rank < size; rank++) {
        if ((all[rank] == NONE) != (all[0] == NONE)) {
            int with = all[0] == NONE ? rank : 0, without = all[0] == NONE ? 0 : rank;

            return pl_error_set(reterr, PL_MISMATCH,
                                "rank %d has a GPU and rank %d, on another host, does not; set PACELINE_DEVICE=off to "
                                "train on the CPUs",
                                with, without);
        }
    }
    return PL_OK;
}

/* Binds this process to the CPUs near the device. That only matters for speed, so a failure is a warning. */
static void bind_near(struct pl_device *device)
{
    const struct pl_device_info *info = pl_device_info(device);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_device_affinity affinity;
    enum pl_device_binding binding;

    pl_device_affinity_read("", info->pci, &affinity);
    if (pl_device_affinity_bind(&affinity, &binding, &error) == PL_OK) {
        pl_log(PL_LOG_DEBUG, "device %d, %s: %s", info->ordinal, info->name, pl_device_binding_text(binding));
    } else {
        pl_log(PL_LOG_WARNING, "device %d, %s: %s", info->ordinal, info->name, error.cause);
    }
}

struct choice {
    const char *wanted;
    struct pl_device *device; /* NULL: no device is used */
};

static enum pl_status choose(void *context, struct pl_world *world, struct pl_device **ret_device,
                             struct pl_error *reterr)
{
    struct choice *choice = context;
    PL_AUTO_FREE struct pl_device_list *lists = NULL;
    struct pl_error reason = PL_ERROR_NONE, said = PL_ERROR_NONE;
    struct pl_device *device = NULL;
    int ordinal = NONE;
    enum pl_status own, others;

    PL_TRY(gather_device_lists(world, &lists, reterr));
    own = open_chosen(world, choice->wanted, lists, &ordinal, &device, &reason);
    others = compare_devices(world, own == PL_OK ? ordinal : FAILED, &said);
    if (own != PL_OK || others != PL_OK) {
        if (reterr) {
            *reterr = own != PL_OK ? reason : said;
        }
        pl_device_close(device);
        return own != PL_OK ? own : others;
    }
    if (device) {
        bind_near(device);
    }
    choice->device = device;
    *ret_device = device;
    return PL_OK;
}

enum pl_status pl_world_new_on_device(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                      const char *wanted, struct pl_device **ret_device, struct pl_world **ret_world,
                                      struct pl_error *reterr)
{
    struct choice choice = {.wanted = wanted};
    const struct pl_device_chooser chooser = {.context = &choice, .choose = choose};
    enum pl_status status = pl_world_new_with_table(bootstrap, options, pl_backends, &chooser, ret_world, reterr);

    if (status != PL_OK) {
        pl_device_close(choice.device);
        return status;
    }
    *ret_device = choice.device;
    return PL_OK;
}
