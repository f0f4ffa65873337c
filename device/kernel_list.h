/* SPDX-License-Identifier: Apache-2.0 */
/** The list of all kernels: each line defines one, for devices and for tests. Private to device/ and its tests. */
#ifndef PL_DEVICE_KERNEL_LIST_H
#define PL_DEVICE_KERNEL_LIST_H

#include "device/kernel_code.h"
#include "device/kernel_move.h"
#include "device/kernel_private.h"
#include "device/kernel_reduce.h"
#include "device/kernel_step.h"

/* name, struct of arguments, call of the body with `a`, `block` and `blocks` */
#define PL_DEVICE_KERNEL_LIST(X)                                                                                       \
    X(move_bytes, pl_move_args, code_move_bytes(a, block, blocks))                                                     \
    X(move_float32_float32, pl_move_args, code_move_floats(PL_FLOAT32, PL_FLOAT32, a, block, blocks))                  \
    X(move_float32_float16, pl_move_args, code_move_floats(PL_FLOAT32, PL_FLOAT16, a, block, blocks))                  \
    X(move_float32_bfloat16, pl_move_args, code_move_floats(PL_FLOAT32, PL_BFLOAT16, a, block, blocks))                \
    X(move_float16_float32, pl_move_args, code_move_floats(PL_FLOAT16, PL_FLOAT32, a, block, blocks))                  \
    X(move_float16_float16, pl_move_args, code_move_floats(PL_FLOAT16, PL_FLOAT16, a, block, blocks))                  \
    X(move_float16_bfloat16, pl_move_args, code_move_floats(PL_FLOAT16, PL_BFLOAT16, a, block, blocks))                \
    X(move_bfloat16_float32, pl_move_args, code_move_floats(PL_BFLOAT16, PL_FLOAT32, a, block, blocks))                \
    X(move_bfloat16_float16, pl_move_args, code_move_floats(PL_BFLOAT16, PL_FLOAT16, a, block, blocks))                \
    X(move_bfloat16_bfloat16, pl_move_args, code_move_floats(PL_BFLOAT16, PL_BFLOAT16, a, block, blocks))              \
    X(move_float64_float64, pl_move_args, code_move_doubles(a, block, blocks))                                         \
    X(reduce_float32, pl_reduce_args, code_reduce_float32(a, block, blocks))                                           \
    X(reduce_float64, pl_reduce_args, code_reduce_float64(a, block, blocks))                                           \
    X(reduce_float16, pl_reduce_args, code_reduce_float16(a, block, blocks))                                           \
    X(reduce_bfloat16, pl_reduce_args, code_reduce_bfloat16(a, block, blocks))                                         \
    X(reduce_int8, pl_reduce_args, code_reduce_int8(a, block, blocks))                                                 \
    X(reduce_int16, pl_reduce_args, code_reduce_int16(a, block, blocks))                                               \
    X(reduce_int32, pl_reduce_args, code_reduce_int32(a, block, blocks))                                               \
    X(reduce_int64, pl_reduce_args, code_reduce_int64(a, block, blocks))                                               \
    X(reduce_uint8, pl_reduce_args, code_reduce_uint8(a, block, blocks))                                               \
    X(reduce_bool, pl_reduce_args, code_reduce_bool(a, block, blocks))                                                 \
    X(reduce_integers, pl_reduce_args, code_reduce_integers(a, block, blocks))                                         \
    X(norm_float32, pl_norm_args, code_norm(PL_FLOAT32, a, block, blocks))                                             \
    X(norm_float64, pl_norm_args, code_norm(PL_FLOAT64, a, block, blocks))                                             \
    X(norm_float16, pl_norm_args, code_norm(PL_FLOAT16, a, block, blocks))                                             \
    X(norm_bfloat16, pl_norm_args, code_norm(PL_BFLOAT16, a, block, blocks))                                           \
    X(norm_end, pl_norm_end_args, code_norm_end(a, block, blocks))                                                     \
    X(sgd_float32, pl_step_args, code_step(PL_DEVICE_SGD, PL_FLOAT32, a, block, blocks))                               \
    X(sgd_float16, pl_step_args, code_step(PL_DEVICE_SGD, PL_FLOAT16, a, block, blocks))                               \
    X(sgd_bfloat16, pl_step_args, code_step(PL_DEVICE_SGD, PL_BFLOAT16, a, block, blocks))                             \
    X(momentum_float32, pl_step_args, code_step(PL_DEVICE_MOMENTUM, PL_FLOAT32, a, block, blocks))                     \
    X(momentum_float16, pl_step_args, code_step(PL_DEVICE_MOMENTUM, PL_FLOAT16, a, block, blocks))                     \
    X(momentum_bfloat16, pl_step_args, code_step(PL_DEVICE_MOMENTUM, PL_BFLOAT16, a, block, blocks))                   \
    X(nesterov_float32, pl_step_args, code_step(PL_DEVICE_NESTEROV, PL_FLOAT32, a, block, blocks))                     \
    X(nesterov_float16, pl_step_args, code_step(PL_DEVICE_NESTEROV, PL_FLOAT16, a, block, blocks))                     \
    X(nesterov_bfloat16, pl_step_args, code_step(PL_DEVICE_NESTEROV, PL_BFLOAT16, a, block, blocks))                   \
    X(adagrad_float32, pl_step_args, code_step(PL_DEVICE_ADAGRAD, PL_FLOAT32, a, block, blocks))                       \
    X(adagrad_float16, pl_step_args, code_step(PL_DEVICE_ADAGRAD, PL_FLOAT16, a, block, blocks))                       \
    X(adagrad_bfloat16, pl_step_args, code_step(PL_DEVICE_ADAGRAD, PL_BFLOAT16, a, block, blocks))                     \
    X(adam_float32, pl_step_args, code_step(PL_DEVICE_ADAM, PL_FLOAT32, a, block, blocks))                             \
    X(adam_float16, pl_step_args, code_step(PL_DEVICE_ADAM, PL_FLOAT16, a, block, blocks))                             \
    X(adam_bfloat16, pl_step_args, code_step(PL_DEVICE_ADAM, PL_BFLOAT16, a, block, blocks))                           \
    X(spin, pl_spin_args, code_spin(a, block, blocks))

enum pl_device_kernel {
#define PL_KERNEL_ENUM(name, args, call) PL_KERNEL_##name,
    PL_DEVICE_KERNEL_LIST(PL_KERNEL_ENUM)
#undef PL_KERNEL_ENUM
        PL_KERNEL_COUNT
};

/* A kernel that only takes time. */

#ifndef __CUDACC__
#include <time.h>
#endif

struct pl_spin_args {
    uint64_t ns;
};

PL_CODE uint64_t clock_of_device(void)
{
#ifdef __CUDACC__
    uint64_t now_ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    return now_ns;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

PL_CODE void code_spin(const struct pl_spin_args *a, uint32_t block, uint32_t blocks)
{
    const uint64_t end_ns = clock_of_device() + a->ns;

    (void)block;
    (void)blocks;
    while (clock_of_device() < end_ns) { /* each thread waits by itself */
    }
}

#endif
