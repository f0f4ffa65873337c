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

#include "entrypoint/job/job.h"

enum {
    PL_SWEEP_TRIALS_MAX = 10000,
    PL_SWEEP_TRIALS_BYTES_MAX = 64 << 20, /* sum over the hyperparameters of all trials */
    PL_SWEEP_SPEC_BYTES_MAX = 1 << 20,
};

/** Largest whole number: strict JSON requires that a double can hold every whole number up to it. */
#define PL_SWEEP_WHOLE_MAX 0x1p53

struct pl_sweep_space {
    char *metric_name;  /* for example "test_accuracy"; never the name of a standard member of trials.jsonl */
    char *metric_regex; /* PCRE2; its first group is the number */
    bool maximize;
    char *seed_name; /* the hyperparameter that has the seed; NULL if there are no seeds */
    /* for each trial its values and its seed: NAME=VALUE, VALUE as JSON. All points with the first seed come first,
     * then all with the second, ...: trial i is of point i modulo points_count */
    struct pl_strv *trials;
    size_t trials_count;
    size_t points_count;
    int processes;       /* processes of one trial */
    int slots;           /* slots of one host; 0 if the devices determine it */
    double max_failed;   /* fraction of the trials that may fail, 0 to 1 */
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

/** Reads the specification in the file at `path`. */
enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Reads the specification in the job's settings, or in a file that they name. PL_NOT_FOUND if the job has no sweep. */
enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Appends a trial's hyperparameters as a JSON object in one line, with values as the user wrote them. */
void pl_sweep_space_print(const struct pl_sweep_space *space, size_t trial, struct pl_text *text);

/** Appends a value as the user wrote it. */
void pl_sweep_space_print_value(const struct pl_python_json *node, struct pl_text *text);

void pl_sweep_space_free(struct pl_sweep_space *space);
void pl_sweep_space_free_at(struct pl_sweep_space **space_at);

#define PL_AUTO_SWEEP_SPACE __attribute__((cleanup(pl_sweep_space_free_at)))

/* The points as the specification describes them: space.c reads them, and space_expand.c makes trials from them. The
 * structs have pointers into the JSON document. */

struct pl_sweep_dimension {
    const char *name;
    enum pl_sweep_kind {
        PL_SWEEP_CHOICE,
        PL_SWEEP_INT,
        PL_SWEEP_FLOAT,
        PL_SWEEP_LOG, /* evenly distributed logarithm */
    } kind;
    const struct pl_python_json **choices; /* [count] */
    double low, high;                      /* both are possible values */
    uint64_t count;                        /* number of values in a grid; 0 for float and log in a random search */
};

struct pl_sweep_draft {
    enum pl_sweep_search { PL_SWEEP_GRID, PL_SWEEP_RANDOM, PL_SWEEP_LIST } search;
    struct pl_sweep_dimension *dimensions; /* for grid and random */
    size_t dimensions_count;
    const struct pl_python_json *list;  /* for list: its objects */
    double trials, seed;                /* random: number of points, seed of the draws */
    const struct pl_python_json *seeds; /* NULL if there are none */
    size_t seeds_count;                 /* at least 1 */
};

/** Makes space->trials and the counts. Errors: PL_LIMIT: too many trials, or too many bytes; PL_MEMORY. */
enum pl_status pl_sweep_space_expand(const struct pl_sweep_draft *draft, const char *source,
                                     struct pl_sweep_space *space, struct pl_error *reterr) PL_MUST_CHECK;

enum pl_status pl_sweep_space_too_many(const char *source, struct pl_error *reterr);
void pl_sweep_draft_done(struct pl_sweep_draft *draft);

#define PL_AUTO_SWEEP_DRAFT __attribute__((cleanup(pl_sweep_draft_done)))

#endif
