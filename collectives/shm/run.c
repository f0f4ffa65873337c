/* SPDX-License-Identifier: Apache-2.0 */
/** One collective from its headers to its end: exchange headers, choose the same mode on all ranks, advance it. */
#include "collectives/shm/layout.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

enum {
    TIMED_BYTES = 32 << 10, /* below, the clock would cost more than a better store saves */
    TRIALS = 2,             /* timed uses of each kind of store before the best is taken */
    TRIAL_PERIOD = 512,     /* uses after which it is measured again: virtual machines change their state */
};

/* ---- which store ---- */

static int size_class(uint64_t bytes)
{
    int class = bytes < (1 << 15) ? 0 : (63 - __builtin_clzll(bytes) - 15) / 2;

    return class < PL_SHM_CLASSES ? class : PL_SHM_CLASSES - 1;
}

static enum pl_kernel_store choose(struct pl_shm_choice *choice, uint64_t bytes)
{
    int class = size_class(bytes);
    uint32_t use = choice->uses[class] % TRIAL_PERIOD;
    int best = 0;

    if (bytes < TIMED_BYTES) {
        return PL_KERNEL_STORE_CACHED;
    }
    if (use == 0) {
        for (int store = 0; store < PL_SHM_STORES; store++) {
            choice->ns_per_byte[class][store] = (double)INFINITY;
        }
    }
    if (use < TRIALS * PL_SHM_STORES) {
        return (enum pl_kernel_store)(use % PL_SHM_STORES);
    }
    for (int store = 1; store < PL_SHM_STORES; store++) {
        /* Streaming leaves nothing in the cache for the next reader of the result, so it has to be clearly better. */
        double handicap = store == PL_KERNEL_STORE_STREAM ? 1.1 : 1;

        if (choice->ns_per_byte[class][store] * handicap < choice->ns_per_byte[class][best]) {
            best = store;
        }
    }
    return (enum pl_kernel_store)best;
}

static void learn(struct pl_shm *shm, struct pl_shm_op *op)
{
    struct pl_shm_choice *choice = op->mode == PL_SHM_DIRECT ? &shm->direct_choice : &shm->staged_choice;
    int class = size_class(op->timed_bytes);
    double *best = &choice->ns_per_byte[class][op->reduction.store];
    double ns_per_byte;

    ns_per_byte = (double)(pl_clock_now_ns() - op->start_ns) / (double)op->timed_bytes;
    *best = ns_per_byte < *best ? ns_per_byte : *best;
    choice->uses[class]++;
}

/* ---- headers ---- */

static inline uint64_t mix(uint64_t word, uint64_t place)
{
    return (word ^ (word >> 31)) * (UINT64_C(0x9e3779b97f4a7c15) + 2 * place * UINT64_C(0x7f4a7c15d1b54a33));
}

/* Products of independent words: as quick as one multiplication after another is slow. A word of zero adds nothing. */
static uint64_t hash_signature(const struct pl_signature *signature)
{
    uint64_t hash = mix(signature->sequence, 0) + mix(signature->count, 1) + mix(signature->what, 5);
    uint64_t name[2];

    if (signature->counts_hash | signature->scale_hash | signature->name_hash) {
        memcpy(name, signature->name, sizeof(name));
        hash += mix(signature->counts_hash, 2) + mix(signature->scale_hash, 3) + mix(signature->name_hash, 4) +
                mix(name[0], 6) + mix(name[1], 7);
    }
    return hash ^ (hash >> 32);
}

static const void *send_buffer(const struct pl_collective *collective)
{
    return collective->kind == PL_BROADCAST ? collective->recv : collective->send;
}

static uint64_t sum_up(uint64_t *displ, const uint64_t *counts, uint64_t count, int size)
{
    displ[0] = 0;
    for (int rank = 0; rank < size; rank++) {
        displ[rank + 1] = displ[rank] + (counts != NULL ? counts[rank] : count);
    }
    return displ[size];
}

/* Fill the displacements that the kind needs and return the elements that this rank sends. */
static uint64_t sent_elems(struct pl_shm *shm, const struct pl_collective *collective)
{
    switch (collective->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
    case PL_BROADCAST:
        return collective->count;
    case PL_REDUCE_SCATTER:
        return sum_up(shm->send_displ, collective->counts, collective->count, shm->size);
    case PL_ALLGATHER:
        (void)sum_up(shm->recv_displ, collective->counts, collective->count, shm->size);
        return shm->recv_displ[shm->rank + 1] - shm->recv_displ[shm->rank];
    case PL_ALLTOALL:
        (void)sum_up(shm->recv_displ, collective->recv_counts, collective->count, shm->size);
        return sum_up(shm->send_displ, collective->counts, collective->count, shm->size);
    case PL_BARRIER:
        break;
    }
    return 0;
}

