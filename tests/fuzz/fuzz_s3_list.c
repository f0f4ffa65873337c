/* SPDX-License-Identifier: Apache-2.0 */
/* List pages and error documents: in a page that is accepted, entries have keys, and an incomplete page has a token. */
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_reply.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_s3_error_document document;
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    if (pl_s3_list_parse((const char *)data, bytes, &listing, &next, &error) == PL_OK) {
        for (size_t i = 0; i < listing.count; i++) {
            PL_BUG_IF(!listing.items[i].key);
        }
        PL_BUG_IF(next && !*next);
    } else {
        PL_BUG_IF(error.cause[0] == '\0' || next);
    }
    free(next);
    pl_s3_error_parse((const char *)data, bytes, &document);
    PL_BUG_IF(strlen(document.code) >= sizeof(document.code));
    return 0;
}
