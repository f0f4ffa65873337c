/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a worker and the server of its host. */
#include "runtime/server/message.h"

#include "base/fd.h"
#include "base/file.h"
#include "runtime/server/shared.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static enum pl_status check_count(const struct pl_server_message *message, uint64_t least, uint64_t most,
                                  struct pl_error *reterr)
{
    if (message->count >= least && message->count <= most) {
        return PL_OK;
    }
    return pl_error_set(reterr, PL_CORRUPT,
                        "a parameter server's message of kind %u has count %llu, expected %llu to %llu", message->kind,
                        (unsigned long long)message->count, (unsigned long long)least, (unsigned long long)most);
}

enum pl_status pl_server_message_check(const struct pl_server_message *message, size_t bytes, bool from_worker,
                                       struct pl_error *reterr)
{
    bool is_known;

    if (bytes != sizeof(*message)) {
        return pl_error_set(reterr, PL_CORRUPT, "a parameter server's message has %zu bytes, expected %zu", bytes,
                            sizeof(*message));
    }
    is_known = from_worker ? message->kind == PL_SERVER_JOIN || message->kind == PL_SERVER_SUM ||
                                 message->kind == PL_SERVER_LEAVE || message->kind == PL_SERVER_STATE ||
                                 message->kind == PL_SERVER_OUTLAST || message->kind == PL_SERVER_ROWS
                           : message->kind == PL_SERVER_WELCOME || message->kind == PL_SERVER_REFUSED ||
                                 message->kind == PL_SERVER_TOTAL || message->kind == PL_SERVER_STATE ||
                                 message->kind == PL_SERVER_ALONE || message->kind == PL_SERVER_ROWS_DONE;
    if (!is_known || message->number < 0) {
        return pl_error_set(reterr, PL_CORRUPT,
                            "a parameter server's message of kind %u (number %d) is not one that %s sends",
                            message->kind, message->number, from_worker ? "a worker" : "a server");
    }
    switch ((enum pl_server_message_kind)message->kind) {
    case PL_SERVER_JOIN:
        return check_count(message, 1, UINT32_MAX, reterr);
    case PL_SERVER_WELCOME:
        return check_count(message, (uint64_t)message->number + 1, PL_SERVER_MOST_WORKERS, reterr);
    case PL_SERVER_SUM:
    case PL_SERVER_TOTAL:
        return check_count(message, 0, PL_SERVER_MOST_VALUES, reterr);
    case PL_SERVER_REFUSED:
        if (memchr(message->text, '\0', sizeof(message->text)) && message->number > PL_OK &&
            message->number <= PL_FAILED) {
            return PL_OK;
        }
        return pl_error_set(reterr, PL_CORRUPT,
                            "a parameter server's REFUSED message has no valid status, or its text has no NUL");
    case PL_SERVER_STATE:
        return message->number <= PL_SERVER_STATE_ASSIGN
                   ? check_count(message, 1, INT64_MAX, reterr)
                   : pl_error_set(reterr, PL_CORRUPT,
                                  "a parameter server's STATE message has the direction %d, expected %d or %d",
                                  message->number, PL_SERVER_STATE_PULL, PL_SERVER_STATE_ASSIGN);
    case PL_SERVER_ROWS:
        if (message->rows.what < PL_SERVER_ROWS_END && memchr(message->rows.path, '\0', sizeof(message->rows.path))) {
            return check_count(message, 0, PL_SERVER_ROWS_BYTES / sizeof(int64_t), reterr);
        }
        return pl_error_set(reterr, PL_CORRUPT,
                            "a parameter server's ROWS message has the unknown request %llu, or a path without NUL",
                            (unsigned long long)message->rows.what);
    case PL_SERVER_ROWS_DONE:
        return memchr(message->loaded.passed, '\0', sizeof(message->loaded.passed))
                   ? PL_OK
                   : pl_error_set(reterr, PL_CORRUPT, "the text of a parameter server's ROWS_DONE message has no NUL");
    case PL_SERVER_LEAVE:
    case PL_SERVER_OUTLAST:
    case PL_SERVER_ALONE:
        break;
    }
    return PL_OK;
}

enum pl_status pl_server_message_address(const char *path, struct sockaddr_un *ret_address, struct pl_error *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path)) {
        return pl_error_set(reterr, PL_INVALID,
                            "the parameter server's socket '%s' has %zu characters, at most %zu are possible", path,
                            strlen(path), sizeof(address.sun_path) - 1);
    }
    strcpy(address.sun_path, path);
    *ret_address = address;
    return PL_OK;
}

enum pl_status pl_server_message_send(int socket_fd, const struct pl_server_message *message, const int *fds,
                                      size_t fd_count, struct pl_error *reterr)
{
    if (pl_fd_send_with(socket_fd, message, sizeof(*message), fds, fd_count) == 0) {
        return PL_OK;
    }
    return pl_error_raise(reterr, errno == EPIPE || errno == ECONNRESET ? PL_PEER : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                          "cannot send to the parameter server or its worker");
}

/* Returns how many descriptors belong to a message; 0 if the caller takes none. */
static size_t fds_of(uint32_t kind, bool from_worker, const int *ret_fds)
{
    if (!ret_fds) {
        return 0;
    }
    return kind == PL_SERVER_WELCOME ? 3 : kind == PL_SERVER_JOIN || (from_worker && kind == PL_SERVER_STATE) ? 1 : 0;
}

enum pl_status pl_server_message_receive(int socket_fd, bool from_worker, struct pl_server_message *ret_message,
                                         int ret_fds[3], bool *ret_closed, struct pl_error *reterr)
{
    int fds[PL_FD_MOST_PASSED];
    size_t count, expected = 0;
    ssize_t got = pl_fd_receive_with(socket_fd, ret_message, sizeof(*ret_message), fds, &count);
    enum pl_status status = PL_OK;

    /* the other side closed before it had read everything; its earlier messages can still be read */
    if (got < 0 && errno == ECONNRESET) {
        got = pl_fd_receive_with(socket_fd, ret_message, sizeof(*ret_message), fds, &count);
    }
    *ret_closed = got == 0 || (got < 0 && errno == ECONNRESET);
    if (got < 0) {
        return *ret_closed ? PL_OK : pl_error_errno(reterr, "receive from the parameter server or its worker");
    }
    if (!*ret_closed) {
        status = pl_server_message_check(ret_message, (size_t)got, from_worker, reterr);
        expected = fds_of(ret_message->kind, from_worker, ret_fds);
    }
    if (!*ret_closed && status == PL_OK && count != expected) {
        status = pl_error_set(reterr, PL_CORRUPT,
                              "a parameter server's message of kind %u has %zu descriptors, expected %zu",
                              ret_message->kind, count, expected);
    }
    for (size_t i = 0; i < count; i++) {
        if (status == PL_OK && !*ret_closed) {
            ret_fds[i] = fds[i];
        } else {
            pl_file_close_at(&fds[i]);
        }
    }
    return status;
}
