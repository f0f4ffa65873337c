/* SPDX-License-Identifier: Apache-2.0 */
/** The hierarchical backend's functions: init, check of calls, free, describe. */
#include "collectives/core/backend.h"

#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/hier/state.h"
#include "collectives/p2p/state.h"
#include "collectives/world_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* limit for all ranks' data: the data is sent with the messages of the call check, which all ranks need anyway */
enum { EAGER_MOST_BYTES = 4096 };

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_hier *h = state;
    bool ended = false;
    bool checked;

    PL_TRY(pl_check_calls_progress(&h->check, &request->progress_count, reterr));
    checked = h->check.done;
    if (!h->failure.failed) {
        h->failure.failed = pl_hier_advance(h, &ended, &h->failure.error) != PL_OK;
    }
    *ret_done = ended && checked && !h->failure.failed;
    return pl_deferred_error_report(&h->failure, checked, reterr);
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_hier *h = state;

    h->request = request;
    h->failure.failed = false;
    PL_TRY(pl_hier_begin(h, reterr));
    if (request->collective.flags & PL_AGREED) {
        pl_check_calls_skip(&h->check);
    } else {
        PL_TRY(pl_check_calls_start(&h->check, &request->signature, NULL, 0, NULL, reterr));
    }
    return progress(state, request, ret_done, reterr);
}

static void cancel(void *state, struct pl_request *request)
{
    struct pl_hier *h = state;

    (void)request;
    pl_check_calls_cancel(&h->check);
    pl_request_revoke_world(h->inside, &h->world->failure); /* waits in `inside` for this rank end with this error */
    pl_hier_drop(h);
    /* Data that is sent between hosts lies in the caller's memory or in the arena, which belongs to the internal
     * world. */
    if (h->between && pl_bootstrap_has_leaked(pl_world_bootstrap(h->between))) {
        pl_world_bootstrap(h->world)->transport->leaked = true;
        pl_world_bootstrap(h->inside)->transport->leaked = true;
    }
}

/* The rank that the head of a sub-world's queue waits for, as a rank of the whole world; -1 if unknown. */
static int sub_world_waits_for(const struct pl_world *part, const int *ranks)
{
    int peer = part ? pl_late_waits_for(part) : -1;

    return peer < 0 ? -1 : ranks[peer];
}

static int waits_for(void *state, const struct pl_request *request)
{
    struct pl_hier *h = state;
    int peer = sub_world_waits_for(h->between, h->between_ranks);

    (void)request;
    if (peer < 0) {
        peer = sub_world_waits_for(h->inside, h->inside_ranks);
    }
    return peer < 0 ? pl_check_calls_waits_for(&h->check) : peer;
}

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    if (pl_world_cross_size(world) == 1) {
        strcpy(reason, "all ranks are on one host");
        return false;
    }
    if (pl_world_cross_size(world) == pl_world_size(world)) {
        strcpy(reason, "every host has one rank");
        return false;
    }
    strcpy(reason, "the ranks cannot send messages to each other");
    return pl_world_bootstrap(world)->transport;
}

static void free_hier(void *state)
{
    struct pl_hier *h = state;
    /* Sums between hosts are sent from the scratch memory; sends that were not cancelled may go on until the process
     * ends. */
    bool sending = pl_bootstrap_has_leaked(pl_world_bootstrap(h->world));

    pl_world_free(h->between);
    pl_world_free(h->inside);
    pl_check_calls_done(&h->check);
    free(h->inside_ranks);
    free(h->between_ranks);
    free(h->shares);
    free(sending ? NULL : h->scratch);
}

/* Fills the rank lists of both sub-worlds from the topology. */
static enum pl_status list_ranks(struct pl_hier *h, struct pl_error *reterr)
{
    int size = pl_world_size(h->world);
    int leader = h->multi_leader ? h->local_rank : 0;
    int inside = 0;

    PL_TRY(pl_memory_alloc(&h->inside_ranks, (size_t)size, sizeof(int), reterr));
    PL_TRY(pl_memory_alloc(&h->between_ranks, (size_t)size, sizeof(int), reterr));
    PL_TRY(pl_memory_alloc(&h->shares, (size_t)h->local_size, sizeof(*h->shares), reterr));
    for (int r = 0; r < size; r++) {
        if (pl_world_host_of(h->world, r) == pl_world_cross_rank(h->world)) {
            h->inside_ranks[inside++] = r;
        }
        if (h->world->topology.local_of[r] == leader) {
            h->between_ranks[pl_world_host_of(h->world, r)] = r; /* a host's number is its rank in `between` */
        }
    }
    return PL_OK;
}

static enum pl_status make_sub_worlds(struct pl_hier *h, struct pl_error *reterr)
{
    const struct pl_bootstrap *bootstrap = pl_world_bootstrap(h->world);
    int64_t deadline_ns = pl_world_deadline_ns(h->world);
    enum pl_status status = list_ranks(h, reterr);

