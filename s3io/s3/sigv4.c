/* SPDX-License-Identifier: Apache-2.0 */
/* AWS Signature Version 4. */
#include "s3io/s3/sigv4.h"

#include "base/memory.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { DIGEST_BYTES = 32 };

static const char algorithm[] = "AWS4-HMAC-SHA256";

void pl_sigv4_date(int64_t time_s, char date[static PL_SIGV4_DATE_BYTES])
{
    time_t seconds = (time_t)time_s;
    struct tm utc;

    PL_BUG_IF(!gmtime_r(&seconds, &utc));
    PL_BUG_IF(strftime(date, PL_SIGV4_DATE_BYTES, "%Y%m%dT%H%M%SZ", &utc) != PL_SIGV4_DATE_BYTES - 1);
}

static void to_hex(const unsigned char digest[static DIGEST_BYTES], char hex[static PL_SIGV4_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * DIGEST_BYTES] = '\0';
}

enum pl_status pl_sigv4_hash(const void *data, size_t bytes, char hex[static PL_SIGV4_HEX_BYTES],
                             struct pl_error *reterr)
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    if (EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL) != 1) {
        return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_CRYPTO, 0, "SHA-256 of %zu bytes failed", bytes);
    }
    to_hex(digest, hex);
    return PL_OK;
}

static enum pl_status hmac(const void *key, size_t key_bytes, const char *text,
                           unsigned char digest[static DIGEST_BYTES], struct pl_error *reterr)
{
    unsigned char wide[EVP_MAX_MD_SIZE];

    if (!HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), wide, NULL)) {
        return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_CRYPTO, 0, "HMAC-SHA-256 failed");
    }
    memcpy(digest, wide, DIGEST_BYTES);
    return PL_OK;
}

void pl_sigv4_encode(const char *raw, size_t bytes, bool keep_slash, struct pl_text *text)
{
    static const char digits[] = "0123456789ABCDEF";

    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)raw[i];
        bool plain = (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
                     (byte && strchr("-._~", byte)) || (keep_slash && byte == '/');

        if (plain) {
            pl_text_append_char(text, raw[i]);
        } else {
            const char escape[3] = {'%', digits[byte >> 4], digits[byte & 15]};

            pl_text_append_n(text, escape, sizeof(escape));
        }
    }
}

/* Decodes a part of a query and encodes it again by one rule, so that all spellings have the same signature. */
static void append_recoded(const char *item, size_t bytes, struct pl_text *text)
{
    for (size_t i = 0; i < bytes; i++) {
        char byte = item[i];

        if (byte == '%' && i + 2 < bytes && pl_text_hex_value(item[i + 1]) >= 0 &&
            pl_text_hex_value(item[i + 2]) >= 0) {
            byte = (char)(pl_text_hex_value(item[i + 1]) * 16 + pl_text_hex_value(item[i + 2]));
            i += 2;
        }
        pl_sigv4_encode(&byte, 1, false, text);
    }
}

static void append_path(const struct pl_sigv4_request *request, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    const char *at = request->path;

    if (!request->normalize_path) {
        pl_sigv4_encode(at, strlen(at), true, text);
        return;
    }
    while (*at) {
        size_t length = strcspn(at, "/");
        bool last = at[length] == '\0';

        if (length == 2 && memcmp(at, "..", 2) == 0) {
            while (path.length && path.data[path.length - 1] != '/') {
                path.length--;
            }
            path.length -= path.length ? 1 : 0;
        } else if (length && !(length == 1 && *at == '.')) {
            pl_text_append_char(&path, '/');
            pl_text_append_n(&path, at, length);
        }
        at += length + (last ? 0 : 1);
    }
    if (path.length == 0 || request->path[strlen(request->path) - 1] == '/') {
        pl_text_append_char(&path, '/');
    }
    pl_sigv4_encode(pl_text_string(&path), path.length, true, text);
    text->failed = text->failed || path.failed;
}

static int compare_strings(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void free_strings(char **strings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(strings[i]);
    }
    free(strings);
}

