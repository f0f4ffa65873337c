/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/virtual_world.h"

#include "base/clock.h"
#include "base/text.h"
#include "collectives/arena.h"
#include "collectives/world_private.h"
#include "tests/fakes/virtual_threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, WINDOW = 64 };

/* A collective that ranks post: the table of what they have given. */
struct call {
    uint64_t number;
    int posted;
    struct pl_request *of[MOST_RANKS];
    bool complete;
};

/* What the ranks of a world share. */
struct rendezvous {
    int size, users, came;
    int ranks[MOST_RANKS]; /* in the parent */
    const struct rendezvous *parent;
    struct pl_world *worlds[MOST_RANKS];
    struct call calls[WINDOW]; /* number n is at n % WINDOW */
    struct rendezvous *next;
};

struct pl_world {
    struct rendezvous *rendezvous;
    int rank, global[MOST_RANKS];
    uint64_t posted;
    int64_t last_ready_ns; /* collectives arrive in order */
    struct pl_error failure;
    struct pl_error due; /* the failure that arrives at `due_ns`; 0: none does */
    int64_t due_ns;
    bool is_killed;
    struct pl_world *elder; /* the world of this rank that was made before */
};

struct pl_request {
    struct pl_world *world;
    struct call *call;
    uint64_t number;
    struct pl_collective c;
    uint64_t counts[MOST_RANKS], recv_counts[MOST_RANKS];
    char name[64];
    bool is_persistent;
    int64_t deadline_ns;
    int64_t ready_ns; /* 0: not complete */
};

static struct {
    struct rendezvous *open; /* worlds that not all of their ranks have come to make */
    struct pl_world *youngest[MOST_RANKS];
} all;

/* ---- failures ---- */

static void take_due(struct pl_world *world)
{
    if (world->due_ns && world->failure.status == PL_OK && pl_clock_now_ns() >= world->due_ns) {
        world->failure = world->due;
        virtual_wake(world->rendezvous);
    }
}

static enum pl_status failure_of(struct pl_world *world, struct pl_error *reterr)
{
    take_due(world);
    if (world->failure.status != PL_OK && reterr) {
        *reterr = world->failure;
    }
    return world->failure.status;
}

/* Ends `world` here because of `why`, and tells the others "rank r on host h WORDS". */
static void end_world(struct pl_world *world, const struct pl_error *why, const char *words)
{
    const struct rendezvous *rendezvous = world->rendezvous;
    char name[PL_RANK_NAME_BYTES];

    if (failure_of(world, NULL) != PL_OK) {
        return;
    }
    world->failure = *why;
    for (int r = 0; r < rendezvous->size; r++) {
        struct pl_world *other = rendezvous->worlds[r];

        if (other && other != world && !other->due_ns) {
            other->due_ns = pl_clock_now_ns() + (int64_t)virtual_draw(200000);
            other->due = PL_ERROR_NONE;
            pl_error_set(&other->due, PL_PEER, "%s %s", pl_world_rank_name(world, world->rank, name), words);
        }
    }
    virtual_wake(rendezvous);
}

void pl_world_revoke(struct pl_world *world, const struct pl_error *why)
{
    char words[PL_ERROR_CAUSE_BYTES];

    snprintf(words, sizeof(words), "has given up: %.300s", why->cause);
    end_world(world, why, words);
}

void virtual_world_kill(struct pl_world *world)
{
    struct pl_error why = PL_ERROR_NONE;

    pl_error_set(&why, PL_CANCELLED, "this rank was killed");
    for (struct pl_world *own = all.youngest[world->rank]; own; own = own->elder) {
        end_world(own, &why, "is gone");
        own->is_killed = true;
    }
}

/* ---- what a collective does ---- */

static int64_t value_at(const void *data, uint64_t i, enum pl_dtype dtype)
{
    int32_t half;
    int64_t whole;

    if (dtype == PL_INT64) {
        memcpy(&whole, (const char *)data + i * sizeof(whole), sizeof(whole));
        return whole;
    }
    memcpy(&half, (const char *)data + i * sizeof(half), sizeof(half));
    return half;
}

