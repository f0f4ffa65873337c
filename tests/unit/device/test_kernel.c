/* SPDX-License-Identifier: Apache-2.0 */
/* Covers device/kernel_cuda.c, device/kernel_code.h, device/kernel_move.h, device/kernel_reduce.h,
 * device/kernel_step.h, device/kernel_list.h. */
/* The kernels through their public functions: the same code, compiled for the host, and run by the fake driver. */
#include "base/memory.h"
#include "collectives/reduce/kernel.h"
#include "device/device_private.h"
#include "device/kernel_list.h"
#include "device/kernel_private.h"
#include "device/step.h"
#include "tests/unit/device/gpu.h"

#include <math.h>
#include <stdio.h>

static uint64_t state = 88172645463325252ULL;

static uint64_t any(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static float any_float(void)
{
    return (float)((double)(any() % 2000001) / 1e6 - 1.0);
}

/* Values of a type, none of them NaN: floats in -1 .. 1 with some large and subnormal ones, integers of all bits. */
static void fill(enum pl_dtype dtype, void *memory, size_t count)
{
    const struct pl_kernel *kernel = pl_kernel_named("plain");

    for (size_t i = 0; i < count; i++) {
        float value = i % 97 == 5 ? 6e4F * any_float() : i % 101 == 7 ? 1e-7F * any_float() : any_float();
        uint64_t bits = any();

        switch (dtype) {
        case PL_FLOAT32:
            ((float *)memory)[i] = value * (i % 97 == 5 ? 1.5F : 1.0F); /* too large for a float16 */
            break;
        case PL_FLOAT64:
            ((double *)memory)[i] = (double)value * 1.0000000001;
            break;
        case PL_FLOAT16:
        case PL_BFLOAT16:
            pl_kernel_narrow(kernel, dtype, (uint16_t *)memory + i, &value, 1);
            break;
        default:
            memcpy((char *)memory + i * pl_dtype_bytes(dtype), &bits, pl_dtype_bytes(dtype));
        }
    }
}

/* ---- moving ---- */

static float to_float(enum pl_dtype dtype, const void *at)
{
    float value;

    if (dtype == PL_FLOAT32) {
        memcpy(&value, at, sizeof(value));
    } else {
        uint16_t half;

        memcpy(&half, at, sizeof(half));
        pl_kernel_widen(pl_kernel_named("plain"), dtype, &value, &half, 1);
    }
    return value;
}

static void from_float(enum pl_dtype dtype, void *at, float value)
{
    if (dtype == PL_FLOAT32) {
        memcpy(at, &value, sizeof(value));
    } else {
        uint16_t half;

        pl_kernel_narrow(pl_kernel_named("plain"), dtype, &half, &value, 1);
        memcpy(at, &half, sizeof(half));
    }
}

/* The reference: one element at a time. */
static void convert(enum pl_dtype to_dtype, char *to, enum pl_dtype from_dtype, const char *from, uint64_t count,
                    double factor)
{
    for (uint64_t i = 0; i < count; i++) {
        if (to_dtype == from_dtype && factor == 1.0) {
            memcpy(to + i * pl_dtype_bytes(to_dtype), from + i * pl_dtype_bytes(to_dtype), pl_dtype_bytes(to_dtype));
        } else if (to_dtype == PL_FLOAT64) {
            double value;

            memcpy(&value, from + i * 8, 8);
            value *= factor;
            memcpy(to + i * 8, &value, 8);
        } else {
            from_float(to_dtype, to + i * pl_dtype_bytes(to_dtype),
                       to_float(from_dtype, from + i * pl_dtype_bytes(from_dtype)) * (float)factor);
        }
    }
}

struct list {
    size_t count;
    uint64_t elems[200];
    uint64_t gap; /* elements between neighbours in the flat buffer */
    uint64_t first;
};

/* Packs `list` with the kernels and with the reference, then unpacks it again; the bytes between the tensors must not
 * change. */
static void check_moves(struct pl_device *device, const struct list *list, enum pl_dtype tensor_dtype,
                        enum pl_dtype flat_dtype, double factor, size_t shift)
{
    struct pl_device_piece pieces[200];
    struct pl_device_pieces *table = NULL;
    size_t tensor_bytes = pl_dtype_bytes(tensor_dtype);
    size_t flat_bytes = pl_dtype_bytes(flat_dtype);
    uint64_t tensor_elems = 0;
    uint64_t flat_elems = list->first;
    void *tensors_base;
    void *flat_base;
    char *tensors;
    char *flat;

    for (size_t t = 0; t < list->count; t++) {
        tensor_elems += list->elems[t] + 3;
        flat_elems += list->elems[t] + list->gap;
    }
    char *host_tensors = calloc(tensor_elems, tensor_bytes);
    char *host_flat = malloc(flat_elems * flat_bytes);
    char *got = malloc(flat_elems * flat_bytes + tensor_elems * tensor_bytes);

    fill(tensor_dtype, host_tensors, tensor_elems);
    memset(host_flat, 0x3c, flat_elems * flat_bytes);
    tensors = on_gpu(device, host_tensors, tensor_elems * tensor_bytes, shift, &tensors_base);
    flat = on_gpu(device, host_flat, flat_elems * flat_bytes, shift / 3 / flat_bytes * flat_bytes, &flat_base);
    for (uint64_t t = 0, at = 0, offset = list->first; t < list->count; t++) {
        pieces[t] = (struct pl_device_piece){
            .tensor = tensors + at * tensor_bytes, .offset_elems = offset, .count_elems = list->elems[t]};
        convert(flat_dtype, host_flat + offset * flat_bytes, tensor_dtype, host_tensors + at * tensor_bytes,
                list->elems[t], factor);
        at += list->elems[t] + 3;
        offset += list->elems[t] + list->gap;
    }
    ck_ok(pl_device_pieces_new, device, pieces, list->count, &table);
    ck_ok(pl_device_pack, table, tensor_dtype, flat, flat_dtype, factor, NULL);
    from_gpu(device, got, flat, flat_elems * flat_bytes);
    ck_assert_msg(memcmp(got, host_flat, flat_elems * flat_bytes) == 0, "packing %s as %s, factor %g, shift %zu",
                  pl_dtype_text(tensor_dtype), pl_dtype_text(flat_dtype), factor, shift);

    for (uint64_t t = 0, at = 0, offset = list->first; t < list->count; t++) {
        convert(tensor_dtype, host_tensors + at * tensor_bytes, flat_dtype, host_flat + offset * flat_bytes,
                list->elems[t], factor);
        at += list->elems[t] + 3;
        offset += list->elems[t] + list->gap;
    }
    ck_ok(pl_device_unpack, table, tensor_dtype, flat, flat_dtype, factor, NULL);
    from_gpu(device, got, tensors, tensor_elems * tensor_bytes);
    ck_assert_msg(memcmp(got, host_tensors, tensor_elems * tensor_bytes) == 0,
                  "unpacking %s as %s, factor %g, shift %zu", pl_dtype_text(flat_dtype), pl_dtype_text(tensor_dtype),
                  factor, shift);
    pl_device_pieces_free(table);
    pl_device_release(device, tensors_base);
    pl_device_release(device, flat_base);
    free(host_tensors);
    free(host_flat);
    free(got);
}

static const struct list odd_list = {
    .count = 12, .elems = {0, 1, 2, 3, 7, 0, 64, 4095, 4096, 4097, 20000, 5}, .gap = 1, .first = 1};
static const struct list even_list = {.count = 5, .elems = {4096, 64, 8192, 12288, 16}, .gap = 0, .first = 0};

TEST(tensors_of_every_size_and_alignment_are_packed_and_unpacked_byte_by_byte)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");

    for (unsigned dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
        for (size_t shift = 0; shift < 18; shift++) {
            check_moves(device, &odd_list, (enum pl_dtype)dtype, (enum pl_dtype)dtype, 1.0, shift);
        }
        check_moves(device, &even_list, (enum pl_dtype)dtype, (enum pl_dtype)dtype, 1.0, 0);
    }
}

