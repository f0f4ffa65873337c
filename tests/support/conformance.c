/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance.h"

#include "base/clock.h"
#include "collectives/arena.h"
#include "collectives/backend.h"
#include "collectives/collective.h"
#include "collectives/kernel.h"
#include "device/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One case: a descriptor with buffers, and what every rank knows about the others' inputs. */
struct trial {
    struct pl_world *world;
    struct conformance *conformance;
    int rank;
    int size;
    struct pl_collective c;
    bool in_place;
    char *send; /* room of the larger of the two, each */
    char *recv;
    char *before;             /* the input as it was */
    size_t room;              /* bytes of each of the three */
    struct pl_device *device; /* NULL: the buffers are what is sent and received; else what is on the device is copied from and to them */
    char *on_device[2];       /* send, recv */
    void *stream;
    uint64_t salt;
};

/* Inputs are small whole numbers: every type holds them and every partial result exactly. */
static int64_t input_of(const struct trial *t, int rank, uint64_t i)
{
    int64_t small = (int64_t)((i * 7 + (uint64_t)rank * 3 + t->salt) % 5);

    if (t->c.dtype == PL_BOOL) {
        return small == 0;
    }
    if (t->c.op == PL_PRODUCT) {
        return small == 0 ? 2 : small == 1 && t->c.dtype != PL_UINT8 ? -1 : 1;
    }
    if (t->c.op == PL_AVERAGE && pl_dtype_is_float(t->c.dtype)) {
        return (small - 2) * t->size; /* the sum divides */
    }
    if (t->c.op == PL_AVERAGE) {
        return t->c.dtype == PL_UINT8 ? 250 + small : 120 + small * (rank % 2 ? 1 : -1); /* sums leave 8 bits */
    }
    return t->c.dtype == PL_UINT8 ? small : small - 2;
}

static int64_t wrapped(enum pl_dtype dtype, int64_t value)
{
    switch (dtype) {
    case PL_INT8:
        return (int8_t)value;
    case PL_UINT8:
        return (uint8_t)value;
    case PL_INT16:
        return (int16_t)value;
    case PL_INT32:
        return (int32_t)value;
    default:
        return value;
    }
}

static int64_t reduced(const struct trial *t, uint64_t i)
{
    int64_t result = input_of(t, 0, i);

    for (int r = 1; r < t->size; r++) {
        int64_t x = input_of(t, r, i);

        switch (t->c.op) {
        case PL_SUM:
        case PL_AVERAGE:
            result = t->c.dtype == PL_BOOL ? (result || x) : result + x;
            break;
        case PL_PRODUCT:
            result = t->c.dtype == PL_BOOL ? (result && x) : result * x;
            break;
        case PL_MIN:
            result = x < result ? x : result;
            break;
        case PL_MAX:
        default:
            result = x > result ? x : result;
            break;
        }
    }
    return t->c.op == PL_AVERAGE ? result / t->size : wrapped(t->c.dtype, result);
}

static void put(enum pl_dtype dtype, char *data, uint64_t i, int64_t value)
{
    float single = (float)value;
    double real = (double)value;
    uint16_t half;
    char *at = data + i * pl_dtype_bytes(dtype);

    switch (dtype) {
    case PL_FLOAT32:
        memcpy(at, &single, sizeof(single));
        break;
    case PL_FLOAT64:
        memcpy(at, &real, sizeof(real));
        break;
    case PL_FLOAT16:
    case PL_BFLOAT16:
        pl_kernel_narrow(pl_kernel_named("plain"), dtype, &half, &single, 1);
        memcpy(at, &half, sizeof(half));
        break;
    default:
        memcpy(at, &value, pl_dtype_bytes(dtype)); /* little endian */
        break;
    }
}

static int64_t get(enum pl_dtype dtype, const char *data, uint64_t i)
{
    const char *at = data + i * pl_dtype_bytes(dtype);
    float single;
    double real;
    uint16_t half;
    int64_t value = 0;

    switch (dtype) {
    case PL_FLOAT32:
        memcpy(&single, at, sizeof(single));
        return (int64_t)single;
    case PL_FLOAT64:
        memcpy(&real, at, sizeof(real));
        return (int64_t)real;
    case PL_FLOAT16:
    case PL_BFLOAT16:
        memcpy(&half, at, sizeof(half));
        pl_kernel_widen(pl_kernel_named("plain"), dtype, &single, &half, 1);
        return (int64_t)single;
    default:
        memcpy(&value, at, pl_dtype_bytes(dtype));
        return dtype == PL_BOOL ? value : wrapped(dtype, value);
    }
}

