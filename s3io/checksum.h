/* SPDX-License-Identifier: Apache-2.0 */
/** CRC-32C (Castagnoli), by ISA-L's vector code. */
#ifndef PL_S3IO_CHECKSUM_H
#define PL_S3IO_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/** The CRC-32C of `bytes` of `data` behind data whose CRC-32C is `before` (0 for none). */
uint32_t pl_checksum_crc32c(uint32_t before, const void *data, size_t bytes);

/** TFRecord's masked form of a CRC-32C. */
static inline uint32_t pl_checksum_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

#endif
