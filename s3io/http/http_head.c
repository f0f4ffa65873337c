/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the status and headers of an HTTP response. */
#include "s3io/http/http_head.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <time.h>

void pl_http_head_init(struct pl_http_head *head)
{
    memset(head, 0, sizeof(*head));
    head->content_length = head->range_first = head->range_last = head->range_total = -1;
    head->retry_after_s = head->date_s = head->last_modified_s = -1;
}

/* Parses a decimal number of at most 18 digits, and moves `*at` past it. */
static bool take_number(const char **at, const char *end, int64_t *ret_number)
{
    int64_t number = 0;
    const char *first = *at;

    while (*at < end && **at >= '0' && **at <= '9' && *at - first < 18) {
        number = number * 10 + (**at - '0');
        (*at)++;
    }
    *ret_number = number;
    return *at > first && (*at == end || **at < '0' || **at > '9');
}

static bool take_text(const char **at, const char *end, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(end - *at) < length || strncasecmp(*at, text, length) != 0) {
        return false;
    }
    *at += length;
    return true;
}

/* Parses "bytes 0-9/100". An asterisk may replace the total, or in an unsatisfied range the part before the slash. */
static bool parse_content_range(struct pl_http_head *head, const char *at, const char *end)
{
    if (!take_text(&at, end, "bytes ")) {
        return false;
    }
    if (at < end && *at == '*') {
        at++;
    } else if (!take_number(&at, end, &head->range_first) || !take_text(&at, end, "-") ||
               !take_number(&at, end, &head->range_last) || head->range_last < head->range_first) {
        return false;
    }
    if (!take_text(&at, end, "/")) {
        return false;
    }
    if (at < end && *at == '*') {
        return at + 1 == end;
    }
    return take_number(&at, end, &head->range_total) && at == end && head->range_last < head->range_total;
}

/* Parses an IMF-fixdate, the only form that servers may send today. */
static int64_t parse_date(const char *at, const char *end)
{
    char text[40];
    struct tm utc = {0};
    const char *rest;

    if ((size_t)(end - at) >= sizeof(text)) {
        return -1;
    }
    memcpy(text, at, (size_t)(end - at));
    text[end - at] = '\0';
    rest = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    return rest && !*rest ? (int64_t)timegm(&utc) : -1;
}

bool pl_http_head_iso_time(const char *text, int64_t *ret_s)
{
    struct tm utc = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);

    if (rest && *rest == '.') {
        rest += 1 + strspn(rest + 1, "0123456789");
    }
    if (!rest || (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0)) {
        return false;
    }
    *ret_s = (int64_t)timegm(&utc);
    return true;
}

bool pl_http_head_base64_number(const char *text, size_t bytes, uint64_t *ret_number)
{
    size_t length = strlen(text), digits = (8 * bytes + 5) / 6;
    unsigned char decoded[9];
    uint64_t number = 0;

    /* libcrypto also accepts blanks at the ends, and padding anywhere. */
    if (length != (bytes + 2) / 3 * 4 || strcspn(text, "=") != digits ||
        strspn(text + digits, "=") != length - digits ||
        EVP_DecodeBlock(decoded, (const unsigned char *)text, (int)length) != (int)(length / 4 * 3)) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        number = number << 8 | decoded[i];
    }
    *ret_number = number;
    return true;
}

void pl_http_head_word_base64(uint32_t word, char text[static 9])
{
    const unsigned char bytes[4] = {(unsigned char)(word >> 24), (unsigned char)(word >> 16),
                                    (unsigned char)(word >> 8), (unsigned char)word};

    EVP_EncodeBlock((unsigned char *)text, bytes, sizeof(bytes));
}

static bool copy_value(const char *at, const char *end, char *text, size_t text_bytes)
{
    if ((size_t)(end - at) >= text_bytes) {
        return false;
    }
    memcpy(text, at, (size_t)(end - at));
    text[end - at] = '\0';
    return strlen(text) == (size_t)(end - at);
}

static bool parse_length(struct pl_http_head *head, const char *at, const char *end)
{
    int64_t length;

    /* Two different lengths in one head are a sign of request smuggling. */
    if (!take_number(&at, end, &length) || at != end || (head->content_length >= 0 && head->content_length != length)) {
        return false;
    }
    head->content_length = length;
    return true;
}

/* Parses a checksum. A composite one ("AAAAAA==-3") covers the parts' checksums, and the response does not have the
 * parts' borders. */
static bool parse_checksum(struct pl_http_head *head, struct pl_checksum checksum, const char *at, const char *end)
{
    char text[16];

    if (memchr(at, '-', (size_t)(end - at))) {
        head->composite = true;
        return true;
    }
    if (!copy_value(at, end, text, sizeof(text)) ||
        !pl_http_head_base64_number(text, checksum.kind == PL_CHECKSUM_CRC64NVME ? 8 : 4, &checksum.value)) {
        return false;
    }
    if (head->checksum.kind != PL_CHECKSUM_CRC32C) {
        head->checksum = checksum;
    }
    return true;
}

