/* SPDX-License-Identifier: Apache-2.0 */
/** The frame of a unit test file: a main() for Check that runs the listed tests and obeys CK_FORK. */
#ifndef PL_TESTS_SUPPORT_UNIT_H
#define PL_TESTS_SUPPORT_UNIT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

/** UNIT_MAIN("base/text", test_a, test_b): run the named START_TEST functions. */
#define UNIT_MAIN(suite_name, ...) UNIT_MAIN_AFTER(suite_name, 0, __VA_ARGS__)

/**
 * As UNIT_MAIN() if `prepared` is 0; otherwise that is the exit code: 77 if the tests cannot run here and the reason
 * was printed.
 */
#define UNIT_MAIN_AFTER(suite_name, prepared, ...)                                                                     \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        const TTest *tests[] = {__VA_ARGS__};                                                                          \
        int code = (prepared);                                                                                         \
        Suite *suite;                                                                                                  \
        SRunner *runner;                                                                                               \
                                                                                                                       \
        if (code != 0) {                                                                                               \
            return code;                                                                                               \
        }                                                                                                              \
        suite = suite_create(suite_name);                                                                              \
        runner = srunner_create(suite);                                                                                \
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {                                                \
            TCase *test_case = tcase_create(tests[i]->name);                                                           \
                                                                                                                       \
            tcase_add_test(test_case, tests[i]);                                                                       \
            suite_add_tcase(suite, test_case);                                                                         \
        }                                                                                                              \
        srunner_run_all(runner, CK_NORMAL);                                                                            \
        code = srunner_ntests_failed(runner) ? EXIT_FAILURE : EXIT_SUCCESS;                                            \
        srunner_free(runner);                                                                                          \
        return code;                                                                                                   \
    }

/** A test that is one call. */
#define UNIT_TEST(name, ...)                                                                                           \
    START_TEST(name)                                                                                                   \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }                                                                                                                  \
    END_TEST

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
        ck_assert_msg(strstr(ck_error_.cause, (words)), "'%s' lacks '%s'", ck_error_.cause, (words));                  \
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
