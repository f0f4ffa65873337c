/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline relay DIRECTORY                  the forced command of a worker's sshd: connects the master's ssh session
 *                                           to the worker's process 1, or has process 1 run a program
 * paceline relay --disconnect PORT WORDS    listens in place of an sshd, see disconnect.h
 * paceline relay --agent HOST COMMAND...    mpirun runs it instead of ssh: asks the master's process 1 to have the
 *                                           launch daemon started on HOST
 */
#include "entrypoint/ssh/relay.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/ssh/disconnect.h"
#include "entrypoint/ssh/exec.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/ssh/rundir.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGENT_WAIT_NS (60 * PL_NS_PER_S)

static int join(const char *run_dir)
{
    struct pl_link link = PL_LINK_NONE;
    struct pl_error error = PL_ERROR_NONE;

    signal(SIGPIPE, SIG_IGN);
    if (pl_rundir_connect(run_dir, &link, &error) != PL_OK || pl_file_set_nonblock(link.fd, false, &error) != PL_OK) {
        pl_log_error(&error, "paceline relay");
        return 1;
    }
    for (;;) {
        struct pollfd waits[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = link.fd, .events = POLLIN}};

        if (poll(waits, 2, -1) < 0 && errno != EINTR) {
            break;
        }
        /* Frames are small and both sides always read, so a blocking write cannot deadlock here. */
        if ((waits[1].revents != 0 && !pl_file_move(link.fd, STDOUT_FILENO)) ||
            (waits[0].revents != 0 && !pl_file_move(STDIN_FILENO, link.fd))) {
            break;
        }
    }
    pl_link_close(&link);
    return 0;
}

static enum pl_status await_answer(struct pl_link *link, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(AGENT_WAIT_NS);
    struct pl_frame frame;
    enum pl_status status;

    do {
        status = pl_link_await(link, deadline_ns, &frame, reterr);
    } while (status == PL_OK && !(frame.type == PL_FRAME_STARTED && frame.count >= 1));
    if (status == PL_PEER) {
        return pl_error_set(reterr, PL_PEER, "process 1 closed the connection");
    }
    if (status == PL_TIMEOUT) {
        return pl_error_set(reterr, PL_TIMEOUT, "no answer from process 1");
    }
    PL_TRY(status);
    return frame.fields[0][0] == '\0' ? PL_OK : pl_error_set(reterr, PL_FAILED, "%s", frame.fields[0]);
}

static enum pl_status request_daemon(const struct pl_strv *words, const struct pl_environment *environment,
                                     struct pl_error *reterr)
{
    const char *run_dir = pl_environment_get(environment, PL_RUNDIR_VARIABLE);
    PL_AUTO_TEXT struct pl_text command = PL_TEXT_NONE;
    struct pl_link link = PL_LINK_NONE;
    enum pl_status status;

    if (!run_dir) {
        return pl_error_set(reterr, PL_INVALID, "%s is not set: this command is for mpirun below paceline train",
                            PL_RUNDIR_VARIABLE);
    }
    for (size_t i = 2; i < words->count; i++) { /* ssh joins its words in the same way */
        pl_text_printf(&command, "%s%s", i > 2 ? " " : "", words->items[i]);
    }
    PL_TRY(pl_text_check(&command, reterr));
    PL_TRY(pl_rundir_connect(run_dir, &link, reterr));
    status = PL_LINK_SEND(&link, PL_FRAME_HELLO, reterr, "agent", words->items[1]);
    if (status == PL_OK) {
        status = PL_LINK_SEND(&link, PL_FRAME_START, reterr, words->items[1], pl_text_string(&command));
    }
    if (status == PL_OK) {
        status = await_answer(&link, reterr);
    }
    pl_link_close(&link);
    return status;
}

int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment)
{
    const char *request = pl_environment_get_or(environment, PL_RELAY_REQUEST_VARIABLE, "");
    struct pl_error error = PL_ERROR_NONE;

    if (words->count == 1 && strncmp(request, PL_EXEC_PREFIX, strlen(PL_EXEC_PREFIX)) == 0) {
        return pl_exec_relay(words->items[0], request);
    }
    if (words->count == 1) {
        return join(words->items[0]);
    }
    if (words->count == 3 && strcmp(words->items[0], PL_DISCONNECT_OPTION) == 0) {
        return pl_disconnect_say(atoi(words->items[1]), words->items[2]);
    }
    if (words->count < 3 || strcmp(words->items[0], "--agent") != 0) {
        fprintf(stderr,
                "usage: paceline relay DIRECTORY | paceline relay --disconnect PORT WORDS | paceline relay --agent "
                "HOST COMMAND...\n");
        return PL_EXIT_USAGE;
    }
    if (request_daemon(words, environment, &error) != PL_OK) {
        pl_log_error(&error, "start Open MPI's daemon on host %s", words->items[1]);
        return 1;
    }
    return 0;
}
