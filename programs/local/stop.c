/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the stops, and runs programs that a stop ends. */
#include "programs/local/stop.h"

#include "base/clock.h"
#include "base/file.h"
#include "entrypoint/supervise/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#define END_NS (10 * PL_NS_PER_S) /* after a signal */

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

enum pl_status pl_local_run_program(struct pl_local *local, const char *const *argv, int output_fd, unsigned allowed,
                                    int64_t deadline_ns, const char *what, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct pl_process_setup setup = {.argv = argv,
                                     .environment = pl_environment_strings(local->environment),
                                     .signals = &local->signals,
                                     .stdin_fd = null_fd,
                                     .stdout_fd = output_fd,
                                     .stderr_fd = output_fd,
                                     .own_group = true, /* Control-C is for this program */
                                     .death_signal = SIGTERM};
    pid_t pid;

    PL_TRY(pl_process_spawn(&setup, &pid, reterr));
    return await(local, pid, allowed, deadline_ns, what, reterr);
}
