/* SPDX-License-Identifier: Apache-2.0 */
/** The small JSON file of a checkpoint. Internal to runtime/. */
#ifndef PL_RUNTIME_CHECKPOINT_CHECKPOINT_FORMAT_H
#define PL_RUNTIME_CHECKPOINT_CHECKPOINT_FORMAT_H

#include "base/text.h"
#include "runtime/checkpoint.h"
#include "runtime/optimizer_state.h"

struct pl_checkpoint_record {
    struct pl_checkpoint_state state;
    struct pl_optimizer_state optimizer;
    uint32_t data_crc32c; /* of the data of all tensors, in file order */
};

/** Appends {"crc32c": N, "state": {...}}. */
void pl_checkpoint_record_print(const struct pl_checkpoint_record *record, struct pl_text *text);

/**
 * Errors: PL_CORRUPT with the reason if the file differs from what pl_checkpoint_record_print() writes; PL_NOT_FOUND,
 * PL_SYSTEM or PL_MEMORY if it cannot be read.
 */
enum pl_status pl_checkpoint_record_read(const char *path, struct pl_checkpoint_record *ret_record,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
