/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/describe.c. */
#include "base/memory.h"
#include "entrypoint/supervise/process.h"
#include "programs/stacks/stacks.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <sys/wait.h>

TEST(a_program_is_named_without_its_arguments)
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
        pl_describe_name(cases[i].words, cases[i].bytes, name, sizeof(name));
        ck_assert_str_eq(name, cases[i].name);
    }
    pl_describe_name("abcdef\xc3\xa4", 9, cut, sizeof(cut)); /* the cut is not in the middle of a character */
    ck_assert_str_eq(cut, "abcdef");
}

TEST(a_rank_is_what_its_launcher_says)
{
    static const struct {
        const char *variables[4];
        int rank;
    } cases[] = {
        {{"A=1", "RANK=7"}, 7},
        {{"RANK=7", "OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=3"}, 2},
        {{"PMIX_RANK=3", "RANK=1"}, 3},
        {{"LOCAL_RANK=3"}, -1},
        {{"RANK=", "RANKS=4"}, -1},
        {{"RANK=first"}, -1},
        {{NULL}, -1},
    };
    static const char *const argv[] = {"/bin/sleep", "60", NULL};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_stacks_program *program = calloc(1, sizeof(*program));
        struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

        setup.argv = argv;
        setup.environment = (char *const *)(uintptr_t)cases[i].variables;
        setup.death_signal = SIGKILL;
        ck_ok(pl_process_spawn, &setup, &program->pid);
        pl_describe_program(program);
        ck_assert_int_eq(program->rank, cases[i].rank);
        kill(program->pid, SIGKILL);
        waitpid(program->pid, NULL, 0);
        free(program);
    }
}

UNIT_MAIN("programs/stacks/describe")