TEST(floats_are_scaled_and_rounded_once_on_the_way)
{
    static const enum pl_dtype types[] = {PL_FLOAT32, PL_FLOAT16, PL_BFLOAT16};
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");

    for (size_t t = 0; t < 3; t++) {
        for (size_t f = 0; f < 3; f++) {
            size_t bytes = pl_dtype_bytes(types[t]);

            for (size_t shift = 0; shift < 8; shift++) {
                check_moves(device, &odd_list, types[t], types[f], 0.3, shift * bytes);
            }
            check_moves(device, &even_list, types[t], types[f], 1.0 / 3.0, 0);
            check_moves(device, &even_list, types[t], types[f], 1.0, 0);
        }
    }
    check_moves(device, &odd_list, PL_FLOAT64, PL_FLOAT64, 1.0 / 3.0, 8);
}

/* The tensors of ResNet-50: weights, then the two of a batch normalisation, for the stem and 16 blocks of three
 * convolutions; then the classifier. */
static size_t resnet50(uint64_t *elems)
{
    static const unsigned blocks[] = {3, 4, 6, 3};
    size_t count = 0;
    uint64_t in = 64;

    elems[count++] = 3 * 64 * 49;
    elems[count++] = 64;
    elems[count++] = 64;
    for (unsigned stage = 0; stage < 4; stage++) {
        uint64_t width = 64U << stage;

        for (unsigned b = 0; b < blocks[stage]; b++) {
            const uint64_t weights[] = {in * width, width * width * 9, width * width * 4, b == 0 ? in * width * 4 : 0};

            for (unsigned w = 0; w < 4 && weights[w]; w++) {
                elems[count++] = weights[w];
                elems[count++] = w < 2 ? width : width * 4;
                elems[count++] = w < 2 ? width : width * 4;
            }
            in = width * 4;
        }
    }
    elems[count++] = 2048 * 1000;
    elems[count++] = 1000;
    return count;
}

