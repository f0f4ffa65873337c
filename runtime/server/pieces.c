/* SPDX-License-Identifier: Apache-2.0 */
/* A server's values: applies pushed gradients, at once or when all workers have pushed theirs. */
#include "runtime/server/state.h"

#include "base/memory.h"
#include "collectives/reduce/compress.h"
#include "device/kernel_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Maps zeroed memory, allocated at its first use: a server uses only its own pieces of an array. */
static enum pl_status map_zeroes(uint64_t elems, float **ret_array, struct pl_error *reterr)
{
    void *array =
        mmap(NULL, elems * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (array == MAP_FAILED) {
        return pl_error_errno(reterr, "map %llu elements of a parameter server", (unsigned long long)elems);
    }
    *ret_array = array;
    return PL_OK;
}

static void unmap(const struct pl_server_state *server, float *array)
{
    if (array) {
        munmap(array, server->layout.head->elems * sizeof(float));
    }
}

static enum pl_status open_rounds(struct pl_server_state *server, struct pl_error *reterr)
{
    const uint64_t pieces = server->layout.head->pieces;

    PL_TRY(pl_memory_alloc(&server->rounds, pieces, sizeof(*server->rounds), reterr));
    PL_TRY(pl_memory_alloc_aligned(&server->sum, server->layout.longest_elems, sizeof(float), 64, reterr));
    PL_TRY(pl_memory_alloc(&server->store, (size_t)server->total, sizeof(*server->store), reterr));
    for (uint64_t p = (uint64_t)server->host; p < pieces; p += (uint64_t)server->hosts) {
        PL_TRY(
            pl_memory_alloc(&server->rounds[p].given, (size_t)server->total, sizeof(*server->rounds[p].given), reterr));
    }
    for (int w = 0; w < server->total; w++) {
        if (w / server->options->workers != server->host) {
            PL_TRY(map_zeroes(server->layout.head->elems, &server->store[w], reterr));
        }
    }
    return PL_OK;
}

enum pl_status pl_server_pieces_open(struct pl_server_state *server, struct pl_error *reterr)
{
    const struct pl_server_layout_head *head = server->layout.head;

    server->optimizer = pl_server_layout_optimizer(&server->layout);
    PL_TRY(pl_optimizer_rule_check(&server->optimizer, reterr));
    PL_TRY(pl_memory_alloc(&server->is_known, head->pieces, sizeof(*server->is_known), reterr));
    PL_TRY(pl_memory_alloc(&server->updates, head->pieces, sizeof(*server->updates), reterr));
    PL_TRY(pl_memory_alloc(&server->stage, (size_t)server->hosts, sizeof(*server->stage), reterr));
    for (int w = 0; w < server->options->workers; w++) {
        PL_TRY(pl_memory_alloc(&server->locals[w].is_pushing, head->pieces, sizeof(bool), reterr));
    }
    server->slots = pl_optimizer_rule_slots(&server->optimizer);
    for (int h = 0; h < server->hosts; h++) {
        if (h != server->host) {
            PL_TRY(pl_memory_alloc_aligned(&server->stage[h], (1 + server->slots) * server->layout.longest_elems + 1,
                                           sizeof(float), 64, reterr));
        }
    }
    for (unsigned s = 0; s < server->slots; s++) {
        PL_TRY(map_zeroes(head->elems, &server->slot[s], reterr));
    }
    if (head->wire && server->hosts > 1) {
        PL_TRY(pl_memory_alloc_aligned(&server->unpacked, server->layout.longest_elems, sizeof(float), 64, reterr));
        for (int w = 0; w < server->options->workers; w++) {
            PL_TRY(map_zeroes(head->elems, &server->locals[w].residual, reterr));
        }
    }
    server->is_synchronous = head->staleness == 0;
    if (!server->is_synchronous) {
        server->known_updates =
            pl_memory_new((size_t)server->total * head->pieces, sizeof(*server->known_updates), reterr);
        PL_TRY(server->known_updates ? PL_OK : PL_MEMORY);
    }
    return server->is_synchronous ? open_rounds(server, reterr) : PL_OK;
}

void pl_server_pieces_close(struct pl_server_state *server)
{
    for (uint64_t p = 0; server->rounds && p < server->layout.head->pieces; p++) {
        free(server->rounds[p].given);
    }
    for (int w = 0; server->store && w < server->total; w++) {
        unmap(server, server->store[w]);
    }
    for (int h = 0; server->stage && h < server->hosts; h++) {
        free(server->stage[h]);
    }
    for (unsigned s = 0; s < PL_OPTIMIZER_MOST_SLOTS; s++) {
        unmap(server, server->slot[s]);
    }
    for (int w = 0; w < server->options->workers; w++) {
        free(server->locals[w].is_pushing);
        unmap(server, server->locals[w].residual);
    }
    free(server->unpacked);
    free(server->known_updates);
    free(server->rounds);
    free(server->sum);
    free(server->store);
    free(server->stage);
    free(server->updates);
    free(server->is_known);
}

/* Marks the values of `piece` as present, and wakes the workers that wait for all values. */
static void know(struct pl_server_state *server, uint64_t piece)
{
    if (server->is_known[piece]) {
        return;
    }
    server->is_known[piece] = true;
    atomic_fetch_add_explicit(&pl_server_view_header(&server->view)->known_pieces, 1, memory_order_release);
    for (int w = 0; w < server->options->workers; w++) {
        pl_server_notify(server, w);
    }
}

void pl_server_pieces_overwrite(struct pl_server_state *server, uint64_t piece, const float *data)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];
    struct pl_server_piece *head = pl_server_view_piece(&server->view, piece);

    pl_server_write_begin(head);
    memcpy(pl_server_view_values(&server->view) + range->first_elem, data, range->count_elems * sizeof(float));
    pl_server_write_end(head);
    know(server, piece);
}

