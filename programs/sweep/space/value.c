/* SPDX-License-Identifier: Apache-2.0 */
/* Values of strict JSON with their places: reads them by type, and writes errors with the place and what was
 * expected. */
#include "programs/sweep/space/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 60 };

struct pl_sweep_value pl_sweep_value_root(const struct pl_python_json *root, const char *source)
{
    return (struct pl_sweep_value){.source = source, .node = root, .above = root};
}

/* Appends a name to the path: "space.batch-size", or "space["odd name"]" if the name has characters with a meaning in
 * paths. */
static void append_name(struct pl_sweep_value *value, const char *name)
{
    size_t used = strlen(value->path);
    PL_AUTO_TEXT struct pl_text quoted = PL_TEXT_NONE;

    if (*name != '\0' &&
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] == '\0') {
        snprintf(value->path + used, sizeof(value->path) - used, "%s%s", used > 0 ? "." : "", name);
        return;
    }
    pl_python_json_print_string(name, &quoted); /* ASCII, so that it may be cut at any byte */
    snprintf(value->path + used, sizeof(value->path) - used, "[%s]", pl_text_string(&quoted));
}

struct pl_sweep_value pl_sweep_value_member(const struct pl_sweep_value *object, const char *name)
{
    struct pl_sweep_value value = *object;

    value.node = object->node ? pl_python_json_member(object->node, name) : NULL;
    value.above = object->node ? object->node : object->above;
    append_name(&value, name);
    return value;
}

struct pl_sweep_value pl_sweep_value_child(const struct pl_sweep_value *above, const struct pl_python_json *node,
                                           size_t index)
{
    struct pl_sweep_value value = *above;
    size_t used = strlen(value.path);

    value.node = node;
    value.above = above->node;
    if (pl_python_json_name(node)) {
        append_name(&value, pl_python_json_name(node));
    } else {
        snprintf(value.path + used, sizeof(value.path) - used, "[%zu]", index);
    }
    return value;
}

static void append_found(const struct pl_python_json *node, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text shown = PL_TEXT_NONE;

    if (!node) {
        pl_text_append(text, "nothing");
    } else if (!pl_sweep_value_is_scalar(node)) {
        pl_text_append(text, pl_python_json_kind_text(pl_python_json_kind(node)));
    } else {
        pl_sweep_value_print(node, &shown);
        pl_text_printf(text, "%.*s%s", SHOWN_BYTES, pl_text_string(&shown), shown.length > SHOWN_BYTES ? "..." : "");
    }
}

enum pl_status pl_sweep_value_wrong(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr)
{
    const struct pl_python_json *place = value->node ? value->node : value->above;
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;

    append_found(value->node, &found);
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %s%sexpected %s, found %s", value->source,
                        pl_python_json_line(place), pl_python_json_column(place), value->path,
                        value->path[0] != '\0' ? ": " : "", expected, pl_text_string(&found));
}

static bool is(const struct pl_sweep_value *value, enum pl_python_json_kind kind)
{
    return value->node && pl_python_json_kind(value->node) == kind;
}

enum pl_status pl_sweep_value_text(const struct pl_sweep_value *value, const char **ret_text, struct pl_error *reterr)
{
    if (!is(value, PL_PYTHON_JSON_STRING)) {
        return pl_sweep_value_wrong(value, "a string", reterr);
    }
    *ret_text = pl_python_json_text(value->node);
    return PL_OK;
}

enum pl_status pl_sweep_value_number(const struct pl_sweep_value *value, double *ret_number, struct pl_error *reterr)
{
    if (!is(value, PL_PYTHON_JSON_INT) && !is(value, PL_PYTHON_JSON_FLOAT)) {
        return pl_sweep_value_wrong(value, "a number", reterr);
    }
    *ret_number = pl_python_json_double(value->node);
    return PL_OK;
}

enum pl_status pl_sweep_value_whole(const struct pl_sweep_value *value, int64_t least, int64_t most,
                                    int64_t *ret_number, struct pl_error *reterr)
{
    char expected[80];
    double number;

    if (pl_sweep_value_number(value, &number, NULL) == PL_OK && number >= (double)least && number <= (double)most &&
        number == (double)(int64_t)number) {
        *ret_number = (int64_t)number;
        return PL_OK;
    }
    snprintf(expected, sizeof(expected), "a whole number from %" PRId64 " to %" PRId64, least, most);
    return pl_sweep_value_wrong(value, expected, reterr);
}

static bool has(const char *const *names, const char *name)
{
    for (; *names; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets the error for a name that is not in `names`; it lists the known names. */
static enum pl_status unknown(const struct pl_sweep_value *value, const char *const *names, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    for (size_t i = 0; names[i]; i++) {
        pl_text_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
    }
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %s is not known here: expected %s", value->source,
                        pl_python_json_line(value->node), pl_python_json_column(value->node), value->path,
                        pl_text_string(&list));
}

enum pl_status pl_sweep_value_object(const struct pl_sweep_value *value, const char *const *names,
                                     struct pl_error *reterr)
{
    size_t index = 0;

    if (!is(value, PL_PYTHON_JSON_OBJECT)) {
        return pl_sweep_value_wrong(value, "an object", reterr);
    }
    for (const struct pl_python_json *node = pl_python_json_first(value->node); node;
         node = pl_python_json_next(node), index++) {
        if (!has(names, pl_python_json_name(node))) {
            struct pl_sweep_value member = pl_sweep_value_child(value, node, index);

            return unknown(&member, names, reterr);
        }
    }
    return PL_OK;
}

bool pl_sweep_value_is_scalar(const struct pl_python_json *node)
{
    enum pl_python_json_kind kind = pl_python_json_kind(node);

    return kind == PL_PYTHON_JSON_BOOL || kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT ||
           kind == PL_PYTHON_JSON_STRING;
}

void pl_sweep_value_print(const struct pl_python_json *node, struct pl_text *text)
{
    enum pl_python_json_kind kind = pl_python_json_kind(node);

    if (kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT) {
        pl_text_append(text, pl_python_json_text(node));
    } else {
        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, text);
    }
}

void pl_sweep_value_print_string(const char *string, size_t most_bytes, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text safe = PL_TEXT_NONE;
    size_t length = string ? strlen(string) : 0;

    if (!string) {
        pl_text_append(text, "null");
        return;
    }
    length = length > most_bytes ? pl_text_whole_bytes(string, most_bytes) : length;
    pl_text_append_n(&safe, string, length);
    if (safe.length > 0) {
        pl_text_mask_broken(safe.data, safe.length);
    }
    text->failed = text->failed || safe.failed;
    pl_python_json_print_string(pl_text_string(&safe), text);
}
