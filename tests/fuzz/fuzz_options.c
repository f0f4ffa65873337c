/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting never reads beyond its text, and words that are quoted for a shell split into the same words again. */
#include "base/memory.h"
#include "entrypoint/launch/mpi_options.h"
#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    PL_AUTO_FREE char *text = pl_memory_string_n((const char *)data, bytes, NULL);
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv again = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text quoted = PL_TEXT_NONE;
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    struct pl_mpi_options_custom custom = {.words = {.pool = &pool}};
    struct pl_error error = PL_ERROR_NONE;

    if (text && pl_strv_split(text, "options", &words, &error) == PL_OK) {
        for (size_t i = 0; i < words.count; i++) {
            pl_text_append_quoted(&quoted, words.items[i]);
            pl_text_append_char(&quoted, ' ');
        }
        PL_BUG_IF(pl_strv_split(pl_text_string(&quoted), "quoted", &again, &error) != PL_OK ||
                  again.count != words.count);
        for (size_t i = 0; i < words.count; i++) {
            PL_BUG_IF(strcmp(words.items[i], again.items[i]) != 0);
        }
        if (pl_mpi_options_split(text, &custom, &error) == PL_OK) {
            PL_BUG_IF(custom.words.count > words.count);
        }
    }
    return 0;
}
