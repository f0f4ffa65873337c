/* SPDX-License-Identifier: Apache-2.0 */
/** One collective from head to end: exchange heads, choose the mode all ranks choose, run it as far as it gets. */
#include "collectives/shm.h"

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
            choice->ns_per_byte[class][store] = INFINITY;
        }
    }
    if (use < TRIALS * PL_SHM_STORES) {
        return (enum pl_kernel_store)(use % PL_SHM_STORES);
    }
    for (int store = 1; store < PL_SHM_STORES; store++) {
        /* Streaming leaves nothing in the cache for who reads the result next, so it has to be clearly better. */
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

    if (shm->rank != 0 || op->start_ns == 0) {
        return;
    }
    ns_per_byte = (double)(pl_clock_now_ns() - op->start_ns) / (double)op->timed_bytes;
    *best = ns_per_byte < *best ? ns_per_byte : *best;
    choice->uses[class]++;
}

/* ---- heads ---- */

/* Products of independent words: as quick as one multiplication after another is slow. Equal signatures are what matters. */
static uint64_t hash_signature(const struct pl_signature *signature)
{
    uint64_t words[sizeof(*signature) / 8];
    uint64_t hash = 0;

    memcpy(words, signature, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        uint64_t odd = UINT64_C(0x9e3779b97f4a7c15) + 2 * i * UINT64_C(0x7f4a7c15d1b54a33);

        hash += (words[i] ^ (words[i] >> 31)) * odd;
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

static void fill_alltoall(const struct pl_shm *shm, struct pl_shm_head *head, struct pl_shm_notice *notice)
{
    uint64_t *counts = pl_shm_alltoall_counts(head);

    for (int rank = 0; rank < shm->size; rank++) {
        counts[rank] = shm->send_displ[rank + 1] - shm->send_displ[rank];
        counts[shm->size + rank] = shm->recv_displ[rank + 1] - shm->recv_displ[rank];
        notice->in.at.longest = counts[rank] > notice->in.at.longest ? counts[rank] : notice->in.at.longest;
    }
}

static void fill_places(struct pl_shm *shm, const struct pl_collective *collective, struct pl_shm_notice *notice)
{
    bool forced = shm->forced_store >= 0;

    if (!pl_shm_arena_find(shm, send_buffer(collective), notice->bytes, &notice->in.at.send_span, &notice->in.at.send_offset)) {
        notice->in.at.send_span = 0;
    }
    if (collective->recv == NULL || !pl_shm_arena_find(shm, collective->recv, notice->bytes, &notice->in.at.recv_span, &notice->in.at.recv_offset)) {
        notice->in.at.recv_span = 0;
    }
    if (shm->rank == 0) {
        notice->in.at.direct_store = (uint8_t)(forced ? shm->forced_store : (int)choose(&shm->direct_choice, notice->bytes));
        notice->in.at.staged_store = (uint8_t)(forced ? shm->forced_store : (int)choose(&shm->staged_choice, notice->bytes));
    }
}

/*
 * Post this rank's head. The notice is made aside and stored in one go: the line is being polled by all other ranks, and
 * between two stores that lie apart they would take it away.
 */
static void post_head(struct pl_shm *shm, struct pl_shm_op *op, uint64_t elems)
{
    const struct pl_collective *collective = op->collective;
    struct pl_shm_head *head = pl_shm_head(shm, shm->rank, op->sequence);
    struct pl_shm_notice notice = {.bytes = elems * op->elem_bytes};
    bool sends = notice.bytes > 0 && (collective->kind != PL_BROADCAST || shm->rank == collective->root);

    head->signature = op->request->signature;
    notice.hash = hash_signature(&op->request->signature);
    op->hash = notice.hash;
    op->bytes = notice.bytes;
    if (collective->kind == PL_ALLTOALL) {
        fill_alltoall(shm, head, &notice);
    }
    if (is_inline(collective->kind, notice.bytes)) {
        if (sends) {
            memcpy(notice.in.data, send_buffer(collective), notice.bytes);
        }
    } else if (notice.bytes > PL_SHM_FLAT_BYTES) {
        fill_places(shm, collective, &notice);
    } else if (sends) {
        pl_kernel_copy(shm->kernel, pl_shm_flat_data(shm, head), send_buffer(collective), notice.bytes, PL_KERNEL_STORE_MIGRATE);
    }
    head->notice = notice;
    pl_shm_publish(shm, &head->sequence, op->sequence);
}

/* Whether all ranks do the same. The lowest rank that disagrees with rank 0 makes the report, on every rank the same. */
static enum pl_status check_agreed(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_shm_head *first = pl_shm_head(shm, 0, op->sequence);
    bool agreed = true;

    for (int rank = 0; rank < shm->size; rank++) {
        agreed = agreed && (rank == shm->rank || pl_shm_head(shm, rank, op->sequence)->notice.hash == op->hash);
    }
    for (int rank = 1; !agreed && rank < shm->size; rank++) {
        const struct pl_shm_head *other = pl_shm_head(shm, rank, op->sequence);

        if (other->notice.hash != first->notice.hash) {
            return pl_signature_mismatch(&first->signature, 0, &other->signature, rank, reterr);
        }
    }
    return PL_OK;
}

static enum pl_status check_alltoall(struct pl_shm *shm, const struct pl_shm_op *op, struct pl_error *reterr)
{
    for (int from = 0; op->collective->counts != NULL && from < shm->size; from++) {
        const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_head(shm, from, op->sequence));

        for (int to = 0; to < shm->size; to++) {
            uint64_t expected = pl_shm_alltoall_counts(pl_shm_head(shm, to, op->sequence))[shm->size + from];

            if (sent[to] != expected) {
                return pl_error_set(reterr, PL_MISMATCH, "alltoall: rank %d sends %llu elements to rank %d, which expects %llu", from,
                                    (unsigned long long)sent[to], to, (unsigned long long)expected);
            }
        }
    }
    return PL_OK;
}

/* Whether all buffers that other ranks would touch lie in the arena. */
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

/* All heads are here: decide, from what all ranks see alike. */
static enum pl_status settle(struct pl_shm *shm, struct pl_shm_op *op, struct pl_error *reterr)
{
    const struct pl_collective *collective = op->collective;
    const struct pl_shm_head *first = pl_shm_head(shm, 0, op->sequence);
    uint64_t most = op->bytes;
    bool ragged = collective->kind == PL_ALLGATHER || collective->kind == PL_ALLTOALL;

    if (__builtin_expect(check_agreed(shm, op, reterr) != PL_OK, 0)) {
        return PL_MISMATCH;
    }
    if (collective->kind == PL_ALLTOALL) {
        PL_TRY(check_alltoall(shm, op, reterr));
    }
    for (int rank = 0; ragged && rank < shm->size; rank++) {
        uint64_t bytes = pl_shm_head(shm, rank, op->sequence)->notice.bytes;

        most = bytes > most ? bytes : most;
    }
    op->waits_for = -1;
    if (most <= PL_SHM_FLAT_BYTES) {
        op->mode = PL_SHM_FLAT;
        return PL_OK;
    }
    op->mode = is_direct(shm, op) ? PL_SHM_DIRECT : PL_SHM_STAGED;
    if (!is_inline(collective->kind, first->notice.bytes)) {
        op->reduction.store = (enum pl_kernel_store)(op->mode == PL_SHM_DIRECT ? first->notice.in.at.direct_store : first->notice.in.at.staged_store);
    }
    op->timed_bytes = first->notice.bytes;
    op->start_ns = shm->rank == 0 && first->notice.bytes >= TIMED_BYTES ? pl_clock_now_ns() : 0;
    if (op->mode == PL_SHM_STAGED) {
        pl_shm_plan(shm, op, longest_block(shm, op));
    }
    return PL_OK;
}

/* ---- flat: everything is in the heads ---- */

static const void *flat_source(struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);

    if (rank == shm->rank) {
        return send_buffer(op->collective);
    }
    return is_inline(op->collective->kind, head->notice.bytes) ? (const char *)head->notice.in.data : pl_shm_flat_data(shm, head);
}

