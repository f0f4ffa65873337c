/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For json_against_python.py: reads one strict document per line, as hex bytes, and prints it; with the word `python`
 * one of Python's, as json.dumps(sort_keys=True, separators=(",", ":")) does. If a document is refused, prints "!" and
 * the reason.
 */
#include "base/json/python_json.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    bool is_python = argc > 1 && strcmp(argv[1], "python") == 0;
    unsigned style = PL_PYTHON_JSON_COMPACT | (is_python ? PL_PYTHON_JSON_SORTED : 0);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;

    while ((length = getline(&line, &capacity, stdin)) > 0) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        struct pl_error error = PL_ERROR_NONE;
        size_t bytes = (size_t)(length - 1) / 2;

        for (size_t i = 0; i < bytes; i++) {
            line[i] = (char)(pl_text_hex_value(line[2 * i]) << 4 | pl_text_hex_value(line[2 * i + 1]));
        }
        if ((is_python ? pl_python_json_parse : pl_python_json_parse_strict)(line, bytes, "input", &document, &error) ==
            PL_OK) {
            pl_python_json_print(document, style, &text);
            PL_BUG_IF(pl_text_check(&text, &error) != PL_OK);
            puts(pl_text_string(&text));
        } else {
            for (char *at = error.cause; *at; at++) {
                *at = *at >= ' ' && *at < 0x7F ? *at : '?';
            }
            printf("!%s\n", error.cause);
        }
    }
    free(line);
    return EXIT_SUCCESS;
}
