/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several hosts with several ranks on some: add up inside each host, exchange between hosts, spread inside. Inside is a world of the
 * host's ranks (shared memory), between is a world of one rank of each host, both made of the other backends.
 *
 * Where all hosts have as many ranks, every local rank has a world between hosts of its own (a lane) and carries its share
 * of the vector; else local rank 0 carries all. Large allreduces go chunk by chunk:
 *
 *     inside   scatter 0   scatter 1   gather 0   scatter 2   gather 1   gather 2
 *     between              sum 0       sum 1                  sum 2
 *
 * Both the inside steps and the sums are posted in this fixed order on every rank; each waits for what it needs.
 */
#include "base/memory.h"
#include "base/text.h"
#include "collectives/agree.h"
#include "collectives/exchange.h"
#include "collectives/world_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 2,                     /* chunks scattered before the first is gathered */
    CHUNK_MOST_BYTES = 8 << 20,    /* of the whole vector: long enough that a chunk's latencies vanish */
    CHUNK_LEAST_BYTES = 512 << 10, /* and several chunks, so that inside and between overlap */
    CHUNKS = 8,
    SPLIT_LEAST_BYTES = 64 << 10, /* below this one rank of each host carries the vector */
    TOGETHER_MOST_BYTES = 4096,   /* of all ranks' data: beside the cards of an agreement, which all ranks need anyway */
    NAME_BYTES = 48,
};

/* A chunk on its way. Chunk number k uses place k mod (AHEAD + 1). */
struct chunk {
    struct pl_request *scatter;
    struct pl_request *sum;
    struct pl_request *gather;
    bool summed;
    uint64_t at; /* elements, of the whole vector */
    uint64_t count;
    uint64_t own_at; /* this rank's share */
    uint64_t own_count;
};

/* What is done in turn; small collectives use only the first. */
enum stage { STAGE_INSIDE, STAGE_BETWEEN, STAGE_SPREAD, STAGE_END };

struct hierarchy {
    struct pl_world *world;
    struct pl_world *inside;
    struct pl_world *between; /* NULL on ranks that have no part in it */
    int *inside_ranks;        /* numbers in `world` */
    int *between_ranks;       /* by host */
    int local_rank;
    int local_size;
    int hosts;
    bool lanes; /* every local rank has a world between hosts */
    bool alone; /* by the setting `backend`: leaves nothing to exchange */
    const struct pl_kernel *kernel;
    struct pl_agree agree;
    uint64_t *shares; /* [local_size] */
    char *scratch;    /* sums of a REDUCE on their way to its root */
    size_t scratch_bytes;

    /* The collective under way: */
    struct pl_request *request;
    enum stage stage;
    struct pl_request *step; /* of a staged collective */
    bool split;              /* chunks and shares; else staged */
    struct chunk chunks[AHEAD + 1];
    uint64_t chunk_elems;
    uint64_t chunk_count;
    uint64_t scattered; /* chunks whose scatter was posted */
    uint64_t sent;      /* chunks whose sum was posted */
    uint64_t gathered;  /* chunks whose gather was posted */
    bool stuck;
    struct pl_error stuck_error;
};

static char *at_elem(const void *data, uint64_t elem, enum pl_dtype dtype)
{
    return (char *)(uintptr_t)data + elem * pl_dtype_bytes(dtype);
}

/* A collective of a part: deadlines are the whole's business, and names would make no difference. */
static struct pl_collective part_of(const struct pl_collective *c, enum pl_kind kind)
{
    return (struct pl_collective){
        .kind = kind, .dtype = c->dtype, .op = c->op == PL_AVERAGE ? PL_SUM : c->op, .deadline_ns = INT64_MAX, .memory = c->memory};
}

static bool is_half(enum pl_dtype dtype)
{
    return dtype == PL_FLOAT16 || dtype == PL_BFLOAT16;
}

/*
 * Half-width averages are kept small by a power of two (exact but for the smallest numbers) from the first addition inside a host
 * to the last one between hosts, which takes it back, divides and rounds once: so the sums cannot overflow.
 */
