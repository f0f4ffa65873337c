/* SPDX-License-Identifier: Apache-2.0 */
/** The tables of kernel.h, one per instruction set. Private to kernel*.c. */
#ifndef PL_COLLECTIVES_REDUCE_KERNEL_TABLES_H
#define PL_COLLECTIVES_REDUCE_KERNEL_TABLES_H

#include "base/status.h"
#include "collectives/reduce/kernel.h"

#if defined(__x86_64__)
#define PL_KERNEL_X86 1
extern const struct pl_kernel pl_kernel_avx2;
extern const struct pl_kernel pl_kernel_avx512;
#elif defined(__aarch64__)
#define PL_KERNEL_NEON 1
extern const struct pl_kernel pl_kernel_neon;
#endif
extern const struct pl_kernel pl_kernel_plain;

#endif
