/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/ssh/link.c. */
#include "entrypoint/ssh/link.h"

#include "base/clock.h"
#include "tests/support/unit.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_pair(struct pl_link *left, struct pl_link *right)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_ok(pl_link_open, left, pair[0]);
    ck_ok(pl_link_open, right, pair[1]);
}

TEST(frames_arrive_whole_and_in_order)
{
    struct pl_link left, right;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;

    open_pair(&left, &right);
    ck_assert_ok(PL_LINK_SEND(&left, PL_FRAME_HELLO, &error, "shim", "algo-1"), &error);
    ck_ok(pl_link_send, &left, PL_FRAME_HEARTBEAT, NULL, 0);
    ck_assert_ok(PL_LINK_SEND(&left, PL_FRAME_RESULT, &error, "1", ""), &error);
    ck_ok(pl_link_read, &right);
    ck_ok(pl_link_next, &right, &frame);
    ck_assert_int_eq(frame.type, PL_FRAME_HELLO);
    ck_assert_uint_eq(frame.count, 2);
    ck_assert_str_eq(frame.fields[1], "algo-1");
    ck_ok(pl_link_next, &right, &frame);
    ck_assert_int_eq(frame.type, PL_FRAME_HEARTBEAT);
    ck_assert_uint_eq(frame.count, 0);
    ck_ok(pl_link_next, &right, &frame);
    ck_assert_str_eq(frame.fields[1], "");
    ck_assert_int_eq(pl_link_next(&right, &frame, &error), PL_END);
    pl_link_close(&left);
    pl_link_close(&right);
}

TEST(frames_before_the_end_still_count)
{
    struct pl_link left, right;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;

    open_pair(&left, &right);
    ck_assert_ok(PL_LINK_SEND(&left, PL_FRAME_READY, &error, "algo-2"), &error);
    pl_link_close(&left);
    ck_ok(pl_link_read, &right);
    ck_ok(pl_link_next, &right, &frame);
    ck_assert_int_eq(pl_link_next(&right, &frame, &error), PL_PEER);
    pl_link_close(&right);
}

TEST(a_frame_in_pieces_waits_for_its_rest)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_frame frame;
    size_t used;

    ck_ok(pl_link_frame_encode, &text, PL_FRAME_SIGNAL, (const char *const[]){"15"}, 1);
    for (size_t bytes = 0; bytes < text.length; bytes++) {
        ck_ok(pl_link_frame_decode, text.data, bytes, &frame, &used);
        ck_assert_uint_eq(used, 0);
    }
    ck_ok(pl_link_frame_decode, text.data, text.length, &frame, &used);
    ck_assert_uint_eq(used, text.length);
}

TEST(what_is_no_frame_is_refused)
{
    const char *const bad[] = {
        "XL\3\0\0\0\0\0",         /* magic */
        "PL\1\0\0\0\0\0",         /* version */
        "PL\5\x63\0\0\0\0",       /* type */
        "PL\5\0\xff\xff\xff\x7f", /* size */
        "PL\5\0\1\0\0\0x",        /* a field without an end */
    };
    const size_t sizes[] = {8, 8, 8, 8, 9};
    struct pl_frame frame;
    size_t used;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_fails(PL_CORRUPT, "", pl_link_frame_decode, bad[i], sizes[i], &frame, &used);
    }
}

TEST(numbers_are_checked)
{
    struct pl_frame frame = {.type = PL_FRAME_SIGNAL, .count = 3, .fields = {"15", "15x", ""}};
    int64_t number;

    ck_ok(pl_link_frame_number, &frame, 0, 1, 64, &number);
    ck_assert_int_eq(number, 15);
    ck_fails(PL_CORRUPT, "", pl_link_frame_number, &frame, 0, 1, 14, &number);
    ck_fails(PL_CORRUPT, "", pl_link_frame_number, &frame, 1, 1, 64, &number);
    ck_fails(PL_CORRUPT, "", pl_link_frame_number, &frame, 2, 1, 64, &number);
    ck_fails(PL_CORRUPT, "", pl_link_frame_number, &frame, 3, 1, 64, &number);
}

TEST(a_full_socket_keeps_frames_until_there_is_room)
{
    static char big[60000];
    struct pl_link left, right;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    int sent = 0, received = 0;

    memset(big, 'x', sizeof(big) - 1);
    open_pair(&left, &right);
    for (sent = 0; sent < 20; sent++) {
        ck_assert_ok(PL_LINK_SEND(&left, PL_FRAME_RESULT, &error, "1", big), &error);
    }
    while (received < sent) {
        ck_ok(pl_link_read, &right);
        pl_link_flush(&left);
        while (pl_link_next(&right, &frame, &error) == PL_OK) {
            ck_assert_uint_eq(strlen(frame.fields[1]), sizeof(big) - 1);
            received++;
        }
    }
    pl_link_close(&left);
    pl_link_close(&right);
}

UNIT_MAIN("entrypoint/link")
