/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For json_against_python.py: reads one document per line, as hex bytes, and prints it as json.dumps(sort_keys=True,
 * separators=(",", ":")) does. If a document is refused, prints "!".
 */
#include "base/json/python_json.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;

    while ((length = getline(&line, &capacity, stdin)) > 0) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        size_t bytes = (size_t)(length - 1) / 2;

        for (size_t i = 0; i < bytes; i++) {
            line[i] = (char)(pl_text_hex_value(line[2 * i]) << 4 | pl_text_hex_value(line[2 * i + 1]));
        }
        if (pl_python_json_parse(line, bytes, "input", &root, NULL) != PL_OK) {
            puts("!");
            continue;
        }
        pl_python_json_print(root, PL_PYTHON_JSON_COMPACT | PL_PYTHON_JSON_SORTED, &text);
        puts(pl_text_string(&text));
    }
    free(line);
    return EXIT_SUCCESS;
}
