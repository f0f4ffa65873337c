/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Copies of checkpoints in the job's kept memory, on rank 0: when a copy is due, and its contents. Internal to
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
    size_t data_bytes;    /* bytes of all arrays */
    uint64_t model;       /* checksum of the arrays' names, shapes and positions */
    uint64_t every_steps; /* number of steps between copies; 0: as often as costs 1 % of the time */

    bool opened;            /* the job's kept memory was opened, or there is none */
    struct pl_kept *kept;   /* NULL: there is no kept memory */
    bool keeps;             /* copies are made in kept memory */
    unsigned char *place;   /* arrays of the current copy; NULL: there is no copy */
    uint64_t step;          /* step of the last copy */
    int64_t begun_ns;       /* start of the last copy */
    int64_t spent_ns;       /* duration of the last copy and its checksum */
    atomic_bool is_writing; /* the writer's thread owns the copy */
};

/**
 * Opens the job's kept memory, once. Errors: those of pl_kept_open(), in each call. If this process may not open it,
 * there is only a warning, and no kept memory.
 */
enum pl_status pl_keeper_open(struct pl_keeper *keeper, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a copy is due after step `step`, which the program has finished. */
bool pl_keeper_is_due(const struct pl_keeper *keeper, uint64_t step);

/**
 * If `keeps` is set, begins a copy of step `step`; the caller fills `place`. If there is no room, warns and clears
 * `keeps`.
 */
void pl_keeper_begin(struct pl_keeper *keeper, uint64_t step);

/** Completes the copy; called by the writer's thread, or before it starts. */
void pl_keeper_end(struct pl_keeper *keeper, const struct pl_checkpoint_record *record);

/**
 * Finds the newest complete copy; its arrays begin at `*ret_data`. PL_NOT_FOUND: there is none. PL_MISMATCH: it is of
 * another model or another part of the job; only the step of `*ret_record` is set.
 */
enum pl_status pl_keeper_read(struct pl_keeper *keeper, struct pl_checkpoint_record *ret_record,
                              const float **ret_data) PL_MUST_CHECK;

#endif
