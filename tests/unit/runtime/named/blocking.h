/* SPDX-License-Identifier: Apache-2.0 */
/** An engine of named tensors without its service, for tests of one thread: it submits, and waits by advancing it. */
#ifndef PL_TESTS_UNIT_RUNTIME_NAMED_BLOCKING_H
#define PL_TESTS_UNIT_RUNTIME_NAMED_BLOCKING_H

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/named/operation.h"

#include <stdlib.h>
#include <string.h>

/** What was submitted, until it is waited for. */
typedef struct pl_named_submission *engine_handle;

static _Thread_local engine_handle handles_left;

static inline enum pl_status engine_enter(struct pl_named *named, const char *name, bool grouped,
                                          const struct pl_named_op *ops, size_t count, engine_handle *ret_handle,
                                          struct pl_error *reterr)
{
    size_t row_counts = count * (size_t)named->ranks, name_bytes = name ? strlen(name) + 1 : 0;
    size_t bytes = sizeof(struct pl_named_submission) + count * sizeof(struct pl_operation) +
                   count * sizeof(struct pl_named_result) + row_counts * sizeof(uint64_t) + name_bytes;
    struct pl_device_event *ready;
    enum pl_status status;
    engine_handle handle;
    uint64_t *at;

    *ret_handle = NULL;
    for (size_t i = 0; i < count; i++) {
        PL_TRY(pl_named_check(named, &ops[i], name ? name : "an operation", NULL, reterr));
    }
    PL_TRY(pl_named_mark(named, ops, count, &ready, reterr));
    handle = pl_memory_new(1, bytes, reterr);
    if (!handle) {
        pl_device_event_drop(ready);
        return PL_MEMORY;
    }
    handle->ready = ready;
    handle->count = count;
    handle->is_grouped = grouped;
    handle->results = (struct pl_named_result *)(void *)&handle->operations[count];
    at = (uint64_t *)(void *)(handle->results + count);
    for (size_t i = 0; i < count; i++) {
        at += pl_named_define(named, &ops[i], &handle->operations[i], at);
    }
    handle->name = name ? memcpy(at, name, name_bytes) : NULL;
    handle->named = named;
    status = pl_named_enter(named, handle, NULL, reterr);
    if (status != PL_OK) {
        pl_device_event_drop(handle->ready);
        free(handle);
        return status;
    }
    handle->next_taken = handles_left;
    handles_left = handle;
    *ret_handle = handle;
    return PL_OK;
}

static inline void engine_forget(engine_handle handle)
{
    engine_handle *at = &handles_left;

    handle->named->first_ended = handle->named->last_ended = NULL;
    while (*at != handle) {
        at = &(*at)->next_taken;
    }
    *at = handle->next_taken;
    free(handle);
}

static inline enum pl_status engine_submit(struct pl_named *named, const struct pl_named_op *op,
                                           engine_handle *ret_handle, struct pl_error *reterr)
{
    return engine_enter(named, op->name, false, op, 1, ret_handle, reterr);
}

static inline enum pl_status engine_submit_group(struct pl_named *named, const char *base,
                                                 const struct pl_named_op *ops, size_t count, engine_handle *ret_handle,
                                                 struct pl_error *reterr)
{
    return engine_enter(named, base, true, ops, count, ret_handle, reterr);
}

/** Announces what was submitted, if that may be done now. */
static inline void engine_flush(struct pl_named *named)
{
    pl_named_progress(named, false, NULL);
}

/** Advances the engine, with naps when it has been waited for some time. */
static inline void engine_advance(struct pl_named *named, int64_t began_ns)
{
    int64_t waited_ns = pl_clock_now_ns() - began_ns;

    pl_named_progress(named, true, NULL);
    if (waited_ns > 160 * PL_NS_PER_US) {
        pl_clock_nap(pl_clock_backoff_ns(waited_ns, 20 * PL_NS_PER_US, 2 * PL_NS_PER_MS), PL_DEADLINE_NEVER);
    }
}

static inline bool engine_poll(struct pl_named *named, engine_handle handle)
{
    pl_named_progress(named, false, NULL);
    return pl_named_submission_has_ended(named, handle);
}

/** `ret_result` has a place for each operation; NULL drops the results. */
static inline enum pl_status engine_wait(struct pl_named *named, engine_handle handle,
                                         struct pl_named_result *ret_result, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();
    enum pl_status status;

    if (!handle) {
        return pl_error_set(reterr, PL_INVALID, "nothing was submitted");
    }
    while (!pl_named_submission_has_ended(named, handle)) {
        engine_advance(named, began_ns);
    }
    status = pl_named_submission_end(named, handle, reterr);
    for (size_t i = 0; i < handle->count && status == PL_OK; i++) {
        if (ret_result) {
            ret_result[i] = handle->results[i];
        } else {
            pl_named_result_done(&handle->results[i]);
        }
    }
    engine_forget(handle);
    return status;
}

static inline enum pl_status engine_run(struct pl_named *named, const struct pl_named_op *op,
                                        struct pl_named_result *ret_result, struct pl_error *reterr)
{
    engine_handle handle;

    PL_TRY(engine_submit(named, op, &handle, reterr));
    return engine_wait(named, handle, ret_result, reterr);
}

static inline enum pl_status engine_join(struct pl_named *named, int *ret_last_rank, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    *ret_last_rank = -1;
    named->joining = true;
    named->join_announced = false;
    while (named->joining && named->failure.status == PL_OK && !named->left) {
        engine_advance(named, began_ns);
    }
    named->joining = false;
    PL_TRY(pl_named_refuse_ended(named, reterr));
    *ret_last_rank = named->join_last_rank;
    return PL_OK;
}

static inline enum pl_status engine_shutdown(struct pl_named *named, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    named->leaving = true;
    while (!named->left && named->failure.status == PL_OK) {
        engine_advance(named, began_ns);
    }
    return named->left ? PL_OK : pl_named_refuse_ended(named, reterr);
}

/** Frees what was not waited for, too. */
static inline void engine_free(struct pl_named *named)
{
    for (engine_handle handle = handles_left, next; handle && named; handle = next) {
        next = handle->next_taken;
        if (handle->named == named) {
            (void)!pl_named_submission_end(named, handle, NULL);
            for (size_t i = 0; i < handle->count; i++) {
                pl_named_result_done(&handle->results[i]);
            }
            engine_forget(handle);
        }
    }
    pl_named_free(named);
}

#endif
