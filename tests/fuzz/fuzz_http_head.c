/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of HTTP answers, line by line: values that are accepted are consistent. */
#include "s3io/http/http_head.h"
#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_http_head head;
    struct pl_error error = PL_ERROR_NONE;

    pl_http_head_init(&head);
    while (bytes) {
        const uint8_t *newline = memchr(data, '\n', bytes);
        size_t length = newline ? (size_t)(newline - data) + 1 : bytes;

        if (pl_http_head_line(&head, (const char *)data, length, &error) != PL_OK) {
            PL_BUG_IF(error.cause[0] == '\0');
            return 0;
        }
        PL_BUG_IF(head.range_first > head.range_last || (head.range_total >= 0 && head.range_last >= head.range_total));
        PL_BUG_IF(head.content_length < -1 || strlen(head.etag) >= sizeof(head.etag));
        data += length;
        bytes -= length;
    }
    return 0;
}
