/* SPDX-License-Identifier: Apache-2.0 */
/* Documents: trees of base/json/python_json.h whose text is strict JSON; cJSON's functions read them. */
#include "base/json/json.h"

#include "base/file.h"
#include "base/json/python_json_tree.h"
#include "base/memory.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PATH_BYTES = 200, /* longest path in a message, so that the rest of the message fits */
    MAX_NAME_BYTES = 64,  /* longest name in a path */
};

struct pl_json {
    struct pl_python_json *root;
    char *source;
};

/* Appends ".name" to a path, or "["odd name"]" if the name would be read as something else. */
static void append_name(const char *name, struct pl_text *path)
{
    size_t length = strlen(name);
    PL_AUTO_TEXT struct pl_text quoted = PL_TEXT_NONE;

    if (length > 0 && length <= MAX_NAME_BYTES &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == length) {
        pl_text_append(path, path->length > 0 ? "." : "");
        pl_text_append(path, name);
        return;
    }
    pl_python_json_print_string(name, &quoted); /* ASCII, so it may be cut at any byte */
    pl_text_printf(path, "[%.*s%s]", MAX_NAME_BYTES, pl_text_string(&quoted),
                   quoted.length > MAX_NAME_BYTES ? "..." : "");
}

/* Appends the path of a node, for example "resources.hosts[2]"; "" for the root. */
static void append_path(const struct pl_python_json *node, struct pl_text *path)
{
    size_t index = 0;

    if (!node->parent) {
        return;
    }
    append_path(node->parent, path);
    if (node->item.string) {
        append_name(node->item.string, path);
        return;
    }
    for (const cJSON *child = node->parent->item.child; child != &node->item; child = child->next) {
        index++;
    }
    pl_text_printf(path, "[%zu]", index);
}

static const char *kind_text(enum pl_json_kind kind)
{
    static const char *const texts[] = {
        [PL_JSON_NOTHING] = "nothing",  [PL_JSON_NULL] = "null",       [PL_JSON_BOOL] = "true or false",
        [PL_JSON_NUMBER] = "a number",  [PL_JSON_STRING] = "a string", [PL_JSON_LIST] = "a list",
        [PL_JSON_OBJECT] = "an object",
    };

    return texts[kind];
}

static enum pl_json_kind item_kind(const cJSON *item)
{
    static const enum pl_json_kind kinds[] = {
        [PL_PYTHON_JSON_NULL] = PL_JSON_NULL,     [PL_PYTHON_JSON_BOOL] = PL_JSON_BOOL,
        [PL_PYTHON_JSON_INT] = PL_JSON_NUMBER,    [PL_PYTHON_JSON_FLOAT] = PL_JSON_NUMBER,
        [PL_PYTHON_JSON_STRING] = PL_JSON_STRING, [PL_PYTHON_JSON_ARRAY] = PL_JSON_LIST,
        [PL_PYTHON_JSON_OBJECT] = PL_JSON_OBJECT,
    };

    return item ? kinds[pl_python_json_kind((const struct pl_python_json *)item)] : PL_JSON_NOTHING;
}

/* Appends a description of an item, for a message. Numbers are shown; strings are not, because they may be secrets. */
static void append_found(const cJSON *item, struct pl_text *found)
{
    if (cJSON_IsNumber(item)) {
        pl_text_append(found, "the number ");
        if (item->valuedouble == trunc(item->valuedouble) && fabs(item->valuedouble) < 1e15) {
            pl_text_printf(found, "%.0f", item->valuedouble);
        } else {
            pl_python_json_print_double(item->valuedouble, found);
        }
    } else if (cJSON_IsBool(item)) {
        pl_text_append(found, cJSON_IsTrue(item) ? "true" : "false");
    } else {
        pl_text_append(found, kind_text(item_kind(item)));
    }
}

/* Appends the path that a missing value would have. */
static void append_missing(struct pl_json_value value, struct pl_text *path)
{
    if (value.name) {
        append_name(value.name, path);
    } else {
        pl_text_printf(path, "[%d]", cJSON_GetArraySize(value.parent));
    }
}

enum pl_status pl_json_wrong(struct pl_json_value value, const char *expected, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;
    const cJSON *item = value.item ? value.item : value.parent;

    append_path((const struct pl_python_json *)item, &path);
    if (!value.item && (value.name ? cJSON_IsObject(item) : item_kind(item) >= PL_JSON_LIST)) {
        append_missing(value, &path);
        item = NULL;
        expected = value.wanted ? kind_text(value.wanted) : expected;
    } else if (!value.item) {
        /* the parent's kind is wrong: it cannot have such a value */
        expected = kind_text(value.name ? PL_JSON_OBJECT : PL_JSON_LIST);
    }
    append_found(item, &found);
    return pl_error_set(reterr, PL_INVALID, "%s: %.*s%s%sexpected %s, found %s", value.document->source, MAX_PATH_BYTES,
                        pl_text_string(&path), path.length > MAX_PATH_BYTES ? "..." : "", path.length > 0 ? ": " : "",
                        expected, pl_text_string(&found));
}

