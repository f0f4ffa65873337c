/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The safetensors file format: an 8-byte length, a JSON header with names, types, shapes and offsets, then the tensors'
 * bytes. What is written here opens in Python with the safetensors package.
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
 * A tensor in memory, or in an open file, where `data` is NULL; strings and data stay their owner's. In a file `dtype`
 * is PL_DTYPE_COUNT where pl_safetensors_read() refuses it: a dtype that Paceline has not, or more than
 * PL_TENSOR_MAX_DIMS dimensions, of which `shape` then has the first.
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

/** Write all atomically (pl_file_write_atomic()). Names must differ; one that is not UTF-8 is PL_INVALID. */
enum pl_status pl_safetensors_write(const char *path, const struct pl_tensor *tensors, size_t tensor_count,
                                    const struct pl_metadata *metadata, size_t metadata_count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

struct pl_safetensors;

/**
 * Open `path` and read its header, which may name the tensors in any order, and tensors that Paceline cannot use: all
 * are listed, and the others can be read.
 *
 * Errors  PL_NOT_FOUND; PL_CORRUPT when the header is damaged or the file is cut or longer than the header says;
 *         PL_LIMIT when the header is beyond the bounds of base/json/json.h (a tensor is about eight values);
 *         PL_SYSTEM when it cannot be read.
 */
enum pl_status pl_safetensors_open(const char *path, struct pl_safetensors **ret_file,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_safetensors_close(struct pl_safetensors *file);

/** Tensors are counted from 0 in the order of their places in the file. */
size_t pl_safetensors_count(const struct pl_safetensors *file);
const struct pl_tensor *pl_safetensors_tensor(const struct pl_safetensors *file, size_t index);

/** The dtype as the file has it, "F8_E4M3" for example; the file owns it. */
const char *pl_safetensors_dtype(const struct pl_safetensors *file, size_t index);

/**
 * The bytes of a tensor, to `to` [pl_safetensors_tensor(file, index)->bytes].
 *
 * Errors  as pl_safetensors_open(); PL_UNSUPPORTED, naming tensor and dtype, for one that Paceline cannot use.
 */
enum pl_status pl_safetensors_read(const struct pl_safetensors *file, size_t index, void *to,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** NULL when there is none of that name. */
const struct pl_tensor *pl_safetensors_find(const struct pl_safetensors *file, const char *name);
const char *pl_safetensors_metadata(const struct pl_safetensors *file, const char *name);

/**
 * Write this rank's values of all tensors, in the order of registration, and `metadata` to `path`, atomically; a
 * missing directory is made. Not collective: one rank is enough, since all have the same values after a step.
 *
 * Errors  PL_INVALID before the seal, or where the directory is something else; those of pl_safetensors_write().
 */
enum pl_status pl_plan_file_write(const struct pl_plan *plan, const char *path, const struct pl_metadata *metadata,
                                  size_t metadata_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