/*
 * Makes "name\001value" from one item. 0x01 sorts before every byte of an encoded text, so sorting the strings sorts by
 * name, then by value.
 */
static enum pl_status recode_item(const char *item, size_t bytes, char **ret_string, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *equals = memchr(item, '=', bytes);
    size_t name_bytes = equals ? (size_t)(equals - item) : bytes;

    append_recoded(item, name_bytes, &text);
    pl_text_append_char(&text, '\001');
    if (equals) {
        append_recoded(equals + 1, bytes - name_bytes - 1, &text);
    }
    return pl_text_take(&text, ret_string, reterr);
}

static enum pl_status append_query(const char *query, struct pl_text *text, struct pl_error *reterr)
{
    char **items = NULL;
    size_t count = 0, capacity = 0;
    enum pl_status status = PL_OK;

    for (const char *at = query ? query : ""; *at && status == PL_OK;) {
        size_t length = strcspn(at, "&");

        if (length) {
            status = pl_memory_grow(&items, &capacity, count + 1, sizeof(char *), reterr);
            if (status == PL_OK) {
                status = recode_item(at, length, &items[count], reterr);
            }
            count += status == PL_OK ? 1 : 0;
        }
        at += length + (at[length] ? 1 : 0);
    }
    if (count) {
        qsort(items, count, sizeof(char *), compare_strings);
    }
    for (size_t i = 0; i < count && status == PL_OK; i++) {
        *strchr(items[i], '\001') = '=';
        pl_text_append(text, i ? "&" : "");
        pl_text_append(text, items[i]);
    }
    free_strings(items, count);
    return status;
}

struct sorted_header {
    const struct pl_sigv4_header *header;
    size_t at; /* position in the request; keeps the order of equal names */
};

static int compare_headers(const void *left, const void *right)
{
    const struct sorted_header *a = left, *b = right;
    int order = strcasecmp(a->header->name, b->header->name);

    return order ? order : (a->at > b->at) - (a->at < b->at);
}

/* Appends a value in which each run of blanks, tabs and line ends is one blank, without blanks at its ends. */
static void append_trimmed(const char *value, struct pl_text *text)
{
    bool blank = false, any = false;

    for (; *value; value++) {
        if (strchr(" \t\r\n", *value)) {
            blank = true;
            continue;
        }
        if (blank && any) {
            pl_text_append_char(text, ' ');
        }
        blank = false;
        any = true;
        pl_text_append_char(text, *value);
    }
}

static void append_lower(const char *name, struct pl_text *text)
{
    for (; *name; name++) {
        pl_text_append_char(text, *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name);
    }
}

/* Appends the header block and the list of signed names; either of them may be NULL. */
static enum pl_status append_headers(const struct pl_sigv4_request *request, struct pl_text *block,
                                     struct pl_text *names, struct pl_error *reterr)
{
    PL_AUTO_FREE struct sorted_header *sorted = NULL;
    struct pl_text *text = block ? block : names;

    PL_TRY(pl_memory_alloc(&sorted, request->header_count, sizeof(*sorted), reterr));
    for (size_t i = 0; i < request->header_count; i++) {
        sorted[i] = (struct sorted_header){&request->headers[i], i};
    }
    qsort(sorted, request->header_count, sizeof(*sorted), compare_headers);
    for (size_t i = 0; i < request->header_count; i++) {
        bool again = i && strcasecmp(sorted[i].header->name, sorted[i - 1].header->name) == 0;

        if (block && again) {
            block->length--; /* remove the line end of the previous value */
            pl_text_append_char(block, ',');
        } else if (block) {
            append_lower(sorted[i].header->name, block);
            pl_text_append_char(block, ':');
        }
        if (block) {
            append_trimmed(sorted[i].header->value, block);
            pl_text_append_char(block, '\n');
        }
        if (names && !again) {
            pl_text_append(names, i ? ";" : "");
            append_lower(sorted[i].header->name, names);
        }
    }
    return pl_text_check(text, reterr);
}