static double guard_factor(const struct hierarchy *h, const struct pl_collective *c)
{
    int ranks = h->lanes ? h->local_size : pl_world_size(h->world);
    double factor = 1.0;

    for (int n = 1; c->op == PL_AVERAGE && is_half(c->dtype) && n < ranks; n *= 2) {
        factor *= 0.5;
    }
    return factor;
}

static void scale_first(const struct hierarchy *h, const struct pl_collective *c, struct pl_collective *part)
{
    part->postscale = guard_factor(h, c);
    part->prescale = c->prescale;
    part->scaled = part->prescale != 1.0 || part->postscale != 1.0;
}

static void scale_between(const struct hierarchy *h, const struct pl_collective *c, struct pl_collective *part)
{
    if (c->op == PL_AVERAGE && is_half(c->dtype)) {
        part->op = PL_AVERAGE;
        part->scaled = true;
        part->prescale = 1.0;
        part->postscale = c->postscale / guard_factor(h, c);
        part->divisor = c->divisor;
    }
}

/* Division and postscale of the others, on this rank's finished sums. */
static void finish_sums(const struct hierarchy *h, const struct pl_collective *c, void *data, uint64_t count)
{
    struct pl_reduction reduction = {.dtype = c->dtype, .op = PL_SUM, .divisor = c->divisor, .prescale = 1, .postscale = c->postscale};
    const void *source = data;

    if (count && !(c->op == PL_AVERAGE && is_half(c->dtype)) && (reduction.divisor != 1 || reduction.postscale != 1.0)) {
        pl_kernel_reduce(h->kernel, &reduction, &data, 1, &source, 1, count);
    }
}

/*
 * The sum between hosts of the elements from `at` is narrow where the whole is. What narrowing loses is kept by the collective's name and the place
 * in it; and no chunk can be taken for another one. `name` has to last until the post.
 */
static void name_sum(const struct hierarchy *h, const struct pl_collective *c, uint64_t at, char name[NAME_BYTES], struct pl_collective *part)
{
    if (pl_wire_is_wanted(c)) {
        part->flags = c->flags & (PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16);
    }
    if (part->flags == 0 || h->request->signature.name_hash) {
        (void)snprintf(name, NAME_BYTES, "%016" PRIx64 "@%" PRIu64, h->request->signature.name_hash, at);
        part->name = name;
    }
}

/* Advance `*request`; when it has ended it is released and NULL. */
static enum pl_status step_on(struct hierarchy *h, struct pl_request **request, struct pl_error *reterr)
{
    uint64_t moves = (*request)->moves;
    bool done;
    enum pl_status status = pl_request_test(*request, &done, reterr);

    h->request->moves += (*request)->moves - moves;
    if (done || status != PL_OK) {
        h->request->moves++;
        status = pl_request_wait(*request, reterr);
        *request = NULL;
    }
    return status;
}

/* ---- staged: small vectors, broadcast, reduce, barrier ---- */

static bool is_rooted(const struct pl_collective *c)
{
    return c->kind == PL_BROADCAST || c->kind == PL_REDUCE;
}

/* The local rank that carries the vector between hosts. */
static int carrier(const struct hierarchy *h, const struct pl_collective *c)
{
    return is_rooted(c) ? pl_world_local_of(h->world, c->root) : 0;
}

/* Where this rank keeps sums. */
static char *sums_of(const struct hierarchy *h, const struct pl_collective *c)
{
    return c->kind == PL_REDUCE && pl_world_rank(h->world) != c->root ? h->scratch : c->recv;
}

