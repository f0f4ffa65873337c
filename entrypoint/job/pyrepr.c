/* SPDX-License-Identifier: Apache-2.0 */
/* Prints JSON values as Python's str() and repr() do, for the program's arguments and variables. */
#include "entrypoint/job/pyrepr.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Append repr(str): in single quotes, unless the text has ' and no ". ASCII control characters are escaped, and so are
 * lone surrogates, which UTF-8 does not have; all other characters are copied. */
static void append_string(const char *string, struct pl_text *text)
{
    char quote = strchr(string, '\'') && !strchr(string, '"') ? '"' : '\'';

    pl_text_append_char(text, quote);
    while (*string != '\0') {
        unsigned bytes;
        uint32_t code = pl_python_json_decode(string, &bytes);

        if (code == (unsigned char)quote || code == '\\') {
            pl_text_printf(text, "\\%c", (char)code);
        } else if (code == '\n') {
            pl_text_append(text, "\\n");
        } else if (code == '\r') {
            pl_text_append(text, "\\r");
        } else if (code == '\t') {
            pl_text_append(text, "\\t");
        } else if (code < 0x20 || code == 0x7F) {
            pl_text_printf(text, "\\x%02x", code);
        } else if (code >= 0xD800 && code <= 0xDFFF) {
            pl_text_printf(text, "\\u%04x", code);
        } else {
            pl_text_append_n(text, string, bytes);
        }
        string += bytes;
    }
    pl_text_append_char(text, quote);
}

static void append_float(const struct pl_python_json *node, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;

    pl_python_json_print(node, PL_PYTHON_JSON_COMPACT, &json);
    if (strcmp(pl_text_string(&json), "NaN") == 0) {
        pl_text_append(text, "nan");
    } else if (strcmp(pl_text_string(&json), "Infinity") == 0) {
        pl_text_append(text, "inf");
    } else if (strcmp(pl_text_string(&json), "-Infinity") == 0) {
        pl_text_append(text, "-inf");
    } else {
        pl_text_append(text, pl_text_string(&json));
    }
}

void pl_pyrepr_append(const struct pl_python_json *node, struct pl_text *text)
{
    bool is_object = pl_python_json_kind(node) == PL_PYTHON_JSON_OBJECT;

    switch (pl_python_json_kind(node)) {
    case PL_PYTHON_JSON_NULL:
        pl_text_append(text, "None");
        break;
    case PL_PYTHON_JSON_BOOL:
        pl_text_append(text, pl_python_json_bool(node) ? "True" : "False");
        break;
    case PL_PYTHON_JSON_INT:
        pl_python_json_print(node, PL_PYTHON_JSON_COMPACT, text);
        break;
    case PL_PYTHON_JSON_FLOAT:
        append_float(node, text);
        break;
    case PL_PYTHON_JSON_STRING:
        append_string(pl_python_json_text(node), text);
        break;
    case PL_PYTHON_JSON_ARRAY:
    case PL_PYTHON_JSON_OBJECT:
        pl_text_append_char(text, is_object ? '{' : '[');
        PL_PYTHON_JSON_EACH(child, node) {
            if (child != pl_python_json_first(node)) {
                pl_text_append(text, ", ");
            }
            if (is_object) {
                append_string(pl_python_json_name(child), text);
                pl_text_append(text, ": ");
            }
            pl_pyrepr_append(child, text);
        }
        pl_text_append_char(text, is_object ? '}' : ']');
        break;
    }
}

static void append_str(const struct pl_python_json *node, struct pl_text *text)
{
    if (pl_python_json_kind(node) == PL_PYTHON_JSON_STRING) {
        pl_text_append(text, pl_python_json_text(node));
    } else {
        pl_pyrepr_append(node, text);
    }
}

void pl_pyrepr_append_argument(const struct pl_python_json *node, struct pl_text *text)
{
    const struct pl_python_json **sorted = NULL;

    switch (pl_python_json_kind(node)) {
    case PL_PYTHON_JSON_NULL:
        break;
    case PL_PYTHON_JSON_OBJECT:
        sorted = pl_python_json_sorted(node);
        if (!sorted) {
            text->failed = true;
            break;
        }
        for (size_t i = 0; i < pl_python_json_count(node); i++) {
            pl_text_printf(text, "%s%s=", i == 0 ? "" : ",", pl_python_json_name(sorted[i]));
            append_str(sorted[i], text);
        }
        break;
    case PL_PYTHON_JSON_BOOL:
    case PL_PYTHON_JSON_INT:
    case PL_PYTHON_JSON_FLOAT:
    case PL_PYTHON_JSON_STRING:
    case PL_PYTHON_JSON_ARRAY:
        append_str(node, text);
        break;
    }
    free(sorted);
}

void pl_pyrepr_append_dumps(const struct pl_python_json *node, struct pl_text *text)
{
    if (pl_python_json_kind(node) == PL_PYTHON_JSON_STRING) {
        pl_text_append(text, pl_python_json_text(node));
    } else {
        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, text);
    }
}

void pl_pyrepr_dumps_arguments(const struct pl_python_json *object, struct pl_strv *words)
{
    PL_PYTHON_JSON_EACH(member, object) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_pyrepr_append_dumps(member, &text);
        pl_strv_printf(words, "--%s", pl_python_json_name(member));
        pl_strv_add_text(words, &text);
    }
}

/* Returns the dashes for a name: "-" for one character, else "--". Characters are counted, not bytes. */
static const char *dashes(const char *name)
{
    unsigned bytes;

    if (*name == '\0') {
        return "";
    }
    pl_python_json_decode(name, &bytes);
    return name[bytes] == '\0' ? "-" : "--";
}

void pl_pyrepr_arguments(const struct pl_python_json *object, struct pl_strv *words)
{
    PL_AUTO_FREE const struct pl_python_json **sorted = pl_python_json_sorted(object);

    if (!sorted) {
        pl_strv_add_text(words, &(struct pl_text){.failed = true});
    }
    for (size_t i = 0; sorted && sorted[i]; i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        const char *name = pl_python_json_name(sorted[i]);

        pl_pyrepr_append_argument(sorted[i], &text);
        pl_strv_printf(words, "%s%s", dashes(name), name);
        pl_strv_add_text(words, &text);
    }
}