static void put(void *data, uint64_t i, enum pl_dtype dtype, int64_t value)
{
    int32_t half = (int32_t)value;

    if (dtype == PL_INT64) {
        memcpy((char *)data + i * sizeof(value), &value, sizeof(value));
    } else {
        memcpy((char *)data + i * sizeof(half), &half, sizeof(half));
    }
}

static int64_t reduce(enum pl_op op, int64_t a, int64_t b)
{
    switch (op) {
    case PL_MIN:
        return a < b ? a : b;
    case PL_MAX:
        return a > b ? a : b;
    case PL_PRODUCT:
        return (int32_t)(a * b);
    default:
        return a + b;
    }
}

/* Element `i` of the reduction over all ranks' `send`. */
static int64_t reduced(const struct call *call, int size, uint64_t i)
{
    const struct pl_collective *c = &call->of[0]->c;
    int64_t before = c->scaled ? (int64_t)c->prescale : 1, value = before * value_at(c->send, i, c->dtype);

    for (int r = 1; r < size; r++) {
        value = reduce(c->op, value, before * value_at(call->of[r]->c.send, i, c->dtype));
    }
    value = c->op == PL_AVERAGE ? value / (c->divisor ? (int64_t)c->divisor : size) : value;
    return c->scaled ? value * (int64_t)c->postscale : value;
}

static void sum_for_all(const struct call *call, int size)
{
    const struct pl_collective *c = &call->of[0]->c;
    uint64_t first = 0;

    if (c->kind == PL_ALLREDUCE) {
        for (uint64_t i = 0; i < c->count; i++) {
            int64_t value = reduced(call, size, i);

            for (int r = 0; r < size; r++) {
                put(call->of[r]->c.recv, i, c->dtype, value);
            }
        }
        return;
    }
    for (int r = 0; r < size; r++) {
        uint64_t count = c->counts ? c->counts[r] : c->count;

        for (uint64_t i = 0; i < count; i++) {
            put(call->of[r]->c.recv, i, c->dtype, reduced(call, size, first + i));
        }
        first += count;
    }
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memmove(to, from, bytes);
    }
}

static void move_for_all(const struct call *call, int size)
{
    const struct pl_collective *c = &call->of[0]->c;
    size_t item = pl_dtype_bytes(c->dtype);

    for (int to = 0; to < size; to++) {
        const struct pl_collective *mine = &call->of[to]->c;
        uint64_t at = 0;

        for (int from = 0; from < size; from++) {
            const struct pl_collective *theirs = &call->of[from]->c;
            uint64_t before = 0, count = c->counts ? c->counts[from] : c->count;

            if (c->kind == PL_ALLTOALL) {
                count = theirs->counts ? theirs->counts[to] : c->count;
                if (count != (mine->recv_counts ? mine->recv_counts[from] : c->count)) {
                    virtual_fail("'%s': rank %d sends %d elements to rank %d, which expects %d other", c->name,
                                 call->of[from]->world->global[from], (int)count, mine->root, to);
                }
                for (int r = 0; r < to; r++) {
                    before += theirs->counts ? theirs->counts[r] : c->count;
                }
            }
            copy((char *)mine->recv + at * item, (const char *)theirs->send + before * item, count * item);
            at += count;
        }
    }
}

static void run(const struct call *call, int size)
{
    const struct pl_collective *c = &call->of[0]->c;
    const struct pl_collective *root = &call->of[c->kind == PL_BROADCAST ? c->root : 0]->c;

    switch (c->kind) {
    case PL_ALLREDUCE:
    case PL_REDUCE_SCATTER:
        sum_for_all(call, size);
        break;
    case PL_ALLGATHER:
    case PL_ALLTOALL:
        move_for_all(call, size);
        break;
    case PL_BROADCAST:
        for (int r = 0; r < size; r++) {
            copy(call->of[r]->c.recv, root->send ? root->send : root->recv, c->count * pl_dtype_bytes(c->dtype));
        }
        break;
    case PL_REDUCE:
    case PL_BARRIER:
        break;
    }
}

