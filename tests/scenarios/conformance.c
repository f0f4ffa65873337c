/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenarios/conformance.h"

#include "base/clock.h"
#include "collectives/arena.h"
#include "collectives/collective.h"
#include "device/device.h"
#include "tests/scenarios/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matrix {
    struct trial trial;
    struct conformance *conformance;
    size_t room; /* size of each of the trial's buffers */
    /* if set, the trial runs in device memory, and the trial's buffers are copied to and from there */
    struct pl_device *device;
    char *on_device[2]; /* for send and recv */
    void *stream;
};

/* The place in device memory that corresponds to `data`, which is in one of the two buffers. */
static char *shadow(const struct matrix *m, const void *data)
{
    const struct trial *t = &m->trial;
    uintptr_t at = (uintptr_t)data;

    return at - (uintptr_t)t->send < m->room ? m->on_device[0] + (at - (uintptr_t)t->send)
                                             : m->on_device[1] + (at - (uintptr_t)t->recv);
}

static enum pl_status run_on_device(const struct matrix *m, struct pl_error *reterr)
{
    const struct trial *t = &m->trial;
    struct pl_collective c = t->c;
    struct pl_request *request;
    uint64_t send_bytes;
    uint64_t recv_bytes;

    trial_extents(t, &send_bytes, &recv_bytes);
    send_bytes *= pl_dtype_bytes(c.dtype);
    recv_bytes *= pl_dtype_bytes(c.dtype);
    c.memory = PL_MEMORY_DEVICE;
    c.stream = m->stream;
    c.send = shadow(m, t->c.send);
    c.recv = shadow(m, t->c.recv);
    PL_TRY(pl_device_copy(m->device, m->on_device[0], t->send, send_bytes, m->stream, reterr));
    PL_TRY(pl_device_copy(m->device, m->on_device[1], t->recv, recv_bytes, m->stream, reterr));
    PL_TRY(pl_collective_post(t->world, &c, &request, reterr));
    if (pl_request_stream_wait(request, m->stream, reterr) != PL_OK) { /* later work on the stream comes after the
                                                                        * request */
        return pl_request_wait(request, reterr);
    }
    PL_TRY(pl_device_copy(m->device, t->send, m->on_device[0], send_bytes, m->stream, reterr));
    PL_TRY(pl_device_copy(m->device, t->recv, m->on_device[1], recv_bytes, m->stream, reterr));
    PL_TRY(pl_request_wait(request, reterr));
    return pl_device_stream_finish(m->device, m->stream, pl_deadline_after_ns(60 * PL_NS_PER_S), reterr);
}

static bool run_trial(struct matrix *m)
{
    struct trial *t = &m->trial;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    t->salt = m->conformance->cases++;
    trial_fill(t);
    t->c.flags = m->conformance->flags;
    status = m->device ? run_on_device(m, &error) : pl_collective_run(t->world, &t->c, &error);
    if (status != PL_OK) {
        char text[1000];

        snprintf(t->failure, t->failure_bytes, "%s of %" PRIu64 " %s, %s: %s", pl_kind_text(t->c.kind), t->c.count,
                 pl_dtype_text(t->c.dtype), pl_op_text(t->c.op), pl_error_text(&error, text, sizeof(text)));
        return false;
    }
    return trial_check(t);
}

static bool run_reductions(struct matrix *m)
{
    struct trial *t = &m->trial;
    for (unsigned op = PL_SUM; op <= PL_PRODUCT; op++) {
        t->c.op = (enum pl_op)op;
        if (t->c.dtype == PL_BOOL && op == PL_AVERAGE) {
            continue;
        }
        t->c.kind = PL_ALLREDUCE;
        t->c.counts = NULL;
        t->c.root = 0;
        if (!run_trial(m)) {
            return false;
        }
        t->c.kind = PL_REDUCE;
        t->c.root = (int)(t->salt % (uint64_t)t->size);
        if (!run_trial(m)) {
            return false;
        }
        t->c.kind = PL_REDUCE_SCATTER;
        t->c.root = 0;
        if (!run_trial(m)) {
            return false;
        }
    }
    return true;
}

static bool run_ragged(struct matrix *m)
{
    struct trial *t = &m->trial;
    uint64_t counts[64];
    uint64_t recv_counts[64];

    for (int r = 0; r < t->size; r++) {
        counts[r] = r == 1 ? 0 : t->c.count / (uint64_t)(r + 1) + (uint64_t)(r % 2);
    }
    t->c.counts = counts;
    t->c.op = PL_SUM;
    t->c.kind = PL_REDUCE_SCATTER;
    if (!run_trial(m)) {
        return false;
    }
    t->c.kind = PL_ALLGATHER;
    if (!run_trial(m)) {
        return false;
    }
    t->c.kind = PL_ALLTOALL;
    t->c.recv_counts = recv_counts;
    t->quiet = t->salt % 2 ? t->size / 2 : -1;
    for (int r = 0; r < t->size; r++) {
        counts[r] = trial_pair_count(t, t->rank, r);
        recv_counts[r] = trial_pair_count(t, r, t->rank);
    }
    if (!t->in_place && !run_trial(m)) {
        return false;
    }
    t->c.counts = NULL;
    t->c.recv_counts = NULL;
    return true;
}

