/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program in a process group of its own and reads what it prints. */
#include "programs/info/ask.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX_BYTES = 1 << 20, BLOCK_BYTES = 4096 };

static enum pl_status start(const char *const *argv, int output_fd, pid_t *ret_pid, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int code;

    PL_TRY(pl_environment_new(&environment, reterr));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output_fd, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    code = posix_spawn(ret_pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv,
                       pl_environment_strings(environment));
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
        errno = code;
        return pl_error_errno(reterr, "start '%s'", argv[0]);
    }
    return PL_OK;
}

static enum pl_status read_answer(int fd, int64_t deadline_ns, struct pl_text *answer, struct pl_error *reterr)
{
    char block[BLOCK_BYTES];
    size_t bytes = 0;

    do {
        PL_TRY(pl_file_read_some(fd, block, sizeof(block), deadline_ns, "its answer", &bytes, reterr));
        if (answer->length < ANSWER_MAX_BYTES) {
            pl_text_append_n(answer, block, bytes);
        }
    } while (bytes > 0);
    return pl_text_check(answer, reterr);
}

/* Wait for the end of a program that prints no more, and end what does not end by itself. */
static int wait_for_end(pid_t pid, bool has_answered, int64_t deadline_ns)
{
    PL_AUTO_CLOSE int pid_fd = has_answered ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    int code = 0;

    if (pid_fd < 0 || pl_file_poll_readable(pid_fd, deadline_ns) != 1) {
        kill(-pid, SIGKILL);
    }
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {
    }
    return code;
}

/* The last line that is not empty. */
static void last_line(const struct pl_text *answer, struct pl_text *line)
{
    const char *text = pl_text_string(answer);
    size_t end = strlen(text), begin;

    while (end > 0 && strchr(" \n\r", text[end - 1])) {
        end--;
    }
    for (begin = end; begin > 0 && text[begin - 1] != '\n'; begin--) {
    }
    pl_text_append_n(line, text + begin, end - begin);
}

enum pl_status pl_info_ask(const char *const *argv, int64_t deadline_ns, struct pl_text *answer,
                           struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    int ends[2], code = 0;
    enum pl_status status;
    pid_t pid = 0;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    status = start(argv, ends[1], &pid, reterr);
    close(ends[1]);
    if (status == PL_OK) {
        status = read_answer(ends[0], deadline_ns, answer, reterr);
        code = wait_for_end(pid, status == PL_OK, deadline_ns);
    }
    close(ends[0]);
    PL_TRY(status);
    if (code == 0) {
        return PL_OK;
    }
    last_line(answer, &line);
    return pl_error_set(reterr, PL_FAILED, "%s", line.length > 0 ? pl_text_string(&line) : "it failed without a word");
}