static bool is_inline(enum pl_kind kind, uint64_t bytes)
{
    return bytes <= PL_SHM_INLINE_BYTES && kind != PL_ALLTOALL;
}

/* Write this rank's two lists after its header; returns the largest count to one rank. */
static uint64_t fill_alltoall(const struct pl_shm *shm, struct pl_shm_head *head)
{
    uint64_t *counts = pl_shm_alltoall_counts(head);
    uint64_t longest = 0;

    for (int rank = 0; rank < shm->size; rank++) {
        counts[rank] = shm->send_displ[rank + 1] - shm->send_displ[rank];
        counts[shm->size + rank] = shm->recv_displ[rank + 1] - shm->recv_displ[rank];
        longest = counts[rank] > longest ? counts[rank] : longest;
    }
    return longest;
}

static struct pl_shm_places find_places(struct pl_shm *shm, const struct pl_collective *collective, uint64_t bytes)
{
    struct pl_shm_places places = {.send_span = 0};
    bool forced = shm->forced_store >= 0;

    pl_shm_arena_find(shm, send_buffer(collective), bytes, &places.send_span, &places.send_offset);
    pl_shm_arena_find(shm, collective->recv, bytes, &places.recv_span, &places.recv_offset);
    if (shm->rank == 0) {
        places.direct_store = (uint8_t)(forced ? shm->forced_store : (int)choose(&shm->direct_choice, bytes));
        places.staged_store = (uint8_t)(forced ? shm->forced_store : (int)choose(&shm->staged_choice, bytes));
    }
    return places;
}

/*
 * Post this rank's header and return the hash in it. The stores to the cache line follow each other closely: all other
 * ranks poll it, and between two stores with other work in between it would move to their caches.
 */
static uint64_t post_head(struct pl_shm *shm, const struct pl_request *request, uint64_t sequence, uint64_t bytes)
{
    const struct pl_collective *collective = &request->collective;
    struct pl_shm_head *head = pl_shm_head(shm, shm->rank, sequence);
    bool sends = bytes > 0 && (collective->kind != PL_BROADCAST || shm->rank == collective->root);
    uint64_t hash = hash_signature(&request->signature);

    pl_copy_fresh(&head->signature, &request->signature, sizeof(head->signature));
    if (is_inline(collective->kind, bytes)) {
        if (sends) {
            memcpy(head->notice.in.data, send_buffer(collective), bytes);
        }
    } else {
        struct pl_shm_places places = {.send_span = 0};

        if (bytes > shm->flat_bytes) {
            places = find_places(shm, collective, bytes);
        } else if (sends) {
            pl_kernel_copy(shm->kernel, pl_shm_flat_data(shm, head), send_buffer(collective), bytes,
                           PL_KERNEL_STORE_MIGRATE);
        }
        if (collective->kind == PL_ALLTOALL) {
            places.longest = fill_alltoall(shm, head);
        }
        head->notice.in.at = places;
    }
    head->notice.hash = hash;
    head->notice.bytes = bytes;
    pl_shm_publish(shm, &head->sequence, sequence);
    return hash;
}

/* Read the headers that have come, in rank order; true when all have. Sets `waits_for` otherwise. */
static bool see_heads(struct pl_shm *shm, struct pl_shm_op *op)
{
    for (; op->seen < shm->size; op->seen++) {
        const struct pl_shm_head *head = pl_shm_head(shm, op->seen, op->sequence);

        while (atomic_load(&head->sequence) < op->sequence) {
            if (op->request->patience == 0) {
                op->waits_for = op->seen;
                return false;
            }
            op->request->patience--;
            pl_pause_cpu();
        }
        op->differs |= head->notice.hash ^ op->hash;
        op->most = head->notice.bytes > op->most ? head->notice.bytes : op->most;
    }
    op->seen = 0;
    op->waits_for = -1;
    return true;
}

/* Ranks disagree. The lowest rank that disagrees with rank 0 makes the report, on every rank the same. */
static enum pl_status raise_mismatch(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_shm_head *first = pl_shm_head(shm, 0, op->sequence);
    int rank = 1;

    while (rank < shm->size && pl_shm_head(shm, rank, op->sequence)->notice.hash == first->notice.hash) {
        rank++;
    }
    PL_BUG_IF(rank == shm->size);
    return pl_signature_mismatch(&first->signature, pl_world_label(shm->world, 0),
                                 &pl_shm_head(shm, rank, op->sequence)->signature, pl_world_label(shm->world, rank),
                                 reterr);
}