static bool run_moves(struct matrix *m)
{
    struct trial *t = &m->trial;
    t->c.op = PL_SUM;
    t->c.counts = NULL;
    t->c.kind = PL_ALLGATHER;
    if (!run_trial(m)) {
        return false;
    }
    t->c.kind = PL_ALLTOALL;
    if (!t->in_place && !run_trial(m)) {
        return false;
    }
    t->c.kind = PL_BROADCAST;
    t->c.root = (int)(t->salt % (uint64_t)t->size);
    if (!run_trial(m)) {
        return false;
    }
    t->c.kind = PL_BARRIER;
    t->c.root = 0;
    return pl_collective_run(t->world, &(struct pl_collective){.kind = PL_BARRIER}, NULL) == PL_OK;
}

static bool run_all(struct matrix *m)
{
    struct trial *t = &m->trial;
#ifdef __SANITIZE_THREAD__ /* one type is enough: threads are used alike with all types */
    static const bool few[PL_DTYPE_COUNT] = {[PL_BFLOAT16] = true};
#else
    static const bool few[PL_DTYPE_COUNT] = {
        [PL_FLOAT32] = true, [PL_BFLOAT16] = true, [PL_INT8] = true, [PL_INT64] = true};
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* nor is memory, in device memory */
    bool all_types = m->conformance->all_types && !m->device;
#else
    bool all_types = m->conformance->all_types;
#endif

    for (size_t size = 0; size < m->conformance->count_count; size++) {
        for (unsigned dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
            if (!all_types && !few[dtype]) {
                continue;
            }
            for (int in_place = 0; in_place < 2; in_place++) {
                t->c = (struct pl_collective){.dtype = (enum pl_dtype)dtype, .count = m->conformance->counts[size]};
                t->in_place = in_place;
                if (!run_reductions(m) || !run_moves(m) || !run_ragged(m)) {
                    return false;
                }
            }
        }
    }
    return true;
}

static bool make_shadows(struct matrix *m, const struct pl_span spans[2], struct pl_error *reterr)
{
    m->device = pl_world_device(m->trial.world);
    for (int i = 0; i < 2; i++) {
        void *data = spans[i].data;

        if (!data && pl_device_alloc(m->device, m->room, &data, reterr) != PL_OK) {
            return false;
        }
        m->on_device[i] = data;
    }
    return pl_device_stream_new(m->device, &m->stream, reterr) == PL_OK;
}

static void drop_shadows(struct matrix *m)
{
    for (int i = 0; i < 2 && m->device && !m->conformance->arena; i++) {
        pl_device_release(m->device, m->on_device[i]);
    }
    if (m->stream) {
        pl_device_stream_free(m->device, m->stream);
    }
}

void conformance_run(struct pl_world *world, struct conformance *conformance)
{
    struct matrix m = {.conformance = conformance};
    struct trial *t = &m.trial;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span spans[2] = {{.data = NULL}, {.data = NULL}};
    uint64_t most = 0;
    size_t room;

    *t = (struct trial){.world = world,
                        .rank = pl_world_rank(world),
                        .size = pl_world_size(world),
                        .quiet = -1,
                        .failure = conformance->failure,
                        .failure_bytes = sizeof(conformance->failure)};
    for (size_t i = 0; i < conformance->count_count; i++) {
        most = conformance->counts[i] > most ? conformance->counts[i] : most;
    }
    room = (most + 3) * (size_t)t->size * 8;
    conformance->failure[0] = '\0';
    t->before = malloc(room);
    for (int i = 0; i < 2; i++) {
        if (conformance->arena && pl_arena_alloc(world, room, conformance->device ? PL_MEMORY_DEVICE : PL_MEMORY_HOST,
                                                 &spans[i], &error) != PL_OK) {
            snprintf(conformance->failure, sizeof(conformance->failure), "pl_arena_alloc: %s", error.cause);
        }
    }
    m.room = room;
    t->send = conformance->arena && !conformance->device ? spans[0].data : malloc(room);
    t->recv = conformance->arena && !conformance->device ? spans[1].data : malloc(room);
    if (conformance->device && !conformance->failure[0] && !make_shadows(&m, spans, &error)) {
        snprintf(conformance->failure, sizeof(conformance->failure), "device memory: %s", error.cause);
    }
    if (!conformance->failure[0] && t->before && t->send && t->recv && !run_all(&m) && !conformance->failure[0]) {
        snprintf(conformance->failure, sizeof(conformance->failure), "the barrier failed");
    }
    drop_shadows(&m);
    for (int i = 0; i < 2 && conformance->arena; i++) {
        pl_arena_free(world, &spans[i]);
    }
    if (!conformance->arena || conformance->device) {
        free(t->send);
        free(t->recv);
    }
    free(t->before);
}
