/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the XML of responses, parses and classifies error documents, and computes back-off and the retry quota. */
#include "s3io/s3/s3_reply.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/text.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

static bool is_any(const char *code, const char *const *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(code, codes[i]) == 0) {
            return true;
        }
    }
    return false;
}

enum pl_s3_retry_action pl_s3_retry_classify(int http_status, const char *code)
{
    static const char *const slower[] = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded",
                                         "TooManyRequests"};
    static const char *const again[] = {"InternalError",    "RequestTimeout", "ServiceUnavailable",
                                        "OperationAborted", "BadDigest",      "IDPCommunicationError"};
    static const char *const keys[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"};
    static const char *const region[] = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IncorrectEndpoint",
                                         "IllegalLocationConstraintException"};
    static const char *const skew[] = {"RequestTimeTooSkewed", "RequestExpired"};

    if (is_any(code, slower, PL_ARRAY_ITEMS(slower))) {
        return PL_S3_SLOWER;
    }
    if (is_any(code, again, PL_ARRAY_ITEMS(again))) {
        return PL_S3_RETRY;
    }
    if (is_any(code, keys, PL_ARRAY_ITEMS(keys))) {
        return PL_S3_NEW_CREDENTIALS;
    }
    if (is_any(code, region, PL_ARRAY_ITEMS(region)) || http_status == 301) {
        return PL_S3_REGION;
    }
    if (is_any(code, skew, PL_ARRAY_ITEMS(skew))) {
        return PL_S3_CLOCK;
    }
    switch (http_status) {
    case 307:
    case 308:
        return PL_S3_REGION;
    case 429:
    case 503:
        return PL_S3_SLOWER;
    case 408:
    case 500:
    case 502:
    case 504:
        return PL_S3_RETRY;
    default:
        return PL_S3_FINAL;
    }
}

enum pl_status pl_s3_retry_status(int http_status, const char *code)
{
    if (http_status == 404 || strncmp(code, "NoSuch", 6) == 0) {
        return PL_NOT_FOUND;
    }
    if (http_status == 400 || http_status == 416) {
        return PL_INVALID;
    }
    return http_status == 501 ? PL_UNSUPPORTED : PL_FAILED;
}

int64_t pl_s3_retry_delay_ns(unsigned attempt, int64_t retry_after_s, uint64_t random)
{
    const int64_t most_ns = 20 * PL_NS_PER_S;
    int64_t limit_ns = attempt < 8 ? (100 * PL_NS_PER_MS) << attempt : most_ns;
    int64_t delay_ns;

    limit_ns = limit_ns < most_ns ? limit_ns : most_ns;
    delay_ns = (int64_t)(random % (uint64_t)limit_ns);
    if (retry_after_s >= 0) {
        int64_t asked_ns = (retry_after_s < 60 ? retry_after_s : 60) * PL_NS_PER_S;

        delay_ns = delay_ns < asked_ns ? asked_ns + delay_ns / 8 : delay_ns;
    }
    return delay_ns;
}

static const double full_quota = 100;

struct pl_s3_retry_quota pl_s3_retry_quota_full(int64_t now_ns)
{
    return (struct pl_s3_retry_quota){.left = full_quota, .counted_ns = now_ns};
}

int64_t pl_s3_retry_quota_take(struct pl_s3_retry_quota *retry_quota, int64_t now_ns)
{
    double left = retry_quota->left + (double)(now_ns - retry_quota->counted_ns) / PL_NS_PER_S;

    retry_quota->left = (left < full_quota ? left : full_quota) - 1;
    retry_quota->counted_ns = now_ns;
    return retry_quota->left >= 0 ? 0 : (int64_t)(-retry_quota->left * PL_NS_PER_S);
}

void pl_s3_retry_quota_put(struct pl_s3_retry_quota *retry_quota, unsigned count)
{
    retry_quota->left = retry_quota->left + count < full_quota ? retry_quota->left + count : full_quota;
}

enum { MAX_DEPTH = 32 };

struct walk {
    const struct pl_s3_xml_visitor *visitor;
    XML_Parser parser;
    struct pl_text path;
    struct pl_text text;
    size_t starts[MAX_DEPTH]; /* where each element's own name begins in `path` */
    size_t depth;
    enum pl_status status;
    struct pl_error *reterr;
};

static void stop(struct walk *walk, enum pl_status status)
{
    walk->status = status;
    XML_StopParser(walk->parser, XML_FALSE);
}

static void on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct walk *walk = context;

    (void)attributes;
    if (walk->depth == MAX_DEPTH) {
        stop(walk, pl_error_set(walk->reterr, PL_LIMIT, "XML elements are nested deeper than %d", MAX_DEPTH));
        return;
    }
    walk->starts[walk->depth++] = walk->path.length;
    pl_text_append(&walk->path, walk->depth > 1 ? "/" : "");
    pl_text_append(&walk->path, name);
    pl_text_clear(&walk->text);
}

