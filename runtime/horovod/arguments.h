/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Converts Horovod's arguments, for the modules of all frameworks: its numbers of operations, roots, splits, shapes and
 * names become those of a named operation.
 *
 * Threads  any.
 * Test     tests/unit/runtime/horovod/test_arguments.c
 */
#ifndef PL_RUNTIME_HOROVOD_ARGUMENTS_H
#define PL_RUNTIME_HOROVOD_ARGUMENTS_H

#include "runtime/service.h"

/**
 * Sets the reduction for Horovod's number of an operation (horovod.h), with its factors. An unknown number is refused
 * at the submission.
 */
void pl_arguments_reduce(struct pl_named_op *op, int number, double prescale, double postscale);

/** Appends a dimension. Dimensions beyond the room of an operation are multiplied into its last one. */
void pl_arguments_dimension(struct pl_named_op *op, uint64_t extent);

/**
 * Sets the root to the place of the job's rank `root` in `set`. Errors: PL_INVALID if the rank is not a member, or if
 * there is no such set.
 */
enum pl_status pl_arguments_root(struct pl_service *service, int set, int root, int *ret_root,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the rows for each rank of `set`, which has `ranks`, from `count` integers of `bytes` (4 or 8) each. The caller
 * frees `*ret_rows`; it is NULL without integers, which means equal parts. Errors: PL_INVALID for another count, or a
 * negative integer.
 */
enum pl_status pl_arguments_splits(const void *splits, size_t bytes, uint64_t count, int set, int ranks,
                                   uint64_t **ret_rows, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores how many `rows` [ranks] came from each rank as integers of `bytes` (4 or 8) each in `ret_splits` [ranks].
 * Errors: PL_LIMIT if a number does not fit.
 */
enum pl_status pl_arguments_received(const uint64_t *rows, int ranks, size_t bytes, void *ret_splits,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Prints "<kind>.<text>", or "<text>" if `kind` is NULL, into `name`, and returns it. A text [length] that does not fit
 * is replaced by its hash and its end, so that long names with the same end differ.
 */
const char *pl_arguments_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES]);

#endif
