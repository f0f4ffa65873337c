/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The gradients of a model, as in a file: {"model": NAME, "tensors": [{"name": ..., "count": elements}, ...]}, in
 * forward order.
 *
 * Test  tests/unit/examples/test_gradient_list.c
 */
#ifndef EXAMPLES_SYNTHETIC_GRADIENT_LIST_H
#define EXAMPLES_SYNTHETIC_GRADIENT_LIST_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gradient_list {
    char *name;
    size_t count;
    uint64_t elems;   /* number of elements of all tensors */
    char **names;     /* [count]: names of the tensors */
    uint64_t *counts; /* [count], numbers of elements */
};

/**
 * Reads a list. Errors: PL_INVALID if the file is not JSON or a tensor has no name or no elements; PL_SYSTEM. The
 * report names the path.
 */
enum pl_status gradient_list_read(const char *path, struct gradient_list *ret_list,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the gradients of the digit classifier of examples/mnist, 8 tensors. */
enum pl_status gradient_list_default(struct gradient_list *ret_list, struct pl_error *reterr) PL_MUST_CHECK;

void gradient_list_done(struct gradient_list *list);

#endif
