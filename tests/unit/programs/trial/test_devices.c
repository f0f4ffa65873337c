/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/trial/devices.c. */
#include "programs/trial/trial.h"

#include "base/file.h"
#include "tests/unit/entrypoint/tree.h"

#include <sys/wait.h>
#include <unistd.h>

static struct tree tree;

static void check(int gpus, int slot, const char *expected)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_ok(pl_trial_devices_take(tree.job, gpus, slot, &text, &tree.error), &tree.error);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

static void open_host(int gpus, const char *visible)
{
    char path[PATH_MAX];

    tree_setup(&tree);
    if (visible) {
        tree_env(&tree, "CUDA_VISIBLE_DEVICES", visible);
    }
    ck_assert_ok(tree_job(&tree), &tree.error);
    tree.job->gpus = gpus;
    snprintf(path, sizeof(path), "%s/sweep", tree.base);
    ck_assert_ok(pl_file_make_dirs(path, 0755, &tree.error), &tree.error);
}

START_TEST(each_slot_has_gpus_of_its_own_or_shares_them)
{
    open_host(8, NULL);
    check(2, 0, "0,1");
    check(2, 3, "6,7");
    check(1, 9, "1");
    check(0, 1, "");
    tree_done(&tree);
    open_host(8, "5,GPU-ab");
    check(1, 1, "GPU-ab");
    check(2, 0, "5,GPU-ab");
    tree_done(&tree);
}
END_TEST

START_TEST(trials_without_a_slot_take_what_is_free)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int status;

    open_host(4, "3,2,1,0");
    check(1, -1, "3");
    check(2, -1, "2,1");
    ck_assert_int_eq(pl_trial_devices_take(tree.job, 2, -1, &text, &tree.error), PL_LIMIT);
    ck_assert_str_eq(tree.error.cause,
                     "the trial asks for 2 GPUs, and of the 4 of host algo-1 1 are free: expected fewer "
                     "trials at once");
    pl_text_clear(&text);
    ck_assert_int_eq(pl_trial_devices_take(tree.job, 5, -1, &text, &tree.error), PL_INVALID);
    tree_done(&tree);
    open_host(1, NULL); /* what a process had is free when it has ended */
    if (fork() == 0) {
        _exit(pl_trial_devices_take(tree.job, 1, -1, &text, &tree.error));
    }
    ck_assert(wait(&status) > 0 && WEXITSTATUS(status) == PL_OK);
    check(1, -1, "0");
    tree_done(&tree);
}
END_TEST

UNIT_MAIN("programs/trial/devices", each_slot_has_gpus_of_its_own_or_shares_them,
          trials_without_a_slot_take_what_is_free)
