/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For json_against_python.py: reads one document per line, as hex bytes, and prints it as pl_json_write_value() does,
 * or with the word `python` as json.dumps(sort_keys=True, separators=(",", ":")) does. If a document is refused, prints
 * "!" and the reason.
 */
#include "base/json/json_write.h"
#include "base/json/python_json.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

static enum pl_status echo(const char *text, size_t bytes, struct pl_text *out, struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    struct pl_json_writer writer = PL_JSON_WRITER(out);

    PL_TRY(pl_json_parse(text, bytes, "input", &document, reterr));
    pl_json_write_value(&writer, NULL, pl_json_root(document));
    return pl_json_write_end(&writer, reterr);
}

static enum pl_status echo_python(const char *text, size_t bytes, struct pl_text *out, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    PL_TRY(pl_python_json_parse(text, bytes, "input", &root, reterr));
    pl_python_json_print(root, PL_PYTHON_JSON_COMPACT | PL_PYTHON_JSON_SORTED, out);
    return PL_OK;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;

    (void)argv;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        struct pl_error error = PL_ERROR_NONE;
        size_t bytes = (size_t)(length - 1) / 2;

        for (size_t i = 0; i < bytes; i++) {
            line[i] = (char)(pl_text_hex_value(line[2 * i]) << 4 | pl_text_hex_value(line[2 * i + 1]));
        }
        if ((argc > 1 ? echo_python : echo)(line, bytes, &text, &error) == PL_OK) {
            puts(pl_text_string(&text));
            continue;
        }
        for (char *at = error.cause; *at; at++) {
            *at = *at >= ' ' && *at < 0x7F ? *at : '?';
        }
        printf("!%s\n", error.cause);
    }
    free(line);
    return EXIT_SUCCESS;
}
