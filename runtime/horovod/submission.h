/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A submission to the service as the modules of all frameworks make it: Horovod's numbers of operations, roots, splits,
 * shapes and names become those of named operations, and its scale factors are applied as Horovod applies them.
 *
 * Horovod multiplies by the factors before and after a reduction of float16 or bfloat16 in separate passes, and rounds
 * each result to the tensor's type; the library would round only once, after both. The library handles other types,
 * memory of a GPU, and Adasum.
 *
 * Threads  any; one at a time for each submission.
 * Test     tests/unit/runtime/horovod/test_submission.c
 */
#ifndef PL_RUNTIME_HOROVOD_SUBMISSION_H
#define PL_RUNTIME_HOROVOD_SUBMISSION_H

#include "runtime/service.h"

struct pl_submission_factors;

/** Operations that end together. */
struct pl_submission {
    struct pl_completion completion; /* the first member, so that its `call` finds the submission */
    void *owner;                     /* argument for `call` */
    size_t count;
    struct pl_named_result *results; /* [count] */
    struct pl_submission_factors *factors;
    uint64_t *splits;
    struct pl_named_op ops[]; /* [count], which the caller completes before the start */
};

/** Makes a submission of `count` operations like `op`, which has no meaning if there are none. */
struct pl_submission *pl_submission_new(const struct pl_named_op *op, size_t count, struct pl_error *reterr);

/**
 * Releases a submission that has ended or was not started, with its results. False: a message may still access its
 * memory, so that nothing was released, and its tensors may not be released either. NULL is fine.
 */
bool pl_submission_free(struct pl_submission *submission);

/**
 * Submits the operation under the name `name`, or as a group; NULL: numbered. An input that Horovod multiplies first is
 * multiplied into memory that the operation then sends: the `recv` of an ALLREDUCE, unless that is the input, which
 * does not change. Errors: those of pl_service_submit().
 */
enum pl_status pl_submission_start(struct pl_submission *submission, struct pl_service *service, int set,
                                   const char *name, bool grouped, struct pl_error *reterr) PL_MUST_CHECK;

/** Call once after the operations have succeeded: multiplies results by the factors that come after a reduction. */
void pl_submission_finish(const struct pl_submission *submission);

/**
 * Reads the rows for each rank of `set` from `count` integers of `bytes` (4 or 8) each, for the ALLTOALL that is the
 * submission's operation. No integers mean equal parts. completion.ranks must be set. Errors: PL_INVALID for another
 * count, or a negative integer.
 */
enum pl_status pl_submission_split(struct pl_submission *submission, int set, const void *splits, size_t bytes,
                                   uint64_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores how many rows came from each rank as integers of `bytes` (4 or 8) each in `ret_splits` [completion.ranks].
 * Errors: PL_LIMIT if a number does not fit.
 */
enum pl_status pl_submission_received(const struct pl_submission *submission, size_t bytes, void *ret_splits,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets the reduction for Horovod's number of an operation (horovod.h), with its factors. An unknown number is refused
 * at the start.
 */
void pl_submission_reduce(struct pl_named_op *op, int number, double prescale, double postscale);

/** Appends a dimension. Dimensions beyond the room of an operation are multiplied into its last one. */
void pl_submission_dimension(struct pl_named_op *op, uint64_t extent);

/**
 * Sets the root to the place of the job's rank `root` in `set`. Errors: PL_INVALID if the rank is not a member, or if
 * there is no such set.
 */
enum pl_status pl_submission_root(struct pl_service *service, int set, int root, int *ret_root,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Prints "<kind>.<text>", or "<text>" if `kind` is NULL, into `name`, and returns it. A text [length] that does not fit
 * is replaced by its hash and its end, so that long names with the same end differ.
 */
const char *pl_submission_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES]);

#endif
