/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the platform's JSON configuration files. Members are typed, and messages name file, line and column. */
#include "entrypoint/job/config.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_MAX_BYTES = 16 * 1024 * 1024,
    SHOWN_BYTES = 60,
};

enum pl_status pl_config_read(const char *path, bool required, struct pl_python_json **ret_root,
                              struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    enum pl_status status = pl_python_json_read(path, FILE_MAX_BYTES, &root, reterr);

    if (status == PL_NOT_FOUND && !required) {
        root = pl_python_json_new_object();
        if (!root) {
            return pl_error_set(reterr, PL_MEMORY, "out of memory reading %s", path);
        }
    } else if (status == PL_INVALID) {
        pl_error_context(reterr, "on SageMaker the platform writes this file: look for what in the image changes it; "
                                 "on your machine correct it in the folder that is mounted at /opt/ml");
        return status;
    } else if (status != PL_OK) {
        return status;
    }
    if (pl_python_json_kind(root) != PL_PYTHON_JSON_OBJECT) {
        return pl_config_wrong(path, root, "an object", reterr);
    }
    *ret_root = PL_TAKE(root);
    return PL_OK;
}

enum pl_status pl_config_wrong(const char *path, const struct pl_python_json *node, const char *expected,
                               struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;
    const char *name = pl_python_json_name(node);

    if (pl_python_json_kind(node) != PL_PYTHON_JSON_NULL) {
        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, &found);
    }
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %s%sexpected %s, found %s%s%.*s%s", path,
                        pl_python_json_line(node), pl_python_json_column(node), name ? name : "", name ? ": " : "",
                        expected, pl_python_json_kind_text(pl_python_json_kind(node)), found.length > 0 ? " " : "",
                        SHOWN_BYTES, pl_text_string(&found), found.length > SHOWN_BYTES ? "..." : "");
}

static enum pl_status read_member(const char *path, const struct pl_python_json *object,
                                  const struct pl_config_member *member, struct pl_error *reterr)
{
    const enum pl_python_json_kind kind = member->text ? PL_PYTHON_JSON_STRING : PL_PYTHON_JSON_ARRAY;
    const struct pl_python_json *node = pl_python_json_member(object, member->name);
    const bool must_exist = !member->is_optional && !member->fallback;

    if (node && !must_exist && pl_python_json_kind(node) == PL_PYTHON_JSON_NULL) {
        node = NULL;
    }
    if (!node && must_exist) {
        return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: expected the key \"%s\" with %s, found none",
                            path, pl_python_json_line(object), pl_python_json_column(object), member->name,
                            pl_python_json_kind_text(kind));
    }
    if (node && pl_python_json_kind(node) != kind) {
        return pl_config_wrong(path, node, pl_python_json_kind_text(kind), reterr);
    }
    if (member->list) {
        *member->list = node;
        return PL_OK;
    }
    if (node && strstr(pl_python_json_text(node), "\xC0\x80")) {
        return pl_config_wrong(path, node, "a string without U+0000", reterr);
    }
    *member->text = !node ? member->fallback : pl_python_json_text(node);
    if (member->is_optional && *member->text && **member->text == '\0') {
        *member->text = NULL;
    }
    return PL_OK;
}

enum pl_status pl_config_members(const char *path, const struct pl_python_json *object,
                                 const struct pl_config_member *members, size_t count, struct pl_error *reterr)
{
    for (size_t i = 0; i < count; i++) {
        PL_TRY(read_member(path, object, &members[i], reterr));
    }
    return PL_OK;
}

enum pl_status pl_config_check_names(const char *path, const struct pl_python_json *list, const char *expected,
                                     struct pl_error *reterr)
{
    for (const struct pl_python_json *item = pl_python_json_first(list); item; item = pl_python_json_next(item)) {
        if (pl_python_json_kind(item) != PL_PYTHON_JSON_STRING || *pl_python_json_text(item) == '\0' ||
            strstr(pl_python_json_text(item), "\xC0\x80")) {
            return pl_config_wrong(path, item, expected, reterr);
        }
    }
    return PL_OK;
}
