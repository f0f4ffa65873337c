/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/http/http_head.c, s3io/s3/manifest.c, s3io/s3/address.c. */
/*
 * The cases of tests/data/s3-texts.txt. `text` is the head of an answer, a manifest or an address s3://, for the action
 * that follows; region, endpoint, flags (virtual, fips, dual), bucket and key make an address; "-" is none.
 */
#include "base/memory.h"
#include "s3io/http/http_head.h"
#include "s3io/s3/address.h"
#include "s3io/s3/manifest.h"
#include "tests/support/cases.h"

#include <inttypes.h>

enum { FIELD_BYTES = 256 };

static char input[2048], region[FIELD_BYTES], endpoint[FIELD_BYTES], bucket[FIELD_BYTES] = "bkt",
                                                                     key[FIELD_BYTES] = "k";
static struct pl_s3_endpoint_config config;
static struct pl_http_head head;
static struct pl_manifest manifest;
static struct pl_augmented augmented;
static struct pl_s3_address address;
static char *parsed_bucket, *parsed_key;

#define SET(name)                                                                                                      \
    static void set_##name(char *rest)                                                                                 \
    {                                                                                                                  \
        snprintf(name, sizeof(name), "%s", cases_unescape(rest));                                                      \
    }

SET(input)
SET(region)
SET(endpoint)
SET(bucket)
SET(key)

static void set_flags(char *rest)
{
    config = (struct pl_s3_endpoint_config){.fips = !!strstr(rest, "fips"),
                                            .dual_stack = !!strstr(rest, "dual"),
                                            .style = strstr(rest, "virtual") ? PL_S3_STYLE_VIRTUAL : 0};
}

static const char *or_null(const char *text)
{
    return strcmp(text, "-") == 0 ? NULL : text;
}

static enum pl_status do_head(struct pl_error *reterr)
{
    pl_http_head_init(&head);
    for (const char *line = input; *line; line += strcspn(line, "\n") + 1) {
        PL_TRY(pl_http_head_line(&head, line, strcspn(line, "\n") + 1, reterr));
    }
    return PL_OK;
}

static enum pl_status do_manifest(struct pl_error *reterr)
{
    return pl_manifest_parse(input, strlen(input), "m", &manifest, reterr);
}

static enum pl_status do_augmented(struct pl_error *reterr)
{
    static const char *const names[] = {"image-ref", "label"};

    return pl_manifest_parse_augmented(input, strlen(input), "m", names, 2, &augmented, reterr);
}

static void configure(void)
{
    pl_s3_address_done(&address);
    address = (struct pl_s3_address){.url = NULL};
    config.region = region;
    config.endpoint_url = endpoint[0] == '\0' ? NULL : or_null(endpoint);
}

static enum pl_status do_address(struct pl_error *reterr)
{
    configure();
    return pl_s3_address_build(&config, bucket, or_null(key), &address, reterr);
}

static enum pl_status do_sts(struct pl_error *reterr)
{
    configure();
    return pl_s3_address_service(&config, "sts", "/", &address, reterr);
}

static enum pl_status do_uri(struct pl_error *reterr)
{
    free(parsed_bucket);
    free(parsed_key);
    parsed_bucket = parsed_key = NULL;
    return pl_s3_uri_parse(input, &parsed_bucket, &parsed_key, reterr);
}

static void print_head(const char *name, struct pl_text *text, bool *ret_known)
{
    static const char *const kinds[] = {[PL_CHECKSUM_NONE] = "none",
                                        [PL_CHECKSUM_CRC32] = "crc32",
                                        [PL_CHECKSUM_CRC32C] = "crc32c",
                                        [PL_CHECKSUM_CRC64NVME] = "crc64nvme"};
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"status", head.status},
                   {"length", head.content_length},
                   {"date", head.date_s},
                   {"retry_after", head.retry_after_s}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            pl_text_printf(text, "%" PRId64, numbers[i].value);
            return;
        }
    }
    if (strcmp(name, "range") == 0) {
        pl_text_printf(text, "%" PRId64 "-%" PRId64 "/%" PRId64, head.range_first, head.range_last, head.range_total);
    } else if (strcmp(name, "checksum") == 0) {
        pl_text_printf(text, "%s %" PRIx64, kinds[head.checksum.kind], (uint64_t)head.checksum.value);
    } else {
        *ret_known = strcmp(name, "sum_of") == 0;
        pl_text_printf(text, "%s%s", head.composite ? "composite" : "", head.full_object ? "full object" : "");
    }
}

