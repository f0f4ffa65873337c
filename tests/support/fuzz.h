/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The function that a fuzz target defines, by libFuzzer's interface; tests/support/replay.c calls it if there is no
 * fuzzer.
 */
#ifndef PL_TESTS_SUPPORT_FUZZ_H
#define PL_TESTS_SUPPORT_FUZZ_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * Feed `bytes` of `data` to the code under test; a fault is a crash, an abort (PL_BUG_IF) or a sanitizer's report.
 * Returns 0.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/** A file with several targets, `{"name", function}`: the build sets FUZZ_TARGET to the one that this program feeds. */
#define FUZZ_TARGETS(...)                                                                                              \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)                                                      \
    {                                                                                                                  \
        static const struct {                                                                                          \
            const char *name;                                                                                          \
            int (*feed)(const uint8_t *data, size_t bytes);                                                            \
        } targets[] = {__VA_ARGS__};                                                                                   \
        size_t at = 0;                                                                                                 \
                                                                                                                       \
        while (strcmp(targets[at].name, FUZZ_TARGET) != 0) {                                                           \
            at++;                                                                                                      \
            PL_BUG_IF(at == sizeof(targets) / sizeof(targets[0]));                                                     \
        }                                                                                                              \
        return targets[at].feed(data, bytes);                                                                          \
    }

#ifndef FUZZ_TARGET /* for a look at the file alone */
#define FUZZ_TARGET ""
#endif

#endif