static void move(void *dest, const void *source, uint64_t bytes)
{
    if (bytes > 0 && dest != source) {
        memcpy(dest, source, bytes);
    }
}

static void run_flat(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    size_t each = op->elem_bytes;
    char *recv = collective->recv;
    uint64_t skip = collective->kind == PL_REDUCE_SCATTER ? shm->send_displ[shm->rank] : 0;
    uint64_t count = collective->kind == PL_REDUCE_SCATTER ? shm->send_displ[shm->rank + 1] - skip : collective->count;

    for (int rank = 0; rank < shm->size; rank++) {
        const char *source = flat_source(shm, op, rank);

        switch (collective->kind) {
        case PL_ALLREDUCE:
        case PL_REDUCE:
        case PL_REDUCE_SCATTER:
            shm->sources[rank] = source + skip * each;
            break;
        case PL_ALLGATHER:
            move(recv + shm->recv_displ[rank] * each, source, (shm->recv_displ[rank + 1] - shm->recv_displ[rank]) * each);
            break;
        case PL_ALLTOALL: {
            const uint64_t *sent = pl_shm_alltoall_counts(pl_shm_head(shm, rank, op->sequence));
            uint64_t before = 0;

            for (int to = 0; to < shm->rank; to++) {
                before += sent[to];
            }
            move(recv + shm->recv_displ[rank] * each, source + before * each, sent[shm->rank] * each);
            break;
        }
        case PL_BROADCAST:
            if (rank == collective->root) {
                move(recv, source, count * each);
            }
            break;
        case PL_BARRIER:
            break;
        }
    }
    if (collective->kind == PL_ALLREDUCE || collective->kind == PL_REDUCE_SCATTER ||
        (collective->kind == PL_REDUCE && shm->rank == collective->root)) {
        void *dest = recv;

        pl_kernel_reduce(shm->kernel, &op->reduction, &dest, 1, shm->sources, (uint32_t)shm->size, count);
    }
}