TEST(resnet50s_161_tensors_are_packed_in_one_launch)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("launch_error=3,mps=16");
    struct list list = {.gap = 0, .first = 0};
    uint64_t elems = 0;
    void *base;

    list.count = resnet50(list.elems);
    ck_assert_uint_eq(list.count, 161);
    for (size_t t = 0; t < list.count; t++) {
        elems += list.elems[t];
    }
    ck_assert_uint_eq(elems, 25557032);
    for (size_t t = 0; t < list.count; t++) {
        list.elems[t] = list.elems[t] / 16 + 1; /* fast on a host, and not aligned any more */
    }
    check_moves(device, &list, PL_FLOAT32, PL_BFLOAT16, 0.125, 0); /* two launches: the third one fails */
    ck_ok(pl_device_failure, device);
    if (strncmp(pl_device_info(device)->name, "Fake", 4) == 0) { /* a real GPU takes no orders */
        float *value = on_gpu(device, NULL, 4096, 0, &base);

        ck_ok(pl_device_scale, device, value, PL_FLOAT32, value, PL_FLOAT32, 16, 2.0, NULL);
        ck_fails(PL_LIBRARY, "", pl_device_stream_finish, device, NULL, PL_DEADLINE_NEVER);
        pl_device_release(device, base);
    }
}

TEST(int64_above_two_to_the_53_survives)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    const int64_t values[] = {(INT64_C(1) << 53) + 1, INT64_MAX, INT64_MIN + 1, -((INT64_C(1) << 53) + 1), 3};
    const struct pl_device_piece unaligned = {.offset_elems = 3, .count_elems = 5};
    struct pl_device_piece piece = unaligned;
    struct pl_device_pieces *pieces = NULL;
    const void *sources[2];
    int64_t got[8];
    void *base;
    void *flat_base;
    char *tensor = on_gpu(device, values, sizeof(values), 8, &base);
    char *flat = on_gpu(device, NULL, 64, 0, &flat_base);

    piece.tensor = tensor;
    ck_ok(pl_device_pieces_new, device, &piece, 1, &pieces);
    ck_ok(pl_device_pack, pieces, PL_INT64, flat, PL_INT64, 1.0, NULL);
    from_gpu(device, got, flat, sizeof(got));
    ck_assert_mem_eq(got + 3, values, sizeof(values));
    ck_assert_int_eq(got[0], 0);

    sources[0] = tensor;
    sources[1] = tensor;
    ck_ok(pl_device_reduce, device, flat, sources, 2, 5, PL_INT64, PL_AVERAGE, 2, 1.0, 1.0, NULL);
    from_gpu(device, got, flat, sizeof(got));
    ck_assert_mem_eq(got, values, sizeof(values)); /* (2^63 - 1) * 2 / 2 is exact in 128 bits */
    pl_device_pieces_free(pieces);
    pl_device_release(device, base);
    pl_device_release(device, flat_base);
}

