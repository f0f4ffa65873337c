/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/stacks/proc.c. */
#include "entrypoint/stacks/proc.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL " 18002 20327 0 -1 4194304 131 7 8 9 120 3 5 6 20 0 1 0 2136371 2990080 412"

START_TEST(a_line_of_stat_is_taken_apart_whatever_the_name)
{
    static const struct {
        const char *line, *name;
    } cases[] = {
        {"7 (sleep) S 3" TAIL, "sleep"}, {"7 (a) Z 9 (b) S 3" TAIL, "a) Z 9 (b"},
        {"7 () S 3" TAIL, ""},           {"7 (a\x01\xc2\x9b) S 3" TAIL, "a???"},
        {"7 (a\xff) S 3" TAIL, "a?"},
    };
    struct pl_error error = PL_ERROR_NONE;
    struct pl_proc_stat stat;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_assert_ok(pl_proc_parse_stat(cases[i].line, &stat, &error), &error);
        ck_assert_str_eq(stat.name, cases[i].name);
        ck_assert_int_eq(stat.state, 'S');
        ck_assert_int_eq(stat.parent, 3);
        ck_assert_uint_eq(stat.cpu_ticks, 123);
        ck_assert_uint_eq(stat.start_ticks, 2136371);
    }
}
END_TEST

START_TEST(what_is_no_line_of_stat_is_refused)
{
    static const char *const lines[] = {"", "7", "7 (sleep", "7 )sleep(", "7 (sleep) S", "7 (sleep) S x 1 2 3"};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_proc_stat stat;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(lines); i++) {
        ck_assert_int_eq(pl_proc_parse_stat(lines[i], &stat, &error), PL_CORRUPT);
    }
}
END_TEST

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
        pl_proc_program_name(cases[i].words, cases[i].bytes, name, sizeof(name));
        ck_assert_str_eq(name, cases[i].name);
    }
    pl_proc_program_name("abcdef\xc3\xa4", 9, cut, sizeof(cut)); /* not in the middle of a character */
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
        ck_assert_int_eq(pl_proc_rank(cases[i].variables, cases[i].bytes), cases[i].rank);
    }
}
END_TEST

/* A process for as long as this one lives. */
static pid_t start_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)pause();
        }
    }
    return pid;
}

START_TEST(a_process_that_has_ended_is_not_found)
{
    struct pl_error error = PL_ERROR_NONE;
    pid_t pid = start_child();
    struct pl_proc_stat stat;

    ck_assert_ok(pl_proc_read_stat(pid, 0, &stat, &error), &error);
    ck_assert_int_eq(stat.parent, getpid());
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(pl_proc_read_stat(pid, 0, &stat, &error), PL_NOT_FOUND);
}
END_TEST

START_TEST(programs_below_nobody_of_ours_are_none)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE pid_t *pids = NULL;
    struct stat self;
    size_t count;

    (void)start_child(); /* it runs the same file as its parent, as a shim does */
    ck_assert_int_eq(stat("/proc/self/exe", &self), 0);
    ck_assert_ok(pl_proc_find_programs(&self, &pids, &count, &error), &error);
    ck_assert_uint_eq(count, 0);
}
END_TEST

UNIT_MAIN("entrypoint/stacks/proc", a_line_of_stat_is_taken_apart_whatever_the_name, what_is_no_line_of_stat_is_refused,
          a_program_is_named_without_its_arguments, a_rank_is_what_its_launcher_says,
          a_process_that_has_ended_is_not_found, programs_below_nobody_of_ours_are_none)