/* ---- direct: read and write other ranks' arena memory ---- */

static char *direct_send(const struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    const struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);

    return pl_shm_arena_at(shm, head->notice.in.at.send_span, rank, head->notice.in.at.send_offset);
}

static char *direct_recv(const struct pl_shm *shm, const struct pl_shm_op *op, int rank)
{
    const struct pl_shm_head *head = pl_shm_head(shm, rank, op->sequence);

    return pl_shm_arena_at(shm, head->notice.in.at.recv_span, rank, head->notice.in.at.recv_offset);
}

/* Reduce the next piece of elements [first, end) into `dest_count` buffers of which each starts with element `dest_first`. */
static bool reduce_direct(struct pl_shm *shm, struct pl_shm_op *op, uint64_t first, uint64_t end, uint64_t dest_first, uint32_t dest_count)
{
    uint64_t step = PL_SHM_STEP_BYTES / op->elem_bytes;
    uint64_t at = first + op->at_elems;
    uint64_t elems = end - at < step ? end - at : step;
    size_t each = op->elem_bytes;

    for (int rank = 0; rank < shm->size; rank++) {
        shm->sources[rank] = direct_send(shm, op, rank) + at * each;
    }
    for (uint32_t i = 0; i < dest_count; i++) {
        shm->dests[i] = (char *)shm->dests[i] + (at - dest_first) * each;
    }
    pl_kernel_reduce(shm->kernel, &op->reduction, shm->dests, dest_count, shm->sources, (uint32_t)shm->size, elems);
    op->at_elems += elems;
    return at + elems == end;
}

static bool reduce_share(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    uint64_t size = (uint64_t)shm->size;
    uint64_t line_elems = PL_SHM_LINE_BYTES / op->elem_bytes;
    uint64_t share = (collective->count / size + line_elems) / line_elems * line_elems;
    uint64_t first = (uint64_t)shm->rank * share;
    uint64_t end = first + share;
    uint32_t dests = 0;

    end = end < collective->count ? end : collective->count;
    if (first >= end) {
        return true;
    }
    for (int rank = 0; rank < shm->size; rank++) {
        if (collective->kind == PL_ALLREDUCE || rank == collective->root) {
            shm->dests[dests++] = direct_recv(shm, op, rank);
        }
    }
    return reduce_direct(shm, op, first, end, 0, dests);
}

