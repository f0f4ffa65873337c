/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/strv.c. */
#include "entrypoint/job/strv.h"
#include "tests/support/unit.h"

#include <string.h>

/* Returns the words of `text` between '<' and '>', or "!cause". */
static const char *split(const char *text)
{
    static char result[1024];
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    result[0] = '\0';
    if (pl_strv_split(text, "options", &words, &error) != PL_OK) {
        strcat(strcpy(result, "!"), error.cause);
        return result;
    }
    for (size_t i = 0; i < words.count; i++) {
        strcat(strcat(strcat(result, "<"), words.items[i]), ">");
    }
    return result;
}

TEST(words_split_as_in_a_shell)
{
    ck_assert_str_eq(split(""), "");
    ck_assert_str_eq(split("  -x  A=1\t-verbose\n"), "<-x><A=1><-verbose>");
    ck_assert_str_eq(split("-x \"A B=c d\" 'e \"f\"'"), "<-x><A B=c d><e \"f\">");
    ck_assert_str_eq(split("a'b c'\"d e\"f"), "<ab cd ef>");
    ck_assert_str_eq(split("'' \"\""), "<><>");
    ck_assert_str_eq(split("a\\ b \\\"c \"\\$x \\y \\\\\""), "<a b><\"c><$x \\y \\>");
    ck_assert_str_eq(split("a\\\nb \"c\\\nd\""), "<ab><cd>");
}

TEST(nothing_is_expanded)
{
    ck_assert_str_eq(split("$HOME `id` $(id) * ; | &"), "<$HOME><`id`><$(id)><*><;><|><&>");
}

TEST(open_quotes_and_a_last_backslash_are_errors)
{
    ck_assert_str_eq(split("a 'b c"), "!options: the quote ' at column 3 is not closed");
    ck_assert_str_eq(split("\"a\\\""), "!options: the quote \" at column 1 is not closed");
    ck_assert_str_eq(split("a\\"), "!options: expected a character after the backslash at column 2, found the end");
}

static void grow_and_change(struct pl_strv *words)
{
    for (int i = 0; i < 20; i++) {
        pl_strv_printf(words, "w%d", i);
    }
    ck_assert_uint_eq(words->count, 20);
    ck_assert_ptr_null(words->items[20]);
    ck_assert_int_eq(pl_strv_find(words, "w19"), 19);
    ck_assert_int_eq(pl_strv_find(words, "w20"), -1);
    pl_strv_set(words, 1, "other");
    pl_strv_remove(words, 2, 17);
    ck_assert_uint_eq(words->count, 3);
    ck_assert_str_eq(words->items[1], "other");
    ck_assert_str_eq(words->items[2], "w19");
    ck_assert_ptr_null(words->items[3]);
}

TEST(a_list_ends_in_null_and_finds_its_words)
{
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    PL_AUTO_STRV struct pl_strv own = PL_STRV_NONE;
    struct pl_strv pooled = {.pool = &pool};

    grow_and_change(&own);
    grow_and_change(&pooled);
    pl_strv_done(&pooled);
    ck_assert_ptr_null(pooled.items);
    pl_strv_add(&pooled, "a", "b");
    pl_strv_add_all(&pooled, &(struct pl_strv){.items = own.items, .count = 1}); /* no NULL after the word */
    ck_assert_ptr_eq(pooled.pool, &pool);
    ck_assert_uint_eq(pooled.count, 3);
}

TEST(that_memory_is_out_is_told_by_the_list_and_its_pool)
{
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    struct pl_strv pooled = {.pool = &pool};

    pl_strv_add(&pooled, "a");
    ck_ok(pl_strv_check, &pooled);
    pl_strv_add_text(&pooled, &(struct pl_text){.failed = true});
    ck_fails(PL_MEMORY, "", pl_strv_check, &pooled);
    ck_fails(PL_MEMORY, "", pl_pool_check, &pool);
}

TEST(a_pool_keeps_its_memory_to_the_end_and_remembers_a_failure)
{
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    const char *first = pl_pool_printf(&pool, "%d-%s", 1, "one");
    double *numbers = pl_pool_new(&pool, 3, sizeof(*numbers));

    ck_assert_str_eq(pl_pool_string_n(&pool, "partial", 4), "part");
    ck_assert_str_eq(first, "1-one");
    ck_assert_uint_eq((uintptr_t)numbers % _Alignof(max_align_t), 0);
    ck_assert(numbers[0] == 0 && numbers[2] == 0);
    ck_ok(pl_pool_check, &pool);
    ck_assert_ptr_null(pl_pool_new(&pool, SIZE_MAX / 2, 3));
    ck_fails(PL_MEMORY, "", pl_pool_check, &pool);
    pl_pool_done(&pool);
    ck_ok(pl_pool_check, &pool);
}

UNIT_MAIN("entrypoint/strv")
