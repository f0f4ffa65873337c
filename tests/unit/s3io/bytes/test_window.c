/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/bytes/window.c. */
#include "s3io/bytes/window.h"

#include "tests/support/unit.h"

#include "base/clock.h"
#include "s3io/source.h"

#include <string.h>

enum { STREAM_BYTES = 1 << 20, PAGE_BYTES = 4096 };

/* Bytes that differ from all their neighbours, returned in pieces; records the requests. */
struct asked {
    struct pl_source head;
    size_t piece_bytes; /* 0: pieces of any size */
    uint32_t random;
    size_t least_asked_bytes;
    size_t unaligned;
};

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)((offset * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

static uint32_t next_random(uint32_t *state)
{
    return *state = *state * 1664525 + 1013904223;
}

static enum pl_status asked_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                 size_t *ret_bytes, struct pl_error *reterr)
{
    struct asked *asked = (struct asked *)source;
    uint64_t left = STREAM_BYTES - source->offset_bytes;
    size_t got = asked->piece_bytes ? asked->piece_bytes : 1 + (next_random(&asked->random) >> 8) % 9000;

    asked->least_asked_bytes = bytes < asked->least_asked_bytes ? bytes : asked->least_asked_bytes;
    asked->unaligned += (uintptr_t)data % PAGE_BYTES != 0;
    got = got < bytes ? got : bytes;
    got = got < left ? got : (size_t)left;
    for (size_t i = 0; i < got; i++) {
        ((unsigned char *)data)[i] = byte_at(source->offset_bytes + i);
    }
    *ret_bytes = got;
    return PL_OK;
}

static void asked_close(struct pl_source *source)
{
}

static void begin(struct asked *asked, size_t piece_bytes)
{
    static const struct pl_source_ops ops = {.read = asked_read, .close = asked_close};

    *asked = (struct asked){.piece_bytes = piece_bytes, .random = 7, .least_asked_bytes = SIZE_MAX};
    ck_ok(pl_source_init, &asked->head, &ops, "asked");
}

/* Looks at `want` bytes, checks them, and skips `step` of them. */
static void look(struct pl_window *window, size_t want, size_t step)
{
    ck_ok(pl_window_need, window, want, PL_DEADLINE_NEVER);
    ck_assert(window->available >= want || (window->ended && window->offset_bytes + window->available == STREAM_BYTES));
    for (size_t i = 0; i < want && i < window->available; i++) {
        if (window->data[i] != byte_at(window->offset_bytes + i)) {
            ck_abort_msg("byte %llu is wrong", (unsigned long long)(window->offset_bytes + i));
        }
    }
    pl_window_consume(window, step < window->available ? step : window->available);
}

static void read_all(size_t capacity, uint32_t random)
{
    struct pl_window window = {.source = NULL};
    struct asked asked;

    begin(&asked, 0);
    ck_ok(pl_window_init, &window, &asked.head, capacity);
    while (!window.ended || window.available > 0) {
        size_t most = next_random(&random) >> 28 ? capacity / 2 : 3 * capacity; /* sometimes a large piece */
        size_t want = 1 + (next_random(&random) >> 8) % most;

        look(&window, want, (next_random(&random) >> 8) % (want + 1));
    }
    ck_assert_uint_eq(window.offset_bytes, STREAM_BYTES);
    pl_window_done(&window);
    pl_source_close(&asked.head);
}

TEST(every_byte_comes_once_whatever_is_looked_at)
{
    static const size_t capacities[] = {64, 100, 4096, 5000, 16384, 65536};

    for (uint32_t i = 0; i < 12; i++) {
        read_all(capacities[i % 6], i * 977 + 1);
    }
}

TEST(small_records_are_read_in_large_aligned_pieces)
{
    struct asked asked;
    struct pl_window window = {.source = NULL};

    begin(&asked, PAGE_BYTES);
    ck_ok(pl_window_init, &window, &asked.head, 64 << 10);
    while (!window.ended) {
        look(&window, 3110, 3110);
    }
    ck_assert_uint_ge(asked.least_asked_bytes, 16 << 10);
    ck_assert_uint_eq(asked.unaligned, 0);
    pl_window_done(&window);
    pl_source_close(&asked.head);
}

TEST(a_declared_length_takes_no_memory_before_its_bytes_come)
{
    struct asked asked;
    struct pl_window window = {.source = NULL};

    begin(&asked, 0);
    ck_ok(pl_window_init, &window, &asked.head, 4096);
    look(&window, (size_t)1 << 50, 1);
    ck_assert_uint_le(window.buffer->capacity, 2 * STREAM_BYTES);
    pl_window_done(&window);
    pl_source_close(&asked.head);
}

/* What was looked at stays where it is while the window moves on, in other memory, and is used again. */
TEST(bytes_that_are_held_stay)
{
    struct pl_window window = {.source = NULL};
    struct asked asked;
    uint32_t random = 5;

    for (int source = 0; source < 3; source++) {
        begin(&asked, 0);
        ck_ok(pl_window_init, &window, &asked.head, 8192);
        while (!window.ended || window.available > 0) {
            struct pl_window_buffer *held[3] = {NULL, NULL, NULL};
            const unsigned char *data[3];
            uint64_t offset[3];

            for (int i = 0; i < 3; i++) {
                ck_ok(pl_window_need, &window, 700, PL_DEADLINE_NEVER);
                data[i] = window.data;
                offset[i] = window.offset_bytes;
                ck_assert(window.available == 0 || pl_window_hold(&window, data[i], &held[i]));
                look(&window, 700, next_random(&random) >> 21);
            }
            ck_assert(!held[2] || pl_window_hold(&window, data[0], &held[2]) == (held[0] == held[2]));
            for (int i = 0; i < 3; i++) {
                for (uint64_t at = offset[i]; held[i] && at < STREAM_BYTES && at < offset[i] + 700; at++) {
                    ck_assert_msg(data[i][at - offset[i]] == byte_at(at), "byte %llu differs", (unsigned long long)at);
                }
                pl_window_let_go(&window, held[i]);
            }
        }
        ck_assert_uint_eq(window.offset_bytes, STREAM_BYTES);
        pl_source_close(&asked.head);
    }
    pl_window_done(&window);
}

UNIT_MAIN("s3io/window")