/* Do a piece of this rank's share; true when all of it is done. */
static bool work_direct(struct pl_shm *shm, struct pl_shm_op *op)
{
    const struct pl_collective *collective = op->collective;
    char *recv = collective->recv;
    size_t each = op->elem_bytes;

    switch (collective->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE:
        return reduce_share(shm, op);
    case PL_REDUCE_SCATTER:
        if (shm->send_displ[shm->rank] == shm->send_displ[shm->rank + 1]) {
            return true;
        }
        shm->dests[0] = recv;
        return reduce_direct(shm, op, shm->send_displ[shm->rank], shm->send_displ[shm->rank + 1], shm->send_displ[shm->rank], 1);
    case PL_ALLGATHER: {
        /* One block a call, each rank starting with another so that they do not all read the same memory. */
        int from = (int)((op->at_elems++ + (uint64_t)shm->rank) % (uint64_t)shm->size);
        uint64_t bytes = (shm->recv_displ[from + 1] - shm->recv_displ[from]) * each;
        char *dest = recv + shm->recv_displ[from] * each;
        const char *source = from == shm->rank ? collective->send : direct_send(shm, op, from);

        if (dest != source) {
            pl_kernel_copy(shm->kernel, dest, source, bytes, op->reduction.store);
        }
        return op->at_elems == (uint64_t)shm->size;
    }
    case PL_BROADCAST:
        if (shm->rank != collective->root) {
            pl_kernel_copy(shm->kernel, recv, direct_send(shm, op, collective->root), collective->count * each, op->reduction.store);
        }
        return true;
    case PL_ALLTOALL:
    case PL_BARRIER:
        break;
    }
    return true;
}

static bool advance_direct(struct pl_shm *shm, struct pl_shm_op *op)
{
    if (!op->worked) {
        op->worked = work_direct(shm, op);
        op->request->moves++;
        if (!op->worked) {
            return false;
        }
        pl_shm_publish(shm, &pl_shm_words(shm, shm->rank)->done, op->sequence);
    }
    for (; op->seen < shm->size; op->seen++) {
        if (!pl_shm_is_through(shm, op->seen)) {
            op->waits_for = op->seen;
            return false;
        }
    }
    return true;
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
        return atomic_load(&words->staged) >= shm->rounds_base + op->rounds && atomic_load(&words->consumed) >= shm->rounds_base + op->rounds;
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

enum pl_status pl_shm_begin(struct pl_shm *shm, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm_op *op = &shm->op;
    const struct pl_collective *collective = &request->collective;

    *op = (struct pl_shm_op){
        .collective = collective,
        .request = request,
        .sequence = ++shm->sequence,
        .elem_bytes = collective->kind == PL_BARRIER ? 1 : pl_dtype_bytes(collective->dtype),
        .reduction =
            {
                .dtype = collective->dtype,
                .op = collective->op,
                .divisor = collective->op == PL_AVERAGE ? shm->size : 1,
                .prescale = collective->scaled ? collective->prescale : 1,
                .postscale = collective->scaled ? collective->postscale : 1,
            },
        .waits_for = -1,
    };
    post_head(shm, op, sent_elems(shm, collective));
    return pl_shm_advance(shm, request, ret_done, reterr);
}

/* Go as far as it gets; `*ret_done` only when all of it is done. */
static enum pl_status attempt(struct pl_shm *shm, struct pl_shm_op *op, bool *ret_done, struct pl_error *reterr)
{
    if (op->mode == PL_SHM_HEADS) {
        for (; op->seen < shm->size; op->seen++) {
            if (!pl_shm_is_through(shm, op->seen)) {
                op->waits_for = op->seen;
                return PL_OK;
            }
        }
        op->request->moves++;
        op->seen = 0;
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
        *ret_done = advance_direct(shm, op);
        break;
    case PL_SHM_STAGED:
        *ret_done = pl_shm_advance_staged(shm, op);
        break;
    }
    return PL_OK;
}

enum pl_status pl_shm_advance(struct pl_shm *shm, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_shm_op *op = &shm->op;

    (void)request;
    PL_TRY(attempt(shm, op, ret_done, reterr));
    if (!*ret_done && atomic_load(&shm->control->failure) != 0) {
        /* What the failed rank published before it failed may be enough to end this collective, or to find its fault ourselves. */
        PL_TRY(attempt(shm, op, ret_done, reterr));
        if (!*ret_done) {
            return pl_shm_check(shm, reterr);
        }
    }
    if (*ret_done && op->mode != PL_SHM_FLAT) {
        learn(shm, op);
    }
    return PL_OK;
}