/* Fill `part` with what this rank does in the stage; false: nothing. `name` is room for the part's. */
static bool plan_stage(const struct hierarchy *h, const struct pl_collective *c, char name[NAME_BYTES], struct pl_collective *part)
{
    static const int plans[][STAGE_END] = {
        [PL_ALLREDUCE] = {PL_REDUCE, PL_ALLREDUCE, PL_BROADCAST},
        [PL_REDUCE] = {PL_REDUCE, PL_REDUCE, -1},
        [PL_BROADCAST] = {-1, PL_BROADCAST, PL_BROADCAST},
        [PL_BARRIER] = {PL_BARRIER, PL_BARRIER, PL_BARRIER},
    };
    int kind = plans[c->kind][h->stage];

    if (kind < 0 || (h->stage == STAGE_BETWEEN && h->local_rank != carrier(h, c))) {
        return false;
    }
    *part = part_of(c, (enum pl_kind)kind);
    if (kind == PL_BARRIER) {
        return true;
    }
    part->count = c->count;
    part->recv = sums_of(h, c);
    part->send = kind == PL_BROADCAST ? NULL : part->recv;
    if (h->stage == STAGE_BETWEEN) {
        part->root = is_rooted(c) ? pl_world_host_of(h->world, c->root) : 0;
        scale_between(h, c, part);
        if (pl_wire_is_wanted(c)) {
            name_sum(h, c, 0, name, part);
        }
        return true;
    }
    part->root = carrier(h, c);
    if (kind == PL_REDUCE) {
        part->send = c->send;
        scale_first(h, c, part);
    }
    return true;
}

static void end_stage(struct hierarchy *h, const struct pl_collective *c)
{
    bool reduces = c->kind == PL_ALLREDUCE || (c->kind == PL_REDUCE && pl_world_rank(h->world) == c->root);

    if (h->stage == STAGE_BETWEEN && reduces && h->local_rank == carrier(h, c)) {
        finish_sums(h, c, c->recv, c->count);
    }
    h->stage++;
}

static enum pl_status progress_staged(struct hierarchy *h, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &h->request->collective;

    while (h->stage != STAGE_END) {
        struct pl_collective part;
        char name[NAME_BYTES];

        if (!h->step) {
            if (!plan_stage(h, c, name, &part)) {
                end_stage(h, c);
                continue;
            }
            PL_TRY(pl_collective_post(h->stage == STAGE_BETWEEN ? h->between : h->inside, &part, &h->step, reterr));
        }
        PL_TRY(step_on(h, &h->step, reterr));
        if (h->step) {
            return PL_OK;
        }
        end_stage(h, c);
    }
    *ret_done = true;
    return PL_OK;
}

static enum pl_status make_scratch(struct hierarchy *h, const struct pl_collective *c, struct pl_error *reterr)
{
    size_t bytes = c->count * pl_dtype_bytes(c->dtype);

    if (c->kind != PL_REDUCE || bytes <= h->scratch_bytes) {
        return PL_OK;
    }
    free(h->scratch);
    h->scratch_bytes = 0;
    h->scratch = pl_memory_new_aligned(bytes, 1, 64, reterr);
    if (!h->scratch) {
        return PL_MEMORY;
    }
    h->scratch_bytes = bytes;
    return PL_OK;
}

/* ---- split: large allreduces, chunk by chunk ---- */

static struct chunk *chunk_at(struct hierarchy *h, uint64_t number)
{
    return &h->chunks[number % (AHEAD + 1)];
}

/* Each local rank's elements of a chunk of `count`; whole cache lines where they last. */
static void share_out(const struct hierarchy *h, const struct pl_collective *c, uint64_t count)
{
    uint64_t line = 64 / pl_dtype_bytes(c->dtype);
    uint64_t each = (count / (uint64_t)h->local_size + line - 1) / line * line;

    for (int l = 0; l < h->local_size; l++) {
        uint64_t share = !h->lanes ? (l == 0 ? count : 0) : l == h->local_size - 1 || each > count ? count : each;

        h->shares[l] = share;
        count -= share;
    }
}

static enum pl_status post_scatter(struct hierarchy *h, const struct pl_collective *c, struct pl_error *reterr)
{
    struct chunk *chunk = chunk_at(h, h->scattered);
    struct pl_collective part = part_of(c, PL_REDUCE_SCATTER);
    uint64_t rest;

    *chunk = (struct chunk){.at = h->scattered * h->chunk_elems};
    rest = c->count - chunk->at;
    chunk->count = rest < h->chunk_elems ? rest : h->chunk_elems;
    share_out(h, c, chunk->count);
    chunk->own_at = chunk->at;
    for (int l = 0; l < h->local_rank; l++) {
        chunk->own_at += h->shares[l];
    }
    chunk->own_count = h->shares[h->local_rank];
    part.counts = h->shares;
    part.send = at_elem(c->send, chunk->at, c->dtype);
    part.recv = at_elem(c->recv, chunk->own_at, c->dtype);
    scale_first(h, c, &part);
    h->scattered++;
    return pl_collective_post(h->inside, &part, &chunk->scatter, reterr);
}