TEST(indexes_go_beyond_two_to_the_32)
{
    struct pl_chunk chunk = {
        .tensor = 0x100000, .tensor_elem = UINT64_C(5) << 32, .flat_elem = UINT64_C(9) << 33, .count = 77};
    struct pl_move_args args = {.count = (UINT64_C(1) << 34) + 100, .to = (char *)0x1000, .from = (const char *)0x2000};
    const char *from;
    char *to;

    ck_assert_uint_eq(chunk_at(&args, UINT64_C(1) << 22, 4, 2, &to, &from), 100);
    ck_assert_uint_eq((uintptr_t)to, 0x1000 + (UINT64_C(1) << 36));
    ck_assert_uint_eq((uintptr_t)from, 0x2000 + (UINT64_C(1) << 35));
    args.count += PL_CHUNK_ELEMS;
    ck_assert_uint_eq(chunk_at(&args, UINT64_C(1) << 22, 8, 8, &to, &from), PL_CHUNK_ELEMS);
    args.chunks = &chunk;
    ck_assert_uint_eq(chunk_at(&args, 0, 4, 8, &to, &from), 77);
    ck_assert_uint_eq((uintptr_t)to, 0x1000 + (UINT64_C(9) << 35));
    ck_assert_uint_eq((uintptr_t)from, 0x100000 + (UINT64_C(5) << 35));
    args.unpack = 1;
    ck_assert_uint_eq(chunk_at(&args, 0, 4, 8, &to, &from), 77);
    ck_assert_uint_eq((uintptr_t)to, 0x100000 + (UINT64_C(5) << 34));
    ck_assert_uint_eq((uintptr_t)from, 0x2000 + (UINT64_C(9) << 36));
}

TEST(scaling_works_in_place_and_between_types)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    enum { COUNT = 4096 * 3 + 77 };
    float *values = malloc(COUNT * sizeof(float));
    float *got = malloc(COUNT * sizeof(float));
    uint16_t *halves = malloc(COUNT * sizeof(uint16_t));
    void *base;
    void *half_base;

    fill(PL_FLOAT32, values, COUNT);
    float *on = on_gpu(device, values, COUNT * sizeof(float), 4, &base);
    uint16_t *half = on_gpu(device, NULL, COUNT * sizeof(uint16_t), 2, &half_base);
    ck_ok(pl_device_scale, device, half, PL_FLOAT16, on, PL_FLOAT32, COUNT, 0.5, NULL);
    ck_ok(pl_device_scale, device, on, PL_FLOAT32, on, PL_FLOAT32, COUNT, 0.7, NULL);
    from_gpu(device, got, on, COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_mem_eq(&got[i], &(float){values[i] * 0.7F}, 4);
    }
    from_gpu(device, halves, half, COUNT * sizeof(uint16_t));
    for (size_t i = 0; i < COUNT; i++) {
        uint16_t want;

        from_float(PL_FLOAT16, &want, values[i] * 0.5F);
        ck_assert_uint_eq(halves[i], want);
    }
    ck_fails(PL_INVALID, "", pl_device_scale, device, on, PL_INT32, on, PL_INT32, 5, 2.0, NULL);
    ck_fails_as(PL_UNSUPPORTED, "no kernel casts int32 to float32", pl_device_scale, device, on, PL_FLOAT32, on,
                PL_INT32, 5, 1.0, NULL);
    ck_fails(PL_INVALID, "", pl_device_scale, device, (char *)on + 1, PL_FLOAT32, on, PL_FLOAT32, 5, 2.0, NULL);
    pl_device_release(device, base);
    pl_device_release(device, half_base);
    free(values);
    free(got);
    free(halves);
}

/* ---- reducing ---- */

enum { MOST = 4096 * 2 + 513 };

static void check_reduce(struct pl_device *device, enum pl_dtype dtype, enum pl_op op, int sources, size_t count,
                         size_t shift, double pre, double post)
{
    struct pl_reduction reduction = {
        .dtype = dtype, .op = op, .divisor = op == PL_AVERAGE ? sources : 1, .prescale = pre, .postscale = post};
    static char host[16][MOST * 8];
    static char want[MOST * 8];
    static char got[MOST * 8];
    size_t bytes = count * pl_dtype_bytes(dtype);
    const void *on_host[16];
    const void *on[16];
    void *bases[16];
    void *dest = want;

    for (int k = 0; k < sources; k++) {
        fill(dtype, host[k], count);
        on_host[k] = host[k];
        on[k] = on_gpu(device, host[k], bytes, shift * pl_dtype_bytes(dtype), &bases[k]);
    }
    pl_kernel_reduce(pl_kernel_named("plain"), &reduction, &dest, 1, on_host, (uint32_t)sources, count);
    ck_ok(pl_device_reduce, device, (void *)(uintptr_t)on[sources - 1], on, sources, count, dtype, op,
          (uint32_t)reduction.divisor, pre, post, NULL);
    from_gpu(device, got, on[sources - 1], bytes);
    ck_assert_msg(memcmp(got, want, bytes) == 0, "%s of %d times %zu %s, shift %zu, %g, %g", pl_op_text(op), sources,
                  count, pl_dtype_text(dtype), shift, pre, post);
    for (int k = 0; k < sources; k++) {
        pl_device_release(device, bases[k]);
    }
}