/* ---- requests ---- */

static void refuse_difference(const struct pl_request *a, const struct pl_request *b)
{
    const struct pl_collective *x = &a->c, *y = &b->c;
    bool counted = x->kind == PL_ALLGATHER || x->kind == PL_REDUCE_SCATTER;

    if (x->kind != y->kind || x->dtype != y->dtype || x->op != y->op || x->flags != y->flags ||
        x->scaled != y->scaled || x->root != y->root || x->divisor != y->divisor || x->count != y->count ||
        strcmp(a->name, b->name) != 0 || !x->counts != !y->counts ||
        (counted && x->counts &&
         memcmp(x->counts, y->counts, (size_t)a->world->rendezvous->size * sizeof(*x->counts)) != 0)) {
        virtual_fail("posts %s '%s' [%d], where another rank has posted the different %s '%s' [%d]",
                     pl_kind_text(y->kind), b->name, (int)y->count, pl_kind_text(x->kind), a->name, (int)x->count);
    }
}

static void copy_counts(struct pl_request *request)
{
    struct pl_collective *c = &request->c;
    size_t bytes = (size_t)request->world->rendezvous->size * sizeof(uint64_t);

    if (c->counts) {
        memcpy(request->counts, c->counts, bytes);
        c->counts = request->counts;
    }
    if (c->recv_counts) {
        memcpy(request->recv_counts, c->recv_counts, bytes);
        c->recv_counts = request->recv_counts;
    }
}

static void complete(struct call *call, const struct rendezvous *rendezvous)
{
    run(call, rendezvous->size);
    call->complete = true;
    for (int r = 0; r < rendezvous->size; r++) {
        struct pl_world *world = call->of[r]->world;
        int64_t ready_ns = pl_clock_now_ns() + (virtual_draw(4) ? 1 : 1 + (int64_t)virtual_draw(60000));

        world->last_ready_ns = ready_ns > world->last_ready_ns ? ready_ns : world->last_ready_ns;
        call->of[r]->ready_ns = world->last_ready_ns;
    }
    virtual_wake(rendezvous);
}

static struct pl_request *make_request(struct pl_world *world, const struct pl_collective *collective)
{
    struct pl_request *request = virtual_new(1, sizeof(*request));

    *request = (struct pl_request){.world = world, .c = *collective};
    snprintf(request->name, sizeof(request->name), "%s", collective->name ? collective->name : "");
    request->c.name = request->name;
    copy_counts(request);
    return request;
}

static void post(struct pl_request *request)
{
    struct pl_world *world = request->world;
    struct rendezvous *rendezvous = world->rendezvous;
    struct call *call;

    request->number = world->posted++;
    call = request->call = &rendezvous->calls[request->number % WINDOW];
    if (call->number != request->number || call->posted == 0) {
        *call = (struct call){.number = request->number};
    }
    for (int r = 0; r < rendezvous->size; r++) {
        if (call->of[r]) {
            refuse_difference(call->of[r], request);
            break;
        }
    }
    call->of[world->rank] = request;
    if (++call->posted == rendezvous->size) {
        complete(call, rendezvous);
    }
}

enum pl_status pl_collective_post(struct pl_world *world, const struct pl_collective *collective,
                                  struct pl_request **ret_request, struct pl_error *reterr)
{
    PL_TRY(failure_of(world, reterr));
    *ret_request = make_request(world, collective);
    post(*ret_request);
    return PL_OK;
}

/* Whether the request has ended: what all ranks have posted arrives, also after a failure. */
static bool has_ended(struct pl_request *request)
{
    struct pl_world *world = request->world;
    int64_t now_ns = pl_clock_now_ns();
    struct pl_error late = PL_ERROR_NONE;

    if (request->ready_ns) {
        return request->ready_ns <= now_ns;
    }
    request->deadline_ns = request->deadline_ns ? request->deadline_ns : now_ns + VIRTUAL_TIMEOUT_NS;
    if (failure_of(world, NULL) == PL_OK && now_ns > request->deadline_ns) {
        pl_error_set(&late, PL_TIMEOUT, "a rank did not come to '%s'", request->name);
        end_world(world, &late, "waited until the deadline of a collective");
    }
    return world->failure.status != PL_OK;
}

