/* SPDX-License-Identifier: Apache-2.0 */
/* A document that parses can be printed, and the printed text parses to a tree that prints the same. */
#include "base/json/python_json.h"
#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const unsigned styles[] = {PL_PYTHON_JSON_COMPACT, PL_PYTHON_JSON_SPACED,
                                      PL_PYTHON_JSON_SPACED | PL_PYTHON_JSON_SORTED};
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_python_json_parse((const char *)data, bytes, "fuzz", &root, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
        return 0;
    }
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        PL_AUTO_TEXT struct pl_text once = PL_TEXT_NONE;
        PL_AUTO_TEXT struct pl_text twice = PL_TEXT_NONE;
        PL_AUTO_PYTHON_JSON struct pl_python_json *again = NULL;

        pl_python_json_print(root, styles[i], &once);
        if (pl_text_check(&once, NULL) != PL_OK) {
            return 0;
        }
        PL_BUG_IF(pl_python_json_parse(once.data, once.length, "printed", &again, &error) != PL_OK);
        pl_python_json_print(again, styles[i], &twice);
        PL_BUG_IF(once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0);
    }
    return 0;
}