static enum pl_status post_sum(struct hierarchy *h, const struct pl_collective *c, struct chunk *chunk, struct pl_error *reterr)
{
    struct pl_collective part = part_of(c, PL_ALLREDUCE);
    char name[NAME_BYTES];

    h->sent++;
    if (!h->between) {
        chunk->summed = true;
        return PL_OK;
    }
    part.count = chunk->own_count;
    scale_between(h, c, &part);
    name_sum(h, c, chunk->at, name, &part);
    part.recv = at_elem(c->recv, chunk->own_at, c->dtype);
    part.send = part.recv;
    return pl_collective_post(h->between, &part, &chunk->sum, reterr);
}

static enum pl_status post_gather(struct hierarchy *h, const struct pl_collective *c, struct chunk *chunk, struct pl_error *reterr)
{
    struct pl_collective part = part_of(c, PL_ALLGATHER);

    share_out(h, c, chunk->count);
    part.counts = h->shares;
    part.send = at_elem(c->recv, chunk->own_at, c->dtype);
    part.recv = at_elem(c->recv, chunk->at, c->dtype);
    h->gathered++;
    return pl_collective_post(h->inside, &part, &chunk->gather, reterr);
}

/* Advance what is under way of chunk number `number`. Its sum waits for those before it, even where its scatter is noticed first. */
static enum pl_status move_chunk(struct hierarchy *h, const struct pl_collective *c, uint64_t number, struct pl_error *reterr)
{
    struct chunk *chunk = chunk_at(h, number);

    if (chunk->scatter) {
        if (number != h->sent) {
            return PL_OK;
        }
        PL_TRY(step_on(h, &chunk->scatter, reterr));
        if (chunk->scatter) {
            return PL_OK;
        }
        PL_TRY(post_sum(h, c, chunk, reterr));
    }
    if (chunk->sum) {
        PL_TRY(step_on(h, &chunk->sum, reterr));
        if (chunk->sum) {
            return PL_OK;
        }
        finish_sums(h, c, at_elem(c->recv, chunk->own_at, c->dtype), chunk->own_count);
        chunk->summed = true;
    }
    return chunk->gather ? step_on(h, &chunk->gather, reterr) : PL_OK;
}

static enum pl_status progress_split(struct hierarchy *h, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &h->request->collective;

    for (;;) {
        bool busy = false;

        for (uint64_t k = h->scattered > AHEAD ? h->scattered - AHEAD - 1 : 0; k < h->scattered; k++) {
            const struct chunk *chunk = chunk_at(h, k);

            PL_TRY(move_chunk(h, c, k, reterr));
            busy = busy || chunk->scatter || chunk->sum || chunk->gather || !chunk->summed;
        }
        if (h->scattered < h->chunk_count && h->scattered < h->gathered + AHEAD) {
            if (h->scattered > AHEAD && chunk_at(h, h->scattered)->gather) {
                return PL_OK; /* its place is still taken */
            }
            PL_TRY(post_scatter(h, c, reterr));
        } else if (h->gathered < h->scattered && chunk_at(h, h->gathered)->summed) {
            PL_TRY(post_gather(h, c, chunk_at(h, h->gathered), reterr));
        } else {
            *ret_done = !busy && h->gathered == h->chunk_count;
            return PL_OK;
        }
    }
}

static void plan_chunks(struct hierarchy *h, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    uint64_t bytes = c->count * item / CHUNKS;

    bytes = bytes > CHUNK_MOST_BYTES ? CHUNK_MOST_BYTES : bytes;
    bytes = bytes < CHUNK_LEAST_BYTES ? CHUNK_LEAST_BYTES : bytes;
    h->chunk_elems = (bytes + 63) / 64 * 64 / item;
    h->chunk_count = (c->count + h->chunk_elems - 1) / h->chunk_elems;
    h->scattered = 0;
    h->sent = 0;
    h->gathered = 0;
    memset(h->chunks, 0, sizeof(h->chunks));
}