enum pl_status pl_request_new(struct pl_world *world, const struct pl_collective *collective,
                              struct pl_request **ret_request, struct pl_error *reterr)
{
    (void)reterr;
    *ret_request = make_request(world, collective);
    (*ret_request)->is_persistent = true;
    return PL_OK;
}

enum pl_status pl_request_start(struct pl_request *request, const void *send, void *recv, bool *ret_done,
                                struct pl_error *reterr)
{
    PL_TRY(failure_of(request->world, reterr));
    request->c.send = send;
    request->c.recv = recv;
    request->deadline_ns = request->ready_ns = 0;
    post(request);
    *ret_done = has_ended(request) && request->ready_ns;
    return PL_OK;
}

enum pl_status pl_request_test(struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    *ret_done = has_ended(request);
    if (!*ret_done) {
        virtual_yield(false);
    }
    return *ret_done && !request->ready_ns ? failure_of(request->world, reterr) : PL_OK;
}

static void request_free(struct pl_request *request)
{
    if (request->call->number == request->number && !request->call->complete) {
        request->call->of[request->world->rank] = NULL;
        request->call->posted = -WINDOW; /* the world has failed, and nothing completes any more */
    }
    if (!request->is_persistent) {
        free(request);
    }
}

void pl_request_free(struct pl_request *request)
{
    free(request);
}

enum pl_status pl_request_wait(struct pl_request *request, struct pl_error *reterr)
{
    struct pl_world *world = request->world;
    enum pl_status status;

    while (!has_ended(request)) {
        int64_t until_ns = request->ready_ns ? request->ready_ns : request->deadline_ns;

        if (!request->ready_ns && world->due_ns && world->due_ns < until_ns) {
            until_ns = world->due_ns;
        }
        virtual_wait(world->rendezvous, until_ns);
    }
    status = request->ready_ns ? PL_OK : failure_of(world, reterr);
    request_free(request);
    return status;
}

void pl_request_cancel(struct pl_request *request)
{
    struct pl_error why = PL_ERROR_NONE;

    if (!has_ended(request)) {
        pl_error_set(&why, PL_CANCELLED, "a collective was cancelled");
        end_world(request->world, &why, "has cancelled a collective");
    }
    request_free(request);
}

enum pl_status pl_collective_run(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_error *reterr)
{
    struct pl_request *request;

    PL_TRY(pl_collective_post(world, collective, &request, reterr));
    return pl_request_wait(request, reterr);
}

enum pl_status pl_collective_check(const struct pl_world *world, const struct pl_collective *collective,
                                   struct pl_error *reterr)
{
    if (collective->kind == PL_BROADCAST && (collective->root < 0 || collective->root >= world->rendezvous->size)) {
        return pl_error_set(reterr, PL_INVALID, "root %d", collective->root);
    }
    return collective->count == 0 || collective->recv ? PL_OK : pl_error_set(reterr, PL_INVALID, "recv is NULL");
}

enum pl_status pl_allgather(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                            struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){.kind = PL_ALLGATHER, .dtype = dtype, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_broadcast(struct pl_world *world, void *data, uint64_t count, enum pl_dtype dtype, int root,
                            struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){.kind = PL_BROADCAST, .dtype = dtype, .count = count, .root = root, .recv = data},
        reterr);
}

/* ---- worlds ---- */

static struct pl_world *join_rendezvous(struct rendezvous *rendezvous, int rank, const struct pl_world *parent,
                                        int global)
{
    struct pl_world *world = virtual_new(1, sizeof(*world));

    world->rendezvous = rendezvous;
    world->rank = rank;
    for (int r = 0; r < rendezvous->size; r++) {
        world->global[r] = parent ? parent->global[rendezvous->ranks[r]] : r;
    }
    world->elder = all.youngest[global];
    all.youngest[global] = world;
    rendezvous->worlds[rank] = world;
    rendezvous->users++;
    rendezvous->came++;
    return world;
}