enum pl_status pl_sigv4_canonical(const struct pl_sigv4_request *request, struct pl_text *text, struct pl_error *reterr)
{
    pl_text_printf(text, "%s\n", request->method);
    append_path(request, text);
    pl_text_append_char(text, '\n');
    PL_TRY(append_query(request->query, text, reterr));
    pl_text_append_char(text, '\n');
    PL_TRY(append_headers(request, text, NULL, reterr));
    pl_text_append_char(text, '\n');
    PL_TRY(append_headers(request, NULL, text, reterr));
    pl_text_printf(text, "\n%s", request->payload_hash);
    return pl_text_check(text, reterr);
}

/* Appends "20150830/us-east-1/service/aws4_request". */
static void append_scope(const struct pl_sigv4_scope *scope, struct pl_text *text)
{
    char date[PL_SIGV4_DATE_BYTES];

    pl_sigv4_date(scope->time_s, date);
    pl_text_printf(text, "%.8s/%s/%s/aws4_request", date, scope->region, scope->service);
}

enum pl_status pl_sigv4_string_to_sign(const struct pl_sigv4_scope *scope, const char *canonical, struct pl_text *text,
                                       struct pl_error *reterr)
{
    char date[PL_SIGV4_DATE_BYTES];
    char hex[PL_SIGV4_HEX_BYTES];

    pl_sigv4_date(scope->time_s, date);
    PL_TRY(pl_sigv4_hash(canonical, strlen(canonical), hex, reterr));
    pl_text_printf(text, "%s\n%s\n", algorithm, date);
    append_scope(scope, text);
    pl_text_printf(text, "\n%s", hex);
    return pl_text_check(text, reterr);
}

enum pl_status pl_sigv4_signature(const struct pl_sigv4_key *key, const struct pl_sigv4_scope *scope,
                                  const char *string_to_sign, char hex[static PL_SIGV4_HEX_BYTES],
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text secret = PL_TEXT_NONE;
    unsigned char digest[DIGEST_BYTES];
    char date[PL_SIGV4_DATE_BYTES];
    enum pl_status status;

    pl_sigv4_date(scope->time_s, date);
    date[8] = '\0';
    PL_TRY(pl_text_set(&secret, reterr, "AWS4%s", key->secret_key));
    status = hmac(secret.data, secret.length, date, digest, reterr);
    if (status == PL_OK) {
        status = hmac(digest, sizeof(digest), scope->region, digest, reterr);
    }
    if (status == PL_OK) {
        status = hmac(digest, sizeof(digest), scope->service, digest, reterr);
    }
    if (status == PL_OK) {
        status = hmac(digest, sizeof(digest), "aws4_request", digest, reterr);
    }
    if (status == PL_OK) {
        status = hmac(digest, sizeof(digest), string_to_sign, digest, reterr);
    }
    OPENSSL_cleanse(secret.data, secret.length);
    if (status == PL_OK) {
        to_hex(digest, hex);
    }
    return status;
}

enum pl_status pl_sigv4_authorize(const struct pl_sigv4_key *key, const struct pl_sigv4_scope *scope,
                                  const struct pl_sigv4_request *request, struct pl_text *text, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text canonical = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text string_to_sign = PL_TEXT_NONE;
    char hex[PL_SIGV4_HEX_BYTES];

    PL_TRY(pl_sigv4_canonical(request, &canonical, reterr));
    PL_TRY(pl_sigv4_string_to_sign(scope, canonical.data, &string_to_sign, reterr));
    PL_TRY(pl_sigv4_signature(key, scope, string_to_sign.data, hex, reterr));
    pl_text_printf(text, "%s Credential=%s/", algorithm, key->access_key);
    append_scope(scope, text);
    pl_text_append(text, ", SignedHeaders=");
    PL_TRY(append_headers(request, NULL, text, reterr));
    pl_text_printf(text, ", Signature=%s", hex);
    return pl_text_check(text, reterr);
}