TEST(reductions_give_the_hosts_bits)
{
    static const size_t counts[] = {1, 15, 4096, MOST};
    static const int sources[] = {1, 2, 3, 16};
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");

    for (unsigned dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
        for (unsigned op = 0; op < PL_ADASUM; op++) {
            for (unsigned i = 0; i < 4; i++) {
                if (dtype == PL_BOOL && op == PL_AVERAGE) {
                    continue;
                }
                check_reduce(device, (enum pl_dtype)dtype, (enum pl_op)op, sources[i], counts[3 - i], 0, 1.0, 1.0);
                check_reduce(device, (enum pl_dtype)dtype, (enum pl_op)op, sources[i], counts[i], 1, 1.0, 1.0);
                if (dtype != PL_BOOL) {
                    check_reduce(device, (enum pl_dtype)dtype, (enum pl_op)op, sources[i], 600, i % 2, 0.3, 1.7);
                }
            }
        }
    }
}

TEST(minimum_keeps_a_nan_and_what_has_no_kernel_is_refused)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    const float first[] = {NAN, 1.0F, -0.0F, 0.0F};
    const float second[] = {2.0F, NAN, 0.0F, -0.0F};
    const void *sources[17];
    float got[4];
    void *bases[2];

    sources[0] = on_gpu(device, first, sizeof(first), 0, &bases[0]);
    sources[1] = on_gpu(device, second, sizeof(second), 0, &bases[1]);
    ck_ok(pl_device_reduce, device, bases[0], sources, 2, 4, PL_FLOAT32, PL_MIN, 1, 1.0, 1.0, NULL);
    from_gpu(device, got, bases[0], sizeof(got));
    ck_assert(isnan(got[0]) && isnan(got[1]) && signbit(got[2]) && signbit(got[3]));
    ck_fails(PL_UNSUPPORTED, "", pl_device_reduce, device, bases[0], sources, 2, 4, PL_BOOL, PL_AVERAGE, 1, 1.0, 1.0,
             NULL);
    ck_fails(PL_UNSUPPORTED, "", pl_device_reduce, device, bases[0], sources, 2, 4, PL_FLOAT32, PL_ADASUM, 1, 1.0, 1.0,
             NULL);
    ck_fails(PL_INVALID, "", pl_device_reduce, device, bases[0], sources, 17, 4, PL_FLOAT32, PL_SUM, 1, 1.0, 1.0, NULL);
    ck_fails(PL_INVALID, "", pl_device_reduce, device, bases[0], sources, 0, 4, PL_FLOAT32, PL_SUM, 1, 1.0, 1.0, NULL);
    pl_device_release(device, bases[0]);
    pl_device_release(device, bases[1]);
}

/* ---- training steps ---- */

static double norm_of(struct pl_device *device, enum pl_dtype dtype, const void *values, size_t count, size_t shift)
{
    double sum;
    void *base;
    void *scratch;
    const void *on = on_gpu(device, values, count * pl_dtype_bytes(dtype), shift * pl_dtype_bytes(dtype), &base);
    double *result = on_gpu(device, NULL, PL_DEVICE_NORM_BYTES + 8, 0, &scratch);

    ck_ok(pl_device_squared_norm, device, on, dtype, count, result + 1, result, NULL);
    from_gpu(device, &sum, result, sizeof(sum));
    pl_device_release(device, base);
    pl_device_release(device, scratch);
    return sum;
}

