/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/horovod/interface.c, runtime/horovod/state.c, runtime/horovod/interpreter.c. */
/* Horovod's C interface, called by a C program on one rank: there is no Python, and each call has its defined
 * answer. */
#include "runtime/horovod/horovod.h"
#include "runtime/horovod/state.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(nothing_is_there_before_init)
{
    int rank = 0;

    ck_assert_int_eq(horovod_is_initialized(), 0);
    ck_assert_int_eq(horovod_rank(), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_size(), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_start_timeline("/dev/null", false), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_stop_timeline(), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_add_process_set(&rank, 1), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_remove_process_set(1), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_comm_process_set(&rank), HOROVOD_ERROR_INIT);
    ck_assert_int_eq(horovod_number_of_process_sets(), 0);
    ck_assert_ptr_null(pl_state_hold());
    ck_assert_int_eq(pl_interpreter_state(), PL_INTERPRETER_RUNS);
    ck_assert(!pl_interpreter_install_check());
    horovod_shutdown();
}

static bool init(void)
{
    return horovod_init(NULL, 0, NULL, NULL, 0);
}

TEST(init_may_follow_shutdown)
{
    int set = -1, rank = -1;

    for (int i = 0; i < 3; i++) {
        ck_assert(init() && init());
        ck_assert_int_eq(horovod_is_initialized(), 1);
        ck_assert_int_eq(horovod_rank(), 0);
        ck_assert_int_eq(horovod_size(), 1);
        ck_assert_int_eq(horovod_number_of_process_sets(), 1);
        horovod_process_set_ids(&set);
        ck_assert_int_eq(set, 0);
        ck_assert_int_eq(horovod_process_set_size(7), HOROVOD_ERROR_UNKNOWN_SET);
        ck_assert_int_eq(horovod_process_set_ranks(0, &rank), HOROVOD_ERROR_UNKNOWN_SET); /* no room was made */
        ck_assert_int_eq(horovod_process_set_size(0), 1);
        ck_assert_int_eq(horovod_process_set_ranks(0, &rank), 0);
        ck_assert_int_eq(rank, 0);
        horovod_shutdown();
        ck_assert_int_eq(horovod_is_initialized(), 0);
    }
}

TEST(what_has_no_number_has_words)
{
    int bad = 5, rank = 0;

    ck_assert(init());
    ck_assert_int_eq(horovod_add_process_set(&bad, 1), HOROVOD_ERROR_DYNAMIC);
    horovod_shutdown();
    setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
    ck_assert(init());
    ck_assert_int_eq(horovod_add_process_set(&rank, 1), HOROVOD_ERROR_EXISTING_SET);
    ck_assert_ptr_null(horovod_paceline_error());
    ck_assert_int_eq(horovod_add_process_set(&bad, 1), HOROVOD_ERROR_OTHER);
    ck_has(horovod_paceline_error(), "hvd.add_process_set(): a process set: 5 is not a rank");
    ck_assert_ptr_null(horovod_paceline_error());
    ck_assert_int_eq(horovod_start_timeline("/proc/none", false), HOROVOD_ERROR_OTHER);
    ck_has(horovod_paceline_error(), "/proc/none");
    ck_assert_int_eq(horovod_remove_process_set(3), HOROVOD_ERROR_UNKNOWN_SET);
    ck_assert_int_eq(horovod_comm_process_set(&rank), HOROVOD_ERROR_UNKNOWN_SET);
    horovod_shutdown();
}

TEST(ranks_that_are_not_there_or_not_the_callers_are_refused)
{
    const int twice[] = {0, 0}, foreign[] = {1};
    int set_size = 1;

    ck_assert(!horovod_init(twice, 2, NULL, NULL, 0));
    ck_assert(!horovod_init(foreign, 1, NULL, NULL, 0));
    ck_assert_int_eq(horovod_is_initialized(), 0);
    ck_assert(!horovod_init(NULL, 0, foreign, &set_size, 1)); /* a process set of rank 1 */
    ck_assert_int_eq(horovod_is_initialized(), 0);
    ck_assert(horovod_init(twice, 1, twice, &set_size, 1));
    horovod_shutdown();
}

TEST(the_timeline_of_a_variable_lasts_from_init_to_shutdown)
{
    char path[64], text[4096] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/tmp/paceline-interface-%d.json", (int)getpid());
    setenv("HOROVOD_TIMELINE", path, 1);
    setenv("HOROVOD_TIMELINE_MARK_CYCLES", "perhaps", 1);
    ck_assert(!init());
    setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1", 1);
    ck_assert(init());
    horovod_shutdown();
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
    fclose(file);
    unlink(path);
    ck_has(text, "start_time_since_epoch_in_micros");
    ck_has(text, "CYCLE_START"); /* leaving is one */
    ck_has(text, "\n]\n");
    setenv("HOROVOD_TIMELINE", "DYNAMIC", 1); /* no file so far */
    ck_assert(init());
    ck_assert_int_ne(access("DYNAMIC", F_OK), 0);
    horovod_shutdown();
}

/* Returns the exit status of a child that has joined and exits with `status`. */
static int end_of_child(int status)
{
    int found = -1;
    pid_t child = fork();

    if (child == 0) {
        if (!init()) {
            _exit(99);
        }
        exit(status); /* without a shutdown */
    }
    ck_assert_int_eq(waitpid(child, &found, 0), child);
    return WIFEXITED(found) ? WEXITSTATUS(found) : -1;
}

TEST(a_process_ends_with_its_own_status)
{
    ck_assert_int_eq(end_of_child(0), 0);
    ck_assert_int_eq(end_of_child(3), 3);
}

static bool is_forked;

/* LeakSanitizer calls it. In the child of a process with threads it could wait for ever for a lock that a thread
 * held. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_forked;
}

/* A child of fork() is not a member of its parent's job. */
TEST(a_forks_end_changes_nothing)
{
    int found = -1;
    pid_t child;

    ck_assert(init());
    child = fork();
    if (child == 0) {
        is_forked = true;
        horovod_shutdown();
        exit(4);
    }
    ck_assert_int_eq(waitpid(child, &found, 0), child);
    ck_assert(WIFEXITED(found) && WEXITSTATUS(found) == 4);
    ck_assert_int_eq(horovod_is_initialized(), 1);
    horovod_shutdown();
}

UNIT_MAIN("runtime/horovod/interface")
