/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/trial/model.c. */
#include "programs/trial/trial.h"

#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scratch scratch;

static void run(const char *script)
{
    char command[8192], root[PATH_MAX];

    snprintf(command, sizeof(command), "cd '%s' && %s", scratch_path(&scratch, "", root), script);
    ck_assert_msg(system(command) == 0, "%s", command);
}

START_TEST(a_link_may_lead_to_what_is_in_the_model_and_nowhere_else)
{
    static const struct {
        const char *name, *target;
        bool inside;
    } cases[] = {{"a", "b", true},           {"a", "./b/../c", true},       {"a", "..", false},
                 {"a", "b/../../c", false},  {"sub/a", "../b", true},       {"sub/a", "../../m/b", false},
                 {"a", "/opt/m/b", true},    {"a", "/opt/m/../n", false},   {"a", "/opt/m", true},
                 {"a", "/opt/model", false}, {"sub/a", "/etc/hosts", false}};
    char path[PATH_MAX], script[256];

    scratch = scratch_new();
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_error error = PL_ERROR_NONE;
        bool empty = true;

        snprintf(script, sizeof(script), "rm -rf m && mkdir -p m/sub && ln -s '%s' 'm/%s'", cases[i].target,
                 cases[i].name);
        run(script);
        ck_assert_msg((pl_trial_model_check(scratch_path(&scratch, "m", path), "/opt/m", &empty, &error) == PL_OK) ==
                          cases[i].inside,
                      "%s -> %s: %s", cases[i].name, cases[i].target, error.cause);
        ck_assert(cases[i].inside ? !empty : strstr(error.cause, cases[i].target) != 0);
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(an_empty_model_and_none_are_no_model)
{
    struct pl_error error = PL_ERROR_NONE;
    char path[PATH_MAX];
    bool empty = false;

    scratch = scratch_new();
    scratch_path(&scratch, "m", path);
    ck_assert_ok(pl_trial_model_check(path, path, &empty, &error), &error);
    ck_assert(empty);
    run("mkdir m");
    ck_assert_ok(pl_trial_model_check(path, path, &empty, &error), &error);
    ck_assert(empty);
    run("mkfifo m/fifo");
    ck_assert_int_eq(pl_trial_model_check(path, path, &empty, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "'fifo' is a FIFO");
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/trial/model", a_link_may_lead_to_what_is_in_the_model_and_nowhere_else,
          an_empty_model_and_none_are_no_model)
