/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Checkpoints of a plan, its optimizer and the position in the data, from which a run resumes with bit-identical
 * results (with the same number of ranks and order of samples; on several hosts with the setting `reproducible`).
 *
 * Rank 0 writes a copy atomically, in a separate thread: training goes on meanwhile. A checkpoint is
 * checkpoint-STEP.safetensors with values and optimizer arrays, and checkpoint-STEP.json with everything else and a
 * checksum of both. The JSON file is written last: without it the checkpoint is incomplete. Python can read both.
 *
 * In a job that may be started again after a failure (PACELINE_MAX_RESTARTS), a copy in memory that outlives the ranks
 * (runtime/kept.h) lets it resume from a later step than the newest file: pl_checkpoints_keep().
 *
 * Test  tests/unit/runtime/checkpoint/test_checkpoint.c, tests/unit/runtime/checkpoint/test_keep.c,
 *       tests/integration/resume.py, tests/integration/checkpoint.py
 */
#ifndef PL_RUNTIME_CHECKPOINT_H
#define PL_RUNTIME_CHECKPOINT_H

#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "s3io/sampler.h"

/**
 * The directory from which SageMaker saves checkpoints, and to which it restores them before a restarted job begins,
 * unless the job names another one.
 */
#define PL_CHECKPOINT_DIRECTORY "/opt/ml/checkpoints"

/**
 * Returns the job's directory for checkpoints: PACELINE_CHECKPOINT_DIR, which `paceline train` sets from
 * checkpointconfig.json and SAGEMAKER_BASE_DIR, else PL_CHECKPOINT_DIRECTORY. The caller frees the result.
 */
enum pl_status pl_checkpoints_directory(char **ret_directory, struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_CHECKPOINT_EXTRA_BYTES = 256 };

/** A checkpoint's data besides the arrays. Rank 0's is saved; loading gives it to all ranks. */
struct pl_checkpoint_state {
    uint64_t step;
    struct pl_sampler_state sampler;
    uint64_t world_size; /* set by saving */
    uint64_t extra_bytes;
    unsigned char extra[PL_CHECKPOINT_EXTRA_BYTES]; /* the program's own data: counters, the key of a random stream */
};

/** Zero-initialise, then set the fields that differ from the defaults. */
struct pl_checkpoints_options {
    /* NULL: pl_checkpoints_directory() */
    const char *directory;
    /*
     * number of newest checkpoints to keep, counted from the last written one; checkpoints of later steps belong to
     * another run and stay. 0: 3
     */
    unsigned keep;
    /*
     * number of processes that train together, if the plan's world is not all of them (workers of parameter servers).
     * 0: the world's size
     */
    unsigned world_size;
    /* no directory and no files: pl_checkpoints_save() writes only to kept memory, and does nothing if there is none */
    bool memory_only;
    /* pl_checkpoints_keep() copies every so many steps, and waits for the last copy. 0: the setting keep_steps */
    unsigned keep_steps;
    /* called on rank 0 for every checkpoint that is skipped, with the reason; NULL: the library logs a warning */
    void (*note)(void *context, const char *text);
    void *context;
};

struct pl_checkpoints;

/**
 * Opens a directory for checkpoints. Rank 0 creates it. Its first save removes incomplete files of a killed run:
 * programs that only load may run beside the one that saves. `optimizer` may be NULL. Errors: PL_INVALID if `plan` is
 * not sealed.
 */