static enum pl_status check_alltoall(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    for (int from = 0; op->collective->counts != NULL && from < shm->size; from++) {
        const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_head(shm, from, op->sequence));

        for (int to = 0; to < shm->size; to++) {
            uint64_t expected = pl_shm_alltoall_counts(pl_shm_head(shm, to, op->sequence))[shm->size + from];

            if (sent[to] != expected) {
                return pl_error_set(reterr, PL_MISMATCH,
                                    "alltoall: rank %d sends %llu elements to rank %d, which expects %llu",
                                    pl_world_label(shm->world, from), (unsigned long long)sent[to],
                                    pl_world_label(shm->world, to), (unsigned long long)expected);
            }
        }
    }
    return PL_OK;
}

/* Whether all buffers that other ranks would access lie in the arena. */
static bool is_direct(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;

    for (int rank = 0; rank < shm->size; rank++) {
        const struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);
        bool sends = collective->kind != PL_BROADCAST || rank == collective->root;
        bool receives = collective->kind == PL_ALLREDUCE || (collective->kind == PL_REDUCE && rank == collective->root);

        if (is_inline(collective->kind, head->notice.bytes) || (sends && head->notice.in.at.send_span == 0) ||
            (receives && head->notice.in.at.recv_span == 0)) {
            return false;
        }
    }
    return collective->kind != PL_ALLTOALL;
}

/* Elements of the largest block that any rank sends. */
static uint64_t longest_block(const struct pl_shm *shm, const struct pl_shm_op *op)
{
    enum pl_kind kind = op->collective->kind;
    uint64_t longest = 0;

    for (int rank = 0; rank < shm->size; rank++) {
        const struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);
        uint64_t block = kind == PL_ALLTOALL         ? head->notice.in.at.longest
                         : kind == PL_REDUCE_SCATTER ? shm->send_displ[rank + 1] - shm->send_displ[rank]
                                                     : head->notice.bytes / op->elem_bytes;

        longest = block > longest ? block : longest;
    }
    return longest;
}

/* All headers are here: choose the mode, from what all ranks see alike. */
static enum pl_status settle(struct pl_shm *shm, struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_collective *collective = op->collective;
    const struct pl_shm_head *first = pl_shm_head(shm, 0, op->sequence);

    if (op->differs) {
        return raise_mismatch(shm, op, reterr);
    }
    if (collective->kind == PL_ALLTOALL) {
        PL_TRY(check_alltoall(shm, op, reterr));
    }
    if (op->most <= shm->flat_bytes) {
        op->mode = PL_SHM_FLAT;
        return PL_OK;
    }
    op->mode = is_direct(shm, op) ? PL_SHM_DIRECT : PL_SHM_STAGED;
    if (!is_inline(collective->kind, first->notice.bytes)) {
        op->reduction.store = (enum pl_kernel_store)(op->mode == PL_SHM_DIRECT ? first->notice.in.at.direct_store
                                                                               : first->notice.in.at.staged_store);
    }
    op->timed_bytes = first->notice.bytes;
    op->start_ns = shm->rank == 0 && first->notice.bytes >= TIMED_BYTES ? pl_clock_now_ns() : 0;
    if (op->mode == PL_SHM_STAGED) {
        pl_shm_plan(shm, op, longest_block(shm, op));
    }
    return PL_OK;
}

/* ---- eager: everything is in the headers ---- */

static inline const char *flat_source(struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);

    if (rank == shm->rank) {
        return send_buffer(op->collective);
    }
    return is_inline(op->collective->kind, head->notice.bytes) ? (const char *)head->notice.in.data
                                                               : pl_shm_flat_data(shm, head);
}

static void move(void *dest, const void *source, uint64_t bytes)
{
    if (bytes > 0 && dest != source) {
        memcpy(dest, source, bytes);
    }
}

/* `count` elements from element `skip` of what every rank sends, reduced into recv. */
static void reduce_flat(struct pl_shm *shm, struct pl_shm_op *op, uint64_t skip, uint64_t count)
{
    void *dest = op->collective->recv;

    for (int rank = 0; rank < shm->size; rank++) {
        shm->sources[rank] = flat_source(shm, op, rank) + skip * op->elem_bytes;
    }
    pl_kernel_reduce(shm->kernel, &op->reduction, &dest, 1, shm->sources, (uint32_t)shm->size, count);
}

