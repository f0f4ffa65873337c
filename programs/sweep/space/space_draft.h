/* SPDX-License-Identifier: Apache-2.0 */
/** A specification between its two steps, space_parse.c and space_expand.c: what is varied, before it is trials. */
#ifndef PL_PROGRAMS_SWEEP_SPACE_DRAFT_H
#define PL_PROGRAMS_SWEEP_SPACE_DRAFT_H

#include "programs/sweep/space/space.h"
#include "programs/sweep/space/value.h"

struct pl_sweep_dimension {
    const char *name;
    enum pl_sweep_dimension_kind {
        PL_SWEEP_DIMENSION_CHOICE,
        PL_SWEEP_DIMENSION_INT,
        PL_SWEEP_DIMENSION_FLOAT,
        PL_SWEEP_DIMENSION_LOG, /* even in the logarithm */
    } kind;
    const struct pl_python_json **choices; /* [count] */
    double low, high;                      /* both included */
    uint64_t count;                        /* of its values in a grid; float and log in a random search: 0 */
};

/** It points into the JSON that it was read from. */
struct pl_sweep_draft {
    enum pl_sweep_search { PL_SWEEP_SEARCH_GRID, PL_SWEEP_SEARCH_RANDOM, PL_SWEEP_SEARCH_LIST } search;
    struct pl_sweep_dimension *dimensions; /* grid, random */
    size_t dimensions_count;
    const struct pl_python_json *list; /* list: its objects */
    size_t trials;                     /* random: points */
    uint64_t seed;                     /* random */
    const char *seed_name;             /* NULL: no seeds */
    int64_t *seeds;
    size_t seeds_count;
};

/**
 * Make space->trials and their counts.
 *
 * Errors  PL_LIMIT: more than PL_SWEEP_TRIALS_MAX, or PL_SWEEP_TRIALS_BYTES_MAX of hyperparameters; PL_MEMORY.
 */
enum pl_status pl_sweep_draft_expand(const struct pl_sweep_draft *draft, const char *source,
                                     struct pl_sweep_space *space, struct pl_error *reterr) PL_MUST_CHECK;

void pl_sweep_draft_done(struct pl_sweep_draft *draft);

#define PL_AUTO_SWEEP_DRAFT __attribute__((cleanup(pl_sweep_draft_done)))

#endif