enum pl_status pl_checkpoints_open(struct pl_plan *plan, struct pl_optimizer *optimizer,
                                   const struct pl_checkpoints_options *options,
                                   struct pl_checkpoints **ret_checkpoints, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copies everything and writes the copy in the background; ranks other than 0 return at once. Waits if the previous
 * checkpoint is still being written.
 *
 * Errors  on rank 0 those of writing the previous checkpoint; then this one is not written. PL_INVALID: `extra_bytes`
 *         is too large.
 */
enum pl_status pl_checkpoints_save(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores a copy of everything in the job's kept memory; loading takes the newest copy. Call it once a step, after
 * pl_checkpoints_save(), whose copy also counts as a kept one. Returns at once on ranks other than 0, in a job that is
 * not started again after a failure (PACELINE_MAX_RESTARTS), and while no copy is due. With the setting keep_steps a
 * copy is due that many steps after the last one. Otherwise it is due after 100 times the duration of the last copy, so
 * copies cost at most 1 % of the time. Memory: two copies; saving uses one of them. If memory is short, one warning
 * says so, and only files are used.
 *
 * Errors  PL_INVALID: `extra_bytes` is too large, or the job's kept memory is open already. Errors of
 *         pl_checkpoints_flush().
 */
enum pl_status pl_checkpoints_keep(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Whether pl_checkpoints_keep() would copy after step `step`: a costly state need be made only then. */
bool pl_checkpoints_keep_is_due(struct pl_checkpoints *checkpoints, uint64_t step);

/** Waits until the last checkpoint is on disk. */
enum pl_status pl_checkpoints_flush(struct pl_checkpoints *checkpoints, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Loads the newest complete checkpoint, a file or the kept copy, into plan and optimizer of every rank. If there is
 * none, `*ret_found` is false and nothing has changed. A checkpoint that is cut, corrupt or of another model or
 * optimizer is skipped with a note, and an older one is tried. Rank 0 sends a message to the waiting ranks before it
 * reads each tensor: the setting timeout_s must allow for reading the largest one.
 *
 * Collective  yes.
 * Errors      rank 0's, on all ranks: PL_SYSTEM and PL_MEMORY if a checkpoint cannot be read but may be good (an I/O
 *             error, no permission, too many open files). An older one is not loaded then, because training since then
 *             would be lost. PL_MISMATCH, with the difference, if none fits and at least one is of another model or
 *             optimizer, unless the setting checkpoint_ignore is on. Errors of pl_checkpoints_flush().
 */
enum pl_status pl_checkpoints_load(struct pl_checkpoints *checkpoints, bool *ret_found,
                                   struct pl_checkpoint_state *ret_state, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for the writer, and closes. Errors of the last write are lost without pl_checkpoints_flush(). NULL is fine. */
void pl_checkpoints_close(struct pl_checkpoints *checkpoints);

/* The files of a checkpoint without a plan, for bindings whose programs have other tensors and states. */

struct pl_tensor; /* see runtime/safetensors.h */

/** Returns the CRC-32C of the data of `tensors` [count], in their order, for the state of a checkpoint. */
uint32_t pl_checkpoint_checksum(const struct pl_tensor *tensors, size_t count);

/**
 * Writes the two files of a checkpoint: tensors [count], then `state`, a JSON text, with its checksum. Then removes all
 * checkpoints up to `step` but the `keep` newest.
 *
 * Errors  PL_INVALID and PL_LIMIT, before anything is written: `state` is not JSON, has more than 64 MiB, 1,000,000
 *         values or 127 levels; those of pl_safetensors_write().
 */
enum pl_status pl_checkpoint_write(const char *directory, uint64_t step, unsigned keep, const struct pl_tensor *tensors,
                                   size_t count, const char *state, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the state of a checkpoint, in compact form; the caller frees it. The caller reads the tensors with
 * pl_safetensors_open() and compares them with the checksum in the state.
 *
 * Errors  PL_CORRUPT with the reason; PL_NOT_FOUND, PL_SYSTEM or PL_MEMORY if it cannot be read.
 */
enum pl_status pl_checkpoint_read_state(const char *directory, uint64_t step, char **ret_state,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Lists the steps that have a JSON file in the directory `path`, newest first. The caller frees `*ret_steps`. With
 * `clean` it also removes incomplete checkpoints.
 */
enum pl_status pl_checkpoint_steps(const char *path, bool clean, uint64_t **ret_steps, size_t *ret_count,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
