/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/checksum.c. */
#include "base/checksum.h"

#include "tests/support/unit.h"

enum { MOST_BYTES = 1000 };

/* Computes the CRC as the standard defines it, bit by bit. */
static uint64_t crc64_by_bits(const unsigned char *data, size_t bytes)
{
    uint64_t crc = UINT64_MAX;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT64_C(0x9a6c9329ac4bc9b5) : 0);
        }
    }
    return ~crc;
}

TEST(published_check_values)
{
    static const unsigned char zeros[32];

    ck_assert_uint_eq(pl_checksum_crc64nvme(0, "123456789", 9), UINT64_C(0xae8b14860a799888));
    ck_assert_uint_eq(pl_checksum_crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(pl_checksum_crc32c(0, zeros, sizeof(zeros)), 0x8a9136aa);
    ck_assert_uint_eq(pl_checksum_crc32(0, "123456789", 9), 0xcbf43926);
    ck_assert_uint_eq(pl_checksum_crc64nvme(0, "", 0), 0);
    ck_assert_uint_eq(pl_checksum_crc32c(7, "", 0), 7);
}

TEST(folding_counts_as_single_bits_do)
{
    unsigned char data[MOST_BYTES];
    uint32_t random = 1;

    for (size_t i = 0; i < sizeof(data); i++) {
        random = random * 1664525 + 1013904223;
        data[i] = (unsigned char)(random >> 24);
    }
    for (size_t bytes = 0; bytes <= sizeof(data); bytes++) {
        ck_assert_uint_eq(pl_checksum_crc64nvme(0, data, bytes), crc64_by_bits(data, bytes));
    }
}

TEST(pieces_add_up)
{
    unsigned char data[MOST_BYTES];

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)(i * 7 + (i >> 3));
    }
    for (size_t cut = 0; cut <= sizeof(data); cut += 13) {
        struct pl_checksum sums[3] = {
            {.kind = PL_CHECKSUM_CRC32C}, {.kind = PL_CHECKSUM_CRC64NVME}, {.kind = PL_CHECKSUM_CRC32}};

        for (size_t i = 0; i < 3; i++) {
            pl_checksum_add(&sums[i], data, cut);
            pl_checksum_add(&sums[i], data + cut, sizeof(data) - cut);
        }
        ck_assert_uint_eq(sums[0].value, pl_checksum_crc32c(0, data, sizeof(data)));
        ck_assert_uint_eq(sums[1].value, crc64_by_bits(data, sizeof(data)));
        ck_assert_uint_eq(sums[2].value, pl_checksum_crc32(0, data, sizeof(data)));
    }
}

UNIT_MAIN("base/checksum")
