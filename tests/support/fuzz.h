/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The function that a fuzz target defines, by libFuzzer's interface; tests/support/replay.c calls it if there is no
 * fuzzer.
 */
#ifndef PL_TESTS_SUPPORT_FUZZ_H
#define PL_TESTS_SUPPORT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/**
 * Feed `bytes` of `data` to the code under test; a fault is a crash, an abort (PL_BUG_IF) or a sanitizer's report.
 * Returns 0.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
