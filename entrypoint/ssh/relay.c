/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline relay DIRECTORY                  the forced command of a worker's sshd: connects the master's ssh session
 *                                           to the worker's process 1, or has process 1 run a program
 * paceline relay --disconnect PORT WORDS    listens instead of an sshd that cannot run
 * paceline relay --agent HOST COMMAND...    mpirun runs it instead of ssh: asks the master's process 1 to have the
 *                                           launch daemon started on HOST
 */
#include "entrypoint/ssh/relay.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/ssh/rundir.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char command_name[] = "launch command";

/* Whether the word is NAME=..., with a shell's rules for NAME. */
static bool is_assignment(const char *word)
{
    size_t length = 0;

    while ((word[length] >= 'A' && word[length] <= 'Z') || (word[length] >= 'a' && word[length] <= 'z') ||
           word[length] == '_' || (length > 0 && word[length] >= '0' && word[length] <= '9')) {
        length++;
    }
    return length > 0 && word[length] == '=';
}

static enum pl_status add_word(struct pl_strv *words, const char *word, struct pl_error *reterr)
{
    if (words->count == PL_COMMAND_MAX_WORDS) {
        return pl_error_set(reterr, PL_LIMIT, "%s: more than %d words", command_name, PL_COMMAND_MAX_WORDS);
    }
    pl_strv_add(words, word);
    return pl_strv_check(words, reterr);
}

/* Skip the code that mpirun puts before the command for a user whose login shell is sh or ksh. A ')' follows the
 * command then. */
static bool skip_profile(const char **at)
{
    static const char profile[] = "( test ! -r ./.profile || . ./.profile;";

    if (strncmp(*at, profile, strlen(profile)) != 0) {
        return false;
    }
    *at += strlen(profile);
    *at += strspn(*at, PL_STRV_BLANKS);
    return true;
}

static enum pl_status collect_words(const char *text, struct pl_strv *words, struct pl_error *reterr)
{
    static const char operators[] = ";&|<>()`";
    PL_AUTO_TEXT struct pl_text word = PL_TEXT_NONE;
    const char *at = text + strspn(text, PL_STRV_BLANKS);
    const bool grouped = skip_profile(&at);
    bool finished = false; /* a ';' has followed the command */

    for (; *at != '\0'; at += strspn(at, PL_STRV_BLANKS)) {
        if (grouped && at[0] == ')' && at[1 + strspn(at + 1, PL_STRV_BLANKS)] == '\0') {
            break;
        }
        if (*at == ';') {
            if (words->count > 0 && strcmp(words->items[0], "export") == 0) {
                pl_strv_done(words);
            }
            finished = words->count > 0;
            at++;
            continue;
        }
        if (strchr(operators, *at)) {
            return pl_error_set(reterr, PL_INVALID, "%s: '%c' is not allowed", command_name, *at);
        }
        pl_text_clear(&word);
        PL_TRY(pl_strv_read_word(text, operators, command_name, &at, &word, reterr));
        PL_TRY(pl_text_check(&word, reterr));
        if (finished) {
            return pl_error_set(reterr, PL_INVALID, "%s: a second command '%.100s'", command_name,
                                pl_text_string(&word));
        }
        if (strcmp(pl_text_string(&word), "--daemonize") != 0 &&
            (words->count > 0 || !is_assignment(pl_text_string(&word)))) {
            PL_TRY(add_word(words, pl_text_string(&word), reterr));
        }
    }
    return PL_OK;
}

static enum pl_status check_daemon(const struct pl_strv *words, struct pl_error *reterr)
{
    const char *name;

    if (words->count == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: it is empty", command_name);
    }
    name = basename(words->items[0]);
    if (strcmp(name, "orted") != 0 && strcmp(name, "prted") != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: only orted and prted may be started, not '%.100s'", command_name,
                            words->items[0]);
    }
    return PL_OK;
}

enum pl_status pl_command_split_daemon(const char *text, struct pl_strv *words, struct pl_error *reterr)
{
    enum pl_status status = collect_words(text, words, reterr);

    if (status == PL_OK) {
        status = check_daemon(words, reterr);
    }
    if (status != PL_OK) {
        pl_strv_done(words);
    }
    return status;
}

enum {
    REASON_BYTES = 400, /* bytes of the reason that ssh prints, PL_DISCONNECT_BEGIN included */
    DISCONNECT = 1,     /* message SSH_MSG_DISCONNECT */
    BY_APPLICATION = 11 /* reason code SSH_DISCONNECT_BY_APPLICATION */
};

static const char greeting[] = "SSH-2.0-Paceline\r\n", disconnect_option[] = "--disconnect";

enum pl_status pl_disconnect_words(const char *self_path, int port, const char *reason, struct pl_strv *argv,
                                   struct pl_error *reterr)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", port);
    pl_strv_add(argv, self_path, "relay", disconnect_option, number, reason);
    return pl_strv_check(argv, reterr);
}

static void put_number(struct pl_text *text, size_t number)
{
    const uint32_t big_endian = htonl((uint32_t)number);

    pl_text_append_n(text, (const char *)&big_endian, sizeof(big_endian));
}

/* Append a packet in the form that packets have before the key exchange: its length, the length of the padding, the
 * message, the padding. */
