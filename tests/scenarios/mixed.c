/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step posts up to MOST_POSTS requests on any of the worlds, all of them in one order on all ranks. Then each rank
 * waits in its own way: in that order, or by testing all of them. All ranks draw the same from `common`, also those
 * that are not in a world; `own` is different on each rank.
 */
#include "tests/scenarios/mixed.h"

#include "base/clock.h"
#include "base/knob.h"
#include "base/random.h"
#include "collectives/arena.h"
#include "collectives/world_private.h"
#include "tests/scenarios/trial.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORLDS = 3, /* the whole world and two sub-worlds of it */
    MOST_RANKS = 64,
    MOST_POSTS = 6,
    ARENA_BYTES = 1 << 20,
    GUARD_BYTES = 64, /* on both sides of each buffer */
    MOST_BYTES = 96 << 10,
    LARGE_BYTES = 3 << 20, /* large enough for several chunks between hosts with several ranks */
};

struct place {
    struct pl_world *world; /* NULL if this rank is not in it */
    int size;
    struct pl_span arena;
    uint64_t arena_used;
    struct pl_request *persistent; /* NULL before the first use */
};

/* One collective of a request, and the memory of its buffers. */
struct part {
    struct trial trial;
    uint64_t counts[MOST_RANKS];
    uint64_t recv_counts[MOST_RANKS];
    char name[8];
    char *rooms[2]; /* for send and recv, with their guards */
    char *buffers[2];
    size_t bytes[2];
    bool on_heap[2];
};

struct post {
    struct place *place;
    struct part part;
    struct pl_request *request;
};

struct mixture {
    struct place places[WORLDS];
    struct post posts[MOST_POSTS];
    uint64_t common;
    uint64_t own;
    uint64_t trials;
    char *failure;
};

uint64_t mixed_draw(uint64_t *seed, uint64_t below)
{
    return pl_random_next(seed) % below;
}

static const char *draw_word(uint64_t *seed, const char *const *words, uint64_t count)
{
    /* The default is chosen in half of the cases. */
    return mixed_draw(seed, 2) ? words[mixed_draw(seed, count)] : words[0];
}

int mixed_settings(uint64_t *seed, int size, struct pl_knobs *ret_knobs)
{
    static const char *const backends[] = {"", "p2p"};
    static const char *const algorithms[] = {"", "ring", "halving", "doubling", "tree", "direct"};
    static const char *const segments[] = {"0", "512", "4096", "100000"};
    static const char *const progress[] = {"auto", "on", "off"};
    static const char *const spins[] = {"100", "0", "1000"};
    static const char *const wires[] = {"", "float16", "bfloat16"};
    static const char *const reproducible[] = {"0", "0", "1"};
    static const char *const latencies[] = {"0", "5000"}; /* 5000: a long link */
    static const char *const rates[] = {"0", "1000"};     /* 1000: a link with much data under way */
    const struct {
        enum pl_knob knob;
        const char *text;
    } drawn[] = {
        {PL_KNOB_BACKEND, draw_word(seed, backends, 2)},
        {PL_KNOB_ALGORITHM, draw_word(seed, algorithms, 6)},
        {PL_KNOB_SEGMENT_BYTES, draw_word(seed, segments, 4)},
        {PL_KNOB_PROGRESS, draw_word(seed, progress, 3)},
        {PL_KNOB_SPIN_US, draw_word(seed, spins, 3)},
        {PL_KNOB_WIRE_TYPE, draw_word(seed, wires, 3)},
        {PL_KNOB_REPRODUCIBLE, draw_word(seed, reproducible, 3)},
        {PL_KNOB_LINK_LATENCY_US, draw_word(seed, latencies, 2)},
        {PL_KNOB_LINK_GBPS, draw_word(seed, rates, 2)},
        {PL_KNOB_TIMEOUT_S, "100"},
    };

    pl_knobs_default(ret_knobs);
    for (size_t i = 0; i < sizeof(drawn) / sizeof(drawn[0]); i++) {
        PL_BUG_IF(pl_knob_set(ret_knobs, drawn[i].knob, drawn[i].text, "test", NULL) != PL_OK);
    }
    return mixed_draw(seed, 2) ? 2 : (int)mixed_draw(seed, (uint64_t)size + 1);
}

