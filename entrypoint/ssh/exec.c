/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs on other hosts: the command of the client, and the relay that asks process 1 there. */
#include "entrypoint/ssh/exec.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long after the end of the session the program may still run before it is killed. */
#define HANGUP_NS (5 * PL_NS_PER_S)

enum { NO_CONNECTION = 255, SIGNAL_EXIT = 128 };

static const char *const kind_words[] = {[PL_EXEC_STDIO] = "stdio", [PL_EXEC_CHANNEL] = "channel"};

static enum pl_status check_count(size_t words, struct pl_error *reterr)
{
    return words <= PL_FRAME_MAX_FIELDS
               ? PL_OK
               : pl_error_set(reterr, PL_LIMIT, "the command has %zu words: expected at most %d on another host", words,
                              PL_FRAME_MAX_FIELDS);
}

enum pl_status pl_exec_words(const struct pl_sshd *sshd, const char *run_dir, const char *host, enum pl_exec_kind kind,
                             const struct pl_strv *program, struct pl_strv *argv, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text request = PL_TEXT_NONE;

    PL_TRY(check_count(program->count, reterr));
    pl_text_printf(&request, PL_EXEC_PREFIX "%s", kind_words[kind]);
    for (size_t i = 0; i < program->count; i++) {
        pl_text_append_char(&request, ' ');
        pl_text_append_quoted(&request, program->items[i]);
    }
    PL_TRY(pl_text_check(&request, reterr));
    return pl_sshd_client(sshd, run_dir, host, pl_text_string(&request), argv, reterr);
}

struct relay {
    struct pl_link link; /* to process 1, later to the shim */
    int channel_fd;      /* -1: the program uses the session's own descriptors */
    bool input_ended;
    int64_t hangup_ns; /* when the program is killed after the end of the session */
};

static enum pl_status read_request(const char *request, enum pl_exec_kind *ret_kind, struct pl_strv *words,
                                   struct pl_error *reterr)
{
    PL_TRY(pl_strv_split(request + strlen(PL_EXEC_PREFIX), "request to run a program", words, reterr));
    PL_TRY(check_count(words->count, reterr));
    for (size_t i = 0; words->count > 1 && i < PL_ARRAY_ITEMS(kind_words); i++) {
        if (strcmp(words->items[0], kind_words[i]) == 0) {
            *ret_kind = (enum pl_exec_kind)i;
            pl_strv_remove(words, 0, 1);
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_INVALID, "request to run a program: expected stdio or channel, and a program");
}

static enum pl_status ask(struct relay *relay, enum pl_exec_kind kind, const struct pl_strv *words,
                          struct pl_error *reterr)
{
    int fds[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
    PL_AUTO_CLOSE int theirs_fd = -1;
    int pair[2];

    if (kind == PL_EXEC_CHANNEL) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            return pl_error_errno(reterr, "make a socket pair");
        }
        relay->channel_fd = pair[0];
        theirs_fd = fds[0] = pair[1];
    }
    PL_TRY(PL_LINK_SEND(&relay->link, PL_FRAME_HELLO, reterr, "exec", ""));
    return pl_link_send_fds(&relay->link, PL_FRAME_EXEC, (const char *const *)words->items, words->count, fds,
                            kind == PL_EXEC_CHANNEL ? 1 : PL_ARRAY_ITEMS(fds), reterr);
}

/* Returns the exit code in an ENDED frame, see supervise/exit_report.h. */
static int ended_code(const struct pl_frame *frame)
{
    int64_t signalled = 0, code = NO_CONNECTION;

    if (frame->count < 9 || pl_link_frame_number(frame, 3, 0, 1, &signalled, NULL) != PL_OK ||
        pl_link_frame_number(frame, 4, 0, 255, &code, NULL) != PL_OK) {
        return NO_CONNECTION;
    }
    if (strcmp(frame->fields[6], "1") == 0) {
        pl_log(PL_LOG_ERROR, "%s", frame->fields[8]);
    }
    return (int)code + (signalled == 1 ? SIGNAL_EXIT : 0);
}

