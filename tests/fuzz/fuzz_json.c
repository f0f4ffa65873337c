/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of JSON, strict and as Python takes them. */
#include "base/json/json.h"
#include "base/json/python_json.h"
#include "tests/support/fuzz.h"

#include <string.h>

/* Read a strict document, and write it to `text`. */
static bool rewrite(const char *data, size_t bytes, struct pl_text *text)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *tree = NULL;

    if (pl_python_json_parse_strict(data, bytes, "fuzz", &tree, NULL) != PL_OK) {
        return false;
    }
    pl_python_json_print(tree, PL_PYTHON_JSON_COMPACT, text);
    return pl_text_check(text, NULL) == PL_OK;
}

/* Call every accessor on every value: each returns a value, or an error that names the place. */
static void ask(struct pl_json_value value)
{
    struct pl_error error = PL_ERROR_NONE;
    const char *text;
    int64_t whole;

    if (pl_json_text(value, &text, &error) == PL_OK) {
        PL_BUG_IF(pl_json_kind(value) != PL_JSON_STRING);
    } else {
        PL_BUG_IF(error.status != PL_INVALID || strncmp(error.cause, "fuzz: ", 6) != 0);
    }
    if (pl_json_int64(value, -3, PL_JSON_MAX_INTEGER, &whole, &error) == PL_OK) {
        PL_BUG_IF(whole < -3 || whole > PL_JSON_MAX_INTEGER);
    }
    (void)!pl_json_text(pl_json_member(value, "a"), &text, &error);
}

static void ask_all(struct pl_json_value value, unsigned *budget)
{
    ask(value);
    for (struct pl_json_value child = pl_json_first(value); pl_json_exists(child) && *budget > 0;
         child = pl_json_next(child)) {
        --*budget; /* each accessor asks for a path */
        ask_all(child, budget);
    }
}

/* A document that is read is written, and the written text is read and written the same again. A refused document has a
 * reason. */
static int fuzz_json(const uint8_t *data, size_t bytes)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    PL_AUTO_TEXT struct pl_text once = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text twice = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    unsigned budget = 200;

    if (pl_json_parse((const char *)data, bytes, "fuzz", &document, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        return 0;
    }
    ask_all(pl_json_root(document), &budget);
    PL_BUG_IF(!rewrite((const char *)data, bytes, &once));
    PL_BUG_IF(!rewrite(once.data, once.length, &twice));
    PL_BUG_IF(once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0);
    return 0;
}

/* A document that parses can be printed, and the printed text parses to a tree that prints the same. */
static int fuzz_python_json(const uint8_t *data, size_t bytes)
{
    static const unsigned styles[] = {PL_PYTHON_JSON_COMPACT, PL_PYTHON_JSON_SPACED,
                                      PL_PYTHON_JSON_SPACED | PL_PYTHON_JSON_SORTED};
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_python_json_parse((const char *)data, bytes, "fuzz", &root, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        return 0;
    }
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        PL_AUTO_TEXT struct pl_text once = PL_TEXT_NONE;
        PL_AUTO_TEXT struct pl_text twice = PL_TEXT_NONE;
        PL_AUTO_PYTHON_JSON struct pl_python_json *again = NULL;

        pl_python_json_print(root, styles[i], &once);
        if (pl_text_check(&once, NULL) != PL_OK) {
            return 0;
        }
        PL_BUG_IF(pl_python_json_parse(once.data, once.length, "printed", &again, &error) != PL_OK);
        pl_python_json_print(again, styles[i], &twice);
        PL_BUG_IF(once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0);
    }
    return 0;
}

FUZZ_TARGETS({"json", fuzz_json}, {"python_json", fuzz_python_json})
