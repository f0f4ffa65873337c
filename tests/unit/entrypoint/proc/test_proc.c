/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/proc/proc.c. */
#include "entrypoint/proc/proc.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL " 18002 20327 0 -1 4194304 131 7 8 9 120 3 5 6 20 0 1 0 2136371 2990080 412"

TEST(a_line_of_stat_is_taken_apart_whatever_the_name)
{
    static const struct {
        const char *line, *name;
    } cases[] = {
        {"7 (sleep) S 3" TAIL, "sleep"}, {"7 (a) Z 9 (b) S 3" TAIL, "a) Z 9 (b"},
        {"7 () S 3" TAIL, ""},           {"7 (a\x01\xc2\x9b) S 3" TAIL, "a???"},
        {"7 (a\xff) S 3" TAIL, "a?"},
    };
    struct pl_proc_stat stat;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_ok(pl_proc_parse_stat, cases[i].line, &stat);
        ck_assert_str_eq(stat.name, cases[i].name);
        ck_assert_int_eq(stat.state, 'S');
        ck_assert_int_eq(stat.parent, 3);
        ck_assert_uint_eq(stat.cpu_ticks, 123);
        ck_assert_uint_eq(stat.start_ticks, 2136371);
    }
}

TEST(what_is_no_line_of_stat_is_refused)
{
    static const char *const lines[] = {"", "7", "7 (sleep", "7 )sleep(", "7 (sleep) S", "7 (sleep) S x 1 2 3"};
    struct pl_proc_stat stat;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(lines); i++) {
        ck_fails(PL_CORRUPT, "", pl_proc_parse_stat, lines[i], &stat);
    }
}

/* Start a process that lives as long as this one. */
static pid_t start_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    return pid;
}

TEST(a_process_that_has_ended_is_not_found)
{
    pid_t pid = start_child();
    struct pl_proc_stat stat;

    ck_ok(pl_proc_read_stat, pid, 0, &stat);
    ck_assert_int_eq(stat.parent, getpid());
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_fails(PL_NOT_FOUND, "", pl_proc_read_stat, pid, 0, &stat);
}

TEST(a_process_that_waits_for_a_signal_is_told_from_one_that_blocks_it)
{
    const pid_t pid = fork();

    if (pid == 0) {
        sigset_t set;
        int number;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        sigwait(&set, &number);
        signalfd(-1, &set, 0);
        for (;;) {
            pause();
        }
    }
    while (!pl_proc_awaits(pid, SIGTERM)) { /* in sigwait() */
    }
    ck_assert(!pl_proc_awaits(pid, SIGUSR1));
    kill(pid, SIGTERM);
    while (!pl_proc_awaits(pid, SIGTERM)) { /* by a signalfd */
    }
    ck_assert(!pl_proc_awaits(pid, SIGUSR1));
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

TEST(a_program_of_python_has_the_name_of_its_script)
{
    const pid_t pid = fork();
    char name[64];

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "/opt/python3.11", "-u", "-c", "kill -STOP $$", (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
    pl_proc_command_name(pid, name, sizeof(name));
    ck_assert_str_eq(name, "kill -STOP $$");
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    pl_proc_command_name(pid, name, sizeof(name));
    ck_assert_str_eq(name, "");
}

TEST(programs_below_nobody_of_ours_are_none)
{
    PL_AUTO_FREE pid_t *pids = NULL;
    struct stat self;
    size_t count;

    start_child(); /* the child runs the same file as its parent, as a shim does */
    ck_assert_int_eq(stat("/proc/self/exe", &self), 0);
    ck_ok(pl_proc_find_programs, &self, 0, &pids, &count);
    ck_assert_uint_eq(count, 0);
}

UNIT_MAIN("entrypoint/proc/proc")