static void on_end(void *context, const XML_Char *name)
{
    struct walk *walk = context;
    enum pl_status status = pl_text_check(&walk->path, walk->reterr);

    (void)name;
    if (walk->status != PL_OK) {
        return;
    }
    if (status == PL_OK) {
        status = pl_text_check(&walk->text, walk->reterr);
    }
    if (status == PL_OK) {
        status = walk->visitor->element(walk->visitor->context, walk->path.data, pl_text_string(&walk->text),
                                        walk->text.length, walk->reterr);
    }
    if (status != PL_OK) {
        stop(walk, status);
        return;
    }
    walk->path.length = walk->starts[--walk->depth];
    walk->path.data[walk->path.length] = '\0';
    pl_text_clear(&walk->text);
}

static void on_text(void *context, const XML_Char *text, int length)
{
    struct walk *walk = context;

    pl_text_append_n(&walk->text, text, (size_t)length);
}

static void on_doctype(void *context, const XML_Char *name, const XML_Char *system_id, const XML_Char *public_id,
                       int has_internal)
{
    struct walk *walk = context;

    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_internal;
    stop(walk, pl_error_set(walk->reterr, PL_CORRUPT,
                            "the XML answer has a document type declaration, which is not supported"));
}

enum pl_status pl_s3_xml_walk(const char *text, size_t bytes, const struct pl_s3_xml_visitor *visitor,
                              struct pl_error *reterr)
{
    struct walk walk = {.visitor = visitor, .reterr = reterr};

    /* While S3 joins parts, it sends blanks to keep the connection alive. The XML declaration may come after them. */
    while (bytes && strchr(" \t\r\n", *text) && *text) {
        text++;
        bytes--;
    }
    if (bytes > INT_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "the XML answer has %zu bytes, which is too long", bytes);
    }
    walk.parser = XML_ParserCreate(NULL);
    if (!walk.parser) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory for an XML parser");
    }
    XML_SetUserData(walk.parser, &walk);
    XML_SetElementHandler(walk.parser, on_start, on_end);
    XML_SetCharacterDataHandler(walk.parser, on_text);
    XML_SetStartDoctypeDeclHandler(walk.parser, on_doctype);
    if (XML_Parse(walk.parser, text, (int)bytes, XML_TRUE) != XML_STATUS_OK && walk.status == PL_OK) {
        walk.status = pl_error_set(reterr, PL_CORRUPT, "the answer has malformed XML in line %lu: %s",
                                   (unsigned long)XML_GetCurrentLineNumber(walk.parser),
                                   XML_ErrorString(XML_GetErrorCode(walk.parser)));
    }
    XML_ParserFree(walk.parser);
    pl_text_done(&walk.path);
    pl_text_done(&walk.text);
    return walk.status;
}

void pl_s3_xml_copy(char *target, size_t target_bytes, const char *text, size_t text_bytes)
{
    size_t length = text_bytes < target_bytes - 1 ? text_bytes : target_bytes - 1;

    memcpy(target, text, length);
    target[length] = '\0';
}

static enum pl_status on_error_element(void *context, const char *path, const char *text, size_t text_bytes,
                                       struct pl_error *reterr)
{
    struct pl_s3_error_document *document = context;

    (void)reterr;
    if (strncmp(path, "ErrorResponse/", 14) == 0) {
        path += 14;
    }
    if (strcmp(path, "Error/Code") == 0) {
        pl_s3_xml_copy(document->code, sizeof(document->code), text, text_bytes);
    } else if (strcmp(path, "Error/Message") == 0) {
        pl_s3_xml_copy(document->message, sizeof(document->message), text, text_bytes);
    } else if (strcmp(path, "Error/Region") == 0) {
        pl_s3_xml_copy(document->region, sizeof(document->region), text, text_bytes);
    }
    return PL_OK;
}

/* Parses the error of a service other than S3: {"message": ...}. */
static void parse_json_error(const char *text, size_t bytes, struct pl_s3_error_document *document)
{
    PL_AUTO_JSON struct pl_json *json = NULL;
    const char *message;

    if (pl_json_parse(text, bytes, "an answer", &json, NULL) == PL_OK &&
        pl_json_text(pl_json_member(pl_json_root(json), "message"), &message, NULL) == PL_OK) {
        pl_s3_xml_copy(document->message, sizeof(document->message), message, strlen(message));
    }
}

void pl_s3_error_parse(const char *text, size_t bytes, struct pl_s3_error_document *ret_document)
{
    struct pl_s3_xml_visitor visitor = {ret_document, on_error_element};

    memset(ret_document, 0, sizeof(*ret_document));
    if (bytes && text[0] == '{') {
        parse_json_error(text, bytes, ret_document);
        return;
    }
    /* Not every error has a document. A damaged document may still have its code. */
    if (bytes && pl_s3_xml_walk(text, bytes, &visitor, NULL) != PL_OK && !ret_document->code[0]) {
        memset(ret_document, 0, sizeof(*ret_document));
    }
}
