/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One hierarchical collective: in stages if it is small or has a root, otherwise as a pipeline of chunks:
 *
 *     inside   scatter 0   scatter 1   gather 0   scatter 2   gather 1   gather 2
 *     between              sum 0       sum 1                  sum 2
 *
 * Every rank posts the inside steps and the sums in this fixed order; each step waits for the ones that it needs.
 */
#include "collectives/hier/state.h"

#include "base/memory.h"
#include "collectives/p2p/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_LEAST_BYTES = 512 << 10, /* smallest chunk; several chunks let inside and between overlap */
    CHUNKS = 8,
    NAME_BYTES = 48,
};

static char *at_elem(const void *data, uint64_t elem, enum pl_dtype dtype)
{
    return (char *)(uintptr_t)data + elem * pl_dtype_bytes(dtype);
}

/* Describes a collective of a sub-world. It has no name, and no deadline because the whole collective has one. Ranks
 * that agree on the whole collective agree on this one too; otherwise the collective is ended. */
static struct pl_collective part_of(const struct pl_collective *c, enum pl_kind kind)
{
    return (struct pl_collective){.kind = kind,
                                  .dtype = c->dtype,
                                  .op = c->op == PL_AVERAGE ? PL_SUM : c->op,
                                  .flags = PL_AGREED,
                                  .deadline_ns = INT64_MAX,
                                  .memory = c->memory};
}

/* The guard factor: half-width averages are scaled down from the first addition inside a host on. The last addition
 * between hosts undoes the scaling, divides and rounds once. */
static double guard_factor(const struct pl_hier *h, const struct pl_collective *c)
{
    int ranks = h->multi_leader ? h->local_size : pl_world_size(h->world);

    return c->op == PL_AVERAGE && pl_is_half(c->dtype) ? pl_kernel_guard(ranks) : 1.0;
}

static void scale_first(const struct pl_hier *h, const struct pl_collective *c, struct pl_collective *part)
{
    part->postscale = guard_factor(h, c);
    part->prescale = c->prescale;
    part->scaled = part->prescale != 1.0 || part->postscale != 1.0;
}

static void scale_between(const struct pl_hier *h, const struct pl_collective *c, struct pl_collective *part)
{
    if (c->op == PL_AVERAGE && pl_is_half(c->dtype)) {
        part->op = PL_AVERAGE;
        part->scaled = true;
        part->prescale = 1.0;
        part->postscale = c->postscale / guard_factor(h, c);
        part->divisor = c->divisor;
    }
}

/* Divides and scales this rank's finished sums, except for half-width averages: see scale_between(). */
static void finish_sums(const struct pl_hier *h, const struct pl_collective *c, void *data, uint64_t count)
{
    struct pl_reduction reduction = {
        .dtype = c->dtype, .op = PL_SUM, .divisor = c->divisor, .prescale = 1, .postscale = c->postscale};
    const void *source = data;

    if (count && !(c->op == PL_AVERAGE && pl_is_half(c->dtype)) &&
        (reduction.divisor != 1 || reduction.postscale != 1.0)) {
        pl_kernel_reduce(h->kernel, &reduction, &data, 1, &source, 1, count);
    }
}

/*
 * Gives the sum between hosts of the elements from `at` a name, and the compression of the whole collective. The
 * rounding error is kept by name, which is the hash of the collective's name and the position, so that chunks do not
 * share it. `name` must last until the post.
 */
static void name_sum(const struct pl_hier *h, const struct pl_collective *c, uint64_t at, char name[NAME_BYTES],
                     struct pl_collective *part)
{
    bool compressed = pl_p2p_is_compressed(c);

    part->flags |= compressed ? c->flags & PL_WIRES : 0;
    if (!compressed || h->request->signature.name_hash) {
        snprintf(name, NAME_BYTES, "%016" PRIx64 "@%" PRIu64, h->request->signature.name_hash, at);
        part->name = name;
    }
}

/* Advances `*request`; when it has ended it is released and `*request` is NULL. */
static enum pl_status step_on(struct pl_hier *h, struct pl_request **request, struct pl_error *reterr)
{
    uint64_t progress_count = (*request)->progress_count;
    bool done;
    enum pl_status status = pl_request_test(*request, &done, reterr);

    h->request->progress_count += (*request)->progress_count - progress_count;
    if (done || status != PL_OK) {
        h->request->progress_count++;
        status = pl_request_wait(*request, reterr);
        *request = NULL;
    }
    return status;
}

/* ---- stages: small vectors, broadcast, reduce, barrier ---- */

