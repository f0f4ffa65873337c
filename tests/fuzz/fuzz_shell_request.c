/* SPDX-License-Identifier: Apache-2.0 */
/* The request of a session: a request that is accepted is printed unchanged. */
#include "programs/shell/request.h"
#include "tests/support/fuzz.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    PL_AUTO_STRV struct pl_strv request = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text again = PL_TEXT_NONE;

    if (!text) {
        return 0;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (pl_shell_request_parse(text, &request, NULL) == PL_OK) {
        PL_BUG_IF(pl_shell_request_print(&request, &again, NULL) != PL_OK || strcmp(pl_text_string(&again), text) != 0);
    }
    free(text);
    return 0;
}
