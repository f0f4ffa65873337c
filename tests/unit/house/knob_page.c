/* SPDX-License-Identifier: Apache-2.0 */
/* The tables in docs/settings.md, made from base/knob.h: `knob_page` prints it, and compares it with FILE. */
#include "base/file.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints the rows of the settings from `first` to before `end`: name, default with its unit, help. */
static void print_table(struct pl_text *text, int first, int end)
{
    pl_text_append(text, "\n| name | default | |\n|---|---|---|\n");
    for (int k = first; k < end; k++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)k);
        bool has_unit = info->type == PL_KNOB_TYPE_INT || info->type == PL_KNOB_TYPE_REAL;

        pl_text_printf(text, "| `%s` | %s%s%s | %s |\n", info->name, info->fallback, has_unit ? " " : "",
                       has_unit ? info->unit : "", info->help);
    }
}

/* Prints the text of the page from the first table to its end. */
static void print_page(struct pl_text *text)
{
    print_table(text, 0, PL_KNOB_BACKEND);
    pl_text_append(text, "\nHorovod's variables for the same settings:\n\n");
    for (int k = 0; k < PL_KNOB_COUNT; k++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)k);

        if (info->horovod) {
            pl_text_printf(text, "- `%s`: `%s`\n", info->name, info->horovod);
        }
    }
    pl_text_append(text, "\n## For measurements and tests\n\n"
                         "A job leaves these alone; they force what Paceline otherwise chooses or measures.\n");
    print_table(text, PL_KNOB_BACKEND, PL_KNOB_COUNT);
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
        fprintf(stderr, "%s has not the tables that knob_page prints from base/knob.h\n", argv[1]);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
