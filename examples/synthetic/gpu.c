/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated backward pass on a GPU. */
#include "examples/synthetic/gpu.h"

#include <stdlib.h>
#include <string.h>

#define REST_NS (60 * PL_NS_PER_S)

struct gpu {
    struct pl_device *device;
    void *stream;
    size_t count;                     /* number of tensors */
    float *pinned;                    /* [2 * count], for transfers to or from `ends` */
    float *ends;                      /* [2 * count] in device memory */
    struct pl_device_pieces **tensor; /* [count], both ends of one tensor each */
    struct pl_device_pieces *all;     /* both ends of all tensors, in `ends` */
};

enum pl_status gpu_new(struct pl_device *device, struct gpu **ret_gpu, struct pl_error *reterr)
{
    struct gpu *gpu = pl_memory_new(1, sizeof(*gpu), reterr);
    enum pl_status status;

    if (!gpu) {
        return PL_MEMORY;
    }
    gpu->device = device;
    status = pl_device_stream_new(device, &gpu->stream, reterr);
    if (status != PL_OK) {
        free(gpu);
        return status;
    }
    *ret_gpu = gpu;
    return PL_OK;
}

void gpu_free(struct gpu *gpu)
{
    if (!gpu) {
        return;
    }
    for (size_t i = 0; gpu->tensor && i < gpu->count; i++) {
        pl_device_pieces_free(gpu->tensor[i]);
    }
    pl_device_pieces_free(gpu->all);
    pl_device_release_pinned(gpu->device, gpu->pinned);
    pl_device_release(gpu->device, gpu->ends);
    pl_device_stream_free(gpu->device, gpu->stream);
    free(gpu->tensor);
    free(gpu);
}

void *gpu_stream(const struct gpu *gpu)
{
    return gpu->stream;
}

enum pl_status gpu_bind(struct gpu *gpu, const struct pl_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_device_piece *pieces = NULL;
    void *pinned, *ends;

    gpu->count = pl_plan_tensor_count(plan);
    gpu->tensor = pl_memory_new(gpu->count, sizeof(struct pl_device_pieces *), reterr);
    pieces = pl_memory_new(2 * gpu->count, sizeof(*pieces), reterr);
    if (!gpu->tensor || !pieces) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < gpu->count; i++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, i);

        pieces[2 * i] = (struct pl_device_piece){.tensor = tensor->gradient, .offset_elems = 2 * i, .count_elems = 1};
        pieces[2 * i + 1] = (struct pl_device_piece){
            .tensor = tensor->gradient + tensor->count_elems - 1, .offset_elems = 2 * i + 1, .count_elems = 1};
        PL_TRY(pl_device_pieces_new(gpu->device, &pieces[2 * i], 2, &gpu->tensor[i], reterr));
    }
    PL_TRY(pl_device_pieces_new(gpu->device, pieces, 2 * gpu->count, &gpu->all, reterr));
    PL_TRY(pl_device_alloc_pinned(gpu->device, 2 * gpu->count * sizeof(float), &pinned, reterr));
    gpu->pinned = pinned;
    PL_TRY(pl_device_alloc(gpu->device, 2 * gpu->count * sizeof(float), &ends, reterr));
    gpu->ends = ends;
    return PL_OK;
}

enum pl_status gpu_set_ends(struct gpu *gpu, const float *ends, struct pl_error *reterr)
{
    memcpy(gpu->pinned, ends, 2 * gpu->count * sizeof(float));
    return pl_device_copy(gpu->device, gpu->ends, gpu->pinned, 2 * gpu->count * sizeof(float), gpu->stream, reterr);
}

enum pl_status gpu_work(struct gpu *gpu, int64_t ns, bool busy, struct pl_error *reterr)
{
    unsigned blocks = busy ? (unsigned)pl_device_info(gpu->device)->multiprocessors : 1;

    return ns > 0 ? pl_device_spin(gpu->device, (uint64_t)ns, blocks, gpu->stream, reterr) : PL_OK;
}

enum pl_status gpu_mark_all(struct gpu *gpu, struct pl_error *reterr)
{
    return pl_device_unpack(gpu->all, PL_FLOAT32, gpu->ends, PL_FLOAT32, 1.0, gpu->stream, reterr);
}

enum pl_status gpu_mark(struct gpu *gpu, size_t index, struct pl_error *reterr)
{
    return pl_device_unpack(gpu->tensor[index], PL_FLOAT32, gpu->ends, PL_FLOAT32, 1.0, gpu->stream, reterr);
}

enum pl_status gpu_get_ends(struct gpu *gpu, float *ret_ends, struct pl_error *reterr)
{
    PL_TRY(pl_device_pack(gpu->all, PL_FLOAT32, gpu->ends, PL_FLOAT32, 1.0, gpu->stream, reterr));
    PL_TRY(pl_device_copy(gpu->device, gpu->pinned, gpu->ends, 2 * gpu->count * sizeof(float), gpu->stream, reterr));
    PL_TRY(pl_device_stream_finish(gpu->device, gpu->stream, pl_deadline_after_ns(REST_NS), reterr));
    memcpy(ret_ends, gpu->pinned, 2 * gpu->count * sizeof(float));
    return PL_OK;
}