TEST(squared_norms_are_right_and_the_same_wherever_the_values_lie)
{
    static const enum pl_dtype types[] = {PL_FLOAT32, PL_FLOAT64, PL_FLOAT16, PL_BFLOAT16};
    /* the last: more than one round of all blocks */
    static const size_t counts[] = {0, 1, 7, 4095, 4096, 100003, 4300001};
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks,mps=2");
    char *values = malloc(4300001 * sizeof(double));

    for (size_t t = 0; t < 4; t++) {
        for (size_t c = 0; c < PL_ARRAY_ITEMS(counts) - (t > 0); c++) {
            long double want = 0.0L;
            double got;

            fill(types[t], values, counts[c]);
            for (size_t i = 0; i < counts[c]; i++) {
                long double value = types[t] == PL_FLOAT64
                                        ? (long double)((double *)(void *)values)[i]
                                        : (long double)to_float(types[t], values + i * pl_dtype_bytes(types[t]));

                want += value * value;
            }
            got = norm_of(device, types[t], values, counts[c], 0);
            ck_assert_msg(fabs(got - (double)want) <= 1e-13 * (double)want, "%s %zu: %.17g, not %.17Lg",
                          pl_dtype_text(types[t]), counts[c], got, want);
            if (counts[c] < 1000000) { /* the same bits from an address that is not aligned for vectors */
                ck_assert_mem_eq(&got, &(double){norm_of(device, types[t], values, counts[c], 1)}, sizeof(got));
            }
        }
    }
    ((float *)(void *)values)[4711] = INFINITY;
    ck_assert(isinf(norm_of(device, PL_FLOAT32, values, 5000, 0)));
    ((float *)(void *)values)[4711] = NAN;
    ck_assert(isnan(norm_of(device, PL_FLOAT32, values, 5000, 0)));
    free(values);
}

static void step_on_host(const struct pl_device_step *step, float factor, size_t count, float *value,
                         const float *gradient, float *slot0, float *slot1)
{
    struct pl_step_factors f = step->factors;

    f.gradient = factor;
    for (size_t i = 0; i < count; i++) {
        switch (step->kind) {
        case PL_DEVICE_SGD:
            pl_step_sgd(&f, &value[i], gradient[i]);
            break;
        case PL_DEVICE_MOMENTUM:
            pl_step_momentum(&f, &value[i], gradient[i], &slot0[i]);
            break;
        case PL_DEVICE_NESTEROV:
            pl_step_nesterov(&f, &value[i], gradient[i], &slot0[i]);
            break;
        case PL_DEVICE_ADAGRAD:
            pl_step_adagrad(&f, &value[i], gradient[i], &slot0[i]);
            break;
        case PL_DEVICE_ADAM:
            pl_step_adam(&f, &value[i], gradient[i], &slot0[i], &slot1[i]);
            break;
        }
    }
}

enum { STEP_ELEMS = 10007 };

/* One step on the device from the same state as on the host gives the same bits. `factor` is the factor of the gradient
 * that results. */
static void check_step(struct pl_device *device, const struct pl_device_step *step, enum pl_dtype dtype, size_t shift,
                       float factor)
{
    static float host[4][STEP_ELEMS];
    static float got[STEP_ELEMS];
    static char raw[STEP_ELEMS * 4];
    void *bases[4];
    float *on[4];

    for (int a = 0; a < 4; a++) {
        fill(PL_FLOAT32, host[a], STEP_ELEMS);
        for (size_t i = 0; a >= (step->kind == PL_DEVICE_ADAGRAD ? 2 : 3) && i < STEP_ELEMS; i++) {
            host[a][i] = fabsf(host[a][i]); /* a sum of squares, for a variance */
        }
    }
    fill(dtype, raw, STEP_ELEMS);
    for (size_t i = 0; i < STEP_ELEMS; i++) {
        host[1][i] = to_float(dtype, raw + i * pl_dtype_bytes(dtype));
    }
    for (int a = 0; a < 4; a++) {
        on[a] = on_gpu(device, a == 1 ? (void *)raw : host[a], STEP_ELEMS * (a == 1 ? pl_dtype_bytes(dtype) : 4), shift,
                       &bases[a]);
    }
    ck_ok(pl_device_optimize, device, step, STEP_ELEMS, on[0], on[1], dtype, on[2], on[3], NULL);
    if (!isnan(factor)) {
        step_on_host(step, factor, STEP_ELEMS, host[0], host[1], host[2], host[3]);
    }
    for (int a = 0; a < 4; a++) {
        if (a != 1) {
            from_gpu(device, got, on[a], sizeof(got));
            ck_assert_msg(memcmp(got, host[a], sizeof(got)) == 0, "kind %d, gradients of %s, array %d, shift %zu",
                          (int)step->kind, pl_dtype_text(dtype), a, shift);
        }
    }
    for (int a = 0; a < 4; a++) {
        pl_device_release(device, bases[a]);
    }
}

