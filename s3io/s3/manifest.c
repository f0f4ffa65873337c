/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ManifestFile and AugmentedManifestFile. */
#include "s3io/s3/manifest.h"

#include "base/json/python_json.h"
#include "base/memory.h"
#include "s3io/s3/address.h"
#include "s3io/s3/s3_get.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 30 }; /* limit for a manifest in S3 */

void pl_manifest_done(struct pl_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++) {
        free(manifest->keys[i]);
    }
    free(manifest->keys);
    free(manifest->bucket);
    free(manifest->prefix);
    *manifest = (struct pl_manifest){.bucket = NULL};
}

static int by_bytes(const void *a, const void *b)
{
    char *const *first = a, *const *second = b;

    return strcmp(*first, *second);
}

void pl_manifest_sort(struct pl_manifest *manifest)
{
    size_t kept = 0;

    if (manifest->count == 0) {
        return;
    }
    qsort(manifest->keys, manifest->count, sizeof(*manifest->keys), by_bytes);
    for (size_t i = 1; i < manifest->count; i++) {
        if (strcmp(manifest->keys[i], manifest->keys[kept]) == 0) {
            free(manifest->keys[i]);
        } else {
            manifest->keys[++kept] = manifest->keys[i];
        }
    }
    manifest->count = kept + 1;
}

static enum pl_status wrong(const struct pl_python_json *node, const char *name, const char *what,
                            struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: expected %s", name, pl_python_json_line(node),
                        pl_python_json_column(node), what);
}

/* Takes a string, which must have no zero bytes and no lone surrogates: a key cannot have them. The string is then
 * UTF-8. */
static enum pl_status take_string(const struct pl_python_json *node, const char *name, char **ret_text,
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_python_json_string_bytes(node, &text);
    PL_TRY(pl_text_check(&text, reterr));
    if (strlen(pl_text_string(&text)) != text.length) {
        return wrong(node, name, "a string without zero characters", reterr);
    }
    return pl_text_take(&text, ret_text, reterr);
}

static enum pl_status add_key(struct pl_manifest *manifest, const struct pl_python_json *item, const char *name,
                              struct pl_error *reterr)
{
    if (pl_python_json_kind(item) != PL_PYTHON_JSON_STRING) {
        return wrong(item, name, "a string, the rest of a key", reterr);
    }
    PL_TRY(pl_memory_grow(&manifest->keys, &manifest->capacity, manifest->count + 1, sizeof(char *), reterr));
    PL_TRY(take_string(item, name, &manifest->keys[manifest->count], reterr));
    manifest->count++;
    if (!*manifest->prefix && !*manifest->keys[manifest->count - 1]) {
        return wrong(item, name, "a key that is not empty", reterr);
    }
    return PL_OK;
}

enum pl_status pl_manifest_parse(const char *text, size_t bytes, const char *name, struct pl_manifest *ret_manifest,
                                 struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_FREE char *uri = NULL;
    const struct pl_python_json *first, *prefix;
    enum pl_status status;

    PL_TRY(pl_python_json_parse(text, bytes, name, &root, reterr));
    first = pl_python_json_first(root);
    prefix = first ? pl_python_json_member(first, "prefix") : NULL;
    if (pl_python_json_kind(root) != PL_PYTHON_JSON_ARRAY || !prefix ||
        pl_python_json_kind(prefix) != PL_PYTHON_JSON_STRING) {
        return wrong(first ? first : root, name, "an array that begins with {\"prefix\": \"s3://BUCKET/PREFIX\"}",
                     reterr);
    }
    PL_TRY(take_string(prefix, name, &uri, reterr));
    status = pl_s3_uri_parse(uri, &manifest.bucket, &manifest.prefix, reterr);
    if (status != PL_OK) {
        pl_error_context(reterr, "%s, line %u, column %u", name, pl_python_json_line(prefix),
                         pl_python_json_column(prefix));
        return status;
    }
    for (const struct pl_python_json *item = pl_python_json_next(first); item; item = pl_python_json_next(item)) {
        PL_TRY(add_key(&manifest, item, name, reterr));
    }
    *ret_manifest = manifest;
    manifest = (struct pl_manifest){.bucket = NULL};
    return PL_OK;
}

enum pl_status pl_manifest_fetch(struct pl_s3_client *client, const char *uri, int64_t deadline_ns,
                                 struct pl_manifest *ret_manifest, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_s3_fetch_text(client, uri, MOST_BYTES, deadline_ns, &text, &bytes, reterr));
    return pl_manifest_parse(text, bytes, uri, ret_manifest, reterr);
}

