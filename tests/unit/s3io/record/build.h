/* SPDX-License-Identifier: Apache-2.0 */
/** Writers of the record formats for tests, directly from the formats' descriptions and independent of the readers. */
#ifndef PL_TESTS_S3IO_BUILD_H
#define PL_TESTS_S3IO_BUILD_H

#include "base/checksum.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct build {
    unsigned char *data;
    size_t bytes;
    size_t room;
};

static inline void build_bytes(struct build *build, const void *data, size_t bytes)
{
    if (build->bytes + bytes > build->room) {
        build->room = (build->bytes + bytes) * 2 + 64;
        build->data = realloc(build->data, build->room);
        ck_assert_ptr_nonnull(build->data);
    }
    if (bytes) {
        memcpy(build->data + build->bytes, data, bytes);
    }
    build->bytes += bytes;
}

static inline void build_le(struct build *build, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(value >> (8 * i));

        build_bytes(build, &byte, 1);
    }
}

static inline void build_done(struct build *build)
{
    free(build->data);
    *build = (struct build){.data = NULL};
}

static inline uint32_t build_masked(const unsigned char *data, size_t bytes)
{
    uint32_t crc = pl_checksum_crc32c(0, data, bytes);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

static inline void build_tfrecord(struct build *build, const void *data, size_t bytes)
{
    size_t at = build->bytes;

    build_le(build, bytes, 8);
    build_le(build, build_masked(build->data + at, 8), 4);
    build_bytes(build, data, bytes);
    build_le(build, build_masked(data, bytes), 4);
}

static inline void build_recordio_part(struct build *build, unsigned flag, const void *data, size_t bytes)
{
    build_le(build, 0xced7230a, 4);
    build_le(build, (uint64_t)flag << 29 | bytes, 4);
    build_bytes(build, data, bytes);
    build_bytes(build, "\0\0\0", (4 - bytes % 4) % 4);
}

/* Writes like dmlc's writer: a record is split at each aligned magic word, which is dropped. */
static inline void build_recordio(struct build *build, const void *data, size_t bytes)
{
    static const unsigned char magic[4] = {0x0a, 0x23, 0xd7, 0xce};
    const unsigned char *from = data;
    size_t begin = 0;
    bool split = false;

    for (size_t at = 0; at + 4 <= bytes; at += 4) {
        if (memcmp(from + at, magic, 4) == 0) {
            build_recordio_part(build, split ? 2 : 1, from + begin, at - begin);
            split = true;
            begin = at + 4;
        }
    }
    build_recordio_part(build, split ? 3 : 0, from + begin, bytes - begin);
}

static inline void build_varint(struct build *build, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

        build_bytes(build, &byte, 1);
        value >>= 7;
    } while (value);
}

/* Writes field `number` of wire type 2. */
static inline void build_field(struct build *build, unsigned number, const void *data, size_t bytes)
{
    build_varint(build, number << 3 | 2);
    build_varint(build, bytes);
    build_bytes(build, data, bytes);
}

/* Writes field `number` with the content of `message`, which is released. */
static inline void build_message(struct build *build, unsigned number, struct build *message)
{
    build_field(build, number, message->data, message->bytes);
    build_done(message);
}

#endif
