/* SPDX-License-Identifier: Apache-2.0 */
/** The names of a checkpoint's files, and the steps that a directory has. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H
#define PL_RUNTIME_CHECKPOINT_CHECKPOINT_NAMES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { PL_CHECKPOINT_NAME_BYTES = 64 };

/** Prints a name: "checkpoint-000000000123.json" for step 123 and the suffix "json". */
void pl_checkpoint_name(char name[PL_CHECKPOINT_NAME_BYTES], uint64_t step, const char *suffix);

/**
 * Lists the steps that have a JSON file in the directory `path`, newest first. The caller frees `*ret_steps`. With
 * `clean` it also removes checkpoints that are half written or half removed.
 */
enum pl_status pl_checkpoint_steps(const char *path, bool clean, uint64_t **ret_steps, size_t *ret_count,
                                   struct pl_error *reterr) PL_MUST_CHECK;

#endif
