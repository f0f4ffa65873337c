/* SPDX-License-Identifier: Apache-2.0 */
/* Launches the kernels, and checks that the arguments meet their requirements. */
#include "device/kernel.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "device/device_private.h"
#include "device/kernel_list.h"
#include "device/kernel_private.h"
#include "device/load_cuda.h"

#include <stdlib.h>

/* Largest first dimension of a grid. If there is more work, the kernels run several rounds. */
enum { MOST_BLOCKS = INT32_MAX };

/* How many bytes of each buffer a block reduces in one round. */
enum { REDUCE_BYTES = 2 * PL_THREADS * 16 };

extern const char pl_kernel_image[]; /* output of nvcc, see kernel_embed.S */

struct pl_kernels {
    CUmodule module;
    CUfunction functions[PL_KERNEL_COUNT];
};

struct pl_device_pieces {
    struct pl_device *device;
    struct pl_chunk *chunks; /* the list, in device memory */
    struct pl_chunk *pinned; /* pinned memory in which the list is filled */
    uint64_t room_chunks;
    uint64_t chunk_count;
    uintptr_t addresses; /* bitwise OR of all tensors' addresses, which shows their alignment */
};

static const char *const kernel_names[PL_KERNEL_COUNT] = {
#define PL_KERNEL_NAME(name, args, call) [PL_KERNEL_##name] = "pl_" #name,
    PL_DEVICE_KERNEL_LIST(PL_KERNEL_NAME)
#undef PL_KERNEL_NAME
};

/* ---- loading and launching ---- */

static enum pl_status load_kernels(struct pl_device *device, struct pl_kernels *kernels, struct pl_error *reterr)
{
    CUresult result = device->cuda.cuModuleLoadData(&kernels->module, pl_kernel_image);

    if (result != CUDA_SUCCESS) {
        enum pl_status status = pl_device_cuda_raise(&device->cuda, device, result, reterr, "cannot load the kernels");

        pl_error_context(reterr, "they were built for %s; the device's architecture is sm_%d%d", PL_GPU_ARCHS,
                         device->info.compute_major, device->info.compute_minor);
        return status;
    }
    for (unsigned i = 0; i < PL_KERNEL_COUNT; i++) {
        PL_CUDA_TRY(device, cuModuleGetFunction(&kernels->functions[i], kernels->module, kernel_names[i]), reterr,
                    "cannot find the kernel %s", kernel_names[i]);
    }
    return PL_OK;
}

static struct pl_kernels *loaded_kernels(struct pl_device *device)
{
    struct pl_kernels *kernels;

    pthread_mutex_lock(&device->lock);
    kernels = device->synced.kernels;
    pthread_mutex_unlock(&device->lock);
    return kernels;
}

static enum pl_status load_once(struct pl_device *device, struct pl_error *reterr)
{
    struct pl_kernels *made;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&made, 1, sizeof(*made), reterr));
    status = load_kernels(device, made, reterr);
    if (status != PL_OK) {
        if (made->module) {
            PL_CUDA_LET(device, cuModuleUnload(made->module), "unloading kernels");
        }
        free(made);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    device->synced.kernels = made;
    pthread_mutex_unlock(&device->lock);
    return PL_OK;
}

/*
 * Returns the kernels. The first thread loads all of them, and other threads wait: a second copy would have to be
 * unloaded, and that waits for all work on the device, which may wait for other ranks.
 */
static enum pl_status find_kernels(struct pl_device *device, struct pl_kernels **ret_kernels, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    *ret_kernels = loaded_kernels(device);
    if (*ret_kernels) {
        return PL_OK;
    }
    pthread_mutex_lock(&device->loading);
    if (!loaded_kernels(device)) {
        status = load_once(device, reterr);
    }
    pthread_mutex_unlock(&device->loading);
    *ret_kernels = loaded_kernels(device);
    return status;
}

enum pl_status pl_device_load_kernels(struct pl_device *device, struct pl_error *reterr)
{
    struct pl_kernels *kernels;

    PL_TRY(pl_device_enter(device, reterr));
    return find_kernels(device, &kernels, reterr);
}

void pl_device_kernels_free(struct pl_device *device, bool is_late)
{
    if (device->synced.kernels) {
        if (!is_late) {
            PL_CUDA_LET(device, cuModuleUnload(device->synced.kernels->module), "unloading kernels");
        }
        free(device->synced.kernels);
        device->synced.kernels = NULL;
    }
}

