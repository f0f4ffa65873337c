/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/tree.c. */
#include "programs/sweep/tree.h"

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
        ck_assert_msg((pl_sweep_tree_check_model(scratch_path(&scratch, "m", path), "/opt/m", &empty, &error) ==
                       PL_OK) == cases[i].inside,
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
    ck_assert_ok(pl_sweep_tree_check_model(path, path, &empty, &error), &error);
    ck_assert(empty);
    run("mkdir m");
    ck_assert_ok(pl_sweep_tree_check_model(path, path, &empty, &error), &error);
    ck_assert(empty);
    run("mkfifo m/fifo");
    ck_assert_int_eq(pl_sweep_tree_check_model(path, path, &empty, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "'fifo' is a FIFO");
    scratch_done(&scratch);
}
END_TEST

START_TEST(the_owner_of_most_bytes_is_named)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char path[PATH_MAX];

    scratch = scratch_new();
    run("mkdir -p d/one/deep d/two && head -c 100000 /dev/zero >d/one/deep/a && head -c 100000 /dev/zero >d/one/b && "
        "head -c 150000 /dev/zero >d/two/c && printf x >d/three");
    scratch_path(&scratch, "d", path);
    pl_sweep_tree_describe_full(path, 0, &text);
    ck_assert_str_eq(pl_text_string(&text), "");
    pl_sweep_tree_describe_full(path, INT64_MAX, &text);
    ck_assert_msg(strstr(pl_text_string(&text), "; its largest entry is 'one' with 2") &&
                      strstr(pl_text_string(&text), "/d' is full: it has "),
                  "%s", pl_text_string(&text));
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/sweep/tree", a_link_may_lead_to_what_is_in_the_model_and_nowhere_else,
          an_empty_model_and_none_are_no_model, the_owner_of_most_bytes_is_named)