/* Waits for a random time, so that ranks take different times. */
static void stumble(struct mixture *m)
{
    uint64_t way = mixed_draw(&m->own, 16);

    if (way == 0) {
        pl_clock_nap((int64_t)mixed_draw(&m->own, 400) * PL_NS_PER_US, PL_DEADLINE_NEVER);
    } else if (way < 4) {
        sched_yield();
    }
}

/* Draws a count near sizes at which the algorithm changes; now and then a large one. */
static uint64_t draw_count(struct mixture *m, enum pl_dtype dtype, int size)
{
    static const uint64_t thresholds[] = {40, 512, 2048, 4096, 16384, 60 << 10, 64 << 10};
    uint64_t item = pl_dtype_bytes(dtype);
    uint64_t kind = mixed_draw(&m->common, 32);
    uint64_t bytes = thresholds[mixed_draw(&m->common, sizeof(thresholds) / sizeof(thresholds[0]))];

    if (kind == 0) {
        return mixed_draw(&m->common, LARGE_BYTES) / item;
    }
    if (kind < 8) {
        return mixed_draw(&m->common, 4);
    }
    if (kind < 12) {
        return mixed_draw(&m->common, MOST_BYTES / item);
    }
    return (kind % 2 ? bytes / (uint64_t)size : bytes) / item + mixed_draw(&m->common, 3) -
           (bytes / (uint64_t)size >= item);
}

static void draw_collective(struct mixture *m, struct part *part, int size)
{
    struct trial *t = &part->trial;
    struct pl_collective *c = &t->c;
    bool is_float;

    *c = (struct pl_collective){.kind = (enum pl_kind)mixed_draw(&m->common, PL_KIND_COUNT),
                                .dtype = (enum pl_dtype)mixed_draw(&m->common, PL_DTYPE_COUNT)};
    is_float = pl_dtype_is_float(c->dtype);
    c->op = (enum pl_op)mixed_draw(&m->common, PL_PRODUCT + 1);
    if (c->dtype == PL_BOOL && c->op == PL_AVERAGE) {
        c->op = PL_MAX;
    }
    if (c->op == PL_AVERAGE && mixed_draw(&m->common, 4) == 0) {
        c->divisor = 1 + (uint32_t)mixed_draw(&m->common, 2 * (uint64_t)size);
    }
    c->count = draw_count(m, c->dtype, size);
    c->count = c->kind == PL_BARRIER ? 0 : c->count;
    c->root = (int)mixed_draw(&m->common, (uint64_t)size);
    c->flags = mixed_draw(&m->common, 8) == 0 ? PL_REPRODUCIBLE : 0;
    if (c->kind == PL_ALLREDUCE && c->dtype == PL_FLOAT32 && mixed_draw(&m->common, 4) == 0) {
        c->flags |= mixed_draw(&m->common, 2) ? PL_WIRE_FLOAT16 : PL_WIRE_BFLOAT16;
    }
    if (is_float && c->op != PL_PRODUCT && mixed_draw(&m->common, 4) == 0) {
        c->scaled = true;
        c->prescale = 2.0;
        c->postscale = 0.5;
    }
    t->in_place = mixed_draw(&m->common, 2) && c->kind != PL_ALLTOALL;
    t->salt = m->trials++;
    t->quiet = mixed_draw(&m->common, 2) ? (int)mixed_draw(&m->common, (uint64_t)size) : -1;
    snprintf(part->name, sizeof(part->name), "%u", (unsigned)mixed_draw(&m->common, 3));
    c->name = mixed_draw(&m->common, 2) ? part->name : NULL;
    if ((c->kind == PL_ALLGATHER || c->kind == PL_ALLTOALL || c->kind == PL_REDUCE_SCATTER) &&
        mixed_draw(&m->common, 2)) {
        for (int r = 0; r < size; r++) {
            part->counts[r] = mixed_draw(&m->common, 4) ? c->count / ((uint64_t)r + 1) : 0;
        }
        c->counts = part->counts;
    } else if (c->kind == PL_ALLGATHER || c->kind == PL_ALLTOALL || c->kind == PL_REDUCE_SCATTER) {
        c->count /= (uint64_t)size;
    }
}

