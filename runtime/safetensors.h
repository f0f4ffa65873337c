/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The safetensors file format: an 8-byte length, a JSON header with names, types, shapes and offsets, then the tensors'
 * bytes. Python's safetensors package reads these files.
 *
 * Source  the format description of huggingface/safetensors.
 * Test    tests/unit/runtime/checkpoint/test_safetensors.c
 */
#ifndef PL_RUNTIME_SAFETENSORS_H
#define PL_RUNTIME_SAFETENSORS_H

#include "base/dtype.h"
#include "base/status.h"

enum { PL_TENSOR_MAX_DIMS = 8 };

/**
 * A tensor in memory, or in an open file; then `data` is NULL. The struct does not own its strings and data. In a file,
 * `dtype` is PL_DTYPE_COUNT for a tensor that pl_safetensors_read() refuses: its dtype is unknown to Paceline, or it
 * has more than PL_TENSOR_MAX_DIMS dimensions, of which `shape` has the first ones.
 */
struct pl_tensor {
    const char *name;
    enum pl_dtype dtype;
    unsigned dims;
    uint64_t shape[PL_TENSOR_MAX_DIMS];
    const void *data;
    uint64_t bytes;
};

struct pl_plan;

struct pl_metadata {
    const char *name;
    const char *value;
};

/**
 * Writes all atomically (pl_file_write_atomic()).
 *
 * Errors  PL_INVALID, and nothing is written: two equal names, one that is not UTF-8 or is "__metadata__", an unknown
 *         dtype, too many dimensions, or bytes that do not fit dtype and shape; those of pl_file_write_atomic().
 */
enum pl_status pl_safetensors_write(const char *path, const struct pl_tensor *tensors, size_t tensor_count,
                                    const struct pl_metadata *metadata, size_t metadata_count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

struct pl_safetensors;

/**
 * Opens `path` and reads its header, which may name the tensors in any order. It lists also tensors that Paceline
 * cannot use; all others can be read.
 *
 * Errors  PL_NOT_FOUND; PL_CORRUPT: the header is damaged, or the file is shorter or longer than the header says;
 *         PL_LIMIT: the header exceeds the bounds of base/json/json.h (a tensor is about eight values); PL_SYSTEM: the
 *         file cannot be read.
 */
enum pl_status pl_safetensors_open(const char *path, struct pl_safetensors **ret_file,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_safetensors_close(struct pl_safetensors *file);

/** Returns the number of tensors. Their indices count from 0 in the order of their data in the file. */
size_t pl_safetensors_count(const struct pl_safetensors *file);
const struct pl_tensor *pl_safetensors_tensor(const struct pl_safetensors *file, size_t index);

/** Returns the dtype as the file has it, for example "F8_E4M3"; the string belongs to the file. */
const char *pl_safetensors_dtype(const struct pl_safetensors *file, size_t index);

/**
 * Reads the bytes of a tensor into `to` [pl_safetensors_tensor(file, index)->bytes].
 *
 * Errors  as pl_safetensors_open(); PL_UNSUPPORTED, naming tensor and dtype: Paceline cannot use the tensor.
 */
enum pl_status pl_safetensors_read(const struct pl_safetensors *file, size_t index, void *to,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the tensor called `name`, or NULL if there is none. */
const struct pl_tensor *pl_safetensors_find(const struct pl_safetensors *file, const char *name);
const char *pl_safetensors_metadata(const struct pl_safetensors *file, const char *name);

/**
 * Writes this rank's values of all tensors, in the order of registration, and `metadata` to `path`, atomically; creates
 * a missing directory. Not collective: call it on one rank, because all have the same values after a step.
 *
 * Errors  PL_INVALID before the seal, or if the directory's path is not a directory; those of pl_safetensors_write().
 */
enum pl_status pl_plan_file_write(const struct pl_plan *plan, const char *path, const struct pl_metadata *metadata,
                                  size_t metadata_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
