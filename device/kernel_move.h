/* SPDX-License-Identifier: Apache-2.0 */
/** Kernels that move elements: pack, unpack, scale, cast and copy. Private to device/ and its tests. */
#ifndef PL_DEVICE_KERNEL_MOVE_H
#define PL_DEVICE_KERNEL_MOVE_H

#include "device/kernel_code.h"

/* The work of a block in one round. The host makes these once for a list of pieces. */
struct PL_RAW(16) pl_chunk {
    uint64_t tensor;      /* address of the tensor */
    uint64_t tensor_elem; /* first element in the tensor */
    uint64_t flat_elem;   /* first element in the flat buffer */
    uint64_t count;       /* 1 .. PL_CHUNK_ELEMS */
};

struct pl_move_args {
    /* NULL if there is one tensor of `count` elements, which the kernel divides into chunks */
    const struct pl_chunk *chunks;
    uint64_t chunk_count;
    uint64_t count;
    char *to; /* the flat buffer; if `chunks` is NULL, the tensor */
    const char *from;
    double factor;
    uint32_t elem_bytes; /* size of an element in both buffers, for the kernel that copies bytes */
    uint32_t unpack;
};

/* Stores the addresses of chunk `index`, and returns how many elements it has. */
PL_CODE uint32_t chunk_at(const struct pl_move_args *a, uint64_t index, uint32_t to_bytes, uint32_t from_bytes,
                          char **to, const char **from)
{
    if (a->chunks) {
        struct pl_chunk c = a->chunks[index];

        if (a->unpack) {
            *to = (char *)(uintptr_t)c.tensor + c.tensor_elem * to_bytes;
            *from = a->from + c.flat_elem * from_bytes;
        } else {
            *to = a->to + c.flat_elem * to_bytes;
            *from = (const char *)(uintptr_t)c.tensor + c.tensor_elem * from_bytes;
        }
        return (uint32_t)c.count;
    }
    *to = a->to + index * PL_CHUNK_ELEMS * to_bytes;
    *from = a->from + index * PL_CHUNK_ELEMS * from_bytes;
    return (uint32_t)(a->count - index * PL_CHUNK_ELEMS < PL_CHUNK_ELEMS ? a->count - index * PL_CHUNK_ELEMS
                                                                         : PL_CHUNK_ELEMS);
}

/* Returns how many elements precede the first one at which both addresses are aligned for groups, or `count` if there
 * is no such element. */
PL_CODE uint32_t head_elems(const char *to, uint32_t to_bytes, const char *from, uint32_t from_bytes, uint32_t group,
                            uint32_t count)
{
    uint32_t head = (uint32_t)(-(uintptr_t)to & (to_bytes * group - 1)) / to_bytes;

    return head < count && (((uintptr_t)from + head * from_bytes) & (from_bytes * group - 1)) == 0 ? head : count;
}

PL_CODE void move_floats(const enum pl_dtype to_dtype, const enum pl_dtype from_dtype, char *to, const char *from,
                         uint32_t count, float factor, uint32_t thread)
{
    const uint32_t to_bytes = bytes_of(to_dtype);
    const uint32_t from_bytes = bytes_of(from_dtype);
    const uint32_t group = 16 / (to_bytes > from_bytes ? to_bytes : from_bytes);
    const uint32_t rounds = PL_CHUNK_ELEMS / PL_THREADS / group;
    uint32_t head = head_elems(to, to_bytes, from, from_bytes, group, count);
    uint32_t groups = (count - head) / group;
    float value[PL_CHUNK_ELEMS / PL_THREADS];

    if (groups == PL_CHUNK_ELEMS / group) { /* a whole chunk: all loads are issued before the first store */
        PL_UNROLL for (uint32_t r = 0; r < rounds; r++)
        {
            load_floats(from_dtype, group, from + (r * PL_THREADS + thread) * group * from_bytes, value + r * group);
        }
        PL_UNROLL for (uint32_t i = 0; i < PL_CHUNK_ELEMS / PL_THREADS; i++)
        {
            value[i] *= factor;
        }
        PL_UNROLL for (uint32_t r = 0; r < rounds; r++)
        {
            store_floats(to_dtype, group, to + (r * PL_THREADS + thread) * group * to_bytes, value + r * group);
        }
        return;
    }
    for (uint32_t i = thread; i < head; i += PL_THREADS) {
        store_float(to_dtype, to + i * to_bytes, load_float(from_dtype, from + i * from_bytes) * factor);
    }
    for (uint32_t g = thread; g < groups; g += PL_THREADS) {
        load_floats(from_dtype, group, from + (head + g * group) * from_bytes, value);
        PL_UNROLL for (uint32_t i = 0; i < group; i++)
        {
            value[i] *= factor;
        }
        store_floats(to_dtype, group, to + (head + g * group) * to_bytes, value);
    }
    for (uint32_t i = head + groups * group + thread; i < count; i += PL_THREADS) {
        store_float(to_dtype, to + i * to_bytes, load_float(from_dtype, from + i * from_bytes) * factor);
    }
}

