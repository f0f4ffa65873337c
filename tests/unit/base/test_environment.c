/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/environment.c. */
#include "base/environment.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct pl_environment *empty(void)
{
    struct pl_environment *environment = NULL;

    ck_ok(pl_environment_new_empty, &environment);
    return environment;
}

static void set(struct pl_environment *environment, const char *name, const char *value)
{
    ck_ok(pl_environment_set, environment, name, value);
}

static size_t count_of(const struct pl_environment *environment)
{
    size_t count = 0;

    while (pl_environment_strings(environment)[count]) {
        count++;
    }
    return count;
}

TEST(a_snapshot_leaves_the_process_alone)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    ck_assert_int_eq(setenv("PL_TEST_SNAPSHOT", "a=b", 1), 0);
    ck_ok(pl_environment_new, &environment);
    ck_assert_str_eq(pl_environment_get(environment, "PL_TEST_SNAPSHOT"), "a=b");
    set(environment, "PL_TEST_SNAPSHOT", "changed");
    ck_assert_str_eq(getenv("PL_TEST_SNAPSHOT"), "a=b");
    ck_assert_int_eq(setenv("PL_TEST_SNAPSHOT", "later", 1), 0);
    ck_assert_str_eq(pl_environment_get(environment, "PL_TEST_SNAPSHOT"), "changed");
}

TEST(one_environment_is_laid_over_another)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *below = empty();
    PL_AUTO_ENVIRONMENT struct pl_environment *above = empty();

    set(below, "A", "1");
    set(below, "B", "2");
    ck_ok(pl_environment_put, above, "B=x=y");
    ck_ok(pl_environment_put, above, "C=");
    ck_fails(PL_INVALID, "", pl_environment_put, above, "D");
    ck_ok(pl_environment_add, below, above);
    ck_assert_uint_eq(count_of(below), 3);
    ck_assert_str_eq(pl_environment_get(below, "A"), "1");
    ck_assert_str_eq(pl_environment_get(below, "B"), "x=y");
    ck_assert_str_eq(pl_environment_get(below, "C"), "");
}

TEST(an_empty_one_is_still_good_for_execve)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();

    ck_assert_uint_eq(count_of(environment), 0);
    ck_assert_ptr_nonnull(pl_environment_strings(environment));
    ck_assert_ptr_null(pl_environment_strings(environment)[0]);
    ck_assert_ptr_null(pl_environment_get(environment, "HOME"));
    pl_environment_unset(environment, "HOME");
}

TEST(replacing_keeps_the_place_and_new_names_go_last)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();
    char *const *strings;

    set(environment, "B", "1");
    set(environment, "A", "2");
    set(environment, "AB", "");
    set(environment, "B", "three=3");
    strings = pl_environment_strings(environment);
    ck_assert_uint_eq(count_of(environment), 3);
    ck_assert_str_eq(strings[0], "B=three=3");
    ck_assert_str_eq(strings[1], "A=2");
    ck_assert_str_eq(strings[2], "AB=");
    ck_assert_ptr_null(strings[3]);
}

TEST(empty_differs_from_unset)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();

    set(environment, "EMPTY", "");
    ck_assert_str_eq(pl_environment_get(environment, "EMPTY"), "");
    ck_assert_ptr_null(pl_environment_get(environment, "UNSET"));
    ck_assert_str_eq(pl_environment_get_or(environment, "EMPTY", "other"), "other");
    ck_assert_str_eq(pl_environment_get_or(environment, "UNSET", "other"), "other");
    ck_assert_ptr_null(pl_environment_get_or(environment, "UNSET", NULL));
    set(environment, "EMPTY", "x");
    ck_assert_str_eq(pl_environment_get_or(environment, "EMPTY", "other"), "x");
}