static void print_packet(const char *words, struct pl_text *text)
{
    static const char zeros[16];
    const size_t message = 1 + 4 + 4 + strlen(words) + 4, padding = 4 + (8 - (4 + 1 + message + 4) % 8) % 8;

    put_number(text, 1 + message + padding);
    pl_text_append_char(text, (char)padding);
    pl_text_append_char(text, DISCONNECT);
    put_number(text, BY_APPLICATION);
    put_number(text, strlen(words));
    pl_text_append(text, words);
    put_number(text, 0); /* an empty language tag */
    pl_text_append_n(text, zeros, padding);
}

/* Answer a client. Returns whether it is an SSH client and has read the whole answer, after which it closes the
 * connection. */
static bool answer(int fd, const struct pl_text *text)
{
    const struct timeval timeout = {.tv_sec = 5};
    char bytes[4096];
    ssize_t got;
    bool is_ssh;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    got = recv(fd, bytes, 4, MSG_WAITALL);
    is_ssh = got == 4 && memcmp(bytes, greeting, 4) == 0;
    if (!is_ssh || send(fd, text->data, text->length, MSG_NOSIGNAL) != (ssize_t)text->length) {
        return false;
    }
    shutdown(fd, SHUT_WR);
    while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
    }
    return got == 0;
}

/* Listen, and send `reason` to clients. Returns the exit code. */
static int say_disconnect(int port, const char *reason)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_CLOSE int listen_fd = pl_sshd_listen(port);
    char words[REASON_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    bool told = false;

    snprintf(words, sizeof(words), PL_DISCONNECT_BEGIN "%s", reason);
    pl_text_append(&text, greeting);
    print_packet(words, &text);
    if (listen_fd < 0) {
        pl_error_errno(&error, "listen on port %d", port);
        pl_log_error(&error, "the master does not learn why this host has no sshd");
        return 1;
    }
    while (pl_text_check(&text, NULL) == PL_OK && !told) {
        PL_AUTO_CLOSE int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

        told = fd >= 0 && answer(fd, &text);
    }
    return told ? 0 : 1;
}

/* The first word of the request for a session in which a program runs, and the space after it. */
#define EXEC_PREFIX "exec "
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
    pl_text_printf(&request, EXEC_PREFIX "%s", kind_words[kind]);
    for (size_t i = 0; i < program->count; i++) {
        pl_text_append_char(&request, ' ');
        pl_text_append_quoted(&request, program->items[i]);
    }
    PL_TRY(pl_text_check(&request, reterr));
    return pl_sshd_client(sshd, run_dir, host, pl_text_string(&request), argv, reterr);
}

struct relay {
    struct pl_link link; /* link to process 1, later to the shim */
    int channel_fd;      /* -1: the program uses the session's own descriptors */
    bool input_ended;
    int64_t hangup_ns; /* time at which the program is killed after the end of the session */
};

static enum pl_status read_request(const char *request, enum pl_exec_kind *ret_kind, struct pl_strv *words,
                                   struct pl_error *reterr)
{
    PL_TRY(pl_strv_split(request + strlen(EXEC_PREFIX), "request to run a program", words, reterr));
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

/* Returns the exit code in an ENDED frame, see supervise/exit_report.c. */
static int ended_code(const struct pl_frame *frame)
{
    unsigned code, signalled, not_started;

    if (frame->count < 7 || sscanf(frame->fields[0], "%u %u %u", &code, &signalled, &not_started) != 3) {
        return NO_CONNECTION;
    }
    if (not_started == 1) {
        pl_log(PL_LOG_ERROR, "%s", frame->fields[3]);
    }
    return (int)(code & 0xFF) + (signalled == 1 ? SIGNAL_EXIT : 0);
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
        } else if (PL_LINK_SEND(&relay->link, PL_FRAME_SIGNAL, NULL, "1") != PL_OK) { /* SIGHUP */
            relay->hangup_ns = 0;
        }
    }
}

/* Wait for events once. If the reader of the session's output has closed it, the session has ended. */
static enum pl_status poll_once(struct relay *relay, struct pl_error *reterr)
{
    const bool is_up = relay->hangup_ns == PL_DEADLINE_NEVER;
    struct pollfd waits[] = {
        {.fd = relay->link.fd, .events = relay->link.events},
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
            return pl_error_set(reterr, PL_PEER, "process 1 did not run the program, or its shim was killed");
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

/* Have process 1 run `request`, and wait for its end. Returns the exit code. */
static int relay_program(const char *run_dir, const char *request)
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
        return pl_error_set(reterr, PL_INVALID, "%s is not set: only the mpirun of `paceline train` calls this command",
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

    if (words->count == 1 && strncmp(request, EXEC_PREFIX, strlen(EXEC_PREFIX)) == 0) {
        return relay_program(words->items[0], request);
    }
    if (words->count == 1) {
        return join(words->items[0]);
    }
    if (words->count == 3 && strcmp(words->items[0], disconnect_option) == 0) {
        return say_disconnect(atoi(words->items[1]), words->items[2]);
    }
    if (words->count < 3 || strcmp(words->items[0], "--agent") != 0) {
        fprintf(stderr,
                "usage: paceline relay DIRECTORY | paceline relay --disconnect PORT WORDS | paceline relay --agent "
                "HOST COMMAND...\n");
        return PL_EXIT_USAGE;
    }
    if (request_daemon(words, environment, &error) != PL_OK) {
        pl_log_error(&error, "cannot start Open MPI's daemon on host %s", words->items[1]);
        return 1;
    }
    return 0;
}