PL_CODE void code_move_floats(const enum pl_dtype to_dtype, const enum pl_dtype from_dtype,
                              const struct pl_move_args *a, uint32_t block, uint32_t blocks)
{
    for (uint64_t index = block; index < a->chunk_count; index += blocks) {
        char *to;
        const char *from;
        uint32_t count = chunk_at(a, index, bytes_of(to_dtype), bytes_of(from_dtype), &to, &from);

        to = PL_GLOBAL(char *, to);
        from = PL_GLOBAL(const char *, from);

        PL_EACH_THREAD(thread)
        {
            move_floats(to_dtype, from_dtype, to, from, count, (float)a->factor, thread);
        }
    }
}

PL_CODE void code_move_doubles(const struct pl_move_args *a, uint32_t block, uint32_t blocks)
{
    for (uint64_t index = block; index < a->chunk_count; index += blocks) {
        char *to;
        const char *from;
        uint32_t count = chunk_at(a, index, 8, 8, &to, &from);

        to = PL_GLOBAL(char *, to);
        from = PL_GLOBAL(const char *, from);

        PL_EACH_THREAD(thread)
        {
            uint32_t i = thread;

            for (; i + 3 * PL_THREADS < count; i += 4 * PL_THREADS) {
                double value[4];

                PL_UNROLL for (uint32_t r = 0; r < 4; r++)
                {
                    value[r] = ((const pl_raw_double *)from)[i + r * PL_THREADS];
                }
                PL_UNROLL for (uint32_t r = 0; r < 4; r++)
                {
                    ((pl_raw_double *)to)[i + r * PL_THREADS] = value[r] * a->factor;
                }
            }
            for (; i < count; i += PL_THREADS) {
                ((pl_raw_double *)to)[i] = ((const pl_raw_double *)from)[i] * a->factor;
            }
        }
    }
}

/* Issues `run` loads before the first store: the compiler cannot know that a store does not change what is loaded
 * next. */
#define PL_COPY_RUNS(width, run)                                                                                       \
    for (; i + ((run)-1) * PL_THREADS < words; i += (run)*PL_THREADS) {                                                \
        struct pl_raw##width word[run];                                                                                \
                                                                                                                       \
        PL_UNROLL for (uint32_t r = 0; r < (run); r++)                                                                 \
        {                                                                                                              \
            word[r] = ((const struct pl_raw##width *)(from + head))[i + r * PL_THREADS];                               \
        }                                                                                                              \
        PL_UNROLL for (uint32_t r = 0; r < (run); r++)                                                                 \
        {                                                                                                              \
            ((struct pl_raw##width *)(to + head))[i + r * PL_THREADS] = word[r];                                       \
        }                                                                                                              \
    }

/* Neighbouring threads move neighbouring words of `width` bytes. The width is as large as the two addresses permit. */
#define PL_COPY_WORDS(width)                                                                                           \
    PL_COPY_RUNS(width, 4)                                                                                             \
    PL_COPY_RUNS(width, 2)                                                                                             \
    PL_COPY_RUNS(width, 1)                                                                                             \
    break

PL_CODE void copy_bytes(char *to, const char *from, uint32_t bytes, uint32_t thread)
{
    uint32_t apart = (uint32_t)(((uintptr_t)to ^ (uintptr_t)from) & 15);
    uint32_t width = apart ? apart & (0U - apart) : 16;
    uint32_t head = (uint32_t)(-(uintptr_t)to & (width - 1));
    uint32_t words, i = thread;

    head = head < bytes ? head : bytes;
    words = (bytes - head) / width;
    switch (width) {
    case 16:
        PL_COPY_WORDS(16);
    case 8:
        PL_COPY_WORDS(8);
    case 4:
        PL_COPY_WORDS(4);
    case 2:
        PL_COPY_WORDS(2);
    default:
        PL_COPY_WORDS(1);
    }
    for (i = thread; i < head; i += PL_THREADS) {
        to[i] = from[i];
    }
    for (i = head + words * width + thread; i < bytes; i += PL_THREADS) {
        to[i] = from[i];
    }
}

PL_CODE void code_move_bytes(const struct pl_move_args *a, uint32_t block, uint32_t blocks)
{
    for (uint64_t index = block; index < a->chunk_count; index += blocks) {
        char *to;
        const char *from;
        uint32_t count = chunk_at(a, index, a->elem_bytes, a->elem_bytes, &to, &from);

        to = PL_GLOBAL(char *, to);
        from = PL_GLOBAL(const char *, from);

        PL_EACH_THREAD(thread)
        {
            copy_bytes(to, from, count * a->elem_bytes, thread);
        }
    }
}

#endif
