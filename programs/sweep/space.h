/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The specification of a sweep: the space of hyperparameters, the trials that follow from it, and the metric. It is
 * read once and never changed. The same text gives the same trials everywhere.
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
    PL_SWEEP_TRIALS_BYTES_MAX = 64 << 20, /* sum over the hyperparameters of all trials */
    PL_SWEEP_SPEC_BYTES_MAX = 1 << 20,
};

/** Largest whole number: strict JSON requires that a double can hold every whole number up to it. */
#define PL_SWEEP_WHOLE_MAX (INT64_C(1) << 53)

/** A trial: its number is its index in pl_sweep_space.trials. */
struct pl_sweep_trial {
    char *hyperparameters; /* a JSON object in one line: the values that the space gives it, with its seed */
    size_t point;          /* trials of one point have the same values except for their seeds */
};

struct pl_job;

struct pl_sweep_space {
    char *metric_name;  /* for example "test_accuracy"; never the name of a standard member of trials.jsonl */
    char *metric_regex; /* PCRE2; its first group is the number */
    bool maximize;
    char *seed_name;               /* the hyperparameter that has the seed; NULL if there are no seeds */
    struct pl_sweep_trial *trials; /* all points with the first seed, then all with the second, ... */
    size_t trials_count;
    size_t points_count;
    int processes;       /* number per trial */
    int slots;           /* number per host; 0 if it follows from the devices */
    double max_failed;   /* part of the trials that may fail, 0 to 1 */
    double trial_time_s; /* 0 if there is no limit */
    bool model;          /* whether the best trial's model becomes the job's model */
};

/**
 * Reads a specification of `bytes` bytes; `source` names it in errors.
 *
 * Errors  PL_INVALID, "SOURCE, line 1, column 9: batch-size: expected ..., found ...": wrong syntax, an unknown name,
 *         an empty range, or a regular expression that does not compile or has no group. PL_LIMIT: more than
 *         PL_SWEEP_TRIALS_MAX trials or PL_SWEEP_TRIALS_BYTES_MAX bytes of hyperparameters. PL_MEMORY.
 */
enum pl_status pl_sweep_space_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_sweep_space **ret_space, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns whether the trials of a point differ in their seeds: then points are compared, also if there is one seed, and
 * else trials are.
 */
static inline bool pl_sweep_space_has_seeds(const struct pl_sweep_space *space)
{
    return space->seed_name;
}

/** Reads the specification in the file at `path`. */
enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Reads that of the job's settings, or of a file that they name. PL_NOT_FOUND if the job has no sweep. */
enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr) PL_MUST_CHECK;

void pl_sweep_space_free(struct pl_sweep_space *space);
void pl_sweep_space_free_at(struct pl_sweep_space **space_at);

#define PL_AUTO_SWEEP_SPACE __attribute__((cleanup(pl_sweep_space_free_at)))

#endif
