/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What a sweep is asked for: the space of hyperparameters, the trials that follow from it, the metric, and how trials
 * are scheduled. Read once, then not changed. The same text gives the same trials everywhere.
 *
 * Source  docs/sweep.md
 * Test    tests/unit/programs/sweep/test_space.c
 */
#ifndef PL_PROGRAMS_SWEEP_SPACE_H
#define PL_PROGRAMS_SWEEP_SPACE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PL_SWEEP_TRIALS_MAX = 10000,
    PL_SWEEP_TRIALS_BYTES_MAX = 64 << 20, /* of all their hyperparameters */
    PL_SWEEP_SPEC_BYTES_MAX = 1 << 20,
    PL_SWEEP_RUNGS_MAX = 32,
};

/** Larger whole numbers have no double of their own, which strict JSON asks for. */
#define PL_SWEEP_STEP_MAX (INT64_C(1) << 53)

enum pl_sweep_scheduler {
    PL_SWEEP_SCHEDULER_NONE,   /* every trial runs to its end */
    PL_SWEEP_SCHEDULER_ASHA,   /* a trial that is not among the best 1/factor of its rung is stopped there */
    PL_SWEEP_SCHEDULER_MEDIAN, /* a trial that is worse than the median of the others at its step is stopped for good */
};

/** A trial: its number is its index in pl_sweep_space.trials. */
struct pl_sweep_trial {
    char *hyperparameters; /* a JSON object, one line: what the space gives it, its seed included */
    size_t point;          /* trials of one point differ in their seed only */
};

struct pl_sweep_space {
    char *text;         /* the specification as it was read: a journal belongs to one */
    char *metric_name;  /* "test_accuracy"; none of the names that a line of trials.jsonl has anyway */
    char *metric_regex; /* POSIX extended, its first group is the number */
    char *step_regex;   /* the same for the step that a line belongs to; NULL: reports are counted */
    bool maximize;
    char *seed_name;               /* the hyperparameter that tells the trials of a point apart; NULL: no seeds */
    struct pl_sweep_trial *trials; /* all points with the first seed, then all with the second, ... */
    size_t trials_count;
    size_t points_count;
    int processes;       /* of a trial */
    int slots;           /* of a host; 0: by its devices */
    double max_failed;   /* from 0 to 1 */
    double trial_time_s; /* 0: no bound */
    bool model;          /* the best trial's is the result; false: none is wanted */
    enum pl_sweep_scheduler scheduler;
    int64_t min_step;     /* asha: the first rung; median: no trial is stopped before it */
    int64_t factor;       /* asha: from 2 on: rungs are min_step, min_step * factor, ... */
    int64_t max_step;     /* asha: no rung from here on; INT64_MAX: not known */
    int64_t least_trials; /* median: how many others must have reported at that step */
};

/**
 * Read a specification of `bytes` bytes; `source` names it in errors.
 *
 * Errors  PL_INVALID: "SOURCE:LINE:COLUMN: space.batch-size: expected ..., found ...": the grammar, an unknown name, an
 *         empty range, a regular expression that does not compile or has no group; PL_LIMIT: more than
 *         PL_SWEEP_TRIALS_MAX trials or PL_SWEEP_TRIALS_BYTES_MAX bytes; PL_MEMORY.
 */
enum pl_status pl_sweep_space_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_sweep_space **ret_space, struct pl_error *reterr) PL_MUST_CHECK;

void pl_sweep_space_free(struct pl_sweep_space *space);
void pl_sweep_space_free_at(struct pl_sweep_space **space_at);

#define PL_AUTO_SWEEP_SPACE __attribute__((cleanup(pl_sweep_space_free_at)))

#endif