bool pl_hier_is_rooted(const struct pl_collective *c)
{
    return c->kind == PL_BROADCAST || c->kind == PL_REDUCE;
}

/* The leader: the local rank that takes part between hosts. */
static int leader_of(const struct pl_hier *h, const struct pl_collective *c)
{
    return pl_hier_is_rooted(c) ? h->world->topology.local_of[c->root] : 0;
}

/* The buffer for this rank's sums. */
static char *sums_of(const struct pl_hier *h, const struct pl_collective *c)
{
    return c->kind == PL_REDUCE && pl_world_rank(h->world) != c->root ? h->scratch : c->recv;
}

/* Sets `part` to this rank's collective of the present stage, its name in `name`; false if it has none. */
static bool plan_stage(const struct pl_hier *h, const struct pl_collective *c, char name[NAME_BYTES],
                       struct pl_collective *part)
{
    static const int plans[][PL_HIER_END] = {
        [PL_ALLREDUCE] = {PL_REDUCE, PL_ALLREDUCE, PL_BROADCAST},
        [PL_REDUCE] = {PL_REDUCE, PL_REDUCE, -1},
        [PL_BROADCAST] = {-1, PL_BROADCAST, PL_BROADCAST},
        [PL_BARRIER] = {PL_BARRIER, PL_BARRIER, PL_BARRIER},
    };
    int kind = plans[c->kind][h->stage];

    if (kind < 0 || (h->stage == PL_HIER_BETWEEN && h->local_rank != leader_of(h, c))) {
        return false;
    }
    *part = part_of(c, (enum pl_kind)kind);
    if (kind == PL_BARRIER) {
        return true;
    }
    part->count = c->count;
    part->recv = sums_of(h, c);
    part->send = kind == PL_BROADCAST ? NULL : part->recv;
    if (h->stage == PL_HIER_BETWEEN) {
        part->root = pl_hier_is_rooted(c) ? pl_world_host_of(h->world, c->root) : 0;
        scale_between(h, c, part);
        if (pl_p2p_is_compressed(c)) {
            name_sum(h, c, 0, name, part);
        }
        return true;
    }
    part->root = leader_of(h, c);
    if (kind == PL_REDUCE) {
        part->send = c->send;
        scale_first(h, c, part);
    }
    return true;
}

static void end_stage(struct pl_hier *h, const struct pl_collective *c)
{
    bool reduces = c->kind == PL_ALLREDUCE || (c->kind == PL_REDUCE && pl_world_rank(h->world) == c->root);

    if (h->stage == PL_HIER_BETWEEN && reduces && h->local_rank == leader_of(h, c)) {
        finish_sums(h, c, c->recv, c->count);
    }
    h->stage++;
}

