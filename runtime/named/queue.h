/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The operations that this rank has submitted, and the queue of operations that are not announced yet.
 * Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_QUEUE_H
#define PL_RUNTIME_NAMED_QUEUE_H

#include "runtime/named/engine.h"

/**
 * Returns PL_OK if pl_named_enter() would accept `op` under the name `name`, provided that no operation of that name
 * is in flight.
 */
enum pl_status pl_named_check(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Records an event in the stream of those of `ops` that are in device memory, which share it: what an operation reads
 * and writes is used after that event, whenever ranks agree on it. `*ret_event` is NULL if there are none, or no
 * device. Any thread may call it.
 *
 * Errors   PL_INVALID: they have different streams. Those of device.h.
 */
enum pl_status pl_named_mark(struct pl_named *named, const struct pl_named_op *ops, size_t count,
                             struct pl_device_event **ret_event, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Submits `count` operations as pl_service_submit() does, or with `grouped` as pl_service_submit_group(), after the
 * event `*ready_at`, which the engine takes if it takes the operations. `operation` stands for all of them.
 */
enum pl_status pl_named_enter(struct pl_named *named, const char *name, bool grouped, const struct pl_named_op *ops,
                              size_t count, struct pl_device_event **ready_at, struct pl_named_operation *operation,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Whether `operation`, which was submitted, has ended or never will, because the engine has failed. */
static inline bool pl_named_operation_has_ended(const struct pl_named *named,
                                                const struct pl_named_operation *operation)
{
    return operation->undone == 0 || named->failure.status != PL_OK;
}

/**
 * Returns how `operation` has ended. From now on the engine does not know it, also if it has failed before the end.
 * After a failure the results are released, but those of an operation that was launched: the caller has them.
 */
enum pl_status pl_named_operation_end(struct pl_named *named, struct pl_named_operation *operation,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** One member of `operation` needs no round any more. */
static inline void pl_named_operation_agree(struct pl_named *named, struct pl_named_operation *operation)
{
    operation->unagreed--;
    named->unagreed--;
}

/** Lets the engine take operations in the memory of `device`, which must outlive it; NULL: in host memory only. */
void pl_named_use_device(struct pl_named *named, struct pl_device *device);

/** Returns the failure of the world, PL_CANCELLED after a shutdown, else PL_OK. */
enum pl_status pl_named_refuse_ended(const struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends the use of an operation's memory, which the next one takes. */
void pl_named_local_free(struct pl_named *named, struct pl_named_local *local);

/**
 * Returns the name of an operation of this rank that is in flight. NULL if there is none, or if the world has failed,
 * so that none will end.
 */
const char *pl_named_name_under_way(const struct pl_named *named);

/**
 * The same of one that the ranks have agreed on and that has not ended, even if a stream of the program follows it and
 * its name may be used again.
 */
const char *pl_named_name_agreed(const struct pl_named *named);

/** Queues `local` for the next round. */
void pl_named_queue_push(struct pl_named *named, struct pl_named_local *local);

/** Removes `local` from the queue if it is not announced yet. */
void pl_named_queue_remove(struct pl_named *named, const struct pl_named_local *local);

/** Releases what operations have used. */
void pl_named_queue_done(struct pl_named *named);

#endif
