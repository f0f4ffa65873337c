/* SPDX-License-Identifier: Apache-2.0 */
/** The small JSON file of a checkpoint. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_CHECKPOINT_FORMAT_H
#define PL_RUNTIME_CHECKPOINT_CHECKPOINT_FORMAT_H

#include "base/status.h"
#include "base/text.h"
#include "runtime/checkpoint.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/plan.h"
#include "runtime/safetensors.h"

#include <stddef.h>
#include <stdint.h>

struct pl_checkpoint_record {
    struct pl_checkpoint_state state;
    struct pl_optimizer_state optimizer;
    uint32_t data_crc32c; /* checksum of the data of all tensors, in file order */
};

/** Appends the record as the `state` for pl_checkpoint_write(). */
void pl_checkpoint_record_print(const struct pl_checkpoint_record *record, struct pl_text *text);

/**
 * Reads the record of a JSON file. Errors: PL_CORRUPT with the reason if pl_checkpoint_write() cannot have written the
 * file; PL_NOT_FOUND, PL_SYSTEM or PL_MEMORY if it cannot be read.
 */
enum pl_status pl_checkpoint_record_read(const char *path, struct pl_checkpoint_record *ret_record,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/* The names of a checkpoint's files. */

enum { PL_CHECKPOINT_NAME_BYTES = 64 };

/** Prints a name: "checkpoint-000000000123.json" for step 123 and the suffix "json". */
void pl_checkpoint_name(char name[PL_CHECKPOINT_NAME_BYTES], uint64_t step, const char *suffix);

/** Sets `text` to the path of the file with that name in `directory`. */
enum pl_status pl_checkpoint_path(const char *directory, uint64_t step, const char *suffix, struct pl_text *text,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/* Comparing a file's tensors with a plan's; checkpoints use it too. */

/**
 * Returns PL_OK if the file at `path` holds exactly the tensors `wanted` [count], with equal names, types and shapes,
 * in their order. Otherwise PL_MISMATCH names the first difference.
 */
enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Describes the tensor `tensor` of `array`, which has the layout of the plan's values, as a struct pl_tensor called
 * `name`. Name and data still belong to their owners.
 */
struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array);

#endif
