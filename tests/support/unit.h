/* SPDX-License-Identifier: Apache-2.0 */
/** The frame of a unit test file: tests for Check, and a main() that runs them and obeys CK_FORK. */
#ifndef PL_TESTS_SUPPORT_UNIT_H
#define PL_TESTS_SUPPORT_UNIT_H

#pragma GCC diagnostic ignored "-Wunused-parameter" /* callbacks take what all of their kind get */

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_MOST_TESTS = 128 };

/** The tests of a file, in the order of their lines. */
struct unit {
    const char *name;
    const TTest *tests[UNIT_MOST_TESTS + 1]; /* NULL behind the last */
};

static inline void unit_enlist(struct unit *unit, const TTest *test)
{
    int at = 0;

    if (unit->tests[UNIT_MOST_TESTS - 1]) {
        abort();
    }
    while (unit->tests[at] && unit->tests[at]->line < test->line) {
        at++;
    }
    memmove(unit->tests + at + 1, unit->tests + at, (size_t)(UNIT_MOST_TESTS - 1 - at) * sizeof(test));
    unit->tests[at] = test;
}

/** TEST(name) and the braces of its body: UNIT_MAIN(), without which the file does not compile, runs it. */
#define TEST(name)                                                                                                     \
    static struct unit *unit_of_file(void);                                                                            \
    static void name##_body(int);                                                                                      \
    __attribute__((constructor)) static void name##_enlist(void)                                                       \
    {                                                                                                                  \
        static const TTest test = {#name, name##_body, __FILE__, __LINE__};                                            \
                                                                                                                       \
        unit_enlist(unit_of_file(), &test);                                                                            \
    }                                                                                                                  \
    static void name##_body(int unit_turn_ __attribute__((unused)))

/** A test that is one call. */
#define UNIT_TEST(name, ...)                                                                                           \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

/** UNIT_MAIN("base/text"): run the file's tests. */
#define UNIT_MAIN(suite_name) UNIT_MAIN_AFTER(suite_name, 0)

/**
 * UNIT_MAIN_AFTER("base/locale", prepared): as UNIT_MAIN() if `prepared` is 0; otherwise that is the exit code: 77 if
 * the tests cannot run here and the reason was printed.
 */
#define UNIT_MAIN_AFTER(suite_name, prepared)                                                                          \
    UNIT_OF_FILE(suite_name)                                                                                           \
                                                                                                                       \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        int code = (prepared);                                                                                         \
                                                                                                                       \
        return code ? code : unit_run(unit_suite(unit_of_file()));                                                     \
    }

#define UNIT_OF_FILE(suite_name)                                                                                       \
    static struct unit *unit_of_file(void)                                                                             \
    {                                                                                                                  \
        static struct unit unit = {.name = suite_name};                                                                \
                                                                                                                       \
        return &unit;                                                                                                  \
    }

static inline Suite *unit_suite(const struct unit *unit)
{
    Suite *suite = suite_create(unit->name);

    for (const TTest *const *test = unit->tests; *test; test++) {
        TCase *test_case = tcase_create((*test)->name);

        tcase_add_test(test_case, *test);
        suite_add_tcase(suite, test_case);
    }
    return suite;
}

/** Run the tests, and return the exit code of a test program. */
static inline int unit_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    bool passes;

    srunner_run_all(runner, CK_NORMAL);
    passes = srunner_ntests_run(runner) > 0 && srunner_ntests_failed(runner) == 0;
    srunner_free(runner);
    return passes ? EXIT_SUCCESS : EXIT_FAILURE;
}

/** The text has these words. */
#define ck_has(text, words)                                                                                            \
    do {                                                                                                               \
        const char *ck_found_ = (text);                                                                                \
        const char *ck_words_ = (words);                                                                               \
                                                                                                                       \
        ck_assert_msg(strstr(ck_found_, ck_words_), "'%s' lacks '%s'", ck_found_, ck_words_);                          \
    } while (0)

/** The text does not have them. */
#define ck_lacks(text, words)                                                                                          \
    do {                                                                                                               \
        const char *ck_found_ = (text);                                                                                \
        const char *ck_words_ = (words);                                                                               \
                                                                                                                       \
        ck_assert_msg(!strstr(ck_found_, ck_words_), "'%s' has '%s'", ck_found_, ck_words_);                           \
    } while (0)

/** ck_ok(pl_text_parse, text, &number): pl_text_parse(text, &number, reterr) succeeds; else its words are printed. */
#define ck_ok(function, ...)                                                                                           \
    do {                                                                                                               \
        struct pl_error ck_error_ = PL_ERROR_NONE;                                                                     \
                                                                                                                       \
        ck_assert_ok(function(__VA_ARGS__, &ck_error_), &ck_error_);                                                   \
    } while (0)

/**
 * ck_fails(PL_INVALID, "not a number", pl_text_parse, text, &number): it fails with this status, and the cause has
 * these words; "" for any.
 */
#define ck_fails(status, words, function, ...)                                                                         \
    do {                                                                                                               \
        struct pl_error ck_error_ = PL_ERROR_NONE;                                                                     \
                                                                                                                       \
        ck_assert_int_eq(function(__VA_ARGS__, &ck_error_), (status));                                                 \
        ck_has(ck_error_.cause, (words));                                                                              \
    } while (0)

/** As ck_fails(), and the cause has these words alone. */
#define ck_fails_as(status, words, function, ...)                                                                      \
    do {                                                                                                               \
        struct pl_error ck_error_ = PL_ERROR_NONE;                                                                     \
                                                                                                                       \
        ck_assert_int_eq(function(__VA_ARGS__, &ck_error_), (status));                                                 \
        ck_assert_str_eq(ck_error_.cause, (words));                                                                    \
    } while (0)

/** Assert PL_OK, and print the error otherwise: for a call that is more than ck_ok()'s. */
#define ck_assert_ok(expression, error)                                                                                \
    do {                                                                                                               \
        enum pl_status ck_status_ = (expression);                                                                      \
        char ck_text_[1200];                                                                                           \
                                                                                                                       \
        ck_assert_msg(ck_status_ == PL_OK, "%s: %s: %s", #expression, pl_status_name(ck_status_),                      \
                      pl_error_text((error), ck_text_, sizeof(ck_text_)));                                             \
    } while (0)

#endif