static enum pl_status launch(struct pl_device *device, enum pl_device_kernel kernel, uint64_t blocks, void *args,
                             void *stream, struct pl_error *reterr)
{
    struct pl_kernels *kernels;
    void *params[] = {args};

    PL_TRY(pl_device_enter(device, reterr));
    PL_TRY(find_kernels(device, &kernels, reterr));
    PL_CUDA_TRY(
        device,
        cuLaunchKernel(kernels->functions[kernel], (unsigned)blocks, 1, 1, PL_THREADS, 1, 1, 0, stream, params, NULL),
        reterr, "cannot start the kernel %s", kernel_names[kernel]);
    return PL_OK;
}

/* One block per part. Blocks are started in order, so the parts in progress are close together in memory. If there are
 * only as many blocks as run at once, each on parts far apart, AdamW over 256 MiB takes 7 % longer on an H100. */
static uint64_t blocks_for(uint64_t parts)
{
    return pl_number_min(parts, MOST_BLOCKS);
}

static bool aligned(const void *memory, size_t bytes)
{
    return (uintptr_t)memory % bytes == 0;
}

/* ---- moving ---- */

static uint64_t count_chunks(const struct pl_device_piece *pieces, size_t count)
{
    uint64_t chunks = 0;

    for (size_t p = 0; p < count; p++) {
        chunks += pl_number_divide_up(pieces[p].count_elems, PL_CHUNK_ELEMS);
    }
    return chunks;
}

static void fill_chunks(const struct pl_device_piece *pieces, size_t count, struct pl_chunk *chunks)
{
    for (size_t p = 0; p < count; p++) {
        uint64_t left = pieces[p].count_elems;

        for (uint64_t at = 0; left > 0; at += PL_CHUNK_ELEMS) {
            uint64_t take = left < PL_CHUNK_ELEMS ? left : PL_CHUNK_ELEMS;

            *chunks++ = (struct pl_chunk){.tensor = (uintptr_t)pieces[p].tensor,
                                          .tensor_elem = at,
                                          .flat_elem = pieces[p].offset_elems + at,
                                          .count = take};
            left -= take;
        }
    }
}

static enum pl_status make_room(struct pl_device *device, uint64_t room_chunks, struct pl_device_pieces **ret_pieces,
                                struct pl_error *reterr)
{
    struct pl_device_pieces *made;
    enum pl_status status;
    uint64_t bytes;
    void *memory = NULL;

    PL_TRY(pl_memory_alloc(&made, 1, sizeof(*made), reterr));
    made->device = device;
    made->room_chunks = room_chunks;
    bytes = room_chunks * sizeof(*made->chunks);
    status = pl_device_alloc(device, bytes, &memory, reterr);
    made->chunks = memory;
    if (status == PL_OK) {
        memory = NULL;
        status = pl_device_alloc_pinned(device, bytes, &memory, reterr);
        made->pinned = memory;
    }
    if (status != PL_OK) {
        pl_device_pieces_free(made);
        return status;
    }
    *ret_pieces = made;
    return PL_OK;
}

enum pl_status pl_device_pieces_reserve(struct pl_device *device, size_t most, uint64_t most_elems,
                                        struct pl_device_pieces **ret_pieces, struct pl_error *reterr)
{
    return make_room(device, most + most_elems / PL_CHUNK_ELEMS, ret_pieces, reterr);
}

enum pl_status pl_device_pieces_fill(struct pl_device_pieces *pieces, const struct pl_device_piece *list, size_t count,
                                     void *stream, struct pl_error *reterr)
{
    uint64_t chunk_count = count_chunks(list, count);

    if (chunk_count > pieces->room_chunks) {
        return pl_error_set(reterr, PL_LIMIT, "the list of %zu tensors needs %llu parts, and there is room for %llu",
                            count, (unsigned long long)chunk_count, (unsigned long long)pieces->room_chunks);
    }
    pieces->chunk_count = chunk_count;
    pieces->addresses = 0;
    for (size_t p = 0; p < count; p++) {
        pieces->addresses |= list[p].count_elems > 0 ? (uintptr_t)list[p].tensor : 0;
    }
    fill_chunks(list, count, pieces->pinned);
    return pl_device_copy(pieces->device, pieces->chunks, pieces->pinned, chunk_count * sizeof(*pieces->chunks), stream,
                          reterr);
}

enum pl_status pl_device_pieces_new(struct pl_device *device, const struct pl_device_piece *pieces, size_t count,
                                    struct pl_device_pieces **ret_pieces, struct pl_error *reterr)
{
    struct pl_device_pieces *made = NULL;
    enum pl_status status = make_room(device, count_chunks(pieces, count), &made, reterr);