static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    const struct {
        const char *name, *value;
    } texts[] = {{"etag", head.etag},
                 {"bucket_region", head.region},
                 {"url", address.url},
                 {"host", address.host},
                 {"path", address.path}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(texts); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            return texts[i].value;
        }
    }
    if (strcmp(name, "keys") == 0) {
        pl_text_printf(text, "%s %s :", manifest.bucket, manifest.prefix);
        for (size_t i = 0; i < manifest.count; i++) {
            pl_text_printf(text, " %s", manifest.keys[i]);
        }
    } else if (strcmp(name, "values") == 0) {
        for (size_t i = 0; i < augmented.lines * augmented.attributes; i++) {
            pl_text_printf(text, "%s %s|", augmented.values[i].bucket ? augmented.values[i].bucket : "none",
                           augmented.values[i].text);
        }
    } else if (strcmp(name, "parsed") == 0) {
        pl_text_printf(text, "%s %s", parsed_bucket, parsed_key);
    } else if (strcmp(name, "told") == 0) {
        char told[1200];

        pl_text_append(text, pl_error_text(&cases.error, told, sizeof(told)));
    } else {
        print_head(name, text, ret_known);
    }
    return pl_text_string(text);
}

static void end(void)
{
    pl_manifest_done(&manifest);
    pl_manifest_augmented_done(&augmented);
    pl_s3_address_done(&address);
    free(parsed_bucket);
    free(parsed_key);
}

static struct cases cases = {.verbs = (const struct cases_verb[]){{"text", set_input},
                                                                  {"region", set_region},
                                                                  {"endpoint", set_endpoint},
                                                                  {"bucket", set_bucket},
                                                                  {"key", set_key},
                                                                  {"flags", set_flags},
                                                                  {NULL, NULL}},
                             .actions = (const struct cases_action[]){{"head", do_head},
                                                                      {"manifest", do_manifest},
                                                                      {"augmented", do_augmented},
                                                                      {"address", do_address},
                                                                      {"sts", do_sts},
                                                                      {"uri", do_uri},
                                                                      {NULL, NULL}},
                             .find = find,
                             .end = end};

TEST(endless_head_is_refused)
{
    char line[1000];
    enum pl_status status = PL_OK;

    pl_http_head_init(&head);
    memset(line, 'x', sizeof(line));
    line[10] = ':';
    for (int i = 0; i < 100 && status == PL_OK; i++) {
        status = pl_http_head_line(&head, line, sizeof(line), NULL);
    }
    ck_assert_int_eq(status, PL_LIMIT);
}

TEST(words_survive_base64)
{
    static const uint32_t words[] = {0, 1, 0x80000000, 0xffffffff, 0xe3069283, 0x12345678};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char text[9];
        uint64_t word = 7;

        pl_http_head_word_base64(words[i], text);
        ck_assert(pl_http_head_base64_number(text, 4, &word));
        ck_assert_uint_eq(word, words[i]);
    }
}

TEST(iso_times)
{
    int64_t time_s = 0;

    ck_assert(pl_http_head_iso_time("2013-05-24T00:00:00Z", &time_s));
    ck_assert_int_eq(time_s, 1369353600);
    ck_assert(pl_http_head_iso_time("2013-05-24T00:00:01.123456Z", &time_s));
    ck_assert_int_eq(time_s, 1369353601);
    ck_assert(!pl_http_head_iso_time("2013-05-24", &time_s));
    ck_assert(!pl_http_head_iso_time("2013-05-24T00:00:00+02:00", &time_s));
}

CASES_MAIN("s3io/s3/texts")