static enum pl_status progress_staged(struct pl_hier *h, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &h->request->collective;

    while (h->stage != PL_HIER_END) {
        struct pl_collective part;
        char name[NAME_BYTES];

        if (!h->step) {
            if (!plan_stage(h, c, name, &part)) {
                end_stage(h, c);
                continue;
            }
            PL_TRY(pl_request_post(h->stage == PL_HIER_BETWEEN ? h->between : h->inside, &part, &h->step, reterr));
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

static enum pl_status make_scratch(struct pl_hier *h, const struct pl_collective *c, struct pl_error *reterr)
{
    size_t bytes = c->count * pl_dtype_bytes(c->dtype);

    if (c->kind != PL_REDUCE || bytes <= h->scratch_bytes) {
        return PL_OK;
    }
    free(h->scratch);
    h->scratch_bytes = 0;
    PL_TRY(pl_memory_alloc_aligned(&h->scratch, bytes, 1, 64, reterr));
    h->scratch_bytes = bytes;
    return PL_OK;
}

/* ---- split: large allreduces, chunk by chunk ---- */

static struct pl_hier_chunk *chunk_at(struct pl_hier *h, uint64_t number)
{
    return &h->chunks[number % (PL_HIER_AHEAD + 1)];
}

/* Computes each local rank's share of a chunk of `count` elements: whole cache lines, except at the end. */
static void share_out(const struct pl_hier *h, const struct pl_collective *c, uint64_t count)
{
    uint64_t line = 64 / pl_dtype_bytes(c->dtype);
    uint64_t each = (count / (uint64_t)h->local_size + line - 1) / line * line;

    for (int l = 0; l < h->local_size; l++) {
        uint64_t share = !h->multi_leader                         ? (l == 0 ? count : 0)
                         : l == h->local_size - 1 || each > count ? count
                                                                  : each;

        h->shares[l] = share;
        count -= share;
    }
}

static enum pl_status post_scatter(struct pl_hier *h, const struct pl_collective *c, struct pl_error *reterr)
{
    struct pl_hier_chunk *chunk = chunk_at(h, h->scattered);
    struct pl_collective part = part_of(c, PL_REDUCE_SCATTER);
    uint64_t rest;

    *chunk = (struct pl_hier_chunk){.at = h->scattered * h->chunk_elems};
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
    return pl_request_post(h->inside, &part, &chunk->scatter, reterr);
}

static enum pl_status post_sum(struct pl_hier *h, const struct pl_collective *c, struct pl_hier_chunk *chunk,
                               struct pl_error *reterr)
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
    return pl_request_post(h->between, &part, &chunk->sum, reterr);
}

static enum pl_status post_gather(struct pl_hier *h, const struct pl_collective *c, struct pl_hier_chunk *chunk,
                                  struct pl_error *reterr)
{
    struct pl_collective part = part_of(c, PL_ALLGATHER);

    share_out(h, c, chunk->count);
    part.counts = h->shares;
    part.send = at_elem(c->recv, chunk->own_at, c->dtype);
    part.recv = at_elem(c->recv, chunk->at, c->dtype);
    h->gathered++;
    return pl_request_post(h->inside, &part, &chunk->gather, reterr);
}

/* Advances chunk number `number`. Its sum waits for the sums of earlier chunks, even if its scatter ends first. */
static enum pl_status move_chunk(struct pl_hier *h, const struct pl_collective *c, uint64_t number,
                                 struct pl_error *reterr)
{
    struct pl_hier_chunk *chunk = chunk_at(h, number);

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

static enum pl_status progress_split(struct pl_hier *h, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &h->request->collective;

    for (;;) {
        bool busy = false;

        for (uint64_t k = h->scattered > PL_HIER_AHEAD ? h->scattered - PL_HIER_AHEAD - 1 : 0; k < h->scattered; k++) {
            const struct pl_hier_chunk *chunk = chunk_at(h, k);

            PL_TRY(move_chunk(h, c, k, reterr));
            busy = busy || chunk->scatter || chunk->sum || chunk->gather || !chunk->summed;
        }
        if (h->scattered < h->chunk_count && h->scattered < h->gathered + PL_HIER_AHEAD) {
            if (h->scattered > PL_HIER_AHEAD && chunk_at(h, h->scattered)->gather) {
                return PL_OK; /* the slot is still in use */
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

static void plan_chunks(struct pl_hier *h, const struct pl_collective *c)
{
    size_t item = pl_dtype_bytes(c->dtype);
    uint64_t bytes = c->count * item / CHUNKS;

    bytes = bytes > PL_HIER_CHUNK_MOST_BYTES ? PL_HIER_CHUNK_MOST_BYTES : bytes;
    bytes = bytes < CHUNK_LEAST_BYTES ? CHUNK_LEAST_BYTES : bytes;
    h->chunk_elems = (bytes + 63) / 64 * 64 / item;
    h->chunk_count = (c->count + h->chunk_elems - 1) / h->chunk_elems;
    h->scattered = 0;
    h->sent = 0;
    h->gathered = 0;
    memset(h->chunks, 0, sizeof(h->chunks));
}

/* ---- chunks or stages ---- */

enum pl_status pl_hier_begin(struct pl_hier *h, struct pl_error *reterr)
{
    const struct pl_collective *c = &h->request->collective;

    h->stage = PL_HIER_INSIDE;
    h->step = NULL;
    h->split = c->kind == PL_ALLREDUCE && c->count * pl_dtype_bytes(c->dtype) >= PL_HIER_SPLIT_LEAST_BYTES;
    if (h->split) {
        plan_chunks(h, c);
    }
    return make_scratch(h, c, reterr);
}

enum pl_status pl_hier_advance(struct pl_hier *h, bool *ret_done, struct pl_error *reterr)
{
    return h->split ? progress_split(h, ret_done, reterr) : progress_staged(h, ret_done, reterr);
}

static void drop(struct pl_request **request)
{
    if (*request) {
        pl_request_cancel(*request);
        *request = NULL;
    }
}

void pl_hier_drop(struct pl_hier *h)
{
    drop(&h->step);
    for (int i = 0; i <= PL_HIER_AHEAD; i++) {
        drop(&h->chunks[i].scatter);
        drop(&h->chunks[i].sum);
        drop(&h->chunks[i].gather);
    }
}
