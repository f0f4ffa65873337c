/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Submissions to the service, for the modules of all frameworks: converts Horovod's numbers of operations, roots,
 * splits, shapes and names to those of named operations, and applies scale factors as Horovod does.
 *
 * For float16 and bfloat16, Horovod multiplies before and after a reduction in separate passes, and rounds each result
 * to the tensor's type. The library would round only once, after both. So this file multiplies; for other types, GPU
 * memory and Adasum the library does.
 *
 * Threads  any; one at a time for each submission.
 * Test     tests/unit/runtime/horovod/test_submission.c
 */
#ifndef PL_RUNTIME_HOROVOD_SUBMISSION_H
#define PL_RUNTIME_HOROVOD_SUBMISSION_H

#include "runtime/service.h"

struct pl_submission_factors;

/** Operations that end together, with one completion. */
struct pl_submission {
    struct pl_completion completion; /* first member: `call` gets its address, which is the submission's */
    void *owner;                     /* argument for `call` */
    size_t count;
    struct pl_named_result *results; /* [count]: results of the operations */
    struct pl_submission_factors *factors;
    uint64_t *splits;
    struct pl_named_op ops[]; /* [count], the caller completes them before the start */
};

/** Makes a submission of `count` operations like `op`, which may be NULL if `count` is 0. */
struct pl_submission *pl_submission_new(const struct pl_named_op *op, size_t count, struct pl_error *reterr);

/**
 * Releases a submission that has ended or was not started, with its results. Returns false if a message may still
 * access its memory: then nothing was released, and the caller must not release its tensors. NULL is fine.
 */
bool pl_submission_free(struct pl_submission *submission);

/**
 * Submits the operation, or with `grouped` all as a group; `name` NULL: an automatic name. If Horovod multiplies an
 * input first, the operation sends the product. It is stored in the `recv` of an ALLREDUCE, unless that is the input,
 * which must not change; otherwise in new memory. Errors: those of pl_service_submit().
 */
enum pl_status pl_submission_start(struct pl_submission *submission, struct pl_service *service, int set,
                                   const char *name, bool grouped, struct pl_error *reterr) PL_MUST_CHECK;

/** Call once after the operations have succeeded: multiplies results by the factors that Horovod applies last. */
void pl_submission_finish(const struct pl_submission *submission);

/**
 * Sets the splits of the submission's ALLTOALL from `count` integers of `bytes` (4 or 8) each, one for each rank of
 * `set`; count 0: equal parts. completion.ranks must be set. Errors: PL_INVALID for another count, or a negative
 * integer.
 */
enum pl_status pl_submission_split(struct pl_submission *submission, int set, const void *splits, size_t bytes,
                                   uint64_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores the number of rows from each rank, as integers of `bytes` (4 or 8) each, in `ret_splits` [completion.ranks].
 * Errors: PL_LIMIT if a number does not fit.
 */
enum pl_status pl_submission_received(const struct pl_submission *submission, size_t bytes, void *ret_splits,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Sets the reduction and its factors from Horovod's number (horovod.h). An unknown number is refused at the start. */
void pl_submission_reduce(struct pl_named_op *op, int number, double prescale, double postscale);

/** Appends a dimension. Dimensions beyond the most that an operation has are multiplied into its last one. */
void pl_submission_dimension(struct pl_named_op *op, uint64_t extent);

/**
 * Converts the job's rank `root` to its rank in `set`. Errors: PL_INVALID if it is not a member, or if there is no such
 * set.
 */
enum pl_status pl_submission_root(struct pl_service *service, int set, int root, int *ret_root,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Prints "<kind>.<text>", or "<text>" if `kind` is NULL, into `name`, and returns it. A `text` [length] that is too
 * long is replaced by its hash and its last bytes, so that long names with the same end differ.
 */
const char *pl_submission_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES]);

#endif