static struct pl_device_step adam_step(void)
{
    return (struct pl_device_step){
        .kind = PL_DEVICE_ADAM,
        .factors = {.gradient = 0.25F,
                    .rate = 0.01F,
                    .decay = 0.001F,
                    .shrink = 0.0001F,
                    .momentum = 0.9F,
                    .beta1 = 0.9F,
                    .beta2 = 0.999F,
                    .epsilon = 1e-8F,
                    .correct1 = 1.7F,
                    .correct2 = 30.0F},
    };
}

TEST(optimizers_take_the_hosts_steps_bit_for_bit)
{
    static const enum pl_dtype types[] = {PL_FLOAT32, PL_FLOAT16, PL_BFLOAT16};
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    struct pl_device_step step = adam_step();

    for (int kind = PL_DEVICE_SGD; kind <= PL_DEVICE_ADAM; kind++) {
        step.kind = (enum pl_device_step_kind)kind;
        for (size_t t = 0; t < 3; t++) {
            check_step(device, &step, types[t], 0, 0.25F);
            check_step(device, &step, types[t], 4, 0.25F);
        }
    }
}

TEST(clipping_and_skipping_are_decided_on_the_device)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("leaks");
    struct pl_device_step step = adam_step();
    double squares = 1600.0; /* norm 40, unscaled 10 */
    void *pinned;

    ck_ok(pl_device_alloc_pinned, device, 8, &pinned);
    step.squares = pinned;
    memcpy(pinned, &squares, 8);
    step.clip_norm = 2.5;
    check_step(device, &step, PL_FLOAT32, 0, 0.0625F);
    step.clip_norm = 11.0;
    check_step(device, &step, PL_FLOAT32, 0, 0.25F);
    step.clip_norm = 0.0;
    check_step(device, &step, PL_FLOAT32, 0, 0.25F);
    squares = HUGE_VAL;
    memcpy(pinned, &squares, 8);
    step.skip_not_finite = true;
    check_step(device, &step, PL_FLOAT32, 0, NAN);
    squares = (double)NAN;
    memcpy(pinned, &squares, 8);
    check_step(device, &step, PL_BFLOAT16, 0, NAN);
    pl_device_release_pinned(device, pinned);
}

TEST(an_adam_step_is_the_papers)
{
    struct pl_device_step step = adam_step();
    float value = 0.5F;
    float mean = 0.1F;
    float variance = 0.2F;
    const float gradient = 0.3F;
    double g = 0.3 * 0.25 + 0.001 * 0.5;
    double m = 0.9 * 0.1 + 0.1 * g;
    double v = 0.999 * 0.2 + 0.001 * g * g;

    step_on_host(&step, step.factors.gradient, 1, &value, &gradient, &mean, &variance);
    ck_assert_double_eq_tol((double)value, 0.5 - 0.0001 * 0.5 - 0.01 * (m * 1.7) / (sqrt(v * 30.0) + 1e-8), 1e-7);
    ck_assert_double_eq_tol((double)mean, m, 1e-7);
    ck_assert_double_eq_tol((double)variance, v, 1e-7);
}

TEST(a_spin_holds_its_stream_for_its_time)
{
    AUTO_DEVICE struct pl_device *device = open_gpu("devices=1,delay_us=20");
    void *stream = NULL, *before = NULL, *after = NULL;
    double took_ms = 0.0;

    ck_ok(pl_device_stream_new, device, &stream);
    ck_ok(pl_device_event_new, device, true, &before);
    ck_ok(pl_device_event_new, device, true, &after);
    ck_ok(pl_device_event_record, device, before, stream);
    ck_ok(pl_device_spin, device, 3 * PL_NS_PER_MS, 2, stream);
    ck_ok(pl_device_event_record, device, after, stream);
    finish(device, stream);
    ck_ok(pl_device_event_ms, device, before, after, &took_ms);
    ck_assert_double_ge(took_ms, 2.99); /* the clock of a device has steps */
    pl_device_event_free(device, before);
    pl_device_event_free(device, after);
    pl_device_stream_free(device, stream);
}

UNIT_MAIN("device/kernel")