/* Counts the updates by other workers since `worker` read the values from which it computed its gradient. */
static void count_age(struct pl_server_state *server, uint64_t piece, int worker)
{
    uint64_t *known = &server->known_updates[(uint64_t)worker * server->layout.head->pieces + piece];
    unsigned age = 0;

    for (uint64_t others = server->updates[piece] + 1 - *known; others > 0 && age + 1 < PL_SERVER_AGES; others >>= 1) {
        age++;
    }
    if (*known > 0) {
        server->counts.ages[age]++;
    }
    *known = server->updates[piece] + 2; /* includes its own update */
}

/* Takes one step of the optimizer over `piece`. */
static void update(struct pl_server_state *server, uint64_t piece, double rate, const float *gradient)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];
    struct pl_server_piece *head = pl_server_view_piece(&server->view, piece);
    float *slot[PL_OPTIMIZER_MOST_SLOTS];
    struct pl_device_step step = pl_optimizer_rule_step(&server->optimizer, ++server->updates[piece], rate, 1.0);

    for (unsigned s = 0; s < PL_OPTIMIZER_MOST_SLOTS; s++) {
        slot[s] = server->slot[s] ? server->slot[s] + range->first_elem : NULL;
    }
    server->counts.updates++;
    pl_server_write_begin(head);
    pl_optimizer_rule_apply(&step, range->count_elems, pl_server_view_values(&server->view) + range->first_elem,
                            gradient, slot);
    pl_server_write_end(head);
}

bool pl_server_pieces_is_packed(const struct pl_server_state *server, const struct pl_server_packet *packet)
{
    return packet->kind == PL_SERVER_PACKET_PUSH && packet->push == PL_SERVER_PUSH_GRADIENT &&
           server->layout.head->wire;
}

enum pl_status pl_server_pieces_push(struct pl_server_state *server, struct pl_server_packet *push, float *data,
                                     struct pl_error *reterr)
{
    const unsigned wire = server->layout.head->wire;
    const struct pl_server_range *range = &server->layout.pieces[push->piece];
    struct pl_server_local *local = &server->locals[push->worker - pl_server_first_worker(server)];
    const bool is_packed = pl_server_pieces_is_packed(server, push);
    void *packed = NULL;