/* ---- the backend ---- */

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct hierarchy *h = state;
    bool agreed = h->agree.done;
    bool ended = false;

    if (!agreed) {
        PL_TRY(pl_agree_progress(&h->agree, &request->moves, reterr));
        agreed = h->agree.done;
    }
    /* A part fails where ranks disagree, too; the agreement then names both sides, so it is heard first. */
    if (!h->stuck) {
        h->stuck = (h->split ? progress_split(h, &ended, &h->stuck_error) : progress_staged(h, &ended, &h->stuck_error)) != PL_OK;
    }
    if (h->stuck && agreed) {
        *reterr = h->stuck_error;
        return h->stuck_error.status;
    }
    *ret_done = ended && agreed && !h->stuck;
    return PL_OK;
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct hierarchy *h = state;
    const struct pl_collective *c = &request->collective;

    h->request = request;
    h->stage = STAGE_INSIDE;
    h->step = NULL;
    h->stuck = false;
    h->split = c->kind == PL_ALLREDUCE && c->count * pl_dtype_bytes(c->dtype) >= SPLIT_LEAST_BYTES;
    if (h->split) {
        plan_chunks(h, c);
    }
    PL_TRY(make_scratch(h, c, reterr));
    PL_TRY(pl_agree_start(&h->agree, &request->signature, NULL, 0, reterr));
    return progress(state, request, ret_done, reterr);
}

static void drop(struct pl_request **request)
{
    if (*request) {
        pl_request_cancel(*request);
        *request = NULL;
    }
}

static void cancel(void *state, struct pl_request *request)
{
    struct hierarchy *h = state;

    (void)request;
    pl_agree_cancel(&h->agree);
    pl_world_give_up(h->inside, &h->world->failure); /* who waits for this rank there is told the same reason */
    drop(&h->step);
    for (int i = 0; i <= AHEAD; i++) {
        drop(&h->chunks[i].scatter);
        drop(&h->chunks[i].sum);
        drop(&h->chunks[i].gather);
    }
}

static void farewell(void *state, uint64_t sequence, const struct pl_error *why)
{
    struct hierarchy *h = state;

    pl_world_give_up(h->inside, why);
    pl_agree_farewell(&h->agree, sequence, why);
}

/* Whom the head of a part's queue waits for, as a rank of the whole; -1 when unknown. */
static int part_waits_for(const struct pl_world *part, const int *ranks)
{
    int peer = part ? pl_world_waits_for(part) : -1;

    return peer < 0 ? -1 : ranks[peer];
}

static int waits_for(void *state, const struct pl_request *request)
{
    struct hierarchy *h = state;
    int peer = part_waits_for(h->between, h->between_ranks);

    (void)request;
    if (peer < 0) {
        peer = part_waits_for(h->inside, h->inside_ranks);
    }
    return peer < 0 ? pl_agree_waits_for(&h->agree) : peer;
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
    strcpy(reason, "the ranks have no way to send messages");
    return pl_world_bootstrap(world)->transport != NULL;
}

static void free_hierarchy(void *state)
{
    struct hierarchy *h = state;

    pl_world_free(h->between);
    pl_world_free(h->inside);
    pl_agree_done(&h->agree);
    free(h->inside_ranks);
    free(h->between_ranks);
    free(h->shares);
    free(h->scratch);
    free(h);
}

/* The ranks of both parts, from the topology. */
static enum pl_status list_ranks(struct hierarchy *h, struct pl_error *reterr)
{
    int size = pl_world_size(h->world);
    int lane = h->lanes ? h->local_rank : 0;
    int inside = 0;

    h->inside_ranks = pl_memory_new((size_t)size, sizeof(int), reterr);
    h->between_ranks = pl_memory_new((size_t)size, sizeof(int), reterr);
    h->shares = pl_memory_new((size_t)h->local_size, sizeof(*h->shares), reterr);
    if (!h->inside_ranks || !h->between_ranks || !h->shares) {
        return PL_MEMORY;
    }
    for (int r = 0; r < size; r++) {
        if (pl_world_host_of(h->world, r) == pl_world_cross_rank(h->world)) {
            h->inside_ranks[inside++] = r;
        }
        if (pl_world_local_of(h->world, r) == lane) {
            h->between_ranks[pl_world_host_of(h->world, r)] = r; /* the host's number is the rank's in `between` */
        }
    }
    return PL_OK;
}