static bool wrong(struct trial *t, const char *what, uint64_t i, int64_t found, int64_t expected)
{
    snprintf(t->conformance->failure, sizeof(t->conformance->failure),
             "%s of %" PRIu64 " %s, %s, root %d, %s%s: %s %" PRIu64 " is %" PRId64 ", not %" PRId64, pl_kind_text(t->c.kind), t->c.count,
             pl_dtype_text(t->c.dtype), pl_op_text(t->c.op), t->c.root, t->in_place ? "in place" : "out of place", t->c.counts ? ", ragged" : "",
             what, i, found, expected);
    return false;
}

static uint64_t count_of(const struct trial *t, int rank)
{
    return t->c.counts ? t->c.counts[rank] : t->c.count;
}

/* What block `from` sends to `to` in an alltoall: ragged ones are a table that all ranks can compute. */
static uint64_t pair_count(const struct trial *t, int from, int to)
{
    return t->c.counts ? (t->c.count + (uint64_t)(from * 2 + to)) % (t->c.count + 3) : t->c.count;
}

static uint64_t sum_of_counts(const struct trial *t, int ranks)
{
    uint64_t sum = 0;

    for (int r = 0; r < ranks; r++) {
        sum += count_of(t, r);
    }
    return sum;
}

/* Elements that the rank sends and receives. */
static void extents(const struct trial *t, uint64_t *ret_send, uint64_t *ret_recv)
{
    *ret_send = t->c.count;
    *ret_recv = t->c.count;
    if (t->c.kind == PL_ALLGATHER) {
        *ret_send = count_of(t, t->rank);
        *ret_recv = sum_of_counts(t, t->size);
    } else if (t->c.kind == PL_REDUCE_SCATTER) {
        *ret_send = sum_of_counts(t, t->size);
        *ret_recv = count_of(t, t->rank);
    } else if (t->c.kind == PL_ALLTOALL) {
        *ret_send = 0;
        *ret_recv = 0;
        for (int r = 0; r < t->size; r++) {
            *ret_send += pair_count(t, t->rank, r);
            *ret_recv += pair_count(t, r, t->rank);
        }
    }
}

/* The input that stands at element i of what rank `rank` sends. */
static int64_t sent(const struct trial *t, int rank, uint64_t i)
{
    return input_of(t, rank, i);
}

static bool check_blocks(struct trial *t)
{
    uint64_t at = 0;

    for (int from = 0; from < t->size; from++) {
        uint64_t length = t->c.kind == PL_ALLGATHER ? count_of(t, from) : pair_count(t, from, t->rank);
        uint64_t begin = 0;

        for (int to = 0; to < t->rank && t->c.kind == PL_ALLTOALL; to++) {
            begin += pair_count(t, from, to);
        }
        for (uint64_t i = 0; i < length; i++) {
            int64_t found = get(t->c.dtype, t->c.recv, at + i);

            if (found != sent(t, from, begin + i)) {
                return wrong(t, "element", at + i, found, sent(t, from, begin + i));
            }
        }
        at += length;
    }
    return true;
}

static bool check_result(struct trial *t, uint64_t recv_elems)
{
    uint64_t first = t->c.kind == PL_REDUCE_SCATTER ? sum_of_counts(t, t->rank) : 0;

    if (t->c.kind == PL_ALLGATHER || t->c.kind == PL_ALLTOALL) {
        return check_blocks(t);
    }
    if (t->c.kind == PL_REDUCE && t->rank != t->c.root) {
        return true;
    }
    for (uint64_t i = 0; i < recv_elems; i++) {
        int64_t found = get(t->c.dtype, t->c.recv, i);
        int64_t expected = t->c.kind == PL_BROADCAST ? sent(t, t->c.root, i) : reduced(t, first + i);

        if (found != expected) {
            return wrong(t, "element", i, found, expected);
        }
    }
    return true;
}

/* An input that is not the place of the result must stay as it was (B8). */
static bool check_input(struct trial *t, uint64_t send_elems)
{
    size_t bytes = send_elems * pl_dtype_bytes(t->c.dtype);

    if (t->in_place || t->c.kind == PL_BROADCAST || memcmp(t->send, t->before, bytes) == 0) {
        return true;
    }
    return wrong(t, "the input was changed; element", 0, 0, 0);
}

/* Where in device memory what `data`, in one of the two buffers, stands for lies. */
static char *shadow(const struct trial *t, const void *data)
{
    uintptr_t at = (uintptr_t)data;

    return at - (uintptr_t)t->send < t->room ? t->on_device[0] + (at - (uintptr_t)t->send) : t->on_device[1] + (at - (uintptr_t)t->recv);
}

