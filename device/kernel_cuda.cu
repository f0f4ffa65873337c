/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for devices, named pl_<name>. Their arguments are in constant memory. */
#include "device/kernel_list.h"

#define PL_DEFINE_KERNEL(name, args, call)                                                                             \
    extern "C" __global__ void __launch_bounds__(PL_THREADS) pl_##name(const __grid_constant__ struct args arguments)  \
    {                                                                                                                  \
        const struct args *a = &arguments;                                                                             \
        const uint32_t block = blockIdx.x;                                                                             \
        const uint32_t blocks = gridDim.x;                                                                             \
                                                                                                                       \
        call;                                                                                                          \
    }
PL_DEVICE_KERNEL_LIST(PL_DEFINE_KERNEL)
