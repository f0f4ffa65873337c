/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/scenarios/trial.h"

#include "collectives/reduce/kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { UNTOUCHED = 0x5a };

static int divisor_of(const struct trial *t)
{
    return t->c.divisor ? (int)t->c.divisor : t->size;
}

/* The input: small whole numbers, so that every type holds them and every partial result exactly. */
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
        return (small - 2) * divisor_of(t); /* the divisor divides the sum */
    }
    if (t->c.op == PL_AVERAGE) {
        return t->c.dtype == PL_UINT8 ? 250 + small : 120 + small * (rank % 2 ? 1 : -1); /* sums exceed 8 bits */
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
    return wrapped(t->c.dtype, t->c.op == PL_AVERAGE ? result / divisor_of(t) : result);
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

static bool wrong(const struct trial *t, const char *what, uint64_t i, int64_t found, int64_t expected)
{
    snprintf(t->failure, t->failure_bytes,
             "%s of %" PRIu64 " %s, %s, root %d, %s%s: %s %" PRIu64 " is %" PRId64 ", not %" PRId64,
             pl_kind_text(t->c.kind), t->c.count, pl_dtype_text(t->c.dtype), pl_op_text(t->c.op), t->c.root,
             t->in_place ? "in place" : "out of place", t->c.counts ? ", ragged" : "", what, i, found, expected);
    return false;
}

static uint64_t count_of(const struct trial *t, int rank)
{
    return t->c.counts ? t->c.counts[rank] : t->c.count;
}

/* Ragged counts come from a table that all ranks can compute. */
uint64_t trial_pair_count(const struct trial *t, int from, int to)
{
    if (t->c.counts && (from == t->quiet || to == t->quiet)) {
        return 0;
    }
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

void trial_extents(const struct trial *t, uint64_t *ret_send, uint64_t *ret_recv)
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
            *ret_send += trial_pair_count(t, t->rank, r);
            *ret_recv += trial_pair_count(t, r, t->rank);
        }
    }
}

/* The element i that rank `rank` sends. */
static int64_t sent(const struct trial *t, int rank, uint64_t i)
{
    return input_of(t, rank, i);
}

static bool check_blocks(const struct trial *t)
{
    uint64_t at = 0;

    for (int from = 0; from < t->size; from++) {
        uint64_t length = t->c.kind == PL_ALLGATHER ? count_of(t, from) : trial_pair_count(t, from, t->rank);
        uint64_t begin = 0;

        for (int to = 0; to < t->rank && t->c.kind == PL_ALLTOALL; to++) {
            begin += trial_pair_count(t, from, to);
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

static bool check_result(const struct trial *t, uint64_t recv_elems)
{
    uint64_t first = t->c.kind == PL_REDUCE_SCATTER ? sum_of_counts(t, t->rank) : 0;

    if (t->c.kind == PL_ALLGATHER || t->c.kind == PL_ALLTOALL) {
        return check_blocks(t);
    }
    if (t->c.kind == PL_REDUCE && t->rank != t->c.root) {
        for (size_t at = 0; !t->in_place && at < recv_elems * pl_dtype_bytes(t->c.dtype); at++) {
            if (t->recv[at] != UNTOUCHED) {
                return wrong(t, "another rank's buffer was changed; byte", at, t->recv[at], UNTOUCHED);
            }
        }
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

/* Checks that all of `send` outside the place of the result is unchanged. */
static bool check_input(const struct trial *t, uint64_t send_elems)
{
    size_t item = pl_dtype_bytes(t->c.dtype);
    size_t end = send_elems * item;
    size_t changed = 0; /* the changed elements: from here, this many bytes */
    size_t bytes = 0;

    if (t->c.kind == PL_BROADCAST) {
        return true;
    }
    if (t->in_place && t->c.kind == PL_REDUCE_SCATTER) {
        changed = sum_of_counts(t, t->rank) * item;
        bytes = count_of(t, t->rank) * item;
    } else if (t->in_place && (t->c.kind != PL_REDUCE || t->rank == t->c.root)) {
        bytes = end;
    }
    if (memcmp(t->send, t->before, changed) == 0 &&
        memcmp(t->send + changed + bytes, t->before + changed + bytes, end - changed - bytes) == 0) {
        return true;
    }
    return wrong(t, "the input was changed; element", 0, 0, 0);
}

void trial_fill(struct trial *t)
{
    size_t item = pl_dtype_bytes(t->c.dtype);
    uint64_t send_elems;
    uint64_t recv_elems;

    trial_extents(t, &send_elems, &recv_elems);
    for (uint64_t i = 0; i < send_elems; i++) {
        put(t->c.dtype, t->send, i, sent(t, t->rank, i));
    }
    memset(t->recv, UNTOUCHED, recv_elems * item);
    memcpy(t->before, t->send, send_elems * item);
    t->c.send = t->send;
    t->c.recv = t->recv;
    if (t->in_place) {
        uint64_t own = sum_of_counts(t, t->rank);

        if (t->c.kind == PL_ALLGATHER) {
            memcpy(t->recv + own * item, t->send, send_elems * item);
            t->c.send = t->recv + own * item;
        } else if (t->c.kind == PL_REDUCE_SCATTER) {
            t->c.recv = t->send + own * item;
        } else {
            t->c.recv = t->send;
        }
    }
}

bool trial_check(const struct trial *t)
{
    uint64_t send_elems;
    uint64_t recv_elems;

    trial_extents(t, &send_elems, &recv_elems);
    return check_result(t, recv_elems) && check_input(t, send_elems);
}
