/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The memory file that a host's parameter server and its workers share: it has the values of all pieces, and each
 * worker's gradients and progress. Within a host, values and gradients are not sent. Internal to runtime/server/.
 *
 *   header | piece headers | values | worker 0's slot, gradients, rows | worker 1's slot, gradients, rows | ...
 *
 * A piece is one bucket of the workers' plan. Its values change in place; its sequence number is odd while they change.
 * A reader copies a piece, and accepts the copy if the number was even before it and is unchanged after it. So a reader
 * that is halted delays nobody.
 *
 * Source  the sequence lock is described in Boehm, "Can seqlocks get along with programming language memory models?",
 *         MSPC 2012.
 * Test    tests/unit/runtime/server/test_server.c
 */
#ifndef PL_RUNTIME_SERVER_SHARED_H
#define PL_RUNTIME_SERVER_SHARED_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What a push contains. */
enum pl_server_push {
    PL_SERVER_PUSH_GRADIENT, /* gradient for an optimizer step */
    PL_SERVER_PUSH_VALUES,   /* new values that replace the old ones */
};

/** Written by the server. */
struct pl_server_header {
    _Alignas(64) _Atomic uint64_t known_pieces; /* number of pieces whose values are known on this host */
    /* number of steps that every worker has finished; workers that have left do not count */
    _Atomic uint64_t slowest_steps;
    _Atomic uint64_t sent_bytes; /* bytes of gradients sent to other hosts */
    /* 1 if a worker has asked all workers to stop; with staleness 0 they stop at the end of this step */
    _Atomic uint32_t stops;
};

struct pl_server_piece {
    _Alignas(64) _Atomic uint64_t sequence;
};

struct pl_server_slot {
    /* written by the worker; kind, rate and stops change before a step's first piece, while no piece is in flight */
    _Alignas(64) _Atomic uint64_t pushed; /* number of pieces pushed since it joined, in the order of their numbers */
    uint32_t kind;                        /* value of enum pl_server_push: what the worker pushes */
    uint32_t stops;                       /* this worker asks all workers to stop */
    double rate;                          /* learning rate */
    _Atomic uint64_t fetches;             /* number of requests for the newest values of all pieces */
    /*
     * Written by the server: the number of pushed pieces that are applied to this host's values, and the number of
     * answered requests.
     */
    _Alignas(64) _Atomic uint64_t applied;
    _Atomic uint64_t fetched;
    uint64_t first_step; /* first step number of this worker, see slowest_steps; written before WELCOME */
};

/** Size of a worker's list of ids and rows, if there are tables: at least one row of any table fits. */
enum { PL_SERVER_ROWS_BYTES = 4 << 20 };

/** The shape of a file. The caller sets the first four fields; pl_server_shape() computes the others. */
struct pl_server_shape {
    uint64_t elems;  /* number of values; each worker has as many gradients */
    uint64_t pieces; /* number of pieces, at least 1 */
    uint64_t workers;
    uint64_t rows_bytes; /* per worker: PL_SERVER_ROWS_BYTES, or 0 if there are no tables */
    uint64_t values_at;  /* this and the following: offsets and sizes, in bytes */
    uint64_t slots_at;
    uint64_t slot_bytes;
    uint64_t file_bytes;
};

/** Computes offsets and sizes. Errors: PL_LIMIT if the file would be larger than memory can hold. */
enum pl_status pl_server_shape(struct pl_server_shape *shape, struct pl_error *reterr) PL_MUST_CHECK;

/** A mapped file. */
struct pl_server_view {
    struct pl_server_shape shape;
    char *base; /* NULL if it is not mapped */
};

/**
 * Maps the file `fd`, which still belongs to the caller. Errors: PL_SYSTEM; PL_CORRUPT if the file has another size.
 */
enum pl_status pl_server_view_open(struct pl_server_view *view, const struct pl_server_shape *shape, int fd,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_view_close(struct pl_server_view *view);

static inline struct pl_server_header *pl_server_view_header(const struct pl_server_view *view)
{
    return (struct pl_server_header *)(void *)view->base;
}

static inline struct pl_server_piece *pl_server_view_piece(const struct pl_server_view *view, uint64_t piece)
{
    return (struct pl_server_piece *)(void *)(view->base + sizeof(struct pl_server_header)) + piece;
}

static inline float *pl_server_view_values(const struct pl_server_view *view)
{
    return (float *)(void *)(view->base + view->shape.values_at);
}

static inline struct pl_server_slot *pl_server_view_slot(const struct pl_server_view *view, uint64_t worker)
{
    return (struct pl_server_slot *)(void *)(view->base + view->shape.slots_at + worker * view->shape.slot_bytes);
}

static inline float *pl_server_view_gradients(const struct pl_server_view *view, uint64_t worker)
{
    return (float *)(void *)(view->base + view->shape.slots_at + worker * view->shape.slot_bytes + 4096);
}

static inline char *pl_server_view_rows(const struct pl_server_view *view, uint64_t worker)
{
    return view->base + view->shape.slots_at + (worker + 1) * view->shape.slot_bytes - view->shape.rows_bytes;
}

/** Only the server calls these two functions; between them it changes the values of `piece`. */
static inline void pl_server_write_begin(struct pl_server_piece *piece)
{
    atomic_store_explicit(&piece->sequence, atomic_load_explicit(&piece->sequence, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void pl_server_write_end(struct pl_server_piece *piece)
{
    atomic_store_explicit(&piece->sequence, atomic_load_explicit(&piece->sequence, memory_order_relaxed) + 1,
                          memory_order_release);
}

/**
 * Copies a consistent state of the values of `piece`, `count` elements from `first`, to `to`. `*last_sequence` is the
 * sequence number of the copy in `to`, 0 at first; a piece is copied only if its number differs. Returns false if the
 * values are changing; `to` may then be inconsistent.
 */
bool pl_server_read_piece(const struct pl_server_view *view, uint64_t piece, uint64_t first, uint64_t count, float *to,
                          uint64_t *last_sequence) PL_MUST_CHECK;

/**
 * Writes all of `data` to a memory file at offset `at`, or reads it from there. Returns false and sets errno on
 * failure.
 */
bool pl_server_copy_at(int fd, bool writes, void *data, uint64_t bytes, uint64_t at) PL_MUST_CHECK;

#endif
