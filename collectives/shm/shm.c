/* SPDX-License-Identifier: Apache-2.0 */
/** The shared-memory backend's functions: init, free, describe. */
#include "collectives/core/backend.h"

#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/shm/layout.h"
#include "collectives/world_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool shm_probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    if (pl_world_size(world) == 1) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "there is only one rank");
        return false;
    }
    if (pl_world_cross_size(world) > 1) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "ranks on %d hosts", pl_world_cross_size(world));
        return false;
    }
    if (pl_world_size(world) > PL_SHM_MAX_RANKS) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "more than %d ranks on one host", PL_SHM_MAX_RANKS);
        return false;
    }
    return true;
}

static size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

static void shm_free(void *state)
{
    struct pl_shm *shm = state;

    if (shm->region.base) {
        atomic_store(&pl_shm_counters(shm, shm->rank)->left, 1);
        pl_shm_wake(shm);
    }
    for (int rank = 0; shm->pidfds && rank < shm->size; rank++) {
        if (shm->pidfds[rank] >= 0) {
            close(shm->pidfds[rank]);
        }
    }
    for (size_t i = 0; i < shm->span_count && !pl_bootstrap_has_leaked(pl_world_bootstrap(shm->world)); i++) {
        pl_shm_region_free(&shm->spans[i].region);
    }
    pl_shm_region_free(&shm->region);
    free(shm->spans);
    free(shm->sources);
    free(shm->dests);
    free(shm->send_displ);
    free(shm->recv_displ);
    free(shm->pidfds);
}

static void read_knobs(struct pl_shm *shm)
{
    const struct pl_knobs *knobs = pl_world_knobs(shm->world);
    const char *kernel = pl_knob_text(knobs, PL_KNOB_KERNEL);

    shm->kernel = pl_kernel_named(kernel[0] != '\0' ? kernel : "auto"); /* not NULL: world_new.c has checked it */
}

static enum pl_status allocate(struct pl_shm *shm, struct pl_error *reterr)
{
    size_t ranks = (size_t)shm->size;

    PL_TRY(pl_memory_alloc(&shm->sources, ranks, sizeof(*shm->sources), reterr));
    PL_TRY(pl_memory_alloc(&shm->dests, ranks, sizeof(*shm->dests), reterr));
    PL_TRY(pl_memory_alloc(&shm->send_displ, ranks + 1, sizeof(*shm->send_displ), reterr));
    PL_TRY(pl_memory_alloc(&shm->recv_displ, ranks + 1, sizeof(*shm->recv_displ), reterr));
    PL_TRY(pl_memory_alloc(&shm->pidfds, ranks, sizeof(*shm->pidfds), reterr));
    pl_shm_open_pidfds(shm);
    return PL_OK;
}

static enum pl_status shm_init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    enum pl_status status;
    size_t piece_bytes;

    shm->world = world;
    shm->rank = pl_world_rank(world);
    shm->size = pl_world_size(world);
    shm->one_process = world->topology.one_process;
    /* with two ranks the additional waits of the other modes cost least */
    shm->eager_bytes = shm->size == 2 ? PL_SHM_EAGER_BYTES / 2 : PL_SHM_EAGER_BYTES;
    shm->eager_at =
        round_up(sizeof(struct pl_shm_header) + 2 * (size_t)shm->size * sizeof(uint64_t), PL_SHM_LINE_BYTES);
    shm->slot_bytes = round_up(shm->eager_at + PL_SHM_EAGER_BYTES, 2 * PL_SHM_LINE_BYTES);
    shm->staging_at =
        round_up(sizeof(struct pl_shm_control) + sizeof(struct pl_shm_counters) + 2 * shm->slot_bytes, 4096);
    shm->round_bytes = (size_t)shm->size * PL_SHM_PART_BYTES;
    shm->round_bytes = shm->round_bytes < PL_SHM_ROUND_BYTES ? PL_SHM_ROUND_BYTES : shm->round_bytes;
    piece_bytes = shm->staging_at + PL_SHM_DEPTH * shm->round_bytes;

    read_knobs(shm);
    status = allocate(shm, reterr);
    if (status != PL_OK) {
        return pl_bootstrap_abort_collective(pl_world_bootstrap(world), status, reterr, pl_world_deadline_ns(world));
    }
    PL_TRY(pl_shm_region_new(pl_world_bootstrap(world), shm->one_process, piece_bytes, pl_world_deadline_ns(world),
                             &shm->region, reterr));
    shm->control = (struct pl_shm_control *)(void *)shm->region.base;
    return PL_OK;
}

static bool shm_serves(void *state, const struct pl_collective *collective)
{
    (void)state;
    return collective->memory != PL_MEMORY_DEVICE;
}

static enum pl_status shm_block_until(void *state, struct pl_request *request, int64_t until_ns,
                                      struct pl_error *reterr)
{
    (void)request;
    (void)reterr; /* the next progress reports a failure, after it has used the data that has come */
    pl_shm_sleep(state, until_ns);
    return PL_OK;
}

static void shm_cancel(void *state, struct pl_request *request)
{
    struct pl_shm *shm = state;
    const struct pl_error *why = &request->world->failure;

    pl_shm_declare_failure(shm, why->status == PL_TIMEOUT && shm->op.waits_for >= 0 ? PL_TIMEOUT : PL_PEER, why);
}

static void shm_abort(void *state, const struct pl_error *why)
{
    pl_shm_declare_failure(state, PL_PEER, why);
}

static int shm_waits_for(void *state, const struct pl_request *request)
{
    const struct pl_shm *shm = state;

    (void)request;
    return shm->op.waits_for;
}

static void shm_describe(void *state, struct pl_text *text)
{
    const struct pl_shm *shm = state;

    pl_text_printf(text,
                   "  up to %" PRIu64 " bytes: one exchange, data in the headers; arena buffers: in place; else "
                   "through %zu KiB of staging per rank\n",
                   shm->eager_bytes, PL_SHM_DEPTH * shm->round_bytes >> 10);
    pl_text_printf(text, "  reduction code: %s; huge pages for shared memory: %s\n", shm->kernel->name,
                   shm->span_count == 0              ? "not asked for yet"
                   : shm->spans[0].region.huge_pages ? "yes"
                                                     : "no");
}

const struct pl_backend pl_backend_shm = {
    .name = "shm",
    .probe = shm_probe,
    .init = shm_init,
    .state_bytes = sizeof(struct pl_shm),
    .serves = shm_serves,
    .post = pl_shm_post,
    .progress = pl_shm_advance,
    .block_until = shm_block_until,
    .cancel = shm_cancel,
    .abort = shm_abort,
    .waits_for = shm_waits_for,
    .check_peers = pl_shm_check_peers,
    .describe = shm_describe,
    .arena_alloc = pl_shm_arena_alloc,
    .arena_free = pl_shm_arena_free,
    .free = shm_free,
};
