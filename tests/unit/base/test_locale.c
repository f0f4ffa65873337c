/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/text.c, base/knob.c, base/options.c, base/json/python_json_parse.c, base/json/python_json_print.c. */
/* A program may have set a locale whose numbers have a comma. Numbers in files, settings and the input of other
 * programs still have a point. */
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/json/python_json.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "tests/support/unit.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Make such a locale here, because few systems have one. Returns 77 if this is not possible. */
static int set_comma(void)
{
    static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
    char directory[] = "/tmp/paceline-locale-XXXXXX";
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    bool set;

    if (!mkdtemp(directory)) {
        puts("skipped: no directory in /tmp");
        return 77;
    }
    pl_text_printf(&text, "%s/source", directory);
    (void)!pl_file_write_atomic(pl_text_string(&text), source, strlen(source), 0600, NULL);
    pl_text_clear(&text);
    pl_text_printf(&text, "cd %s && localedef --no-archive -c -i source ./comma >/dev/null 2>&1", directory);
    (void)!system(pl_text_string(&text)); /* it warns of missing files, so it does not exit with 0 */
    setenv("LOCPATH", directory, 1);
    set = setlocale(LC_NUMERIC, "comma");
    pl_text_clear(&text);
    pl_text_printf(&text, "rm -r %s", directory);
    (void)!system(pl_text_string(&text));
    if (!set) {
        puts("skipped: localedef makes no locale here");
    }
    return set ? 0 : 77;
}

TEST(texts_have_a_point)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char other[8];

    pl_text_printf(&text, "%.1f %g", 0.5, 1.25);
    ck_assert_str_eq(pl_text_string(&text), "0.5 1.25");
    snprintf(other, sizeof(other), "%.1f", 0.5);
    ck_assert_str_eq(other, "0,5"); /* the program's own locale stays */
}

TEST(settings_and_options_are_read_with_a_point)
{
    struct pl_knobs knobs;
    double number;

    pl_knobs_default(&knobs);
    ck_ok(pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, "0.5", "timeout_s");
    ck_assert_double_eq(pl_knob_real(&knobs, PL_KNOB_TIMEOUT_S), 0.5);
    ck_fails(PL_INVALID, "", pl_knob_set, &knobs, PL_KNOB_TIMEOUT_S, "0,5", "timeout_s");
    ck_ok(pl_options_real, "rate", "1e-1", 0.0, 1.0, &number);
    ck_assert_double_eq(number, 0.1);
    ck_ok(pl_options_real, "rate", "0.25", 0.0, 1.0, &number);
    ck_assert_double_eq(number, 0.25);
}

TEST(json_has_a_point)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_ok(pl_python_json_parse, "2.5", 3, "F", &root);
    ck_assert_double_eq(pl_python_json_double(root), 2.5);
    pl_python_json_print_double(2.5, &text);
    ck_assert_str_eq(pl_text_string(&text), "2.5");
}

TEST(strict_json_has_a_point)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);
    double value;

    ck_ok(pl_json_parse, "2.5", 3, "F", &document);
    ck_ok(pl_json_double, pl_json_root(document), &value);
    ck_assert_double_eq(value, 2.5);
    pl_json_write_double(&writer, NULL, value);
    ck_ok(pl_json_write_end, &writer);
    ck_assert_str_eq(pl_text_string(&text), "2.5");
    ck_assert_int_eq(pl_json_parse("1e400", 5, "F", &document, NULL), PL_INVALID);
}

UNIT_MAIN_AFTER("base/locale", set_comma())