void virtual_world_new(int size, struct pl_world **ret_worlds)
{
    struct rendezvous *rendezvous = virtual_new(1, sizeof(*rendezvous));

    memset(&all, 0, sizeof(all));
    rendezvous->size = size;
    for (int r = 0; r < size; r++) {
        ret_worlds[r] = join_rendezvous(rendezvous, r, NULL, r);
    }
}

static struct rendezvous *find_open(const struct pl_world *parent, const int *ranks, int count, int rank)
{
    struct rendezvous *rendezvous = all.open;

    while (rendezvous && (rendezvous->parent != parent->rendezvous || rendezvous->size != count ||
                          rendezvous->worlds[rank] || rendezvous->came == rendezvous->size ||
                          memcmp(rendezvous->ranks, ranks, (size_t)count * sizeof(int)) != 0)) {
        rendezvous = rendezvous->next;
    }
    if (!rendezvous) {
        rendezvous = virtual_new(1, sizeof(*rendezvous));
        rendezvous->size = count;
        rendezvous->parent = parent->rendezvous;
        memcpy(rendezvous->ranks, ranks, (size_t)count * sizeof(int));
        rendezvous->next = all.open;
        all.open = rendezvous;
    }
    return rendezvous;
}

static void leave_rendezvous(struct pl_world *world)
{
    struct pl_world **at = &all.youngest[world->global[world->rank]];
    struct rendezvous **open = &all.open;

    while (*at != world) {
        at = &(*at)->elder;
    }
    *at = world->elder;
    world->rendezvous->worlds[world->rank] = NULL;
    if (--world->rendezvous->users == 0) {
        while (*open && *open != world->rendezvous) {
            open = &(*open)->next;
        }
        if (*open) {
            *open = world->rendezvous->next;
        }
        free(world->rendezvous);
    }
    free(world);
}

enum pl_status pl_world_new_sub_until(struct pl_world *parent, const int *ranks, int count, int64_t deadline_ns,
                                      struct pl_world **ret_world, struct pl_error *reterr)
{
    int64_t own_ns = pl_clock_now_ns() + VIRTUAL_TIMEOUT_NS;
    struct rendezvous *rendezvous;
    struct pl_world *world;
    int rank = 0;

    deadline_ns = own_ns < deadline_ns ? own_ns : deadline_ns;
    while (ranks[rank] != parent->rank) {
        rank++;
    }
    rendezvous = find_open(parent, ranks, count, rank);
    world = join_rendezvous(rendezvous, rank, parent, parent->global[parent->rank]);
    virtual_wake(rendezvous);
    while (rendezvous->came < rendezvous->size && failure_of(parent, NULL) == PL_OK &&
           !pl_deadline_passed(deadline_ns)) {
        virtual_wait(rendezvous, pl_clock_now_ns() + PL_NS_PER_MS);
    }
    if (rendezvous->came < rendezvous->size) {
        enum pl_status status = failure_of(parent, reterr);

        leave_rendezvous(world);
        return status != PL_OK ? status : pl_error_set(reterr, PL_TIMEOUT, "a rank did not come to make a sub-world");
    }
    *ret_world = world;
    return PL_OK;
}

void pl_world_free(struct pl_world *world)
{
    struct pl_error why = PL_ERROR_NONE;
    bool idle = true;

    if (!world) {
        return;
    }
    for (int i = 0; i < WINDOW; i++) {
        idle = idle && (world->rendezvous->calls[i].complete || !world->rendezvous->calls[i].of[world->rank]);
    }
    if (!idle) {
        virtual_fail("frees a world in which it has a request");
    }
    pl_error_set(&why, PL_CANCELLED, "its world was freed");
    end_world(world, &why, "is gone");
    leave_rendezvous(world);
}

int pl_world_rank(const struct pl_world *world)
{
    return world->rank;
}

int pl_world_size(const struct pl_world *world)
{
    return world->rendezvous->size;
}

int pl_world_cross_size(const struct pl_world *world)
{
    (void)world;
    return 1;
}