enum pl_status pl_json_parse(const char *text, size_t bytes, const char *source, struct pl_json **ret_document,
                             struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;

    PL_TRY(pl_memory_alloc(&document, 1, sizeof(*document), reterr));
    document->source = pl_memory_string(source, reterr);
    PL_TRY(document->source ? PL_OK : PL_MEMORY);
    PL_TRY(pl_python_json_parse_strict(text, bytes, source, &document->root, reterr));
    *ret_document = PL_TAKE(document);
    return PL_OK;
}

enum pl_status pl_json_read(const char *path, size_t max_bytes, struct pl_json **ret_document, struct pl_error *reterr)
{
    PL_AUTO_FREE char *data = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, max_bytes, &data, &bytes, reterr));
    return pl_json_parse(data, bytes, path, ret_document, reterr);
}

static void wipe(cJSON *at)
{
    for (; at; at = at->next) {
        if (at->valuestring) {
            explicit_bzero(at->valuestring, strlen(at->valuestring));
        }
        wipe(at->child);
    }
}

void pl_json_free(struct pl_json *document)
{
    if (document) {
        if (document->root) {
            wipe(&document->root->item);
        }
        pl_python_json_free(document->root);
        free(document->source);
        free(document);
    }
}

struct pl_json_value pl_json_root(const struct pl_json *document)
{
    return (struct pl_json_value){.document = document, .item = &document->root->item};
}

/*
 * Returns a missing value, if a member or item of a missing value is read. The error reports only the first kind that
 * was needed.
 */
static struct pl_json_value still_nothing(struct pl_json_value value, enum pl_json_kind wanted)
{
    value.wanted = value.wanted ? value.wanted : wanted;
    return value;
}

struct pl_json_value pl_json_member(struct pl_json_value object, const char *name)
{
    if (!object.item) {
        return still_nothing(object, PL_JSON_OBJECT);
    }
    return (struct pl_json_value){
        .document = object.document,
        .item = cJSON_IsObject(object.item) ? cJSON_GetObjectItemCaseSensitive(object.item, name) : NULL,
        .parent = object.item,
        .name = name,
    };
}

struct pl_json_value pl_json_first(struct pl_json_value value)
{
    if (!value.item) {
        return still_nothing(value, PL_JSON_LIST);
    }
    return (struct pl_json_value){.document = value.document, .item = value.item->child, .parent = value.item};
}

struct pl_json_value pl_json_next(struct pl_json_value value)
{
    value.item = value.item ? value.item->next : NULL;
    return value;
}

enum pl_json_kind pl_json_kind(struct pl_json_value value)
{
    return item_kind(value.item);
}

bool pl_json_exists(struct pl_json_value value)
{
    return value.item;
}

size_t pl_json_count(struct pl_json_value value)
{
    return value.item ? (size_t)cJSON_GetArraySize(value.item) : 0;
}

const char *pl_json_name(struct pl_json_value value)
{
    return value.item ? value.item->string : NULL;
}

enum pl_status pl_json_expect(struct pl_json_value value, enum pl_json_kind kind, struct pl_error *reterr)
{
    return item_kind(value.item) == kind ? PL_OK : pl_json_wrong(value, kind_text(kind), reterr);
}

enum pl_status pl_json_text(struct pl_json_value value, const char **ret_text, struct pl_error *reterr)
{
    PL_TRY(pl_json_expect(value, PL_JSON_STRING, reterr));
    *ret_text = value.item->valuestring;
    return PL_OK;
}

enum pl_status pl_json_text_or(struct pl_json_value value, const char *fallback, const char **ret_text,
                               struct pl_error *reterr)
{
    if (!value.item || cJSON_IsNull(value.item)) {
        *ret_text = fallback;
        return PL_OK;
    }
    return pl_json_text(value, ret_text, reterr);
}

enum pl_status pl_json_bool(struct pl_json_value value, bool *ret_value, struct pl_error *reterr)
{
    PL_TRY(pl_json_expect(value, PL_JSON_BOOL, reterr));
    *ret_value = cJSON_IsTrue(value.item);
    return PL_OK;
}

enum pl_status pl_json_double(struct pl_json_value value, double *ret_value, struct pl_error *reterr)
{
    PL_TRY(pl_json_expect(value, PL_JSON_NUMBER, reterr));
    *ret_value = value.item->valuedouble;
    return PL_OK;
}

enum pl_status pl_json_int64(struct pl_json_value value, int64_t least, int64_t most, int64_t *ret_value,
                             struct pl_error *reterr)
{
    char expected[80];
    double number;

    PL_BUG_IF(least < -PL_JSON_MAX_INTEGER || most > PL_JSON_MAX_INTEGER);
    if (cJSON_IsNumber(value.item)) {
        number = value.item->valuedouble;
        if (number == trunc(number) && number >= (double)least && number <= (double)most) {
            *ret_value = (int64_t)number;
            return PL_OK;
        }
    }
    snprintf(expected, sizeof(expected), "a whole number from %" PRId64 " to %" PRId64, least, most);
    return pl_json_wrong(value, expected, reterr);
}