/* Allocates one buffer, in the arena or not, with guards around it. */
static char *take_room(struct mixture *m, struct place *place, struct part *part, int which, size_t bytes, size_t item)
{
    size_t before = GUARD_BYTES + mixed_draw(&m->own, 16) * item;
    size_t whole = (before + bytes + GUARD_BYTES + 63) / 64 * 64;

    part->on_heap[which] = place->arena_used + whole > ARENA_BYTES || mixed_draw(&m->own, 4) == 0;
    if (part->on_heap[which]) {
        part->rooms[which] = malloc(whole);
    } else {
        part->rooms[which] = (char *)place->arena.data + place->arena_used;
        place->arena_used += whole;
    }
    part->bytes[which] = bytes;
    memset(part->rooms[which], 0xa5, whole);
    part->buffers[which] = part->rooms[which] + before;
    return part->buffers[which];
}

static bool check_guards(const struct part *part)
{
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < GUARD_BYTES; i++) {
            if (part->buffers[which][-1 - i] != (char)0xa5 ||
                part->buffers[which][part->bytes[which] + (size_t)i] != (char)0xa5) {
                snprintf(part->trial.failure, MIXED_TEXT_BYTES, "%s of %" PRIu64 " %s wrote outside its %s buffer",
                         pl_kind_text(part->trial.c.kind), part->trial.c.count, pl_dtype_text(part->trial.c.dtype),
                         which ? "receive" : "send");
                return false;
            }
        }
    }
    return true;
}

/* Draws what all ranks draw; ranks that are in the world also make buffers and inputs. */
static struct pl_collective prepare(struct mixture *m, struct place *place, struct part *part)
{
    struct trial *t = &part->trial;
    uint64_t elems[2];

    *t = (struct trial){.size = place->size, .failure = m->failure, .failure_bytes = MIXED_TEXT_BYTES};
    draw_collective(m, part, place->size);
    if (!place->world) {
        return t->c;
    }
    t->rank = pl_world_rank(place->world);
    if (t->c.kind == PL_ALLTOALL && t->c.counts) {
        t->c.recv_counts = part->recv_counts;
        for (int r = 0; r < t->size; r++) {
            part->recv_counts[r] = trial_pair_count(t, r, t->rank);
            part->counts[r] = trial_pair_count(t, t->rank, r);
        }
    }
    trial_extents(t, &elems[0], &elems[1]);
    for (int which = 0; which < 2; which++) {
        size_t item = pl_dtype_bytes(t->c.dtype);
        char *buffer = take_room(m, place, part, which, elems[which] * item, item);

        *(which ? &t->recv : &t->send) = buffer;
    }
    t->before = malloc(elems[0] * pl_dtype_bytes(t->c.dtype) + 1);
    trial_fill(t);
    return t->c;
}

static void release(struct post *post)
{
    if (!post->place->world) {
        return;
    }
    for (int which = 0; which < 2; which++) {
        if (post->part.on_heap[which]) {
            free(post->part.rooms[which]);
        }
    }
    free(post->part.trial.before);
}

static bool fail(const struct mixture *m, const struct pl_error *error)
{
    pl_error_text(error, m->failure, MIXED_TEXT_BYTES);
    return false;
}

static bool start(struct mixture *m, struct post *post)
{
    struct pl_collective collective;
    struct pl_error error = PL_ERROR_NONE;

    post->place = &m->places[mixed_draw(&m->common, 2) ? 0 : mixed_draw(&m->common, WORLDS)];
    post->request = NULL;
    collective = prepare(m, post->place, &post->part);
    if (!post->place->world) {
        return true;
    }
    stumble(m);
    if (pl_collective_post(post->place->world, &collective, &post->request, &error) != PL_OK) {
        return fail(m, &error);
    }
    return true;
}

static bool finish(struct mixture *m, struct post *post)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_request *request = post->request;

    post->request = NULL;
    if (request && pl_request_wait(request, &error) != PL_OK) {
        return fail(m, &error);
    }
    return !post->place->world || (trial_check(&post->part.trial) && check_guards(&post->part));
}

/* Tests all requests, in any order, until all have ended. */
static bool look_around(struct mixture *m, int posts)
{
    int left = posts;
    struct pl_error error = PL_ERROR_NONE;
    bool ended[MOST_POSTS] = {false};

    while (left > 0) {
        int i = (int)mixed_draw(&m->own, (uint64_t)posts);
        bool done = true;

        if (ended[i]) {
            continue;
        }
        if (m->posts[i].request && pl_request_test(m->posts[i].request, &done, &error) != PL_OK) {
            return fail(m, &error);
        }
        ended[i] = done;
        left -= done;
        if (mixed_draw(&m->own, 64) == 0) {
            stumble(m);
        }
    }
    return true;
}