int pl_world_global_rank(const struct pl_world *world, int rank)
{
    return world->global[rank];
}

const char *pl_world_rank_name(const struct pl_world *world, int rank, char text[PL_RANK_NAME_BYTES])
{
    snprintf(text, PL_RANK_NAME_BYTES, "rank %d on host v%d", world->global[rank], world->global[rank]);
    return text;
}

void pl_world_place_error(const struct pl_world *world, const struct pl_device *device, struct pl_error *error)
{
    (void)device;
    pl_error_context(error, "rank %d", world->global[world->rank]);
}

int64_t pl_world_deadline_ns(const struct pl_world *world)
{
    (void)world;
    return pl_clock_now_ns() + VIRTUAL_TIMEOUT_NS;
}

void pl_world_report_wait(struct pl_world *world, int64_t waited_ns, int64_t *reported_ns, const struct pl_about *about)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    (void)world;
    if (waited_ns - *reported_ns > VIRTUAL_TIMEOUT_NS / 4) {
        *reported_ns = waited_ns;
        if (about && about->append) {
            about->append(about->subject, &text);
        }
    }
}

enum pl_status pl_ranks_check(const char *what, const int *ranks, int count, int size, struct pl_error *reterr)
{
    bool good = count > 0;

    for (int i = 0; i < count && good; i++) {
        good = ranks[i] >= 0 && ranks[i] < size;
        for (int other = 0; other < i; other++) {
            good = good && ranks[i] != ranks[other];
        }
    }
    return good ? PL_OK : pl_error_set(reterr, PL_INVALID, "%s: a list that is none", what);
}

const char *pl_kind_text(enum pl_kind kind)
{
#define TEXT(name, text) [PL_##name] = (text),
    static const char *const texts[PL_KIND_COUNT] = {PL_KIND_LIST(TEXT)};
#undef TEXT

    return texts[kind];
}

bool pl_world_any_thread(const struct pl_world *world)
{
    (void)world;
    return true;
}

bool pl_world_has_leaked(const struct pl_world *world)
{
    (void)world;
    return false;
}

/* ---- what only GPUs need ---- */

struct pl_device *pl_world_device(const struct pl_world *world)
{
    (void)world;
    return NULL;
}

bool pl_world_shares_device_memory(const struct pl_world *world)
{
    (void)world;
    return false;
}

void pl_world_on_failure(struct pl_world *world, void (*failed)(void *context, const struct pl_error *error),
                         void *context)
{
    (void)world;
    (void)failed;
    (void)context;
}

enum pl_status pl_world_check_peers(struct pl_world *world, bool *ret_left, struct pl_error *reterr)
{
    *ret_left = false;
    return failure_of(world, reterr);
}

enum pl_status pl_world_check_device(struct pl_world *world, enum pl_status status, struct pl_error *reterr)
{
    (void)world;
    (void)reterr;
    return status;
}

enum pl_status pl_world_new_twin(struct pl_world *parent, struct pl_device *device, int64_t deadline_ns,
                                 struct pl_world **ret_world, struct pl_error *reterr)
{
    (void)parent;
    (void)device;
    (void)deadline_ns;
    (void)ret_world;
    return pl_error_set(reterr, PL_UNSUPPORTED, "no device in a simulation");
}

enum pl_status pl_request_stream_wait(struct pl_request *request, void *stream, struct pl_error *reterr)
{
    (void)request;
    (void)stream;
    return pl_error_set(reterr, PL_UNSUPPORTED, "no device in a simulation");
}

bool pl_request_launched(const struct pl_request *request)
{
    (void)request;
    return false;
}

enum pl_status pl_arena_alloc(struct pl_world *world, uint64_t bytes, enum pl_memory memory, struct pl_span *ret_span,
                              struct pl_error *reterr)
{
    (void)world;
    (void)bytes;
    (void)memory;
    (void)ret_span;
    return pl_error_set(reterr, PL_UNSUPPORTED, "no arena in a simulation");
}

void pl_arena_free(struct pl_world *world, struct pl_span *span)
{
    (void)world;
    (void)span;
}
