/* SPDX-License-Identifier: Apache-2.0 */
/* The list in docs/settings.md, made from base/knob.h: `knob_page` prints it, and compares it with FILE. */
#include "base/file.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *type_text(enum pl_knob_type type)
{
    switch (type) {
    case PL_KNOB_TYPE_BOOL:
        return "yes or no";
    case PL_KNOB_TYPE_INT:
        return "whole number";
    case PL_KNOB_TYPE_SIZE:
        return "size";
    case PL_KNOB_TYPE_REAL:
        return "number";
    case PL_KNOB_TYPE_TEXT:
    case PL_KNOB_TYPE_WORD:
        return "text";
    }
    return "";
}

static void print_list(struct pl_text *text, int first, int end)
{
    pl_text_append(text, "\n");
    for (int k = first; k < end; k++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)k);

        pl_text_printf(text, "- `%s` (%s%s%s; default: %s): `%s`%s%s%s\n  %s\n", info->name, type_text(info->type),
                       *info->unit ? ", " : "", info->unit, *info->fallback ? info->fallback : "empty", info->variable,
                       info->horovod ? ", `" : "", info->horovod ? info->horovod : "", info->horovod ? "`" : "",
                       info->help);
    }
}

static void print_page(struct pl_text *text)
{
    print_list(text, 0, PL_KNOB_BACKEND);
    pl_text_append(text, "\n## For measurements and tests\n\n"
                         "A job leaves these alone; they force what Paceline otherwise chooses or measures.\n");
    print_list(text, PL_KNOB_BACKEND, PL_KNOB_COUNT);
}

int main(int argc, char **argv)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *page = NULL;
    struct pl_error error = PL_ERROR_NONE;

    print_page(&text);
    if (pl_text_check(&text, &error) != PL_OK) {
        return EXIT_FAILURE;
    }
    if (argc < 2) {
        return fputs(text.data, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    if (pl_file_read(argv[1], 1 << 20, &page, NULL, &error) != PL_OK || !strstr(page, text.data)) {
        fprintf(stderr, "%s has not the list that knob_page prints from base/knob.h\n", argv[1]);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