    if (status == PL_OK) {
        status = pl_check_calls_init(&h->check, h->world, reterr);
    }
    PL_TRY(pl_bootstrap_vote(bootstrap, status, deadline_ns, reterr));
    status = pl_world_new_internal(h->world, h->inside_ranks, h->local_size, &h->inside, reterr);
    /* without the vote, ranks of another host would wait for this one in the world between hosts */
    PL_TRY(pl_bootstrap_vote(bootstrap, status, deadline_ns, reterr));
    if (h->multi_leader || h->local_rank == 0) {
        PL_TRY(pl_world_new_internal(h->world, h->between_ranks, h->hosts, &h->between, reterr));
        h->between->can_revoke = false;
    }
    h->inside->can_revoke = false; /* ranks that wait in it also poll the whole world, which gets revoke messages */
    return PL_OK;
}

static enum pl_status init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    struct pl_hier *h = state;

    h->world = world;
    h->kernel = pl_kernel_best();
    h->local_rank = pl_world_local_rank(world);
    h->local_size = pl_world_local_size(world);
    h->hosts = pl_world_cross_size(world);
    h->multi_leader = pl_world_is_homogeneous(world);
    h->exclusive = strcmp(pl_knob_text(pl_world_knobs(world), PL_KNOB_BACKEND), pl_backend_hier.name) == 0;
    return make_sub_worlds(h, reterr);
}

/* The point-to-point backend of the same world; NULL if it gets no collectives. */
static const struct pl_p2p *p2p_of_world(const struct pl_hier *h)
{
    for (int i = 0; i < h->world->backend_count && !h->exclusive; i++) {
        if (h->world->backends[i].on && h->world->backends[i].backend == &pl_backend_p2p) {
            return h->world->backends[i].state;
        }
    }
    return NULL;
}

/* Whether p2p can send the data with its call check alone, which takes fewer steps than this backend. */
static bool is_small(const struct pl_hier *h, const struct pl_collective *c)
{
    const struct pl_p2p *p2p = p2p_of_world(h);

    if (!p2p || c->kind == PL_BARRIER) {
        return p2p;
    }
    return pl_p2p_sums_eagerly(p2p, c) ||
           ((c->kind == PL_ALLREDUCE || c->kind == PL_REDUCE) &&
            c->count <= EAGER_MOST_BYTES / (pl_dtype_bytes(c->dtype) * (uint64_t)pl_world_size(h->world)));
}

static bool serves(void *state, const struct pl_collective *c)
{
    const struct pl_hier *h = state;

    if (pl_p2p_needs_direct(c) || is_small(h, c)) {
        return false;
    }
    if (pl_hier_is_rooted(c)) {
        return h->multi_leader || h->world->topology.local_of[c->root] == 0;
    }
    return c->kind == PL_ALLREDUCE || c->kind == PL_BARRIER;
}

static void describe(void *state, struct pl_text *text)
{
    const struct pl_hier *h = state;
    const struct pl_p2p *p2p = p2p_of_world(h);
    uint64_t small = EAGER_MOST_BYTES / (uint64_t)pl_world_size(h->world);

    pl_text_printf(text, "  allreduce, broadcast, reduce%s; %s between hosts\n", h->exclusive ? ", barrier" : "",
                   h->multi_leader ? "each local rank reduces its share" : "local rank 0 reduces everything");
    if (p2p) {
        pl_text_printf(text,
                       "  left to the backend p2p: barriers, allreduce up to %" PRIu64 " bytes, reduce up to %" PRIu64
                       " bytes, reproducible sums, integer averages and factors%s; all else\n",
                       p2p->sum_most_bytes > small ? p2p->sum_most_bytes : small, small,
                       h->multi_leader ? "" : ", roots other than local rank 0");
    }
    pl_text_printf(
        text,
        "  allreduce from %d bytes: in chunks of at most %d bytes, scattered inside, summed between, gathered inside\n",
        PL_HIER_SPLIT_LEAST_BYTES, PL_HIER_CHUNK_MOST_BYTES);
    pl_text_append(text, "  inside this host:\n");
    for (int i = 0; i < h->inside->backend_count; i++) {
        const struct pl_world_backend *entry = &h->inside->backends[i];

        if (entry->on) {
            pl_text_printf(text, "  backend %s: on\n", entry->backend->name);
            if (entry->backend->describe) {
                entry->backend->describe(entry->state, text);
            }
        }
    }
}

static enum pl_status arena_alloc(void *state, uint64_t bytes, struct pl_span *ret_span, struct pl_error *reterr)
{
    struct pl_hier *h = state;

    return pl_arena_alloc(h->inside, bytes, PL_MEMORY_HOST, ret_span, reterr);
}

static void arena_free(void *state, struct pl_span *span)
{
    struct pl_hier *h = state;

    pl_arena_free(h->inside, span);
}

const struct pl_backend pl_backend_hier = {.name = "hier",
                                           .has_sub_worlds = true,
                                           .probe = probe,
                                           .init = init,
                                           .state_bytes = sizeof(struct pl_hier),
                                           .serves = serves,
                                           .post = post,
                                           .progress = progress,
                                           .cancel = cancel,
                                           .waits_for = waits_for,
                                           .describe = describe,
                                           .arena_alloc = arena_alloc,
                                           .arena_free = arena_free,
                                           .free = free_hier};
