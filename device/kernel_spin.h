/* SPDX-License-Identifier: Apache-2.0 */
/** A kernel that only takes time. Private to device/ and its tests. */
#ifndef PL_DEVICE_KERNEL_SPIN_H
#define PL_DEVICE_KERNEL_SPIN_H

#include "device/kernel_code.h"

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
    while (clock_of_device() < end_ns) { /* each thread by itself */
    }
}

#endif
