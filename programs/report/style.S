/* SPDX-License-Identifier: Apache-2.0 */
/* The text of STYLE, which is page.css, as a part of the program. */
    .section .rodata, "a"
    .globl pl_report_style
    .hidden pl_report_style
    .type pl_report_style, @object
pl_report_style:
    .incbin STYLE
    .byte 0
    .size pl_report_style, . - pl_report_style
    .section .note.GNU-stack, "", @progbits