    local->is_pushing[push->piece] = true;
    if (is_packed) {
        push->data_bytes = pl_compress_bytes(wire, range->count_elems);
        PL_TRY(pl_memory_alloc_aligned(&packed, push->data_bytes, 1, 64, reterr));
        pl_compress_pack(pl_kernel_best(), wire, packed, data, local->residual + range->first_elem, PL_COMPRESS_ADD,
                         range->count_elems);
    }
    if (push->push == PL_SERVER_PUSH_GRADIENT) {
        atomic_fetch_add_explicit(&pl_server_view_header(&server->view)->sent_bytes, push->data_bytes,
                                  memory_order_relaxed);
    }
    return pl_server_remote_send(server->remote, pl_server_owner(server, push->piece), push, is_packed ? packed : data,
                                 is_packed, reterr);
}

float *pl_server_pieces_unpack(struct pl_server_state *server, const struct pl_server_packet *push, const void *packed)
{
    const struct pl_server_range *range = &server->layout.pieces[push->piece];
    float *data = server->is_synchronous ? server->store[push->worker] + range->first_elem : server->unpacked;

    pl_compress_unpack(pl_kernel_best(), server->layout.head->wire, data, packed, false, range->count_elems);
    return data;
}

enum pl_status pl_server_pieces_send(struct pl_server_state *server, int host, uint64_t piece, int worker,
                                     struct pl_error *reterr)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];
    struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_VALUES,
                                      .worker = worker,
                                      .piece = piece,
                                      .data_bytes = range->count_elems * sizeof(float),
                                      .stops = pl_server_view_header(&server->view)->stops};
    /* the values may change while they are sent */
    float *copy;

    PL_TRY(pl_memory_alloc_aligned(&copy, range->count_elems, sizeof(float), 64, reterr));
    memcpy(copy, pl_server_view_values(&server->view) + range->first_elem, packet.data_bytes);
    server->counts.value_bytes += packet.data_bytes;
    return pl_server_remote_send(server->remote, host, &packet, copy, true, reterr);
}

/* Tells `worker` that its push of `piece` is applied. A worker of another host also gets the values. */
static enum pl_status answer(struct pl_server_state *server, uint64_t piece, int worker, struct pl_error *reterr)
{
    int host = worker / server->options->workers;

    if (host == server->host) {
        pl_server_answer_applied(server, worker - pl_server_first_worker(server));
        return PL_OK;
    }
    return pl_server_pieces_send(server, host, piece, worker, reterr);
}

/* Sends the piece's values to all other servers except `told`. */
static enum pl_status share(struct pl_server_state *server, uint64_t piece, int told, struct pl_error *reterr)
{
    for (int h = 0; h < server->hosts; h++) {
        if (h != server->host && h != told) {
            PL_TRY(pl_server_pieces_send(server, h, piece, PL_SERVER_ANSWERS_NONE, reterr));
        }
    }
    return PL_OK;
}

void pl_server_pieces_read_state(const struct pl_server_state *server, uint64_t piece, float *data)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];

    memcpy(data, pl_server_view_values(&server->view) + range->first_elem, range->count_elems * sizeof(float));
    for (unsigned s = 0; s < server->slots; s++) {
        memcpy(data + (1 + s) * range->count_elems, server->slot[s] + range->first_elem,
               range->count_elems * sizeof(float));
    }
}

enum pl_status pl_server_pieces_write_state(struct pl_server_state *server, uint64_t piece, uint64_t updates,
                                            const float *data, struct pl_error *reterr)
{
    const struct pl_server_range *range = &server->layout.pieces[piece];

    pl_server_pieces_overwrite(server, piece, data);
    for (unsigned s = 0; s < server->slots; s++) {
        memcpy(server->slot[s] + range->first_elem, data + (1 + s) * range->count_elems,
               range->count_elems * sizeof(float));
    }
    server->updates[piece] = updates;
    return share(server, piece, server->host, reterr);
}

void pl_server_pieces_stop(struct pl_server_state *server)
{
    atomic_store_explicit(&pl_server_view_header(&server->view)->stops, 1, memory_order_release);
}

/* Sets the first values, or a checkpoint's values, and sends them to all servers. */
static enum pl_status assign(struct pl_server_state *server, uint64_t piece, int worker, const float *data,
                             struct pl_error *reterr)
{
    pl_server_pieces_overwrite(server, piece, data);
    PL_TRY(share(server, piece, worker / server->options->workers, reterr));
    return answer(server, piece, worker, reterr);
}

