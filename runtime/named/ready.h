/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The order between the program's streams and operations in device memory: an event that is recorded in the program's
 * stream when the operation is submitted. What the operation reads and writes is used after that event, whenever ranks
 * agree on it. Internal to runtime/.
 *
 * Threads  any.
 */
#ifndef PL_RUNTIME_NAMED_READY_H
#define PL_RUNTIME_NAMED_READY_H

#include "device/device.h"
#include "runtime/named.h"

#include <pthread.h>

struct pl_named_events;

/** An event of one submission, which all its operations in device memory share, or one of a batch's end. */
struct pl_named_ready {
    struct pl_named_events *events; /* where it is kept for reuse */
    void *event;
    void *stream;    /* the stream that it is recorded in */
    uint64_t number; /* of two events of one stream, the one with the higher number is the later one */
    size_t users;    /* number of operations, or of batches and completions, that have it */
    struct pl_named_ready *next;
};

/** Events for reuse. */
struct pl_named_events {
    struct pl_device *device; /* NULL if the world has no device */
    pthread_mutex_t order;    /* held while an event gets its number and is recorded */
    uint64_t numbers;         /* guarded by `order` */
    pthread_mutex_t lock;
    struct {
        struct pl_named_ready *spare;
    } synced;
};

void pl_named_events_init(struct pl_named_events *events, struct pl_device *device);

/** Releases the spare events. */
void pl_named_events_clear(struct pl_named_events *events);

/** The end of it. No event may be in use. */
void pl_named_events_done(struct pl_named_events *events);

/**
 * Records an event in the stream of those of `ops` that are in device memory. `*ret_ready` is NULL if there are none,
 * or no device.
 *
 * Errors   PL_INVALID: they have different streams. Those of device.h.
 */
enum pl_status pl_named_ready_mark(struct pl_named_events *events, const struct pl_named_op *ops, size_t count,
                                   struct pl_named_ready **ret_ready, struct pl_error *reterr) PL_MUST_CHECK;

/** Takes an event that the caller records. It has one user. */
enum pl_status pl_named_ready_take(struct pl_named_events *events, struct pl_named_ready **ret_ready,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** One more user. */
void pl_named_ready_share(struct pl_named_ready *ready);

/** One user ends its use of the event, or all of them do. NULL is fine. */
void pl_named_ready_release(struct pl_named_ready *ready);
void pl_named_ready_drop(struct pl_named_ready *ready);

#endif
