/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between a worker and the server of its host, over a unix packet socket: joining, sums and leaving. Gradients
 * and values lie in shared memory (shared.h). Internal to runtime/server/.
 *
 *   worker                      server
 *   JOIN with a memory file
 *     that has the layout
 *                               WELCOME with the shared file and two eventfds   | REFUSED
 *   SUM                         TOTAL                                           | REFUSED
 *   STATE with a memory file    STATE once the file is filled, or read
 *   OUTLAST                     ALONE once all others have left
 *   ROWS, their ids and
 *     gradients in shared memory  ROWS_DONE, their values there                 | REFUSED
 *   LEAVE, or it just closes
 *
 * Fuzz  tests/fuzz/fuzz_server.c
 */
#ifndef PL_RUNTIME_SERVER_MESSAGE_H
#define PL_RUNTIME_SERVER_MESSAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

enum pl_server_message_kind {
    PL_SERVER_JOIN = 1, /* number: worker's number on its host; count: bytes of the layout */
    PL_SERVER_WELCOME,  /* number: worker's number in the job; count: workers of the job */
    PL_SERVER_REFUSED,  /* number: enum pl_status; text */
    PL_SERVER_SUM,      /* count: values in this message; number: values of the sum that later messages carry */
    PL_SERVER_TOTAL,    /* same fields as SUM */
    PL_SERVER_LEAVE,
    PL_SERVER_STATE,   /* number: value of enum pl_server_state_way; count: bytes of the file, see transfer.c */
    PL_SERVER_OUTLAST, /* the worker takes no more steps, it only reads */
    PL_SERVER_ALONE,
    PL_SERVER_ROWS,      /* number: table number; count: rows of the list, if the request has one */
    PL_SERVER_ROWS_DONE, /* number: table number; count: rows, in answer to a request to count them; loaded */
};

/** The requests about the rows of a table. */
enum pl_server_rows {
    PL_SERVER_ROWS_PULL,
    PL_SERVER_ROWS_PUSH,
    PL_SERVER_ROWS_COUNT,
    PL_SERVER_ROWS_SAVE, /* write a save with this time to directory `path`, and keep older saves */
    PL_SERVER_ROWS_LOAD, /* read the newest complete save in `path` that is not later than `time_ns` */
    PL_SERVER_ROWS_KEEP, /* the save of `time_ns` is complete: remove all others */
    PL_SERVER_ROWS_DROP, /* the save of `time_ns` is not complete: remove it */
    PL_SERVER_ROWS_END,  /* number of kinds of requests */
};

enum pl_server_state_way { PL_SERVER_STATE_PULL, PL_SERVER_STATE_ASSIGN };

enum {
    PL_SERVER_MOST_VALUES = 64,
    PL_SERVER_TEXT_BYTES = 512,
    PL_SERVER_MOST_WORKERS = 4096, /* most workers of a job */
    PL_SERVER_MOST_SUMMED = 1 << 24,
};

struct pl_server_rows_request {
    uint64_t what; /* value of enum pl_server_rows */
    uint64_t time_ns;
    char path[PL_SERVER_TEXT_BYTES - 2 * sizeof(uint64_t)]; /* NUL-terminated */
};

/** Which saves the servers have loaded. */
struct pl_server_rows_loaded {
    uint64_t oldest, newest; /* times of the loaded saves; they differ if the servers have loaded different saves */
    /* why a newer save was not loaded, or ""; NUL-terminated */
    char passed[PL_SERVER_TEXT_BYTES - 2 * sizeof(uint64_t)];
};

struct pl_server_message {
    uint32_t kind;
    int32_t number;
    uint64_t count;
    union {
        double values[PL_SERVER_MOST_VALUES];
        char text[PL_SERVER_TEXT_BYTES]; /* NUL-terminated */
        struct pl_server_rows_request rows;
        struct pl_server_rows_loaded loaded;
    };
};

/**
 * Checks a message of the other side, which is not trusted: the kind is known, and a worker (if `from_worker`) or a
 * server may send it; counts are within their bounds; texts are NUL-terminated. Errors: PL_CORRUPT says what is wrong.
 */
enum pl_status pl_server_message_check(const struct pl_server_message *message, size_t bytes, bool from_worker,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Fills the address of the server's socket at `path`. Errors: PL_INVALID if the path is too long. */
enum pl_status pl_server_message_address(const char *path, struct sockaddr_un *ret_address,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/** Sends a message. The descriptors still belong to the caller. Errors: PL_PEER if the other side has closed. */
enum pl_status pl_server_message_send(int socket_fd, const struct pl_server_message *message, const int *fds,
                                      size_t fd_count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Receives and checks a message that has arrived, with its descriptors: 1 for JOIN and for a worker's STATE, 3 for
 * WELCOME, else 0. If `ret_fds` is NULL, descriptors are closed and the message is PL_CORRUPT. If the other side has
 * closed, `*ret_closed` is true and there is no message.
 */
enum pl_status pl_server_message_receive(int socket_fd, bool from_worker, struct pl_server_message *ret_message,
                                         int ret_fds[3], bool *ret_closed, struct pl_error *reterr) PL_MUST_CHECK;

#endif
