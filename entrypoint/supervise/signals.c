/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks signals and reads them from a descriptor; keeps the earlier settings, to restore them for programs. */
#include "entrypoint/supervise/signals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum pl_status pl_signals_open(struct pl_signals *signals, struct pl_error *reterr)
{
    const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t watched;

    sigfillset(&watched);
    for (size_t i = 0; i < sizeof(own_faults) / sizeof(own_faults[0]); i++) {
        sigdelset(&watched, own_faults[i]);
    }
    /* Blocks SIGTTOU too: a background process group that writes to the terminal would be stopped; with the signal
     * blocked, it just writes. */
    if (sigprocmask(SIG_BLOCK, &watched, &signals->former_mask) != 0) {
        return pl_error_errno(reterr, "block signals");
    }
    sigaction(SIGPIPE, &ignore, &signals->former_pipe);
    sigaction(SIGCHLD, &standard, NULL);
    signals->fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0) {
        enum pl_status status = pl_error_errno(reterr, "open a signal descriptor");

        pl_signals_restore(signals);
        return status;
    }
    return PL_OK;
}

int pl_signals_next(const struct pl_signals *signals)
{
    struct signalfd_siginfo info;
    ssize_t bytes;

    do {
        bytes = read(signals->fd, &info, sizeof(info));
    } while (bytes < 0 && errno == EINTR);
    return bytes == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

bool pl_signals_raise_files(struct pl_signals *signals, size_t count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) {
        return true;
    }
    if (signals->former_files.rlim_max == 0) {
        signals->former_files = limit;
    }
    limit.rlim_cur = limit.rlim_max < count ? limit.rlim_max : count;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

void pl_signals_restore_files(const struct pl_signals *signals)
{
    if (signals->former_files.rlim_max != 0) {
        setrlimit(RLIMIT_NOFILE, &signals->former_files);
    }
}

void pl_signals_restore(const struct pl_signals *signals)
{
    sigaction(SIGPIPE, &signals->former_pipe, NULL);
    sigprocmask(SIG_SETMASK, &signals->former_mask, NULL);
}

const char *pl_signals_name(int number, char text[static 16])
{
    const char *name = sigabbrev_np(number);

    if (name) {
        snprintf(text, 16, "SIG%s", name);
    } else {
        snprintf(text, 16, "signal %d", number);
    }
    return text;
}