    if (status == PL_OK) {
        status = pl_device_pieces_fill(made, pieces, count, device->service, reterr);
    }
    if (status == PL_OK) {
        status =
            pl_device_stream_finish(device, device->service, pl_deadline_after_ns(device->service_timeout_ns), reterr);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "making a list of %zu tensors", count);
        pl_device_pieces_free(made);
        return status;
    }
    *ret_pieces = made;
    return PL_OK;
}

void pl_device_pieces_free(struct pl_device_pieces *pieces)
{
    if (pieces) {
        pl_device_release_pinned(pieces->device, pieces->pinned);
        pl_device_release(pieces->device, pieces->chunks);
        free(pieces);
    }
}

/* Chooses the kernel for the two types, and checks the alignment of the addresses. */
static enum pl_status choose_move(enum pl_dtype to, enum pl_dtype from, double factor, uintptr_t to_address,
                                  uintptr_t from_address, enum pl_device_kernel *ret_kernel, struct pl_error *reterr)
{
    static const struct {
        enum pl_dtype to;
        enum pl_dtype from;
        enum pl_device_kernel kernel;
    } moves[] = {
        {PL_FLOAT32, PL_FLOAT32, PL_KERNEL_move_float32_float32},
        {PL_FLOAT32, PL_FLOAT16, PL_KERNEL_move_float32_float16},
        {PL_FLOAT32, PL_BFLOAT16, PL_KERNEL_move_float32_bfloat16},
        {PL_FLOAT16, PL_FLOAT32, PL_KERNEL_move_float16_float32},
        {PL_FLOAT16, PL_FLOAT16, PL_KERNEL_move_float16_float16},
        {PL_FLOAT16, PL_BFLOAT16, PL_KERNEL_move_float16_bfloat16},
        {PL_BFLOAT16, PL_FLOAT32, PL_KERNEL_move_bfloat16_float32},
        {PL_BFLOAT16, PL_FLOAT16, PL_KERNEL_move_bfloat16_float16},
        {PL_BFLOAT16, PL_BFLOAT16, PL_KERNEL_move_bfloat16_bfloat16},
        {PL_FLOAT64, PL_FLOAT64, PL_KERNEL_move_float64_float64},
    };

    if (to == from && factor == 1.0) {
        *ret_kernel = PL_KERNEL_move_bytes;
        return PL_OK;
    }
    if (!pl_dtype_is_float(to) && factor != 1.0) {
        return pl_error_set(reterr, PL_INVALID, "%s cannot be scaled by %g on the device: only floating types are",
                            pl_dtype_text(to), factor);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(moves); i++) {
        if (moves[i].to == to && moves[i].from == from) {
            if (to_address % pl_dtype_bytes(to) || from_address % pl_dtype_bytes(from)) {
                return pl_error_set(reterr, PL_INVALID, "a tensor of %s or %s is not aligned to its elements",
                                    pl_dtype_text(to), pl_dtype_text(from));
            }
            *ret_kernel = moves[i].kernel;
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_UNSUPPORTED, "no kernel casts %s to %s", pl_dtype_text(from), pl_dtype_text(to));
}

static enum pl_status move_pieces(const struct pl_device_pieces *pieces, bool unpack, void *to, enum pl_dtype to_dtype,
                                  const void *from, enum pl_dtype from_dtype, double factor, void *stream,
                                  struct pl_error *reterr)
{
    struct pl_move_args args = {.chunks = pieces->chunks,
                                .chunk_count = pieces->chunk_count,
                                .to = to,
                                .from = from,
                                .factor = factor,
                                .elem_bytes = (uint32_t)pl_dtype_bytes(to_dtype),
                                .unpack = unpack};
    enum pl_device_kernel kernel = PL_KERNEL_move_bytes;

    PL_TRY(choose_move(to_dtype, from_dtype, factor, unpack ? pieces->addresses : (uintptr_t)to,
                       unpack ? (uintptr_t)from : pieces->addresses, &kernel, reterr));
    return args.chunk_count > 0 ? launch(pieces->device, kernel, blocks_for(args.chunk_count), &args, stream, reterr)
                                : PL_OK;
}

enum pl_status pl_device_pack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, void *flat,
                              enum pl_dtype flat_dtype, double factor, void *stream, struct pl_error *reterr)
{
    return move_pieces(pieces, false, flat, flat_dtype, NULL, tensor_dtype, factor, stream, reterr);
}

enum pl_status pl_device_unpack(const struct pl_device_pieces *pieces, enum pl_dtype tensor_dtype, const void *flat,
                                enum pl_dtype flat_dtype, double factor, void *stream, struct pl_error *reterr)
{
    return move_pieces(pieces, true, NULL, tensor_dtype, flat, flat_dtype, factor, stream, reterr);
}