static void run_flat(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    size_t each = op->elem_bytes;
    char *recv = collective->recv;

    switch (collective->kind) {
    case PL_ALLREDUCE:
        reduce_flat(shm, op, 0, collective->count);
        break;
    case PL_REDUCE:
        if (shm->rank == collective->root) {
            reduce_flat(shm, op, 0, collective->count);
        }
        break;
    case PL_REDUCE_SCATTER:
        reduce_flat(shm, op, shm->send_displ[shm->rank], shm->send_displ[shm->rank + 1] - shm->send_displ[shm->rank]);
        break;
    case PL_ALLGATHER:
        for (int rank = 0; rank < shm->size; rank++) {
            move(recv + shm->recv_displ[rank] * each, flat_source(shm, op, rank),
                 (shm->recv_displ[rank + 1] - shm->recv_displ[rank]) * each);
        }
        break;
    case PL_ALLTOALL:
        for (int rank = 0; rank < shm->size; rank++) {
            const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_head(shm, rank, op->sequence));
            uint64_t before = 0;

            for (int to = 0; to < shm->rank; to++) {
                before += sent[to];
            }
            move(recv + shm->recv_displ[rank] * each, flat_source(shm, op, rank) + before * each,
                 sent[shm->rank] * each);
        }
        break;
    case PL_BROADCAST:
        move(recv, flat_source(shm, op, collective->root), collective->count * each);
        break;
    case PL_BARRIER:
        break;
    }
}

/* ---- all modes ---- */

bool pl_shm_is_through(const struct pl_shm *shm, int rank)
{
    const struct pl_shm_op *op = &shm->op;
    struct pl_shm_words *words = pl_shm_words(shm, rank);

    switch (op->mode) {
    case PL_SHM_HEADS:
        return atomic_load(&pl_shm_head(shm, rank, op->sequence)->sequence) >= op->sequence;
    case PL_SHM_FLAT:
        break;
    case PL_SHM_DIRECT:
        return rank == shm->rank || atomic_load(&words->done) >= op->sequence;
    case PL_SHM_STAGED:
        return atomic_load(&words->staged) >= shm->rounds_base + op->rounds &&
               atomic_load(&words->consumed) >= shm->rounds_base + op->rounds;
    }
    return true;
}

bool pl_shm_is_ready(const struct pl_shm *shm)
{
    const struct pl_shm_op *op = &shm->op;

    if (op->mode == PL_SHM_STAGED) {
        return pl_shm_staged_can_move(shm);
    }
    return (op->mode == PL_SHM_DIRECT && !op->worked) || op->waits_for < 0 || pl_shm_is_through(shm, op->waits_for);
}

enum pl_status pl_shm_begin(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    const struct pl_collective *collective = &request->collective;
    size_t elem_bytes = collective->kind == PL_BARRIER ? 1 : pl_dtype_bytes(collective->dtype);
    uint64_t sequence = ++shm->sequence;
    uint64_t hash = post_head(shm, request, sequence, sent_elems(shm, collective) * elem_bytes);

    /* What follows is done while the header's cache line moves to the other cores. */
    shm->op = (struct pl_shm_op){
        .collective = collective,
        .request = request,
        .sequence = sequence,
        .hash = hash,
        .elem_bytes = elem_bytes,
        .reduction =
            {
                .dtype = collective->dtype,
                .op = collective->op,
                .divisor = collective->divisor,
                .prescale = collective->prescale,
                .postscale = collective->postscale,
            },
        .waits_for = -1,
    };
    return pl_shm_advance(shm, request, ret_done, reterr);
}

/* Go as far as it gets; `*ret_done` only when all of it is done. */
static inline enum pl_status attempt(struct pl_shm *shm, struct pl_shm_op *op, bool *ret_done, struct pl_error *reterr)
{
    if (op->mode == PL_SHM_HEADS) {
        if (!see_heads(shm, op)) {
            return PL_OK;
        }
        op->request->moves++;
        PL_TRY(settle(shm, op, reterr));
    }
    switch (op->mode) {
    case PL_SHM_HEADS:
        break;
    case PL_SHM_FLAT:
        run_flat(shm, op);
        *ret_done = true;
        break;
    case PL_SHM_DIRECT:
        *ret_done = pl_shm_advance_direct(shm, op);
        break;
    case PL_SHM_STAGED:
        *ret_done = pl_shm_advance_staged(shm, op);
        break;
    }
    return PL_OK;
}

enum pl_status pl_shm_advance(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    struct pl_shm_op *op = &shm->op;

    (void)request;
    for (bool failed = false;; failed = true) {
        PL_TRY(attempt(shm, op, ret_done, reterr));
        if (*ret_done) {
            if (op->start_ns) {
                learn(shm, op);
            }
            return PL_OK;
        }
        if (failed) {
            return pl_shm_check(shm, reterr);
        }
        if (atomic_load(&shm->control->failure) == 0) {
            return PL_OK;
        }
        /* What the failed rank published before it failed may be enough to end this collective, or to find the mismatch
         * here: try once more before its failure is reported. */
    }
}
