/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The copies of checkpoints in the job's kept memory, on rank 0: when one is due, and what it holds. Internal to
 * runtime/.
 */
#ifndef PL_RUNTIME_CHECKPOINT_KEEPER_H
#define PL_RUNTIME_CHECKPOINT_KEEPER_H

#include "base/status.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/kept.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_keeper {
    size_t data_bytes;    /* of all arrays, */
    uint64_t model;       /* and a checksum of their names, shapes and places */
    uint64_t every_steps; /* 0: as often as costs 1 % */

    bool opened;            /* the job's memory was looked for */
    struct pl_kept *kept;   /* NULL: there is none */
    bool keeps;             /* copies lie there, */
    unsigned char *place;   /* this one's arrays; NULL: there is no copy */
    uint64_t step;          /* of the last copy */
    int64_t begun_ns;       /* when it was begun, */
    int64_t spent_ns;       /* and for how long it and its checksum took */
    atomic_bool is_writing; /* the copy belongs to the writer's thread */
};

/**
 * Looks once for the job's memory. Errors: those of pl_kept_open(), each time, but that this process may not open it:
 * then it warns, and there is none.
 */
enum pl_status pl_keeper_open(struct pl_keeper *keeper, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a copy is due after step `step`. */
bool pl_keeper_is_due(const struct pl_keeper *keeper, uint64_t step);

/**
 * Begins a copy of step `step`, if `keeps` is set: the caller fills `place`. If there is no room it warns, and `keeps`
 * ends.
 */
void pl_keeper_begin(struct pl_keeper *keeper, uint64_t step);

/** Completes the copy; called by the writer's thread, or before it starts. */
void pl_keeper_end(struct pl_keeper *keeper, const struct pl_checkpoint_record *record);

/**
 * Finds the newest whole copy, whose arrays begin at `*ret_data`. PL_NOT_FOUND: there is none. PL_MISMATCH: it is of
 * another model or of another part of the job, and only the record's step is set.
 */
enum pl_status pl_keeper_read(struct pl_keeper *keeper, struct pl_checkpoint_record *ret_record,
                              const float **ret_data) PL_MUST_CHECK;

#endif
