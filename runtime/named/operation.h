/* SPDX-License-Identifier: Apache-2.0 */
/** Operations from the queue to their end, and the results of submissions. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_OPERATION_H
#define PL_RUNTIME_NAMED_OPERATION_H

#include "runtime/named/engine.h"

/** Appends an operation to the list of queued or of running operations. */
static inline void pl_operation_append(struct pl_operation **first, struct pl_operation **last,
                                       struct pl_operation *operation)
{
    operation->next = NULL;
    *(*last ? &(*last)->next : first) = operation;
    *last = operation;
}

/** Takes an operation out of the queue if it is there. */
void pl_operation_unqueue(struct pl_named *named, struct pl_operation *operation);

/** Makes an operation by which a joined rank takes part in `entry`. Returns NULL if memory is out. */
struct pl_operation *pl_operation_stand_in(struct pl_named *named, struct pl_named_entry *entry,
                                           struct pl_error *reterr);

/** Notes that ranks have agreed on an operation, which needs no further round. */
void pl_operation_agree(struct pl_named *named, struct pl_operation *operation);

/**
 * Marks an operation as running: its collective is in a request, or in a batch of the device. Its entry no longer takes
 * part in rounds.
 */
enum pl_status pl_operation_set_running(struct pl_named *named, struct pl_operation *operation,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** Ends an operation in host memory whose collective has succeeded. */
void pl_operation_finish(struct pl_named *named, struct pl_operation *operation);

/** Moves the result of an operation to its submission, when it is complete or before the operation is detached. */
void pl_operation_give_result(struct pl_operation *operation);

/**
 * Lets the program use this name again while the operation still runs on the GPU; a stream of the program waits for the
 * operation's end. All ranks must know the entry.
 */
void pl_operation_detach(struct pl_named *named, struct pl_operation *operation);

/** Ends an operation that needs no more rounds, and drops its automatic name. `failure` NULL means success. */
void pl_operation_end(struct pl_named *named, struct pl_operation *operation, enum pl_status status,
                      const char *failure);

/** Lists a submission whose operations have ended, except the fence before a change of the process sets. */
void pl_named_submission_list(struct pl_named *named, struct pl_named_submission *submission);

/** Returns whether a submission has ended, or never will because the engine has failed. */
static inline bool pl_named_submission_has_ended(const struct pl_named *named,
                                                 const struct pl_named_submission *submission)
{
    return submission->undone == 0 || named->failure.status != PL_OK;
}

/**
 * Returns how a submission has ended, and removes it from the engine: operations that have not ended are cancelled.
 * After a failure the results are released, except the results of a launched submission, which the caller has.
 */
enum pl_status pl_named_submission_end(struct pl_named *named, struct pl_named_submission *submission,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the failure of the world, PL_CANCELLED after a shutdown, else PL_OK. */
enum pl_status pl_named_refuse_ended(const struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the name of an operation of this rank that is in flight. NULL: there is none, or the world has failed and no
 * operation will end.
 */
const char *pl_named_name_under_way(const struct pl_named *named);

/**
 * Returns the name of an operation that the ranks have agreed on and that has not ended; it may be detached. NULL:
 * there is none.
 */
const char *pl_named_name_agreed(const struct pl_named *named);

/**
 * Returns the name of the entry's collective. Compression keeps residuals under that name, so it is NULL for an
 * automatic name, which is used only once.
 */
const char *pl_named_collective_name(const struct pl_named_entry *entry);

/** Fills the fields of a reduction over the tensors of `contributors` ranks, except the buffers. */
void pl_named_describe_sum(const struct pl_named *named, const struct pl_named_definition *definition, int contributors,
                           struct pl_collective *collective);

/**
 * Fills the collective of an operation whose entry all ranks have announced, and makes the memory of its result. In
 * device memory the engine's own buffers are added later. `counts` and `recv_counts` are [n]; they are used if ranks
 * may have different numbers of rows.
 */
enum pl_status pl_named_describe(struct pl_named *named, const struct pl_named_entry *entry,
                                 struct pl_operation *operation, uint64_t *counts, uint64_t *recv_counts,
                                 struct pl_collective *collective, struct pl_error *reterr) PL_MUST_CHECK;

/** Calls the observer if it is active. `rank` is the rank that announced the entry, in the engine's world. */
void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first);

/** Starts the operations that the table has made ready. Some may end at once. */
enum pl_status pl_named_run_ready(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

#endif
