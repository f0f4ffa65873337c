/* SPDX-License-Identifier: Apache-2.0 */
/* Values of strict JSON with their places: reads them by type, and writes errors with the place and what was
 * expected. */
#include "programs/sweep/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 60 };

struct pl_sweep_value pl_sweep_value_member(const struct pl_sweep_value *object, const char *name)
{
    const struct pl_python_json *node = object->node ? pl_python_json_member(object->node, name) : NULL;

    return (struct pl_sweep_value){.source = object->source,
                                   .node = node && pl_python_json_kind(node) != PL_PYTHON_JSON_NULL ? node : NULL,
                                   .above = object->node ? object->node : object->above,
                                   .name = name};
}

struct pl_sweep_value pl_sweep_value_child(const struct pl_sweep_value *above, const struct pl_python_json *node)
{
    return (struct pl_sweep_value){.source = above->source,
                                   .node = node,
                                   .above = above->node,
                                   .name = pl_python_json_name(node) ? pl_python_json_name(node) : above->name};
}

enum pl_status pl_sweep_value_wrong(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr)
{
    const struct pl_python_json *place = value->node ? value->node : value->above;
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;

    if (value->node && pl_sweep_value_is_scalar(value->node)) {
        pl_sweep_value_print(value->node, &found);
    } else {
        pl_text_append(&found,
                       value->node ? pl_python_json_kind_text(pl_python_json_kind(value->node)) : "nothing or null");
    }
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %.100s%sexpected %s, found %.*s%s", value->source,
                        pl_python_json_line(place), pl_python_json_column(place), value->name ? value->name : "",
                        value->name ? ": " : "", expected, SHOWN_BYTES, pl_text_string(&found),
                        found.length > SHOWN_BYTES ? "..." : "");
}

bool pl_sweep_value_is(const struct pl_sweep_value *value, enum pl_python_json_kind kind)
{
    return value->node && pl_python_json_kind(value->node) == kind;
}

enum pl_status pl_sweep_value_text(const struct pl_sweep_value *value, const char **ret_text, struct pl_error *reterr)
{
    if (!pl_sweep_value_is(value, PL_PYTHON_JSON_STRING)) {
        return pl_sweep_value_wrong(value, "a string", reterr);
    }
    *ret_text = pl_python_json_text(value->node);
    return PL_OK;
}

enum pl_status pl_sweep_value_number(const struct pl_sweep_value *value, double least, double most, double *ret_number,
                                     struct pl_error *reterr)
{
    const bool is = pl_sweep_value_is(value, PL_PYTHON_JSON_INT) || pl_sweep_value_is(value, PL_PYTHON_JSON_FLOAT);
    const double number = is ? pl_python_json_double(value->node) : (double)NAN;
    char expected[80] = "a number";

    if (number >= least && number <= most) {
        *ret_number = number;
        return PL_OK;
    }
    if (isfinite(least)) {
        snprintf(expected, sizeof(expected), "a number from %.15g to %.15g", least, most);
    }
    return pl_sweep_value_wrong(value, expected, reterr);
}

enum pl_status pl_sweep_value_whole(const struct pl_sweep_value *value, int64_t least, int64_t most,
                                    int64_t *ret_number, struct pl_error *reterr)
{
    char expected[80];
    double number;

    if (pl_sweep_value_number(value, (double)least, (double)most, &number, NULL) == PL_OK &&
        number == (double)(int64_t)number) {
        *ret_number = (int64_t)number;
        return PL_OK;
    }
    snprintf(expected, sizeof(expected), "a whole number from %" PRId64 " to %" PRId64, least, most);
    return pl_sweep_value_wrong(value, expected, reterr);
}

static bool is_in(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0) {
        names++;
    }
    return *names;
}

enum pl_status pl_sweep_value_object(const struct pl_sweep_value *value, const char *const *names,
                                     struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    if (!pl_sweep_value_is(value, PL_PYTHON_JSON_OBJECT)) {
        return pl_sweep_value_wrong(value, "an object", reterr);
    }
    for (const struct pl_python_json *node = pl_python_json_first(value->node); node;
         node = pl_python_json_next(node)) {
        if (is_in(names, pl_python_json_name(node))) {
            continue;
        }
        for (size_t i = 0; names[i]; i++) {
            pl_text_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
        }
        return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %.100s is not known here: expected %s",
                            value->source, pl_python_json_line(node), pl_python_json_column(node),
                            pl_python_json_name(node), pl_text_string(&list));
    }
    return PL_OK;
}

bool pl_sweep_value_is_scalar(const struct pl_python_json *node)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(node);

    return kind == PL_PYTHON_JSON_BOOL || kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT ||
           kind == PL_PYTHON_JSON_STRING;
}

void pl_sweep_value_print(const struct pl_python_json *node, struct pl_text *text)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(node);

    if (kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT) {
        pl_text_append(text, pl_python_json_text(node));
    } else {
        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, text);
    }
}