/* The input of the session, or the session itself, has ended: end the channel's input. */
static void end_input(struct relay *relay)
{
    relay->input_ended = true;
    shutdown(relay->channel_fd, SHUT_WR);
}

static void hang_up(struct relay *relay)
{
    if (relay->hangup_ns == PL_DEADLINE_NEVER) {
        relay->hangup_ns = pl_deadline_after_ns(HANGUP_NS);
        if (relay->channel_fd >= 0 && !relay->input_ended) {
            end_input(relay);
        } else if (PL_LINK_SEND(&relay->link, PL_FRAME_STOP, NULL, "1") != PL_OK) { /* SIGHUP */
            relay->hangup_ns = 0;
        }
    }
}

/* Wait for events once. If the reader of the session's output has closed it, the session has ended. */
static enum pl_status poll_once(struct relay *relay, struct pl_error *reterr)
{
    const bool is_up = relay->hangup_ns == PL_DEADLINE_NEVER;
    struct pollfd waits[] = {
        {.fd = relay->link.fd, .events = pl_link_events(&relay->link)},
        {.fd = is_up ? STDOUT_FILENO : -1, .events = 0},
        {.fd = relay->channel_fd >= 0 && !relay->input_ended ? STDIN_FILENO : -1, .events = POLLIN},
        {.fd = relay->channel_fd, .events = POLLIN},
    };

    if (poll(waits, PL_ARRAY_ITEMS(waits), pl_deadline_poll_ms(relay->hangup_ns)) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "wait for a program");
    }
    if ((waits[1].revents & (POLLHUP | POLLERR)) != 0) {
        hang_up(relay);
    }
    if (waits[2].revents != 0 && !relay->input_ended && !pl_file_move(STDIN_FILENO, relay->channel_fd)) {
        end_input(relay);
    }
    if (waits[3].revents != 0 && !pl_file_move(relay->channel_fd, STDOUT_FILENO)) {
        pl_file_close_at(&relay->channel_fd);
    }
    pl_link_flush(&relay->link);
    return pl_link_read(&relay->link, reterr);
}

static enum pl_status await_end(struct relay *relay, int *ret_code, struct pl_error *reterr)
{
    struct pl_frame frame;

    for (;;) {
        enum pl_status status = pl_link_next(&relay->link, &frame, reterr);

        if (status == PL_PEER) {
            return pl_error_set(reterr, PL_PEER, "process 1 did not run it, or its shim was killed");
        }
        if (status == PL_OK && frame.type == PL_FRAME_ENDED) {
            *ret_code = ended_code(&frame);
            break;
        }
        if (status == PL_OK) {
            continue;
        }
        if (status != PL_END) {
            return status;
        }
        if (pl_deadline_passed(relay->hangup_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "the session has ended, but the program has not");
        }
        PL_TRY(poll_once(relay, reterr));
    }
    while (relay->channel_fd >= 0 && pl_file_move(relay->channel_fd, STDOUT_FILENO)) {
    }
    return PL_OK;
}

int pl_exec_relay(const char *run_dir, const char *request)
{
    struct relay relay = {.link = PL_LINK_NONE, .channel_fd = -1, .hangup_ns = PL_DEADLINE_NEVER};
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_exec_kind kind = PL_EXEC_STDIO;
    int code = NO_CONNECTION;
    enum pl_status status = read_request(request, &kind, &words, &error);

    signal(SIGPIPE, SIG_IGN);
    status = status == PL_OK ? pl_rundir_connect(run_dir, &relay.link, &error) : status;
    status = status == PL_OK ? ask(&relay, kind, &words, &error) : status;
    status = status == PL_OK ? await_end(&relay, &code, &error) : status;
    if (status != PL_OK) {
        pl_log_error(&error, "paceline relay: %s", words.count > 0 ? words.items[0] : "exec");
    }
    pl_link_close(&relay.link);
    pl_file_close_at(&relay.channel_fd);
    return code;
}
