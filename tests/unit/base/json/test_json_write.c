/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/json/json_write.c. */
#include "base/json/json_write.h"

#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

TEST(a_document_is_written_in_the_order_of_the_calls)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);

    pl_json_write_object(&writer, NULL);
    pl_json_write_text(&writer, "t\"", "a\n\xC3\xA9\xF0\x9F\x9A\x80\x01");
    pl_json_write_list(&writer, "list");
    pl_json_write_int64(&writer, NULL, -7);
    pl_json_write_double(&writer, NULL, 0.1);
    pl_json_write_object(&writer, NULL);
    pl_json_write_close(&writer);
    pl_json_write_list(&writer, NULL);
    pl_json_write_close(&writer);
    pl_json_write_close(&writer);
    pl_json_write_bool(&writer, "yes", true);
    pl_json_write_bool(&writer, "no", false);
    pl_json_write_null(&writer, "none");
    pl_json_write_int64(&writer, "most", PL_JSON_MAX_INTEGER);
    pl_json_write_close(&writer);
    ck_ok(pl_json_write_end, &writer);
    ck_assert_str_eq(pl_text_string(&text),
                     "{\"t\\\"\":\"a\\n\\u00e9\\ud83d\\ude80\\u0001\",\"list\":[-7,0.1,{},[]],\"yes\":true,"
                     "\"no\":false,\"none\":null,\"most\":9007199254740992}");
}

TEST(a_document_for_people_has_each_value_on_a_line)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);

    writer.lines = true;
    pl_json_write_object(&writer, NULL);
    pl_json_write_list(&writer, "list");
    pl_json_write_int64(&writer, NULL, 1);
    pl_json_write_object(&writer, NULL);
    pl_json_write_text(&writer, "a", "b");
    pl_json_write_close(&writer);
    pl_json_write_close(&writer);
    pl_json_write_object(&writer, "empty");
    pl_json_write_close(&writer);
    pl_json_write_close(&writer);
    ck_ok(pl_json_write_end, &writer);
    ck_assert_str_eq(pl_text_string(&text), "{\n  \"list\": [\n    1,\n    {\n      \"a\": \"b\"\n    }\n  ],\n"
                                            "  \"empty\": {}\n}");
}

/* cJSON's own printer changes one of six doubles: 0.30000000000000004 becomes 0.3. */
TEST(doubles_read_back_as_they_were)
{
    uint64_t state = 88172645463325252;

    for (int i = 0; i < 20000; i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        PL_AUTO_JSON struct pl_json *document = NULL;
        struct pl_json_writer writer = PL_JSON_WRITER(&text);
        double value, again;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(&value, &state, sizeof(value));
        if (i % 2 == 0) {
            value = (double)(state % 1000000) / 1000.0 + 0.1; /* numbers as people write them */
        }
        if (!isfinite(value)) {
            continue;
        }
        pl_json_write_double(&writer, NULL, value);
        ck_ok(pl_json_write_end, &writer);
        ck_ok(pl_json_parse, text.data, text.length, "printed", &document);
        ck_ok(pl_json_double, pl_json_root(document), &again);
        ck_assert_mem_eq(&again, &value, sizeof(value));
    }
}

TEST(what_json_cannot_hold_is_told_at_the_end)
{
    static const struct {
        double number;
        int64_t whole;
        const char *text;
        const char *cause;
    } cases[] = {
        {NAN, 0, "", "JSON cannot hold a number that is not finite, which 'number' is"},
        {-INFINITY, 0, "", "JSON cannot hold a number that is not finite, which 'number' is"},
        {0, PL_JSON_MAX_INTEGER + 1, "", "JSON cannot hold an integer beyond 2^53, which 'whole' is"},
        /* the first of two errors */
        {0, INT64_MIN, "\xFF", "JSON cannot hold an integer beyond 2^53, which 'whole' is"},
        {0, 0, "a\xE2\x82", "JSON cannot hold text that is not UTF-8, which 'text' is"},
        {0, 0, "\xC0\x80", "JSON cannot hold text that is not UTF-8, which 'text' is"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        struct pl_json_writer writer = PL_JSON_WRITER(&text);

        pl_json_write_object(&writer, NULL);
        pl_json_write_double(&writer, "number", cases[i].number);
        pl_json_write_int64(&writer, "whole", cases[i].whole);
        pl_json_write_text(&writer, "text", cases[i].text);
        pl_json_write_close(&writer);
        ck_fails_as(PL_INVALID, cases[i].cause, pl_json_write_end, &writer);
    }
}

UNIT_MAIN("base/json_write")
