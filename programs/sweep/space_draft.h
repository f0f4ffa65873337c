/* SPDX-License-Identifier: Apache-2.0 */
/** A specification after space.c and before space_expand.c: the varied hyperparameters, without the trials. */
#ifndef PL_PROGRAMS_SWEEP_SPACE_DRAFT_H
#define PL_PROGRAMS_SWEEP_SPACE_DRAFT_H

#include "programs/sweep/space.h"
#include "programs/sweep/value.h"

struct pl_sweep_dimension {
    const char *name;
    enum pl_sweep_dimension_kind {
        PL_SWEEP_DIMENSION_CHOICE,
        PL_SWEEP_DIMENSION_INT,
        PL_SWEEP_DIMENSION_FLOAT,
        PL_SWEEP_DIMENSION_LOG, /* evenly distributed logarithm */
    } kind;
    const struct pl_python_json **choices; /* [count] */
    double low, high;                      /* both are possible values */
    uint64_t count;                        /* number of its values in a grid; 0 for float and log in a random search */
};

/** It has pointers into the JSON document from which it was read. */
struct pl_sweep_draft {
    enum pl_sweep_search { PL_SWEEP_SEARCH_GRID, PL_SWEEP_SEARCH_RANDOM, PL_SWEEP_SEARCH_LIST } search;
    struct pl_sweep_dimension *dimensions; /* for grid and random */
    size_t dimensions_count;
    const struct pl_python_json *list; /* for list: its objects */
    size_t trials;                     /* for random: number of points */
    uint64_t seed;                     /* for random */
    const char *seed_name;             /* NULL if there are no seeds */
    int64_t *seeds;
    size_t seeds_count;
};

/**
 * Makes space->trials and the counts of trials and points.
 *
 * Errors  PL_LIMIT: more than PL_SWEEP_TRIALS_MAX trials, or more than PL_SWEEP_TRIALS_BYTES_MAX bytes of
 *         hyperparameters. PL_MEMORY.
 */
enum pl_status pl_sweep_draft_expand(const struct pl_sweep_draft *draft, const char *source,
                                     struct pl_sweep_space *space, struct pl_error *reterr) PL_MUST_CHECK;

void pl_sweep_draft_done(struct pl_sweep_draft *draft);

#define PL_AUTO_SWEEP_DRAFT __attribute__((cleanup(pl_sweep_draft_done)))

#endif