/*
 * Ends the round if all workers that have not left have pushed their gradient: applies the average, summed in the order
 * of the workers' numbers.
 */
static enum pl_status end_round(struct pl_server_state *server, uint64_t piece, struct pl_error *reterr)
{
    struct pl_server_round *round = &server->rounds[piece];
    struct pl_reduction average = {
        .dtype = PL_FLOAT32, .op = PL_SUM, .prescale = 1.0, .postscale = 1.0, .divisor = round->count};
    const void *sources[PL_SERVER_MOST_WORKERS];
    void *sum = server->sum;
    bool has_sent[PL_SERVER_MOST_WORKERS] = {false};
    uint32_t count = 0;

    if (round->count == 0 || round->count < server->total - server->left) {
        return PL_OK; /* the gradients of some workers are still missing */
    }
    for (int w = 0; w < server->total; w++) {
        if (round->given[w]) {
            sources[count++] = round->given[w];
        } else if (!server->workers[w].has_left) {
            return PL_OK;
        }
    }
    pl_kernel_reduce(pl_kernel_best(), &average, &sum, 1, sources, count, server->layout.pieces[piece].count_elems);
    update(server, piece, round->rate, server->sum);
    if (round->stops) {
        pl_server_pieces_stop(server); /* before any worker sees the end of the step */
    }
    for (int w = 0; w < server->total; w++) {
        int host = w / server->options->workers;

        if (round->given[w] && host == server->host) {
            pl_server_answer_applied(server, w - pl_server_first_worker(server));
        } else if (round->given[w] && !has_sent[host]) {
            has_sent[host] = true;
            PL_TRY(pl_server_pieces_send(server, host, piece, PL_SERVER_ANSWERS_ALL, reterr));
        }
        round->given[w] = NULL;
    }
    round->count = 0;
    return PL_OK;
}

enum pl_status pl_server_pieces_take(struct pl_server_state *server, int worker, const struct pl_server_packet *push,
                                     const float *data, struct pl_error *reterr)
{
    struct pl_server_round *round;

    if (push->push == PL_SERVER_PUSH_VALUES) {
        return assign(server, push->piece, worker, data, reterr);
    }
    if (!server->is_synchronous) {
        count_age(server, push->piece, worker);
        update(server, push->piece, push->rate, data);
        return answer(server, push->piece, worker, reterr);
    }
    round = &server->rounds[push->piece];
    if (round->given[worker]) {
        return pl_error_set(reterr, PL_CORRUPT, "worker %d pushed piece %llu twice in a step", worker,
                            (unsigned long long)push->piece);
    }
    if (round->count == 0) {
        round->rate = push->rate;
    } else if (round->rate != push->rate) {
        return pl_error_set(reterr, PL_MISMATCH, "the learning rate of worker %d is %g, of another one %g in this step",
                            worker, push->rate, round->rate);
    }
    round->given[worker] = data;
    round->count++;
    /* the stop request comes with piece 0 and applies to the whole step */
    round->stops = round->stops || (push->stops && push->piece == 0);
    return end_round(server, push->piece, reterr);
}

enum pl_status pl_server_pieces_recheck(struct pl_server_state *server, struct pl_error *reterr)
{
    if (!server->rounds) {
        return PL_OK;
    }
    for (uint64_t p = (uint64_t)server->host; p < server->layout.head->pieces; p += (uint64_t)server->hosts) {
        PL_TRY(end_round(server, p, reterr));
    }
    return PL_OK;
}

void pl_server_pieces_put(struct pl_server_state *server, const struct pl_server_packet *packet, const float *data)
{
    pl_server_pieces_overwrite(server, packet->piece, data);
    if (packet->stops) {
        pl_server_pieces_stop(server);
    }
    if (packet->worker == PL_SERVER_ANSWERS_FETCH) {
        pl_server_answer_fetched(server);
        return;
    }
    for (int w = 0; w < server->options->workers; w++) {
        struct pl_server_local *local = &server->locals[w];

        if ((packet->worker == PL_SERVER_ANSWERS_ALL || packet->worker == pl_server_first_worker(server) + w) &&
            local->is_pushing[packet->piece]) {
            local->is_pushing[packet->piece] = false;
            pl_server_answer_applied(server, w);
        }
    }
}
