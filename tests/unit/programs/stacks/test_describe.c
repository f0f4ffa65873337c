/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/describe.c. */
#include "programs/stacks/describe.h"

#include "base/memory.h"
#include "tests/support/unit.h"

START_TEST(a_program_is_named_without_its_arguments)
{
    static const struct {
        const char *words;
        size_t bytes;
        const char *name;
    } cases[] = {
#define WORDS(text, name) {text, sizeof(text), name}
        WORDS("/opt/train\0--key\0secret", "/opt/train"),
        WORDS("/usr/bin/python3\0-u\0train.py\0--key\0secret", "/usr/bin/python3 train.py"),
        WORDS("python3.11\0-W\0ignore\0-X\0dev\0-u\0-m\0package.train\0secret", "python3.11 -m package.train"),
        WORDS("python3\0-c\0secret = 1", "python3"),
        WORDS("python3\0-csecret", "python3"),
        WORDS("python3\0-", "python3"),
        WORDS("python3\0-m", "python3"),
        WORDS("python3\0-W", "python3"),
        WORDS("python3", "python3"),
        WORDS("/bin/sh\0run.sh\0secret", "/bin/sh run.sh"),
        WORDS("sh\0-c\0secret", "sh"),
        WORDS("two\nlines", "two"),
        WORDS("a\033[1mb", "a?[1mb"),
        WORDS("", ""),
#undef WORDS
        {"", 0, ""},
        {"no end", 6, "no end"},
    };
    char name[64], cut[8];

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        pl_describe_name(cases[i].words, cases[i].bytes, name, sizeof(name));
        ck_assert_str_eq(name, cases[i].name);
    }
    pl_describe_name("abcdef\xc3\xa4", 9, cut, sizeof(cut)); /* the cut is not in the middle of a character */
    ck_assert_str_eq(cut, "abcdef");
}
END_TEST

START_TEST(a_rank_is_what_its_launcher_says)
{
    static const struct {
        const char *variables;
        size_t bytes;
        int rank;
    } cases[] = {
#define VARIABLES(text, rank) {text, sizeof(text), rank}
        VARIABLES("A=1\0RANK=7", 7),
        VARIABLES("RANK=7\0OMPI_COMM_WORLD_RANK=2\0PMIX_RANK=3", 2),
        VARIABLES("PMIX_RANK=3\0RANK=1", 3),
        VARIABLES("LOCAL_RANK=3", -1),
        VARIABLES("RANK=\0RANKS=4", -1),
        VARIABLES("RANK=first", -1),
        VARIABLES("", -1),
#undef VARIABLES
        {"", 0, -1},
        {"RANK=5", 6, 5},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_assert_int_eq(pl_describe_rank(cases[i].variables, cases[i].bytes), cases[i].rank);
    }
}
END_TEST

UNIT_MAIN("programs/stacks/describe", a_program_is_named_without_its_arguments, a_rank_is_what_its_launcher_says)
