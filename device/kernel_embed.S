/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels as a part of the library: FATBIN is nvcc's file; without it there are none. */
    .section .rodata, "a"
    .balign 64
    .globl pl_kernel_image
    .hidden pl_kernel_image
    .type pl_kernel_image, @object
pl_kernel_image:
#ifdef FATBIN
    .incbin FATBIN
#endif
    .size pl_kernel_image, . - pl_kernel_image
    .section .note.GNU-stack, "", @progbits
