/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/python.c. */
#include "programs/stacks/stacks.h"

#include "entrypoint/supervise/watch.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char stacks[] = "Thread 0x00007f1 (most recent call first):\n"
                             "  File \"/lib/threading.py\", line 320 in wait\n"
                             "\n"
                             "Current thread 0x00007f2 (most recent call first):\n"
                             "  File \"/lib/queue.py\", line 171 in get\n"
                             "  File \"/opt/ml/code/my train.py\", line 12 in next_batch\n"
                             "  File \"/opt/ml/code/my train.py\", line 30 in <module>\n";

TEST(the_key_has_the_main_thread_s_functions_from_the_outermost)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_python_append_key(stacks, &text);
    ck_assert_str_eq(pl_text_string(&text), "  File \"/opt/ml/code/my train.py\", line 30 in <module>\n"
                                            "  File \"/opt/ml/code/my train.py\", line 12 in next_batch\n"
                                            "  File \"/lib/queue.py\", line 171 in get\n");
    pl_text_clear(&text);
    pl_python_append_key("Thread 0x1 (most recent call first):\n  File \"a\", line 1 in b\n", &text);
    pl_python_append_key("", &text);
    ck_assert_str_eq(pl_text_string(&text), "");
}

TEST(the_place_is_the_innermost_functions_of_the_main_thread)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert(pl_python_append_place(stacks, &text));
    ck_assert_str_eq(pl_text_string(&text), "get (queue.py line 171), called by next_batch (my train.py line 12), "
                                            "called by <module> (my train.py line 30)");
    ck_assert(!pl_python_append_place("", &text));
    ck_assert(!pl_python_append_place("Current thread 0x1 (most recent call first):\n  File \"a\", line\n", &text));
}

TEST(the_report_is_cut_at_a_number_of_lines)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_assert_uint_eq(pl_python_append_report(stacks, 20, &text), 6);
    ck_has(pl_text_string(&text), "  Python: Current thread 0x00007f2 (most recent call first):\n"
                                  "    File \"/lib/queue.py\", line 171 in get\n");
    pl_text_clear(&text);
    ck_assert_uint_eq(pl_python_append_report(stacks, 3, &text), 3);
    ck_assert_str_eq(pl_text_string(&text), "  Python: Thread 0x00007f1 (most recent call first):\n"
                                            "    File \"/lib/threading.py\", line 320 in wait\n"
                                            "  ... more of Python's stacks\n");
    pl_text_clear(&text);
    ck_assert_uint_eq(pl_python_append_report("", 3, &text), 0);
}

static int output_fd;

static void write_stacks(int number)
{
    (void)!write(output_fd, stacks, sizeof(stacks) - 1);
}

/* Starts a process with the hook's signal and file, or without them. It uses exec, because /proc shows the variables of
 * a process at its start. */
static pid_t start(const char *folder, bool with_hook, int ready_fd)
{
    pid_t pid = fork();

    if (pid == 0) {
        char variable[96], self[] = "/proc/self/exe", child[] = "PACELINE_TEST_CHILD=1",
                           hook[] = "PACELINE_TEST_HOOK=1";
        char *argv[] = {self, NULL}, *environment[] = {variable, child, with_hook ? hook : NULL, NULL};

        snprintf(variable, sizeof(variable), "%s=%s", PL_WATCH_PYTHON_VARIABLE, folder);
        dup2(ready_fd, STDOUT_FILENO);
        execve(argv[0], argv, environment);
        _exit(127);
    }
    return pid;
}

/* The body of the process that start() starts. */
static int be_child(void)
{
    const char *folder = getenv(PL_WATCH_PYTHON_VARIABLE);
    char path[96];

    if (!getenv("PACELINE_TEST_CHILD")) {
        return 0;
    }
    if (getenv("PACELINE_TEST_HOOK")) {
        snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
        output_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        signal(PL_PYTHON_SIGNAL, write_stacks);
    }
    (void)!write(STDOUT_FILENO, "r", 1);
    for (;;) {
        pause();
    }
}

static struct pl_stacks_program *ask(bool with_hook, const char *folder)
{
    struct pl_stacks_program *program = calloc(1, sizeof(*program));
    char byte, path[96];
    int fds[2], status;

    ck_assert_ptr_nonnull(program);
    ck_assert_int_eq(pipe(fds), 0);
    program->pid = start(folder, with_hook, fds[1]);
    ck_assert_int_gt(program->pid, 0);
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    for (int i = 0; i < 2; i++) { /* in the second round the text of the first must not be read again */
        strcpy(program->python, "old");
        pl_python_collect(program, INT64_MAX);
    }
    kill(program->pid, SIGKILL);
    ck_assert_int_eq(waitpid(program->pid, &status, 0), program->pid);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL); /* the hook's signal has not ended it */
    snprintf(path, sizeof(path), "%s/%d", folder, (int)program->pid);
    unlink(path);
    close(fds[0]);
    close(fds[1]);
    return program;
}

TEST(a_process_with_the_hook_is_asked_and_another_one_is_left_alone)
{
    char folder[] = "/tmp/paceline-test-XXXXXX";
    struct pl_stacks_program *program;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    program = ask(true, folder);
    ck_assert_str_eq(program->python, stacks);
    free(program);
    program = ask(false, folder);
    ck_assert_str_eq(program->python, "");
    free(program);
    ck_assert_int_eq(rmdir(folder), 0);
}

UNIT_MAIN_AFTER("programs/stacks/python", be_child())
