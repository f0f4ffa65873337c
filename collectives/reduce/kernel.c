/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses among the reduction kernels that this CPU can run. */
#include "collectives/reduce/kernel.h"

#include "collectives/reduce/kernel_tables.h"

#include <string.h>
#ifdef PL_KERNEL_X86
#include <cpuid.h>

/* Clang's __builtin_cpu_supports() does not know this name, so with Clang cpuid is read here. */
static bool has_f16c(void)
{
#ifdef __clang__
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
#else
    return __builtin_cpu_supports("f16c");
#endif
}
#endif

static const struct pl_kernel *runnable(const struct pl_kernel *kernel)
{
#ifdef PL_KERNEL_X86
    if (kernel == &pl_kernel_avx512) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                   ? kernel
                   : NULL;
    }
    if (kernel == &pl_kernel_avx2) {
        return __builtin_cpu_supports("avx2") && has_f16c() ? kernel : NULL;
    }
#endif
    return kernel;
}

/* The kernels of this build, the fastest first. */
static const struct pl_kernel *const all[] = {
#ifdef PL_KERNEL_X86
    &pl_kernel_avx512,
    &pl_kernel_avx2,
#endif
#ifdef PL_KERNEL_NEON
    &pl_kernel_neon, /* every 64-bit ARM processor has it */
#endif
    &pl_kernel_plain,
};

const struct pl_kernel *pl_kernel_best(void)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (runnable(all[i])) {
            return all[i];
        }
    }
    return &pl_kernel_plain;
}

const struct pl_kernel *pl_kernel_named(const char *name)
{
    if (strcmp(name, "auto") == 0) {
        return pl_kernel_best();
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return runnable(all[i]);
        }
    }
    return NULL;
}

double pl_kernel_guard(int ranks)
{
    double factor = 1.0;

    for (int n = 1; n < ranks; n *= 2) {
        factor *= 0.5;
    }
    return factor;
}
