/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the stops, and runs programs that a stop ends. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_NS (10 * PL_NS_PER_S) /* time to end after a signal */

enum { MOST_ANSWER_BYTES = 64 << 10 };

unsigned pl_local_stops(struct pl_local *local)
{
    int number;

    while ((number = pl_signals_next(&local->signals)) != 0) {
        local->stops += number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    }
    return local->stops;
}

unsigned pl_local_stops_allowed(struct pl_local *local)
{
    const unsigned stops = pl_local_stops(local);

    return stops > 0 ? stops : 1;
}

static enum pl_status await(struct pl_local *local, pid_t program, unsigned allowed, int64_t deadline_ns,
                            const char *what, struct pl_error *reterr)
{
    struct pollfd signal_fd = {.fd = local->signals.fd, .events = POLLIN};
    unsigned stops, known = allowed;
    int status = 0, sent = 0;
    bool is_signal, late;
    pid_t ended;

    for (;;) {
        stops = pl_local_stops(local); /* before the program is looked at: SIGCHLD wakes poll() only once */
        ended = waitpid(program, &status, WNOHANG);
        late = pl_deadline_passed(deadline_ns);
        if (ended != 0 || (late && sent == SIGKILL)) {
            break; /* a program that SIGKILL does not end hangs in the kernel */
        }
        if (late || stops > known) {
            sent = late || sent != 0 || stops > allowed + 1 ? SIGKILL : SIGTERM;
            known = stops;
            kill(program, sent);
            deadline_ns = pl_deadline_after_ns(END_NS);
        }
        poll(&signal_fd, 1, pl_deadline_poll_ms(deadline_ns));
    }
    if (stops > allowed && sent != 0) {
        return pl_error_set(reterr, PL_CANCELLED, "stopped while %s", what);
    }
    if (sent != 0) {
        return pl_error_set(reterr, PL_TIMEOUT, "stopped at its deadline while %s", what);
    }
    return ended == program && pl_process_status_code(status, &is_signal) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_FAILED, "failed while %s", what);
}

enum pl_status pl_local_spawn(const struct pl_local *local, const char *const *argv, char *const *environment,
                              const char *cwd, int output_fd, int errors_fd, pid_t *ret_pid, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct pl_process_setup setup = {.argv = argv,
                                           .environment = environment,
                                           .cwd = cwd,
                                           .signals = &local->signals,
                                           .stdin_fd = null_fd,
                                           .stdout_fd = output_fd,
                                           .stderr_fd = errors_fd,
                                           .own_group = true,
                                           .death_signal = SIGTERM};

    return pl_process_spawn(&setup, ret_pid, reterr);
}

enum pl_status pl_local_run_program(struct pl_local *local, const char *const *argv, struct pl_text *answer,
                                    unsigned allowed, int64_t deadline_ns, const char *what, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int answer_fd = answer ? pl_fd_new_memory("paceline-answer", 0) : -1;
    PL_AUTO_FREE char *text = pl_memory_new(MOST_ANSWER_BYTES, 1, reterr);
    enum pl_status status;
    ssize_t bytes;
    pid_t pid;

    PL_TRY(text ? PL_OK : PL_MEMORY);
    if (answer && answer_fd < 0) {
        return pl_error_errno(reterr, "make the file for the output of '%s'", argv[0]);
    }
    PL_TRY(pl_local_spawn(local, argv, pl_environment_strings(local->environment), NULL, answer_fd, answer_fd, &pid,
                          reterr));
    status = await(local, pid, allowed, deadline_ns, what, reterr);
    bytes = answer ? pread(answer_fd, text, MOST_ANSWER_BYTES, 0) : 0; /* a longer answer is cut */
    if (bytes > 0) {
        pl_text_append_n(answer, text, (size_t)bytes);
        PL_TRY(pl_text_check(answer, reterr));
    }
    return status;
}