static enum pl_status make_parts(struct hierarchy *h, struct pl_error *reterr)
{
    PL_TRY(list_ranks(h, reterr));
    PL_TRY(pl_agree_init(&h->agree, h->world, reterr));
    PL_TRY(pl_world_new_inner(h->world, h->inside_ranks, h->local_size, &h->inside, reterr));
    if (h->lanes || h->local_rank == 0) {
        PL_TRY(pl_world_new_inner(h->world, h->between_ranks, h->hosts, &h->between, reterr));
    }
    return PL_OK;
}

static enum pl_status init(struct pl_world *world, void **ret_state, struct pl_error *reterr)
{
    struct hierarchy *h = pl_memory_new(1, sizeof(*h), reterr);
    enum pl_status status;

    if (!h) {
        return PL_MEMORY;
    }
    h->world = world;
    h->kernel = pl_kernel_best();
    h->local_rank = pl_world_local_rank(world);
    h->local_size = pl_world_local_size(world);
    h->hosts = pl_world_cross_size(world);
    h->lanes = pl_world_is_homogeneous(world);
    h->alone = strcmp(pl_knob_text(pl_world_knobs(world), PL_KNOB_BACKEND), pl_backend_hierarchy.name) == 0;
    status = make_parts(h, reterr);
    if (status != PL_OK) {
        free_hierarchy(h);
        return status;
    }
    *ret_state = h;
    return PL_OK;
}

/* Where exchange's agreement is all that it takes, fewer steps than this backend's are made. */
static bool is_small(const struct hierarchy *h, const struct pl_collective *c)
{
    return !h->alone && (c->kind == PL_BARRIER || ((c->kind == PL_ALLREDUCE || c->kind == PL_REDUCE) &&
                                                   c->count <= TOGETHER_MOST_BYTES / (pl_dtype_bytes(c->dtype) * (uint64_t)pl_world_size(h->world))));
}

static bool serves(void *state, const struct pl_collective *c)
{
    const struct hierarchy *h = state;

    if (c->memory == PL_MEMORY_DEVICE || pl_exchange_needs_direct(c) || is_small(h, c)) {
        return false;
    }
    if (is_rooted(c)) {
        return h->lanes || pl_world_local_of(h->world, c->root) == 0;
    }
    return c->kind == PL_ALLREDUCE || c->kind == PL_BARRIER;
}

static void describe(void *state, struct pl_text *text)
{
    const struct hierarchy *h = state;

    pl_text_printf(text, "  allreduce, broadcast, reduce%s; %s between hosts\n", h->alone ? ", barrier" : "",
                   h->lanes ? "each local rank carries its share" : "local rank 0 carries all");
    if (!h->alone) {
        pl_text_printf(
            text,
            "  left to the backend exchange: barriers, allreduce and reduce up to %d bytes, reproducible sums, integer averages and factors%s; all "
            "else\n",
            TOGETHER_MOST_BYTES / pl_world_size(h->world), h->lanes ? "" : ", roots other than local rank 0");
    }
    pl_text_printf(text, "  allreduce from %d bytes: in chunks of at most %d bytes, scattered inside, summed between, gathered inside\n",
                   SPLIT_LEAST_BYTES, CHUNK_MOST_BYTES);
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
    struct hierarchy *h = state;

    return pl_arena_alloc(h->inside, bytes, PL_MEMORY_HOST, ret_span, reterr);
}

static void arena_free(void *state, struct pl_span *span)
{
    struct hierarchy *h = state;

    pl_arena_free(h->inside, span);
}

const struct pl_backend pl_backend_hierarchy = {.name = "hierarchy",
                                                .probe = probe,
                                                .init = init,
                                                .serves = serves,
                                                .post = post,
                                                .progress = progress,
                                                .cancel = cancel,
                                                .farewell = farewell,
                                                .waits_for = waits_for,
                                                .describe = describe,
                                                .arena_alloc = arena_alloc,
                                                .arena_free = arena_free,
                                                .free = free_hierarchy};
