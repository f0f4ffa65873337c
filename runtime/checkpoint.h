/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Checkpoints of a plan, its optimizer and the position in the data, from which a run goes on bit for bit (with the
 * same number of ranks and the same order of samples; between hosts with the setting `reproducible`).
 *
 * Rank 0 writes, atomically and in a thread of its own, from a copy: training goes on meanwhile. A checkpoint is
 * checkpoint-STEP.safetensors with values and optimizer arrays, and checkpoint-STEP.json with everything else and the
 * checksum of both, written last: without it the other one does not count. Both open in Python.
 *
 * In a job that may be started again after a failure (PACELINE_MAX_RESTARTS), a copy in memory that outlives the ranks
 * (runtime/kept.h) lets it go on from a later step than the newest file's: pl_checkpoints_keep().
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
 * checkpointconfig.json, else PL_CHECKPOINT_DIRECTORY. SAGEMAKER_BASE_DIR does not change the latter. The caller frees
 * the result.
 */
enum pl_status pl_checkpoints_directory(char **ret_directory, struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_CHECKPOINT_EXTRA_BYTES = 256 };

/** The part of a checkpoint that is not arrays. Rank 0's is saved, and loading gives it to all ranks. */
struct pl_checkpoint_state {
    uint64_t step;
    struct pl_sampler_state sampler;
    uint64_t world_size; /* set by saving */
    uint64_t extra_bytes;
    unsigned char extra[PL_CHECKPOINT_EXTRA_BYTES]; /* of the program: counters, the key of a random stream */
};

/** Zero-initialise, then set the fields that differ from the defaults. */
struct pl_checkpoints_options {
    /* NULL: pl_checkpoints_directory() */
    const char *directory;
    /*
     * how many of the newest checkpoints stay, counted from the last written one; later steps belong to another run. 0:
     * 3
     */
    unsigned keep;
    /*
     * number of processes that train together, if the plan's world is not all of them (workers of parameter servers).
     * 0: the world's size
     */
    unsigned world_size;
    /* no directory and no files: pl_checkpoints_save() keeps as well, and without kept memory does nothing */
    bool memory_only;
    /* pl_checkpoints_keep() keeps after so many steps, and waits for the copy before. 0: the setting keep_steps */
    unsigned keep_steps;
    /* Called on rank 0 for every checkpoint that is passed over, with the reason. NULL: the library logs a warning. */
    void (*note)(void *context, const char *text);
    void *context;
};

struct pl_checkpoints;

/**
 * Opens a directory for checkpoints. Rank 0 creates it and removes what a killed run left half written. `optimizer` may
 * be NULL. Errors: PL_INVALID if `plan` is not sealed.
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

/**
 * Keep a copy of everything in the job's kept memory, of which loading takes the newest. Call it once a step, after
 * pl_checkpoints_save(), whose copy then counts. Returns at once on ranks other than 0, in a job that is not started
 * again after a failure (PACELINE_MAX_RESTARTS), and while no copy is due: with the setting keep_steps one is due that
 * many steps after the last, else after a hundred times as long as the last one took, so that keeping costs at most 1
 * %. Memory: two copies, of which saving uses one. If there is no room for them, a warning says so once, and files
 * serve.
 *
 * Errors  PL_INVALID: more extra bytes than there is room; another part of the job keeps already. Those of
 *         pl_checkpoints_flush().
 */
enum pl_status pl_checkpoints_keep(struct pl_checkpoints *checkpoints, const struct pl_checkpoint_state *state,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Whether pl_checkpoints_keep() would take a copy after step `step`: for a state whose making costs something. */
bool pl_checkpoints_keep_is_due(struct pl_checkpoints *checkpoints, uint64_t step);

/** Waits until the last checkpoint is on disk. */
enum pl_status pl_checkpoints_flush(struct pl_checkpoints *checkpoints, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Put the newest whole checkpoint, a file or the kept copy, into plan and optimizer of every rank. `*ret_found` false:
 * there is none, nothing was changed. What is cut, corrupt or of another model or optimizer is passed over with a note,
 * and an older one is tried. Rank 0 sends to the waiting ranks before each tensor that it reads: the setting timeout_s
 * has to be long enough for the largest.
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

/* The files of a checkpoint without a plan, for bindings whose programs have tensors and states of other kinds. */

struct pl_tensor; /* of runtime/safetensors.h */

/** Returns the CRC-32C of the data of `tensors` [count], in their order. A state keeps it. */
uint32_t pl_checkpoint_checksum(const struct pl_tensor *tensors, size_t count);

/**
 * Write the two files of a checkpoint: tensors [count], then `state`, a JSON text, with its checksum. Then all but the
 * `keep` newest up to `step` are removed.
 *
 * Errors  PL_INVALID and PL_LIMIT, before anything is written: `state` is not JSON, has more than 64 MiB, 1,000,000
 *         values or 127 levels; those of pl_safetensors_write().
 */
enum pl_status pl_checkpoint_write(const char *directory, uint64_t step, unsigned keep, const struct pl_tensor *tensors,
                                   size_t count, const char *state, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The state of a checkpoint, in compact form; the caller frees it. Its tensors are read by pl_safetensors_open() and
 * compared with the checksum in it.
 *
 * Errors  PL_CORRUPT with the reason; PL_NOT_FOUND, PL_SYSTEM or PL_MEMORY if it cannot be read.
 */
enum pl_status pl_checkpoint_read_state(const char *directory, uint64_t step, char **ret_state,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Lists the steps that have a JSON file in the directory `path`, newest first. The caller frees `*ret_steps`. With
 * `clean` it also removes checkpoints that are half written or half removed.
 */
enum pl_status pl_checkpoint_steps(const char *path, bool clean, uint64_t **ret_steps, size_t *ret_count,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