void pl_manifest_augmented_done(struct pl_augmented *augmented)
{
    for (size_t i = 0; i < augmented->lines * augmented->attributes; i++) {
        free(augmented->values[i].text);
        free(augmented->values[i].bucket);
    }
    free(augmented->values);
    *augmented = (struct pl_augmented){.values = NULL};
}

static bool is_reference(const char *attribute)
{
    size_t length = strlen(attribute);

    return length > 4 && strcmp(attribute + length - 4, "-ref") == 0;
}

static enum pl_status take_value(const struct pl_python_json *line, const char *attribute, const char *name,
                                 struct pl_manifest_value *ret_value, struct pl_error *reterr)
{
    const struct pl_python_json *member = pl_python_json_member(line, attribute);
    PL_AUTO_FREE char *uri = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!member) {
        return pl_error_set(reterr, PL_INVALID, "%s: expected an object with the attribute '%s'", name, attribute);
    }
    if (is_reference(attribute)) {
        if (pl_python_json_kind(member) != PL_PYTHON_JSON_STRING) {
            return pl_error_set(reterr, PL_INVALID, "%s: expected an s3:// address in '%s'", name, attribute);
        }
        PL_TRY(take_string(member, name, &uri, reterr));
        PL_TRY(pl_s3_uri_parse(uri, &ret_value->bucket, &ret_value->text, reterr));
        return *ret_value->text
                   ? PL_OK
                   : pl_error_set(reterr, PL_INVALID, "%s: '%s' in '%s' has no key of an object", name, uri, attribute);
    }
    if (pl_python_json_kind(member) == PL_PYTHON_JSON_STRING) {
        return take_string(member, name, &ret_value->text, reterr);
    }
    pl_python_json_print(member, PL_PYTHON_JSON_SPACED, &text);
    return pl_text_take(&text, &ret_value->text, reterr);
}

static enum pl_status add_line(struct pl_augmented *augmented, const char *text, size_t bytes, const char *name,
                               const char *const *names, struct pl_error *reterr)
{
    size_t first = augmented->lines * augmented->attributes;
    PL_AUTO_PYTHON_JSON struct pl_python_json *line = NULL;

    PL_TRY(pl_python_json_parse(text, bytes, name, &line, reterr));
    PL_TRY(pl_memory_grow(&augmented->values, &augmented->capacity, first + augmented->attributes,
                          sizeof(*augmented->values), reterr));
    memset(augmented->values + first, 0, augmented->attributes * sizeof(*augmented->values));
    augmented->lines++;
    for (size_t i = 0; i < augmented->attributes; i++) {
        PL_TRY(take_value(line, names[i], name, &augmented->values[first + i], reterr));
    }
    return PL_OK;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') {
            return false;
        }
    }
    return true;
}

enum pl_status pl_manifest_parse_augmented(const char *text, size_t bytes, const char *name, const char *const *names,
                                           size_t name_count, struct pl_augmented *ret_augmented,
                                           struct pl_error *reterr)
{
    PL_AUTO_AUGMENTED struct pl_augmented augmented = {.attributes = name_count};
    const char *end = text + bytes;

    if (name_count == 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "%s: expected at least one attribute of the augmented manifest, found none", name);
    }
    for (size_t number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline ? newline : end) - text);

        if (!is_blank(text, length)) {
            PL_AUTO_TEXT struct pl_text line_name = PL_TEXT_NONE;

            PL_TRY(pl_text_set(&line_name, reterr, "%s, line %zu", name, number));
            PL_TRY(add_line(&augmented, text, length, line_name.data, names, reterr));
        }
        text += length + (newline ? 1 : 0);
    }
    if (augmented.lines == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "%s: expected an augmented manifest with at least one line, found none", name);
    }
    *ret_augmented = augmented;
    augmented = (struct pl_augmented){.values = NULL};
    return PL_OK;
}

enum pl_status pl_manifest_fetch_augmented(struct pl_s3_client *client, const char *uri, const char *const *names,
                                           size_t name_count, int64_t deadline_ns, struct pl_augmented *ret_augmented,
                                           struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_s3_fetch_text(client, uri, MOST_BYTES, deadline_ns, &text, &bytes, reterr));
    return pl_manifest_parse_augmented(text, bytes, uri, names, name_count, ret_augmented, reterr);
}