enum pl_status pl_device_scale(struct pl_device *device, void *to, enum pl_dtype to_dtype, const void *from,
                               enum pl_dtype from_dtype, uint64_t count_elems, double factor, void *stream,
                               struct pl_error *reterr)
{
    struct pl_move_args args = {.chunk_count = pl_number_divide_up(count_elems, PL_CHUNK_ELEMS),
                                .count = count_elems,
                                .to = to,
                                .from = from,
                                .factor = factor};
    enum pl_device_kernel kernel = PL_KERNEL_move_bytes;

    PL_TRY(choose_move(to_dtype, from_dtype, factor, (uintptr_t)to, (uintptr_t)from, &kernel, reterr));
    if (count_elems == 0 || (kernel == PL_KERNEL_move_bytes && to == from)) {
        return PL_OK;
    }
    if (kernel == PL_KERNEL_move_bytes) {
        return pl_device_copy(device, to, from, count_elems * pl_dtype_bytes(to_dtype), stream, reterr);
    }
    return launch(device, kernel, blocks_for(args.chunk_count), &args, stream, reterr);
}

/* ---- reducing ---- */

static bool is_integer(enum pl_dtype dtype)
{
    return !pl_dtype_is_float(dtype) && dtype != PL_BOOL;
}

enum pl_status pl_device_reduce(struct pl_device *device, void *dest, const void *const *source, int sources,
                                uint64_t count_elems, enum pl_dtype dtype, enum pl_op op, uint32_t divisor, double pre,
                                double post, void *stream, struct pl_error *reterr)
{
    static const enum pl_device_kernel kernels[PL_DTYPE_COUNT] = {
#define PL_KERNEL_OF(id, name) [id] = PL_KERNEL_reduce_##name
        PL_KERNEL_OF(PL_FLOAT32, float32),   PL_KERNEL_OF(PL_FLOAT64, float64), PL_KERNEL_OF(PL_FLOAT16, float16),
        PL_KERNEL_OF(PL_BFLOAT16, bfloat16), PL_KERNEL_OF(PL_INT8, int8),       PL_KERNEL_OF(PL_INT16, int16),
        PL_KERNEL_OF(PL_INT32, int32),       PL_KERNEL_OF(PL_INT64, int64),     PL_KERNEL_OF(PL_UINT8, uint8),
        PL_KERNEL_OF(PL_BOOL, bool),
#undef PL_KERNEL_OF
    };
    struct pl_reduce_args args = {.dest = dest,
                                  .count = count_elems,
                                  .pre = pre,
                                  .divisor = op == PL_SUM || op == PL_AVERAGE ? divisor : 1,
                                  .post = post,
                                  .sources = (uint32_t)sources,
                                  .op = op == PL_AVERAGE ? PL_SUM : op,
                                  .dtype = dtype,
                                  .vector = aligned(dest, 16)};
    bool suits;
    uint64_t parts;
    enum pl_device_kernel kernel;

    if (sources < 1 || sources > PL_DEVICE_MAX_SOURCES || (unsigned)dtype >= PL_DTYPE_COUNT) {
        return pl_error_set(reterr, PL_INVALID, "cannot reduce %d buffers of %s: 1 to %d are reduced at once", sources,
                            pl_dtype_text(dtype), PL_DEVICE_MAX_SOURCES);
    }
    if (op >= PL_ADASUM || (dtype == PL_BOOL && op == PL_AVERAGE)) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "no kernel reduces %s by %s", pl_dtype_text(dtype), pl_op_text(op));
    }
    suits = aligned(dest, pl_dtype_bytes(dtype));
    for (int k = 0; k < sources; k++) {
        args.source[k] = source[k];
        args.vector &= aligned(source[k], 16);
        suits = suits && aligned(source[k], pl_dtype_bytes(dtype));
    }
    if (!suits) {
        return pl_error_set(reterr, PL_INVALID, "a buffer of %s is not aligned to its elements", pl_dtype_text(dtype));
    }
    kernel = is_integer(dtype) && (args.divisor != 1.0 || pre != 1.0 || post != 1.0) ? PL_KERNEL_reduce_integers
                                                                                     : kernels[dtype];
    parts = pl_number_divide_up(count_elems * pl_dtype_bytes(dtype), REDUCE_BYTES);
    return count_elems > 0 ? launch(device, kernel, blocks_for(parts), &args, stream, reterr) : PL_OK;
}

/* ---- training steps ---- */

