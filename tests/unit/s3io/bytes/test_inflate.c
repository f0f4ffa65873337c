/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/bytes/inflate.c. */
#include "base/clock.h"
#include "s3io/source.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

#include <zstd.h>

enum { PLAIN = 20000, ROOM = 200000 };

static void make_plain(unsigned char *data)
{
    uint32_t state = 1;

    for (size_t i = 0; i < PLAIN; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (unsigned char)(i % 1000 < 600 ? i / 7 : state >> 24);
    }
}

/* Returns `members` compressed members of the plain data. */
static struct build pack(enum pl_compression compression, unsigned members)
{
    static unsigned char plain[PLAIN], packed[ROOM];
    struct build build = {.data = NULL};

    make_plain(plain);
    for (unsigned i = 0; i < members; i++) {
        size_t begin = PLAIN / members * i, end = i + 1 == members ? PLAIN : PLAIN / members * (i + 1);
        size_t bytes = compression == PL_COMPRESSION_GZIP
                           ? drip_gzip(plain + begin, end - begin, packed, sizeof(packed))
                           : ZSTD_compress(packed, sizeof(packed), plain + begin, end - begin, 1);

        build_bytes(&build, packed, bytes);
    }
    return build;
}

/* Reads everything from a compressed source over `below`, and closes it. Returns the status at the end. */
static enum pl_status unpack(struct pl_source *below, enum pl_compression compression, size_t step, unsigned char *out,
                             size_t *ret_bytes, struct pl_error *error)
{
    struct pl_source *source;
    enum pl_status status = PL_OK;
    size_t got = 1;

    *ret_bytes = 0;
    ck_ok(pl_source_open_inflate, below, compression, &source);
    while (status == PL_OK && got > 0) {
        status = pl_source_read(source, out + *ret_bytes, step, PL_DEADLINE_NEVER, &got, error);
        *ret_bytes += status == PL_OK ? got : 0;
        ck_assert_uint_le(*ret_bytes, PLAIN);
    }
    pl_source_close(source);
    return status;
}

TEST(members_and_frames_give_the_plain_bytes_whatever_the_sizes)
{
    static const size_t sizes[] = {1, 3, 17, 1000, 1 << 20};
    static unsigned char plain[PLAIN], out[PLAIN + (1 << 20)];

    make_plain(plain);
    for (int compression = PL_COMPRESSION_GZIP; compression <= PL_COMPRESSION_ZSTD; compression++) {
        for (unsigned members = 1; members <= 3; members++) {
            struct build packed = pack((enum pl_compression)compression, members);

            for (size_t in = 0; in < 5; in++) {
                for (size_t step = 0; step < 5; step++) {
                    enum pl_compression how = step % 2 ? PL_COMPRESSION_AUTO : (enum pl_compression)compression;
                    size_t bytes;

                    /* The library copies its history in every call, so tiny pieces at both ends take seconds. */
                    if (in < 2 && step < 2) {
                        continue;
                    }
                    ck_ok(unpack, drip_new(packed.data, packed.bytes, sizes[in]), how, sizes[step], out, &bytes);
                    ck_assert_uint_eq(bytes, PLAIN);
                    ck_assert_mem_eq(out, plain, PLAIN);
                }
            }
            build_done(&packed);
        }
    }
}

/* pzstd writes the size of each frame into such a frame before it; other programs write an index after the last
 * frame. */
TEST(frames_to_be_skipped_stand_anywhere)
{
    static const unsigned char skippable[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    static unsigned char plain[PLAIN], out[PLAIN + 100];
    struct build frame = pack(PL_COMPRESSION_ZSTD, 1), packed = {.data = NULL};
    size_t bytes;

    make_plain(plain);
    build_bytes(&packed, skippable, sizeof(skippable));
    build_bytes(&packed, frame.data, frame.bytes);
    build_bytes(&packed, skippable, sizeof(skippable));
    ck_ok(unpack, drip_new(packed.data, packed.bytes, 7), PL_COMPRESSION_AUTO, 100, out, &bytes);
    ck_assert_uint_eq(bytes, PLAIN);
    ck_assert_mem_eq(out, plain, PLAIN);
    ck_fails(PL_CORRUPT, "", unpack, drip_new(packed.data, packed.bytes - 1, 7), PL_COMPRESSION_AUTO, 100, out, &bytes);
    build_done(&frame);
    build_done(&packed);
}

TEST(plain_bytes_pass_through_automatically)
{
    static const char *const texts[] = {"",
                                        "\x1f",
                                        "\x1f\x8c",
                                        "\x1f\x8b\x07 a length of 35615 bytes begins so",
                                        "\x5f\x2a\x4d",
                                        "plain text that is longer than the look ahead",
                                        "\x28\xb5\x2f"};
    unsigned char out[PLAIN + 100];

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t bytes;

        ck_ok(unpack, drip_new(texts[i], strlen(texts[i]), 3), PL_COMPRESSION_AUTO, 5, out, &bytes);
        ck_assert_uint_eq(bytes, strlen(texts[i]));
        ck_assert_mem_eq(out, texts[i], bytes);
    }
}

TEST(zeros_after_gzip_are_padding_and_anything_else_is_corrupt)
{
    static unsigned char out[PLAIN + 100];
    struct build packed = pack(PL_COMPRESSION_GZIP, 1);
    struct pl_error error = PL_ERROR_NONE;
    size_t bytes;

    build_bytes(&packed, "\0\0\0\0\0", 5);
    ck_ok(unpack, drip_new(packed.data, packed.bytes, 4096), PL_COMPRESSION_GZIP, 100, out, &bytes);
    ck_assert_uint_eq(bytes, PLAIN);
    build_bytes(&packed, "rubbish that is not gzip!", 25);
    ck_assert_int_eq(unpack(drip_new(packed.data, packed.bytes, 4096), PL_COMPRESSION_GZIP, 100, out, &bytes, &error),
                     PL_CORRUPT);
    ck_has(error.cause, "'drip'");
    ck_has(error.cause, "compressed byte");
    build_done(&packed);
}

TEST(cut_input_is_never_a_clean_end)
{
    static unsigned char out[PLAIN + 100];

    for (int compression = PL_COMPRESSION_GZIP; compression <= PL_COMPRESSION_ZSTD; compression++) {
        struct build packed = pack((enum pl_compression)compression, 1);

        for (size_t cut = 1; cut < packed.bytes; cut += cut < 40 || packed.bytes - cut < 40 ? 1 : 997) {
            size_t bytes;

            ck_fails(PL_CORRUPT, "", unpack, drip_new(packed.data, cut, 4096), (enum pl_compression)compression, 100,
                     out, &bytes);
        }
        build_done(&packed);
    }
}

TEST(damaged_gzip_is_found_by_its_checksum)
{
    static unsigned char out[PLAIN * 2];
    struct build packed = pack(PL_COMPRESSION_GZIP, 1);
    size_t bytes;

    for (size_t at = packed.bytes - 8; at < packed.bytes; at++) {
        packed.data[at] ^= 1;
        ck_fails(PL_CORRUPT, "", unpack, drip_new(packed.data, packed.bytes, 4096), PL_COMPRESSION_GZIP, 100, out,
                 &bytes);
        packed.data[at] ^= 1;
    }
    build_done(&packed);
}

UNIT_MAIN("s3io/inflate")