TEST(a_number_is_one_from_1_or_an_error)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();
    static const struct {
        const char *text;
        unsigned number; /* 0: refused */
    } cases[] = {
        {"", 3},  {"1", 1},  {"5", 5},  {"7", 7},  {"8", 7},  {"4294967297", 7}, {"99999999999999999999999", 7},
        {"0", 0}, {"-1", 0}, {"+1", 0}, {" 1", 0}, {"1 ", 0}, {"1.5", 0},        {"many", 0}};
    struct pl_error error = PL_ERROR_NONE;
    unsigned number = 0;

    ck_ok(pl_environment_get_number_or, environment, "NUMBER", 3, 7, &number);
    ck_assert_uint_eq(number, 3);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set(environment, "NUMBER", cases[i].text);
        if (cases[i].number) {
            ck_ok(pl_environment_get_number_or, environment, "NUMBER", 3, 7, &number);
            ck_assert_uint_eq(number, cases[i].number);
        } else {
            ck_assert_int_eq(pl_environment_get_number_or(environment, "NUMBER", 3, 7, &number, &error), PL_INVALID);
            ck_assert_int_eq(strncmp(error.cause, "NUMBER is '", 11), 0);
        }
    }
}

TEST(a_name_is_matched_whole)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();

    set(environment, "PATHX", "1");
    set(environment, "A", "B=C");
    ck_assert_ptr_null(pl_environment_get(environment, "PATH"));
    ck_assert_ptr_null(pl_environment_get(environment, "PATHXX"));
    ck_assert_ptr_null(pl_environment_get(environment, ""));
    ck_assert_ptr_null(pl_environment_get(environment, "A=B"));
    pl_environment_unset(environment, "A=B");
    ck_assert_str_eq(pl_environment_get(environment, "A"), "B=C");
}

TEST(bad_names_are_refused)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_int_eq(pl_environment_set(environment, "", "x", &error), PL_INVALID);
    ck_assert_int_eq(pl_environment_set(environment, "=", "x", &error), PL_INVALID);
    ck_assert_int_eq(pl_environment_set(environment, "A=", "x", &error), PL_INVALID);
    ck_assert(strstr(error.cause, "A="));
    ck_assert_uint_eq(count_of(environment), 0);
}

TEST(a_value_may_come_from_the_variable_itself)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();

    set(environment, "A", "some value that is long enough to live on the heap");
    set(environment, "A", pl_environment_get(environment, "A") + 5);
    ck_assert_str_eq(pl_environment_get(environment, "A"), "value that is long enough to live on the heap");
}

TEST(unset_removes_every_copy)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    char first[] = "TWICE=1", other[] = "OTHER=2", second[] = "TWICE=3";
    char *strings[] = {first, other, second, NULL};
    char **saved = environ;

    environ = strings; /* execve(2) allows a name to occur twice */
    ck_ok(pl_environment_new, &environment);
    environ = saved;
    ck_assert_str_eq(pl_environment_get(environment, "TWICE"), "1");
    pl_environment_unset(environment, "TWICE");
    ck_assert_ptr_null(pl_environment_get(environment, "TWICE"));
    ck_assert_uint_eq(count_of(environment), 1);
    ck_assert_str_eq(pl_environment_strings(environment)[0], "OTHER=2");
    ck_assert_ptr_null(pl_environment_strings(environment)[1]);
}

TEST(copies_are_independent_and_many_variables_fit)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = empty();
    PL_AUTO_ENVIRONMENT struct pl_environment *copy = NULL;
    char name[32];

    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "NAME_%d", i);
        set(environment, name, name);
    }
    ck_ok(pl_environment_new_copy, environment, &copy);
    pl_environment_unset(environment, "NAME_0");
    pl_environment_unset(environment, "NAME_1999");
    ck_assert_uint_eq(count_of(environment), 1998);
    ck_assert_uint_eq(count_of(copy), 2000);
    ck_assert_str_eq(pl_environment_get(copy, "NAME_1999"), "NAME_1999");
    ck_assert_str_eq(pl_environment_get(environment, "NAME_1998"), "NAME_1998");
    ck_assert_ptr_null(pl_environment_strings(environment)[1998]);
    pl_environment_free(NULL);
}

UNIT_MAIN("base/environment")
