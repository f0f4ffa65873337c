/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the modules of all frameworks make of Horovod's words: its numbers of operations, roots, splits, shapes and
 * names become those of a named operation.
 *
 * Threads  any.
 * Test     tests/unit/runtime/horovod/test_arguments.c
 */
#ifndef PL_RUNTIME_HOROVOD_ARGUMENTS_H
#define PL_RUNTIME_HOROVOD_ARGUMENTS_H

#include "runtime/service.h"

/** Horovod's number of a reduction (horovod.h) with its factors; an unknown number is refused at the submission. */
void pl_arguments_reduce(struct pl_named_op *op, int number, double prescale, double postscale);

/** Append a dimension; those that an operation has no room for are multiplied into its last one. */
void pl_arguments_dimension(struct pl_named_op *op, uint64_t extent);

/** The place of the job's rank `root` in `set`; PL_INVALID: it is no member, or there is no such set. */
enum pl_status pl_arguments_root(struct pl_service *service, int set, int root, int *ret_root,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Rows for each rank of `set`, which has `ranks`, from `count` integers of `bytes` (4 or 8) each. `*ret_rows` is the
 * caller's, free(); NULL for no integers: equal parts. PL_INVALID: another count, or a negative one.
 */
enum pl_status pl_arguments_splits(const void *splits, size_t bytes, uint64_t count, int set, int ranks,
                                   uint64_t **ret_rows, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The opposite: how many `rows` [ranks] came from each rank, as integers of `bytes` (4 or 8) each in `ret_splits`
 * [ranks]. PL_LIMIT: more than such an integer holds.
 */
enum pl_status pl_arguments_received(const uint64_t *rows, int ranks, size_t bytes, void *ret_splits,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * "<kind>.<text>", or "<text>" where `kind` is NULL, in `name`, which is returned. Of a text [length] that does not
 * fit, its hash and its end stay, so that long names with the same end differ.
 */
const char *pl_arguments_name(const char *kind, const char *text, size_t length, char name[PL_NAMED_MAX_NAME_BYTES]);

#endif
