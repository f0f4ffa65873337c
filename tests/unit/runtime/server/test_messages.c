/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/message.c. */
/* Each message that the check formats, whole: its phrases must fit into their sentence. */
#include "runtime/server/message.h"
#include "tests/support/unit.h"

#include <string.h>

#define OF "a parameter server's "

static const struct {
    struct pl_server_message message;
    size_t bytes; /* 0: the right size */
    bool from_worker;
    const char *said; /* NULL: a good message */
} cases[] = {
    {{.kind = PL_SERVER_JOIN, .count = 8}, 7, true, OF "message has 7 bytes, expected 528"},
    {{.kind = 99, .number = -1}, 0, true, OF "message of kind 99 (number -1) is not one that a worker sends"},
    {{.kind = PL_SERVER_JOIN, .count = 8}, 0, false, OF "message of kind 1 (number 0) is not one that a server sends"},
    {{.kind = PL_SERVER_JOIN}, 0, true, OF "message of kind 1 has count 0, expected 1 to 4294967295"},
    {{.kind = PL_SERVER_WELCOME, .number = 3, .count = 3},
     0,
     false,
     OF "message of kind 2 has count 3, expected 4 to 4096"},
    {{.kind = PL_SERVER_REFUSED, .text = "no"},
     0,
     false,
     OF "REFUSED message has no valid status, or its text has no NUL"},
    {{.kind = PL_SERVER_STATE, .number = 2, .count = 1},
     0,
     true,
     OF "STATE message has the direction 2, expected 0 or 1"},
    {{.kind = PL_SERVER_ROWS, .rows = {.what = PL_SERVER_ROWS_END}},
     0,
     true,
     OF "ROWS message has the unknown request 7, or a path without NUL"},
    {{.kind = PL_SERVER_REFUSED, .number = PL_FAILED, .text = "no"}, 0, false, NULL},
    {{.kind = PL_SERVER_LEAVE}, 0, true, NULL},
};

TEST(each_message_says_what_is_wrong)
{
    const size_t whole = sizeof(struct pl_server_message);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t bytes = cases[i].bytes > 0 ? cases[i].bytes : whole;
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status = pl_server_message_check(&cases[i].message, bytes, cases[i].from_worker, &error);

        ck_assert_int_eq(status, cases[i].said ? PL_CORRUPT : PL_OK);
        ck_assert_str_eq(error.cause, cases[i].said ? cases[i].said : "");
    }
}

TEST(texts_must_have_a_nul)
{
    struct pl_server_message message = {.kind = PL_SERVER_ROWS_DONE};
    struct pl_error error = PL_ERROR_NONE;

    memset(message.loaded.passed, 'x', sizeof(message.loaded.passed));
    ck_assert_int_eq(pl_server_message_check(&message, sizeof(message), false, &error), PL_CORRUPT);
    ck_assert_str_eq(error.cause, "the text of a parameter server's ROWS_DONE message has no NUL");
}

UNIT_MAIN("runtime/server/messages")
