/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Shared by training.c (sets, steps, joins), training_job.c (named tensors) and training_plan.c (plans, optimizers,
 * checkpoints).
 */
#ifndef PL_TESTS_SCENARIOS_TRAINING_PRIVATE_H
#define PL_TESTS_SCENARIOS_TRAINING_PRIVATE_H

#include "runtime/service.h"
#include "tests/scenarios/training.h"
#include "tests/scenarios/trial.h"

enum { TRAINING_PLACES = 4, TRAINING_NAMES = 8, TRAINING_MEMBERS = 3 };

/** The operation that was submitted under a name; mostly it is repeated. */
struct pattern {
    bool drawn;
    enum pl_kind kind;
    enum pl_dtype dtype;
    enum pl_op op;
    unsigned flags;
    bool scaled;
    int root;
    unsigned dims;
    uint64_t rows, row_elems;
};

struct model;

/** A process set. Ranks that are not in it make the same draws for it. */
struct place {
    bool used;
    int set;
    int size;
    int ranks[TRAINING_MOST_RANKS];
    int own; /* this rank's number in it; -1 if it is not in it */
    struct pl_world *world;
    struct pattern patterns[TRAINING_NAMES];
    bool planned;
    struct model *model; /* a plan on it; NULL if it has none or this rank is not in the set */
};

struct training {
    struct pl_world *world;
    struct pl_service *service;
    struct place places[TRAINING_PLACES];
    struct pl_named_options options;
    uint64_t common; /* all ranks draw the same from it */
    uint64_t own;    /* different on each rank */
    uint64_t salt;   /* seed of inputs, equal on all ranks */
    char *failure;
};

/* One named operation and the memory of its buffers. */
struct part {
    struct pl_named_op op;
    struct trial trial;
    uint64_t counts[TRAINING_MOST_RANKS];
    uint64_t splits[TRAINING_MOST_RANKS];
};

enum job_type { JOB_SINGLE, JOB_NUMBERED, JOB_GROUP, JOB_TYPES };

struct job {
    enum job_type type;
    struct place *place;
    char name[16];
    struct part parts[TRAINING_MEMBERS];
    size_t members;
    struct pl_completion completion;
    struct pl_named_result results[TRAINING_MEMBERS];
};

/** Write the error to `failure` and return false. */
bool training_fail(const struct training *t, const char *what, const struct pl_error *error);

/** Write to `failure` that element `i` of `what` is wrong and return false. */
bool training_wrong(const struct training *t, const char *what, uint64_t i, double found, double expected);

/** A small number that all ranks can compute: the input of `rank` at position `i`. */
int training_value(uint64_t salt, int rank, uint64_t i);

/** Wait for a random time, so that ranks take different times. */
void training_stumble(struct training *t);

/** All ranks draw a job; then those of the set submit it, wait for it in their own way, and check its results. */
void training_draw_job(struct training *t, struct place *place, int name, struct job *job);
bool training_submit_job(struct training *t, struct job *job);
bool training_finish_job(struct training *t, struct job *job);
void training_release_job(struct job *job);

/** Make a plan in `place`, or take one step of it, or save or load it, as drawn. */
bool training_plan_step(struct training *t, struct place *place);
void training_plan_free(struct place *place);

#endif