enum pl_status pl_device_squared_norm(struct pl_device *device, const void *values, enum pl_dtype dtype,
                                      uint64_t count_elems, void *scratch, double *ret_sum, void *stream,
                                      struct pl_error *reterr)
{
    struct pl_norm_args args = {
        .values = values, .count = count_elems, .partial = scratch, .vector = aligned(values, 16)};
    struct pl_norm_end_args end = {.partial = scratch, .sum = ret_sum};
    enum pl_device_kernel kernel = dtype == PL_FLOAT32    ? PL_KERNEL_norm_float32
                                   : dtype == PL_FLOAT64  ? PL_KERNEL_norm_float64
                                   : dtype == PL_FLOAT16  ? PL_KERNEL_norm_float16
                                   : dtype == PL_BFLOAT16 ? PL_KERNEL_norm_bfloat16
                                                          : PL_KERNEL_COUNT;

    if (kernel == PL_KERNEL_COUNT || !aligned(values, pl_dtype_bytes(dtype))) {
        return pl_error_set(reterr, PL_INVALID,
                            "no norm of %s values at %p: they must be of a floating type and aligned to it",
                            pl_dtype_text(dtype), values);
    }
    /* The number of parts, and the elements of each part, depend only on the count. */
    end.count =
        (uint32_t)(count_elems / PL_CHUNK_ELEMS < PL_NORM_BLOCKS ? count_elems / PL_CHUNK_ELEMS + 1 : PL_NORM_BLOCKS);
    PL_TRY(launch(device, kernel, end.count, &args, stream, reterr));
    return launch(device, PL_KERNEL_norm_end, 1, &end, stream, reterr);
}

enum pl_status pl_device_optimize(struct pl_device *device, const struct pl_device_step *step, uint64_t count_elems,
                                  float *value, const void *gradient, enum pl_dtype gradient_dtype, float *slot0,
                                  float *slot1, void *stream, struct pl_error *reterr)
{
    static const enum pl_device_kernel kernels[][3] = {
        [PL_DEVICE_SGD] = {PL_KERNEL_sgd_float32, PL_KERNEL_sgd_float16, PL_KERNEL_sgd_bfloat16},
        [PL_DEVICE_MOMENTUM] = {PL_KERNEL_momentum_float32, PL_KERNEL_momentum_float16, PL_KERNEL_momentum_bfloat16},
        [PL_DEVICE_NESTEROV] = {PL_KERNEL_nesterov_float32, PL_KERNEL_nesterov_float16, PL_KERNEL_nesterov_bfloat16},
        [PL_DEVICE_ADAGRAD] = {PL_KERNEL_adagrad_float32, PL_KERNEL_adagrad_float16, PL_KERNEL_adagrad_bfloat16},
        [PL_DEVICE_ADAM] = {PL_KERNEL_adam_float32, PL_KERNEL_adam_float16, PL_KERNEL_adam_bfloat16},
    };
    struct pl_step_args args = {
        .step = *step, .count = count_elems, .value = value, .gradient = gradient, .slot0 = slot0, .slot1 = slot1};
    size_t column = gradient_dtype == PL_FLOAT32 ? 0 : gradient_dtype == PL_FLOAT16 ? 1 : 2;

    if (gradient_dtype != PL_FLOAT32 && gradient_dtype != PL_FLOAT16 && gradient_dtype != PL_BFLOAT16) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "no optimizer takes gradients of %s",
                            pl_dtype_text(gradient_dtype));
    }
    if ((unsigned)step->kind >= PL_ARRAY_ITEMS(kernels) || (step->kind != PL_DEVICE_SGD && !slot0) ||
        (step->kind == PL_DEVICE_ADAM && !slot1)) {
        return pl_error_set(reterr, PL_INVALID, "an optimizer's step lacks its state, or is of no known kind (%d)",
                            (int)step->kind);
    }
    args.vector = aligned(value, 16) && aligned(gradient, 4 * pl_dtype_bytes(gradient_dtype)) && aligned(slot0, 16) &&
                  aligned(slot1, 16);
    return count_elems > 0 ? launch(device, kernels[step->kind][column],
                                    blocks_for(pl_number_divide_up(count_elems, PL_THREADS * 4)), &args, stream, reterr)
                           : PL_OK;
}

enum pl_status pl_device_spin(struct pl_device *device, uint64_t ns, unsigned blocks, void *stream,
                              struct pl_error *reterr)
{
    struct pl_spin_args args = {.ns = ns};

    return blocks > 0 ? launch(device, PL_KERNEL_spin, blocks, &args, stream, reterr) : PL_OK;
}