/* Starts the world's persistent request once more, among what is under way, and waits for it. */
static bool repeat(struct mixture *m, struct place *place)
{
    int64_t given = (int64_t)mixed_draw(&m->common, 1000), sum = 0;
    struct pl_collective collective = {
        .kind = PL_ALLREDUCE, .dtype = PL_INT64, .op = PL_SUM, .count = 1, .send = &given, .recv = &sum};
    struct pl_error error = PL_ERROR_NONE;
    bool done = false;

    if (!place->world) {
        return true;
    }
    if ((!place->persistent && pl_request_new(place->world, &collective, &place->persistent, &error) != PL_OK) ||
        pl_request_start(place->persistent, &given, &sum, &done, &error) != PL_OK ||
        (!done && pl_request_wait(place->persistent, &error) != PL_OK)) {
        return fail(m, &error);
    }
    if (sum != given * place->size) {
        snprintf(m->failure, MIXED_TEXT_BYTES, "the sum of a persistent request is %" PRId64 ", not %" PRId64, sum,
                 given * place->size);
    }
    return sum == given * place->size;
}

static bool step(struct mixture *m)
{
    int posts = 1 + (int)mixed_draw(&m->common, MOST_POSTS);
    int started = 0;
    bool good = true;

    for (int i = 0; i < WORLDS; i++) {
        m->places[i].arena_used = 0;
    }
    while (good && started < posts) {
        good = start(m, &m->posts[started++]);
        if (good && mixed_draw(&m->common, 4) == 0) {
            good = repeat(m, m->posts[started - 1].place);
        }
    }
    if (good && mixed_draw(&m->own, 2)) {
        good = look_around(m, posts);
    }
    for (int i = 0; i < started; i++) {
        good = good && finish(m, &m->posts[i]);
        if (m->posts[i].request) {
            pl_request_cancel(m->posts[i].request);
        }
        release(&m->posts[i]);
    }
    return good;
}

/* Makes a sub-world of any ranks of the whole world, in any order. */
static bool make_part(struct mixture *m, struct place *place)
{
    struct place *whole = &m->places[0];
    struct pl_error error = PL_ERROR_NONE;
    int ranks[MOST_RANKS] = {0};
    bool member = false;

    place->size = mixed_draw(&m->common, 2) ? whole->size : 1 + (int)mixed_draw(&m->common, (uint64_t)whole->size);
    for (int r = 0; r < whole->size; r++) {
        int other = (int)mixed_draw(&m->common, (uint64_t)r + 1);

        ranks[r] = ranks[other];
        ranks[other] = r;
    }
    for (int i = 0; i < place->size; i++) {
        member = member || ranks[i] == pl_world_rank(whole->world);
    }
    return !member || pl_world_new_sub(whole->world, ranks, place->size, &place->world, &error) == PL_OK ||
           fail(m, &error);
}

void mixed_run(struct pl_world *world, uint64_t seed, int steps, char failure[MIXED_TEXT_BYTES])
{
    struct mixture *m = calloc(1, sizeof(*m));
    struct pl_error error = PL_ERROR_NONE;
    bool good = true;

    failure[0] = '\0';
    *m = (struct mixture){.common = seed, .own = seed * 64 + (uint64_t)pl_world_rank(world), .failure = failure};
    m->places[0] = (struct place){.world = world, .size = pl_world_size(world)};
    for (int i = 1; good && i < WORLDS; i++) {
        good = make_part(m, &m->places[i]);
    }
    for (int i = 0; good && i < WORLDS; i++) {
        good = !m->places[i].world ||
               pl_arena_alloc(m->places[i].world, ARENA_BYTES, PL_MEMORY_HOST, &m->places[i].arena, &error) == PL_OK ||
               fail(m, &error);
    }
    for (int i = 0; good && i < steps; i++) {
        good = step(m);
    }
    for (int i = 0; i < WORLDS; i++) {
        if (m->places[i].world) {
            pl_arena_free(m->places[i].world, &m->places[i].arena);
            pl_request_free(m->places[i].persistent);
        }
        if (i > 0) {
            pl_world_free(m->places[i].world);
        }
    }
    free(m);
}
