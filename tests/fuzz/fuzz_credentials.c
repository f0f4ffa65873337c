/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of credential endpoints and of STS, profile files, and the addresses that tokens may be sent to. */
#include "base/memory.h"
#include "s3io/s3/credentials.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_credentials_reply reply;
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    struct pl_error error = PL_ERROR_NONE;
    /* strict sanitizers refuse strndup() of bytes without a NUL */
    char *url = pl_memory_string_n((const char *)data, bytes, NULL);

    if (pl_credentials_reply_parse((const char *)data, bytes, &reply, &error) == PL_OK ||
        pl_credentials_reply_parse_sts((const char *)data, bytes, &reply, &error) == PL_OK) {
        PL_BUG_IF(!reply.access_key || !reply.secret_key || strpbrk(reply.access_key, "\r\n"));
        PL_BUG_IF(reply.session_token && strpbrk(reply.session_token, "\r\n"));
        pl_credentials_reply_done(&reply);
    }
    if (pl_profile_parse((const char *)data, bytes, "default", bytes % 2, &profile, &error) == PL_OK &&
        profile.access_key) {
        PL_BUG_IF(strchr(profile.access_key, '\n'));
    }
    if (url) {
        pl_credentials_reply_url_allowed(url);
    }
    free(url);
    return 0;
}
