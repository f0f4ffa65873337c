/* SPDX-License-Identifier: Apache-2.0 */
/** Files of every record format, for tests that read them. */
#ifndef PL_TESTS_S3IO_FILES_H
#define PL_TESTS_S3IO_FILES_H

#include "base/random.h"
#include "s3io/record.h"
#include "tests/support/scratch.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

static const struct {
    enum pl_record_format format;
    const char *name;
} formats[] = {
    {PL_RECORD_TFRECORD, "tfrecord"}, {PL_RECORD_RECORDIO, "recordio"}, {PL_RECORD_LINES, "lines"},
    {PL_RECORD_CSV, "csv"},           {PL_RECORD_IDX, "idx"},           {PL_RECORD_WHOLE, "whole"},
    {PL_RECORD_TAR, "tar"},
};

/* A member of a tar archive. */
static inline void put_member(struct build *build, const char *name, const void *data, size_t bytes)
{
    static const char zeros[512];
    char block[512] = "";
    unsigned sum = 8 * ' ';

    snprintf(block, 100, "%s", name);
    snprintf(block + 124, 12, "%011o", (unsigned)bytes);
    block[156] = '0';
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(block); i++) {
        sum += (unsigned char)block[i];
    }
    snprintf(block + 148, 8, "%06o", sum);
    build_bytes(build, block, sizeof(block));
    build_bytes(build, data, bytes);
    build_bytes(build, zeros, -bytes % sizeof(block));
}

/* One record, number i of its file, that holds a text. */
static inline void put_record(struct build *build, enum pl_record_format format, unsigned i, const char *text,
                              size_t bytes)
{
    char name[32];

    switch (format) {
    case PL_RECORD_TFRECORD:
        build_tfrecord(build, text, bytes);
        break;
    case PL_RECORD_RECORDIO:
        build_recordio(build, text, bytes);
        break;
    case PL_RECORD_IDX:
        if (i % 16 == 0) { /* an array of 16 items of 8 bytes */
            build_bytes(build, "\0\0\x08\x02\0\0\0\x10\0\0\0\x08", 12);
        }
        build_bytes(build, text, 8);
        break;
    case PL_RECORD_TAR:
        snprintf(name, sizeof(name), "%04u.txt", i);
        put_member(build, name, text, bytes);
        if (i % 3 == 0) {
            snprintf(name, sizeof(name), "%04u.cls", i);
            put_member(build, name, text, 1);
        }
        break;
    default:
        build_bytes(build, text, bytes);
        if (format != PL_RECORD_WHOLE) {
            build_bytes(build, i % 5 ? "\n" : "\n\r\n", i % 5 ? 1 : 3);
        }
    }
}

/* Files of records whose lengths differ: whole: 40 of one record, else 4 of 16, 32, 48 and 64. */
static inline void write_files(const struct scratch *scratch, enum pl_record_format format, bool gzip)
{
    static unsigned char packed[1 << 20];
    bool is_whole = format == PL_RECORD_WHOLE;
    uint64_t state = format;
    char text[300], name[16];

    for (unsigned file = 0; file < (is_whole ? 40 : 4); file++) {
        struct build build = {.data = NULL};

        for (unsigned i = 0; i < (is_whole ? 1 : 16 * file + 16); i++) {
            uint64_t number = pl_random_next(&state);
            int bytes = snprintf(text, sizeof(text), "%016llx", (unsigned long long)number);

            memset(text + bytes, 'x', sizeof(text) - (size_t)bytes);
            put_record(&build, format, i, text, (size_t)bytes + number % 200);
        }
        snprintf(name, sizeof(name), "part-%02u", file);
        scratch_write(scratch, name, gzip ? packed : build.data,
                      gzip ? drip_gzip(build.data, build.bytes, packed, sizeof(packed)) : build.bytes);
        build_done(&build);
    }
}

#endif