static enum pl_status run_on_device(const struct trial *t, size_t send_bytes, size_t recv_bytes, struct pl_error *reterr)
{
    struct pl_collective c = t->c;
    struct pl_request *request;

    c.memory = PL_MEMORY_DEVICE;
    c.stream = t->stream;
    c.send = shadow(t, t->c.send);
    c.recv = shadow(t, t->c.recv);
    PL_TRY(pl_device_copy(t->device, t->on_device[0], t->send, send_bytes, t->stream, reterr));
    PL_TRY(pl_device_copy(t->device, t->on_device[1], t->recv, recv_bytes, t->stream, reterr));
    PL_TRY(pl_collective_post(t->world, &c, &request, reterr));
    if (pl_request_order(request, t->stream, reterr) != PL_OK) { /* what follows on the stream comes after it */
        return pl_request_wait(request, reterr);
    }
    PL_TRY(pl_device_copy(t->device, t->send, t->on_device[0], send_bytes, t->stream, reterr));
    PL_TRY(pl_device_copy(t->device, t->recv, t->on_device[1], recv_bytes, t->stream, reterr));
    PL_TRY(pl_request_wait(request, reterr));
    return pl_device_stream_finish(t->device, t->stream, pl_deadline_after_ns(60 * PL_NS_PER_S), reterr);
}

static bool run_trial(struct trial *t)
{
    struct pl_error error = PL_ERROR_NONE;
    size_t item = pl_dtype_bytes(t->c.dtype);
    uint64_t send_elems;
    uint64_t recv_elems;
    uint64_t own = 0;
    enum pl_status status;

    t->salt = t->conformance->cases++;
    extents(t, &send_elems, &recv_elems);
    for (uint64_t i = 0; i < send_elems; i++) {
        put(t->c.dtype, t->send, i, sent(t, t->rank, i));
    }
    memset(t->recv, 0x5a, recv_elems * item);
    memcpy(t->before, t->send, send_elems * item);
    t->c.send = t->send;
    t->c.recv = t->recv;
    if (t->in_place) {
        own = sum_of_counts(t, t->rank);
        if (t->c.kind == PL_ALLGATHER) {
            memcpy(t->recv + own * item, t->send, send_elems * item);
            t->c.send = t->recv + own * item;
        } else if (t->c.kind == PL_REDUCE_SCATTER) {
            t->c.recv = t->send + own * item;
        } else {
            t->c.recv = t->send;
        }
    }
    t->c.flags = t->conformance->flags;
    status = t->device ? run_on_device(t, send_elems * item, recv_elems * item, &error) : pl_collective_run(t->world, &t->c, &error);
    if (status != PL_OK) {
        char text[1000];

        (void)wrong(t, "element", 0, 0, 0);
        snprintf(t->conformance->failure, sizeof(t->conformance->failure), "%s of %" PRIu64 " %s, %s: %s", pl_kind_text(t->c.kind), t->c.count,
                 pl_dtype_text(t->c.dtype), pl_op_text(t->c.op), pl_error_text(&error, text, sizeof(text)));
        return false;
    }
    return check_result(t, recv_elems) && check_input(t, send_elems);
}

static bool run_reductions(struct trial *t)
{
    for (unsigned op = PL_SUM; op <= PL_PRODUCT; op++) {
        t->c.op = (enum pl_op)op;
        if (t->c.dtype == PL_BOOL && op == PL_AVERAGE) {
            continue;
        }
        t->c.kind = PL_ALLREDUCE;
        t->c.counts = NULL;
        t->c.root = 0;
        if (!run_trial(t)) {
            return false;
        }
        t->c.kind = PL_REDUCE;
        t->c.root = (int)(t->salt % (uint64_t)t->size);
        if (!run_trial(t)) {
            return false;
        }
        t->c.kind = PL_REDUCE_SCATTER;
        t->c.root = 0;
        if (!run_trial(t)) {
            return false;
        }
    }
    return true;
}

static bool run_ragged(struct trial *t)
{
    uint64_t counts[64];
    uint64_t recv_counts[64];

    for (int r = 0; r < t->size; r++) {
        counts[r] = r == 1 ? 0 : t->c.count / (uint64_t)(r + 1) + (uint64_t)(r % 2);
    }
    t->c.counts = counts;
    t->c.op = PL_SUM;
    t->c.kind = PL_REDUCE_SCATTER;
    if (!run_trial(t)) {
        return false;
    }
    t->c.kind = PL_ALLGATHER;
    if (!run_trial(t)) {
        return false;
    }
    t->c.kind = PL_ALLTOALL;
    t->c.recv_counts = recv_counts;
    for (int r = 0; r < t->size; r++) {
        counts[r] = pair_count(t, t->rank, r);
        recv_counts[r] = pair_count(t, r, t->rank);
    }
    if (!t->in_place && !run_trial(t)) {
        return false;
    }
    t->c.counts = NULL;
    t->c.recv_counts = NULL;
    return true;
}

