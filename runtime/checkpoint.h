/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Checkpoints of a plan, its optimizer and the position in the data, from which a run goes on bit for bit (with the
 * same number of ranks and the same order of samples; between hosts with the setting `reproducible`).
 *
 * Rank 0 writes, atomically and in a thread of its own, from a copy: training goes on meanwhile. A checkpoint is
 * checkpoint-STEP.safetensors with values and optimizer arrays, and checkpoint-STEP.json with everything else and the
 * checksum of both, written last: without it the other one does not count. Both open in Python.
 *
 * Test  tests/unit/runtime/checkpoint/test_checkpoint.c, tests/integration/resume.py
 */
#ifndef PL_RUNTIME_CHECKPOINT_H
#define PL_RUNTIME_CHECKPOINT_H

#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "s3io/sampler.h"

/** Where SageMaker reads checkpoints, and restores them before a restarted job begins, where a job names no other. */
#define PL_CHECKPOINT_DIRECTORY "/opt/ml/checkpoints"

/**
 * The job's directory for checkpoints: what PACELINE_CHECKPOINT_DIR names, which `paceline train` sets from
 * checkpointconfig.json, else PL_CHECKPOINT_DIRECTORY, that very path also where SAGEMAKER_BASE_DIR names another tree.
 * The caller frees.
 */
enum pl_status pl_checkpoints_directory(char **ret_directory, struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_CHECKPOINT_EXTRA_BYTES = 256 };

/** What a checkpoint holds besides arrays. Plain memory; rank 0's is kept, and loading gives it to all ranks. */
struct pl_checkpoint_state {
    uint64_t step;
    struct pl_sampler_state sampler;
    uint64_t world_size; /* set by saving */
    uint64_t extra_bytes;
    unsigned char extra[PL_CHECKPOINT_EXTRA_BYTES]; /* the program's own: counters, the key of a random stream */
};

/** Zero-initialise, then set what differs. */
struct pl_checkpoints_options {
    /* NULL: pl_checkpoints_directory() */
    const char *directory;
    /* so many newest ones stay, counted from the one just written; those of later steps are another run's. 0: 3 */
    unsigned keep;
    /* how many train together, where the plan's world is not all of them: workers of parameter servers. 0: its size */
    unsigned world_size;
    /* Called on rank 0 for every checkpoint that was passed over, with the reason. NULL: a warning is logged. */
    void (*note)(void *context, const char *text);
    void *context;
};

struct pl_checkpoints;

/**
 * Prepare; rank 0 creates the directory and removes what a killed run left half written. `optimizer` may be NULL.
 * PL_INVALID: `plan` is not sealed.
 */
enum pl_status pl_checkpoints_open(struct pl_plan *plan, struct pl_optimizer *optimizer,
                                   const struct pl_checkpoints_options *options,
                                   struct pl_checkpoints **ret_checkpoints, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Take a copy of everything and write it in the background; ranks other than 0 return at once. Waits when the
 * checkpoint before is still being written.
 *
 * Errors  on rank 0 those of writing the checkpoint before this one; then this one is not written. PL_INVALID: more
 *         extra bytes than there is room.
 */
enum pl_status pl_checkpoints_save(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Wait until the last one is on disk. */
enum pl_status pl_checkpoints_flush(struct pl_checkpoints *checkpoints, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Put the newest whole checkpoint into plan and optimizer of every rank. `*ret_found` false: there is none, nothing was
 * changed. What is cut, corrupt or of another model or optimizer is passed over with a note, and an older one is tried.
 * Rank 0 sends to the waiting ranks before each tensor that it reads: the setting timeout_s has to be long enough for
 * the largest.
 *
 * Collective  yes.
 * Errors      rank 0's, on all ranks: PL_SYSTEM and PL_MEMORY where a checkpoint cannot be read, though it may be good
 *             (an I/O error, no permission, too many open files). No older one is loaded then: going on from that would
 *             throw away what was trained since. PL_MISMATCH, showing where both differ, where none fits and at least
 *             one is of another model or optimizer, unless the setting checkpoint_ignore is on. Those of
 *             pl_checkpoints_flush().
 */
enum pl_status pl_checkpoints_load(struct pl_checkpoints *checkpoints, bool *ret_found,
                                   struct pl_checkpoint_state *ret_state, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for the writer. Errors of the last write are lost: flush first. NULL is fine. */
void pl_checkpoints_close(struct pl_checkpoints *checkpoints);

#endif
