/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA: the functions that count and open devices report that CUDA is missing. The other functions
 * exist only for the linker: without a device they cannot be called. */
#include "device/choose.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

static enum pl_status none(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_UNSUPPORTED, "no GPU is used: this program was built without CUDA");
}

void pl_device_list_read(struct pl_device_list *ret_device_list)
{
    struct pl_error error;

    memset(ret_device_list, 0, sizeof(*ret_device_list));
    ret_device_list->status = (int32_t)none(&error);
    memcpy(ret_device_list->reason, error.cause, sizeof(ret_device_list->reason) - 1);
}

enum pl_status pl_device_count(int *ret_count, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_open(int ordinal, struct pl_device **ret_device, struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_close(struct pl_device *device)
{
}

const struct pl_device_info *pl_device_info(const struct pl_device *device)
{
    return NULL;
}

enum pl_status pl_device_failure(const struct pl_device *device, struct pl_error *reterr)
{
    return PL_OK;
}

enum pl_status pl_device_enter(struct pl_device *device, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_free_bytes(struct pl_device *device, uint64_t *ret_bytes, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_alloc(struct pl_device *device, uint64_t bytes, void **ret_memory, struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_release(struct pl_device *device, void *memory)
{
}

enum pl_status pl_device_alloc_pinned(struct pl_device *device, uint64_t bytes, void **ret_memory,
                                      struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_release_pinned(struct pl_device *device, void *memory)
{
}

enum pl_status pl_device_pin(struct pl_device *device, void *memory, uint64_t bytes, struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_unpin(struct pl_device *device, void *memory)
{
}

bool pl_device_owns(struct pl_device *device, const void *memory)
{
    return false;
}

enum pl_status pl_device_copy(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                              struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_copy_now(struct pl_device *device, void *to, const void *from, uint64_t bytes, void *stream,
                                  int64_t deadline_ns, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_fill(struct pl_device *device, void *memory, int byte, uint64_t bytes, void *stream,
                              struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_new(struct pl_device *device, void **ret_stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_new_urgent(struct pl_device *device, void **ret_stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_refuse_captured(struct pl_device *device, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_record(struct pl_device *device, void *event, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_wait_outside(struct pl_device *device, void *stream, void *event,
                                             struct pl_error *reterr)
{
    return none(reterr);
}

int pl_device_pass_captures(struct pl_device *device)
{
    return 0;
}

void pl_device_heed_captures(struct pl_device *device, int heeded)
{
}

void pl_device_stream_free(struct pl_device *device, void *stream)
{
}

enum pl_status pl_device_event_new(struct pl_device *device, bool timed, void **ret_event, struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_event_free(struct pl_device *device, void *event)
{
}

enum pl_status pl_device_event_record(struct pl_device *device, void *event, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_wait(struct pl_device *device, void *stream, void *event, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_follow(struct pl_device *device, void *stream, void *other, void *event,
                                       struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_event_done(struct pl_device *device, void *event, bool *ret_done, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_event_ms(struct pl_device *device, void *from, void *to, double *ret_ms,
                                  struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_event_finish(struct pl_device *device, void *event, int64_t deadline_ns,
                                      struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_stream_finish(struct pl_device *device, void *stream, int64_t deadline_ns,
                                       struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_export(struct pl_device *device, void *memory, struct pl_device_handle *ret_handle,
                                struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_import(struct pl_device *device, const struct pl_device_handle *handle, void **ret_memory,
                                struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_unimport(struct pl_device *device, void *memory)
{
}

enum pl_status pl_device_load_kernels(struct pl_device *device, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_pieces_new(struct pl_device *device, const struct pl_device_piece *pieces, size_t count,
                                    struct pl_device_pieces **ret_pieces, struct pl_error *reterr)
{
    return none(reterr);
}

bool pl_device_is_built(void)
{
    return false;
}

bool pl_device_is_loadable(char reason[PL_DEVICE_REASON_BYTES])
{
    snprintf(reason, PL_DEVICE_REASON_BYTES, "this program was built without CUDA");
    return false;
}

enum pl_status pl_device_pieces_reserve(struct pl_device *device, size_t most, uint64_t most_elems,
                                        struct pl_device_pieces **ret_pieces, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_pieces_fill(struct pl_device_pieces *pieces, const struct pl_device_piece *list, size_t count,
                                     void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

void pl_device_pieces_free(struct pl_device_pieces *pieces)
{
}

enum pl_status pl_device_pack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, void *flat,
                              enum pl_dtype flat_dtype, double factor, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_unpack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, const void *flat,
                                enum pl_dtype flat_dtype, double factor, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_scale(struct pl_device *device, void *to, enum pl_dtype to_dtype, const void *from,
                               enum pl_dtype from_dtype, uint64_t count_elems, double factor, void *stream,
                               struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_reduce(struct pl_device *device, void *dest, const void *const *source, int sources,
                                uint64_t count_elems, enum pl_dtype dtype, enum pl_op op, uint32_t divisor, double pre,
                                double post, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_squared_norm(struct pl_device *device, const void *values, enum pl_dtype dtype,
                                      uint64_t count_elems, void *scratch, double *ret_sum, void *stream,
                                      struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_optimize(struct pl_device *device, const struct pl_device_step *step, uint64_t count_elems,
                                  float *value, const void *gradient, enum pl_dtype gradient_dtype, float *slot0,
                                  float *slot1, void *stream, struct pl_error *reterr)
{
    return none(reterr);
}

enum pl_status pl_device_spin(struct pl_device *device, uint64_t ns, unsigned blocks, void *stream,
                              struct pl_error *reterr)
{
    return none(reterr);
}