static bool run_moves(struct trial *t)
{
    t->c.op = PL_SUM;
    t->c.counts = NULL;
    t->c.kind = PL_ALLGATHER;
    if (!run_trial(t)) {
        return false;
    }
    t->c.kind = PL_ALLTOALL;
    if (!t->in_place && !run_trial(t)) {
        return false;
    }
    t->c.kind = PL_BROADCAST;
    t->c.root = (int)(t->salt % (uint64_t)t->size);
    if (!run_trial(t)) {
        return false;
    }
    t->c.kind = PL_BARRIER;
    t->c.root = 0;
    return pl_collective_run(t->world, &(struct pl_collective){.kind = PL_BARRIER}, NULL) == PL_OK;
}

static bool run_all(struct trial *t)
{
    static const bool few[PL_DTYPE_COUNT] = {[PL_FLOAT32] = true, [PL_BFLOAT16] = true, [PL_INT8] = true, [PL_INT64] = true};

    for (size_t size = 0; size < t->conformance->count_count; size++) {
        for (unsigned dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
            if (!t->conformance->all_types && !few[dtype]) {
                continue;
            }
            for (int in_place = 0; in_place < 2; in_place++) {
                t->c = (struct pl_collective){.dtype = (enum pl_dtype)dtype, .count = t->conformance->counts[size]};
                t->in_place = in_place;
                if (!run_reductions(t) || !run_moves(t) || !run_ragged(t)) {
                    return false;
                }
            }
        }
    }
    return true;
}

static bool make_shadows(struct trial *t, const struct pl_span spans[2], struct pl_error *reterr)
{
    t->device = pl_world_device(t->world);
    for (int i = 0; i < 2; i++) {
        void *data = spans[i].data;

        if (!data && pl_device_alloc(t->device, t->room, &data, reterr) != PL_OK) {
            return false;
        }
        t->on_device[i] = data;
    }
    return pl_device_stream_new(t->device, &t->stream, reterr) == PL_OK;
}

static void drop_shadows(struct trial *t)
{
    for (int i = 0; i < 2 && t->device && !t->conformance->arena; i++) {
        pl_device_release(t->device, t->on_device[i]);
    }
    if (t->stream) {
        pl_device_stream_free(t->device, t->stream);
    }
}

void conformance_run(struct pl_world *world, struct conformance *conformance)
{
    struct trial t = {.world = world, .conformance = conformance, .rank = pl_world_rank(world), .size = pl_world_size(world)};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_span spans[2] = {{.data = NULL}, {.data = NULL}};
    uint64_t most = 0;
    size_t room;

    for (size_t i = 0; i < conformance->count_count; i++) {
        most = conformance->counts[i] > most ? conformance->counts[i] : most;
    }
    room = (most + 3) * (size_t)t.size * 8;
    conformance->failure[0] = '\0';
    t.before = malloc(room);
    for (int i = 0; i < 2; i++) {
        if (conformance->arena && pl_arena_alloc(world, room, conformance->device ? PL_MEMORY_DEVICE : PL_MEMORY_HOST, &spans[i], &error) != PL_OK) {
            snprintf(conformance->failure, sizeof(conformance->failure), "pl_arena_alloc: %s", error.cause);
        }
    }
    t.room = room;
    t.send = conformance->arena && !conformance->device ? spans[0].data : malloc(room);
    t.recv = conformance->arena && !conformance->device ? spans[1].data : malloc(room);
    if (conformance->device && !conformance->failure[0] && !make_shadows(&t, spans, &error)) {
        snprintf(conformance->failure, sizeof(conformance->failure), "device memory: %s", error.cause);
    }
    if (!conformance->failure[0] && t.before && t.send && t.recv && !run_all(&t) && !conformance->failure[0]) {
        snprintf(conformance->failure, sizeof(conformance->failure), "a barrier failed");
    }
    drop_shadows(&t);
    for (int i = 0; i < 2 && conformance->arena; i++) {
        pl_arena_free(world, &spans[i]);
    }
    if (!conformance->arena || conformance->device) {
        free(t.send);
        free(t.recv);
    }
    free(t.before);
}
