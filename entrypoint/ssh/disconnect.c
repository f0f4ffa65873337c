/* SPDX-License-Identifier: Apache-2.0 */
/* Gives ssh clients the reason why this host has no sshd. */
#include "entrypoint/ssh/disconnect.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    REASON_BYTES = 400, /* that ssh prints of the reason, PL_DISCONNECT_BEGIN included */
    DISCONNECT = 1,     /* SSH_MSG_DISCONNECT, */
    BY_APPLICATION = 11 /* and its reason code, SSH_DISCONNECT_BY_APPLICATION */
};

static const char greeting[] = "SSH-2.0-Paceline\r\n";

enum pl_status pl_disconnect_words(const char *self_path, int port, const char *reason, struct pl_strv *argv,
                                   struct pl_error *reterr)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", port);
    pl_strv_add(argv, self_path, "relay", PL_DISCONNECT_OPTION, number, reason);
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

static int listen_on(int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {.s_addr = htonl(INADDR_ANY)}};
    const int on = 1, off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has_six = fd >= 0;

    fd = has_six ? fd : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (has_six) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (fd >= 0 && (bind(fd, has_six ? (const struct sockaddr *)&six : (const struct sockaddr *)&four,
                         has_six ? sizeof(six) : sizeof(four)) != 0 ||
                    listen(fd, SOMAXCONN) != 0)) {
        pl_file_close_at(&fd);
    }
    return fd;
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

int pl_disconnect_say(int port, const char *reason)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_CLOSE int listen_fd = listen_on(port);
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
