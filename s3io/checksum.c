/* SPDX-License-Identifier: Apache-2.0 */
#include "s3io/checksum.h"

#include <isa-l/crc.h>

uint32_t pl_checksum_crc32c(uint32_t before, const void *data, size_t bytes)
{
    const unsigned char *next = data;
    uint32_t crc = ~before;

    /* The library counts in int, and wants a pointer it does not write through. */
    while (bytes > 0) {
        size_t part = bytes < (1U << 30) ? bytes : 1U << 30;

        crc = crc32_iscsi((unsigned char *)(uintptr_t)next, (int)part, crc);
        next += part;
        bytes -= part;
    }
    return ~crc;
}
