/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/verbs.c. */
#include "entrypoint/verbs.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100 };

/* Returns the help of `verb`, or the list for NULL. */
static char *printed(const char *verb)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    ck_assert_ptr_nonnull(out);
    if (verb) {
        pl_verbs_print_help(verb, out);
    } else {
        pl_verbs_print_list(out);
    }
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void check_lines(const char *text)
{
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");

        ck_assert_uint_le(length, COLUMNS);
        ck_assert_msg(length == 0 || line[length - 1] != ' ', "'%.*s' ends with a space", (int)length, line);
    }
}

TEST(a_verb_is_found_by_its_whole_name)
{
    ck_assert_str_eq(pl_verbs_find("sync")->program, "paceline-sync");
    ck_assert_ptr_null(pl_verbs_find("train")->program);
    ck_assert_ptr_null(pl_verbs_find("syn"));
    ck_assert_ptr_null(pl_verbs_find(""));
    for (size_t i = 0; i < pl_verbs_count; i++) {
        ck_assert_ptr_eq(pl_verbs_find(pl_verbs[i].name), &pl_verbs[i]);
    }
}

TEST(the_list_has_each_verb_for_users_in_one_line)
{
    PL_AUTO_FREE char *list = printed(NULL);

    for (size_t i = 0; i < pl_verbs_count; i++) {
        const struct pl_verb *verb = &pl_verbs[i];
        char line[COLUMNS + 1];

        snprintf(line, sizeof(line), "  paceline %-9s %s\n", verb->name, verb->summary ? verb->summary : "");
        ck_assert(!strstr(list, line) == !verb->summary);
    }
    for (const struct pl_verb_exit_code *exit_code = pl_verbs_exit_codes; exit_code->code; exit_code++) {
        char line[COLUMNS + 1];

        snprintf(line, sizeof(line), "\n  %-12s %.20s", exit_code->code, exit_code->text);
        ck_has(list, line);
    }
    check_lines(list);
}

TEST(help_has_each_option_and_fits_the_columns)
{
    for (size_t i = 0; i < pl_verbs_count; i++) {
        const struct pl_verb *verb = &pl_verbs[i];
        PL_AUTO_FREE char *help = verb->summary ? printed(verb->name) : NULL;

        for (size_t j = 0; j < verb->option_count; j++) {
            char start[COLUMNS + 1];

            snprintf(start, sizeof(start), "\n  %s", verb->options[j].name);
            ck_has(help, start);
        }
        if (help) {
            check_lines(help);
        }
    }
}

TEST(help_begins_with_each_form_of_the_command)
{
    static const char s3[] = "usage: paceline s3 ls [--recursive] s3://BUCKET/PREFIX\n"
                             "       paceline s3 cat s3://BUCKET/KEY...\n"
                             "       paceline s3 cp [--recursive] FROM TO\n";
    static const char plan[] =
        "usage: paceline plan [--json]\n       paceline plan [--json] -- COMMAND [ARGUMENT...]\n\n"
        "Print what";
    PL_AUTO_FREE char *of_s3 = printed("s3");
    PL_AUTO_FREE char *of_plan = printed("plan");

    ck_assert_int_eq(strncmp(of_s3, s3, strlen(s3)), 0);
    ck_assert_int_eq(strncmp(of_plan, plan, strlen(plan)), 0);
}

TEST(paragraphs_examples_and_options_are_laid_out)
{
    static const char wanted[] = "\n  --finish SECONDS      how long the last uploads may take (60)\n";
    static const char wrapped[] =
        "\n  --channel NAME=FROM[:WORD]  a folder or s3:// prefix as a channel; words: pipe, ";
    PL_AUTO_FREE char *sync = printed("sync");
    PL_AUTO_FREE char *s3 = printed("s3");
    PL_AUTO_FREE char *local = printed("local");

    ck_has(sync, wanted);
    ck_has(local, wrapped);
    ck_has(s3, "\n\nExamples:\n  paceline s3 ls s3://bucket/data/\n  paceline s3 cp ");
    ck_has(sync, "\n\nExample:\n  paceline sync /opt/ml/checkpoints ");
}

UNIT_MAIN("entrypoint/verbs")
