/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The kernels. Each of these functions is one launch, for any number of tensors. All run on `stream` and return at
 * once.
 *
 * Exact     copies move bytes; integers are added in their own width. Results do not depend on the launch's geometry.
 * Errors    those of device.h; PL_UNSUPPORTED for a type or operation for which there is no kernel.
 * Test      tests/unit/device (the same code compiled for the host), tests/gpu.sh (on a device)
 */
#ifndef PL_DEVICE_KERNEL_H
#define PL_DEVICE_KERNEL_H

#include "base/dtype.h"
#include "device/device.h"

/**
 * One tensor of a gather or scatter: its `count_elems` elements are at `tensor`, and at `offset_elems` in the flat
 * buffer.
 */
struct pl_device_piece {
    void *tensor;
    uint64_t offset_elems;
    uint64_t count_elems;
};

/** A list of pieces in device memory, made once and used in every step. */
struct pl_device_pieces;

enum pl_status pl_device_pieces_new(struct pl_device *device, const struct pl_device_piece *pieces, size_t count,
                                    struct pl_device_pieces **ret_pieces, struct pl_error *reterr) PL_MUST_CHECK;
void pl_device_pieces_free(struct pl_device_pieces *pieces);

/**
 * Computes flat[offset + i] = (flat_dtype)(tensor[i] * factor) for all pieces, or the reverse. `factor` is only for
 * floating types and must be 1 for others. Equal types with factor 1 are copied byte by byte.
 */
enum pl_status pl_device_pack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, void *flat,
                              enum pl_dtype flat_dtype, double factor, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_device_unpack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, const void *flat,
                                enum pl_dtype flat_dtype, double factor, void *stream,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Computes to[i] = (to_dtype)(from[i] * factor). If the types are equal, `to` may be `from`. Half-width types are
 * rounded to nearest even.
 */
enum pl_status pl_device_scale(struct pl_device *device, void *to, enum pl_dtype to_dtype, const void *from,
                               enum pl_dtype from_dtype, uint64_t count_elems, double factor, void *stream,
                               struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_DEVICE_MAX_SOURCES = 16 };

/**
 * Keeps `blocks` blocks of threads busy for `ns` nanoseconds without accessing memory: it stands for a computation that
 * takes so long.
 */
enum pl_status pl_device_spin(struct pl_device *device, uint64_t ns, unsigned blocks, void *stream,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