static bool parse_field(struct pl_http_head *head, const char *name, size_t name_bytes, const char *at, const char *end)
{
    static const char full_object[] = "FULL_OBJECT";
    static const struct {
        const char *name;
        enum { LENGTH, RANGE, ETAG, REGION, REQUEST, RETRY, DATE, MODIFIED, CRC32C, CRC32, CRC64NVME, TYPE } kind;
    } fields[] = {{"content-length", LENGTH},
                  {"content-range", RANGE},
                  {"etag", ETAG},
                  {"x-amz-bucket-region", REGION},
                  {"x-amz-request-id", REQUEST},
                  {"x-amzn-requestid", REQUEST},
                  {"retry-after", RETRY},
                  {"date", DATE},
                  {"last-modified", MODIFIED},
                  {"x-amz-checksum-crc32c", CRC32C},
                  {"x-amz-checksum-crc32", CRC32},
                  {"x-amz-checksum-crc64nvme", CRC64NVME},
                  {"x-amz-checksum-type", TYPE}};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strlen(fields[i].name) != name_bytes || strncasecmp(fields[i].name, name, name_bytes) != 0) {
            continue;
        }
        switch (fields[i].kind) {
        case LENGTH:
            return parse_length(head, at, end);
        case RANGE:
            return parse_content_range(head, at, end);
        case ETAG:
            return copy_value(at, end, head->etag, sizeof(head->etag));
        case REGION:
            return copy_value(at, end, head->region, sizeof(head->region));
        case REQUEST:
            copy_value(at, end, head->request_id, sizeof(head->request_id)); /* used only in messages */
            return true;
        case RETRY:
            if (!take_number(&at, end, &head->retry_after_s) || at != end) {
                head->retry_after_s = -1; /* a date: ignored, our own back-off is used instead */
            }
            return true;
        case DATE:
            head->date_s = parse_date(at, end);
            return true;
        case MODIFIED:
            head->last_modified_s = parse_date(at, end);
            return true;
        case CRC32C:
            return parse_checksum(head, (struct pl_checksum){.kind = PL_CHECKSUM_CRC32C}, at, end);
        case CRC32:
            return parse_checksum(head, (struct pl_checksum){.kind = PL_CHECKSUM_CRC32}, at, end);
        case CRC64NVME:
            return parse_checksum(head, (struct pl_checksum){.kind = PL_CHECKSUM_CRC64NVME}, at, end);
        case TYPE:
            head->full_object = end - at == sizeof(full_object) - 1 && memcmp(at, full_object, (size_t)(end - at)) == 0;
            return true;
        }
    }
    return true;
}

static enum pl_status status_line(struct pl_http_head *head, const char *line, size_t bytes, struct pl_error *reterr)
{
    const char *at = memchr(line, ' ', bytes), *end = line + bytes;
    int64_t code = 0;

    pl_http_head_init(head);
    head->head_bytes = bytes;
    if (at) {
        at++;
    }
    if (!at || !take_number(&at, end, &code) || code < 100 || code > 599) {
        return pl_error_set(reterr, PL_CORRUPT, "malformed HTTP status line '%.*s'", (int)(bytes < 80 ? bytes : 80),
                            line);
    }
    head->status = (int)code;
    return PL_OK;
}

enum pl_status pl_http_head_line(struct pl_http_head *head, const char *line, size_t bytes, struct pl_error *reterr)
{
    const char *colon, *value, *end;

    while (bytes && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r')) {
        bytes--;
    }
    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        return status_line(head, line, bytes, reterr);
    }
    head->head_bytes += bytes;
    if (head->head_bytes > PL_HTTP_HEAD_MAX_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "the head of an HTTP response is longer than %d bytes",
                            PL_HTTP_HEAD_MAX_BYTES);
    }
    if (bytes == 0) {
        return PL_OK;
    }
    colon = memchr(line, ':', bytes);
    if (!colon || colon == line || memchr(line, '\0', bytes)) {
        return pl_error_set(reterr, PL_CORRUPT, "malformed HTTP header line '%.*s'", (int)(bytes < 80 ? bytes : 80),
                            line);
    }
    value = colon + 1;
    end = line + bytes;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (!parse_field(head, line, (size_t)(colon - line), value, end)) {
        return pl_error_set(reterr, PL_CORRUPT, "HTTP header '%.*s' cannot be parsed", (int)(bytes < 120 ? bytes : 120),
                            line);
    }
    return PL_OK;
}
