/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/address.c. */
#include "s3io/s3/address.h"
#include "tests/support/unit.h"

static void check(struct pl_s3_endpoint_config endpoint_config, const char *bucket, const char *key, const char *url,
                  const char *host, const char *path)
{
    PL_AUTO_ADDRESS struct pl_s3_address address = {.url = NULL};

    ck_ok(pl_s3_address_build, &endpoint_config, bucket, key, &address);
    ck_assert_str_eq(address.url, url);
    ck_assert_str_eq(address.host, host);
    ck_assert_str_eq(address.path, path);
}

static enum pl_status status_of(struct pl_s3_endpoint_config endpoint_config, const char *bucket)
{
    PL_AUTO_ADDRESS struct pl_s3_address address = {.url = NULL};

    return pl_s3_address_build(&endpoint_config, bucket, "k", &address, NULL);
}

TEST(aws_endpoints)
{
    check((struct pl_s3_endpoint_config){.region = "eu-west-1"}, "bkt", "a b",
          "https://bkt.s3.eu-west-1.amazonaws.com/a%20b", "bkt.s3.eu-west-1.amazonaws.com", "/a b");
    check((struct pl_s3_endpoint_config){.region = "cn-north-1"}, "bkt", "k",
          "https://bkt.s3.cn-north-1.amazonaws.com.cn/k", "bkt.s3.cn-north-1.amazonaws.com.cn", "/k");
    check((struct pl_s3_endpoint_config){.region = "us-east-1", .fips = true, .dual_stack = true}, "bkt", NULL,
          "https://bkt.s3-fips.dualstack.us-east-1.amazonaws.com/", "bkt.s3-fips.dualstack.us-east-1.amazonaws.com",
          "/");
    /* No certificate matches a bucket with dots, and host names have no capitals. */
    check((struct pl_s3_endpoint_config){.region = "us-east-1"}, "my.bkt", "k",
          "https://s3.us-east-1.amazonaws.com/my.bkt/k", "s3.us-east-1.amazonaws.com", "/my.bkt/k");
    check((struct pl_s3_endpoint_config){.region = "us-east-1"}, "OldBucket", "k",
          "https://s3.us-east-1.amazonaws.com/OldBucket/k", "s3.us-east-1.amazonaws.com", "/OldBucket/k");
}

TEST(own_endpoints)
{
    check((struct pl_s3_endpoint_config){.endpoint_url = "http://127.0.0.1:9000", .region = "r"}, "bkt", NULL,
          "http://127.0.0.1:9000/bkt", "127.0.0.1:9000", "/bkt");
    check((struct pl_s3_endpoint_config){.endpoint_url = "https://s3.example:443/base/", .region = "r"}, "bkt", "k",
          "https://s3.example:443/base/bkt/k", "s3.example", "/base/bkt/k");
    check((struct pl_s3_endpoint_config){.endpoint_url = "http://s3.localhost:80",
                                         .region = "r",
                                         .style = PL_S3_STYLE_VIRTUAL},
          "my.bkt", "k", "http://my.bkt.s3.localhost:80/k", "my.bkt.s3.localhost", "/k");
    /* An IP address cannot contain a bucket, whatever the setting is. */
    check((struct pl_s3_endpoint_config){.endpoint_url = "http://[::1]:9000",
                                         .region = "r",
                                         .style = PL_S3_STYLE_VIRTUAL},
          "bkt", "k", "http://[::1]:9000/bkt/k", "[::1]:9000", "/bkt/k");
}

TEST(keys_stay_as_they_are)
{
    /* Dots, double slashes and every other byte belong to the key. */
    check((struct pl_s3_endpoint_config){.region = "us-east-1"}, "bkt", "a/../b//c?d#e%f+\xe1\x88\xb4",
          "https://bkt.s3.us-east-1.amazonaws.com/a/../b//c%3Fd%23e%25f%2B%E1%88%B4", "bkt.s3.us-east-1.amazonaws.com",
          "/a/../b//c?d#e%f+\xe1\x88\xb4");
}

static void check_sts(struct pl_s3_endpoint_config endpoint_config, const char *wanted)
{
    PL_AUTO_ADDRESS struct pl_s3_address address = {.url = NULL};

    ck_ok(pl_s3_address_service, &endpoint_config, "sts", "/", &address);
    ck_assert_str_eq(address.url, wanted);
}

TEST(the_token_service_has_its_own_address)
{
    struct pl_s3_endpoint_config nonsense = {.region = "evil.example/"};
    struct pl_s3_address address = {.url = NULL};

    check_sts((struct pl_s3_endpoint_config){.region = "eu-west-1"}, "https://sts.eu-west-1.amazonaws.com/");
    check_sts((struct pl_s3_endpoint_config){.region = "cn-north-1"}, "https://sts.cn-north-1.amazonaws.com.cn/");
    check_sts((struct pl_s3_endpoint_config){.region = "us-east-1", .fips = true},
              "https://sts-fips.us-east-1.amazonaws.com/");
    check_sts((struct pl_s3_endpoint_config){.region = "r", .endpoint_url = "http://127.0.0.1:9000"},
              "http://127.0.0.1:9000/");
    check_sts((struct pl_s3_endpoint_config){.region = "r", .endpoint_url = "https://host/base//"},
              "https://host/base/");
    ck_fails(PL_INVALID, "", pl_s3_address_service, &nonsense, "sts", "/", &address);
}

TEST(nonsense_is_refused)
{
    static const char *const buckets[] = {"", "ab", "a b c", "bkt/x", "bkt@evil.example", "a..b", "bkt?x", "bkt\nx"};
    static const char *const endpoints[] = {"ftp://x",          "127.0.0.1:9000",   "http://",
                                            "http://user@host", "http://host/?q=1", "http://host\r\nX: y"};

    for (size_t i = 0; i < sizeof(buckets) / sizeof(buckets[0]); i++) {
        ck_assert_msg(status_of((struct pl_s3_endpoint_config){.region = "us-east-1"}, buckets[i]) == PL_INVALID, "%s",
                      buckets[i]);
    }
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        ck_assert_msg(status_of((struct pl_s3_endpoint_config){.endpoint_url = endpoints[i], .region = "r"}, "bkt") ==
                          PL_INVALID,
                      "%s", endpoints[i]);
    }
    ck_assert_int_eq(status_of((struct pl_s3_endpoint_config){.region = "evil.example/"}, "bkt"), PL_INVALID);
}

TEST(uris)
{
    char *bucket = NULL, *key = NULL;

    ck_ok(pl_s3_uri_parse, "s3://bkt/a/b c", &bucket, &key);
    ck_assert_str_eq(bucket, "bkt");
    ck_assert_str_eq(key, "a/b c");
    free(bucket);
    free(key);
    ck_ok(pl_s3_uri_parse, "s3://bkt", &bucket, &key);
    ck_assert_str_eq(key, "");
    free(bucket);
    free(key);
    ck_fails(PL_INVALID, "", pl_s3_uri_parse, "S3://bkt", &bucket, &key);
    ck_fails(PL_INVALID, "", pl_s3_uri_parse, "s3:///key", &bucket, &key);
}

UNIT_MAIN("s3io/address")
