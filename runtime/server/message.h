/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between a worker and the server of its host, over a unix socket that keeps their bounds: joining, sums and
 * leaving. Gradients and values lie in shared memory (shared.h). Internal to runtime/server/.
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
    PL_SERVER_JOIN = 1, /* number: the worker's on its host; count: bytes of the layout */
    PL_SERVER_WELCOME,  /* number: the worker's of the job; count: workers of the job */
    PL_SERVER_REFUSED,  /* number: enum pl_status; text */
    PL_SERVER_SUM,      /* count: values, of the `number` that are left of the sum */
    PL_SERVER_TOTAL,    /* likewise */
    PL_SERVER_LEAVE,
    PL_SERVER_STATE,   /* number: enum pl_server_state_way; count: bytes of the file, see transfer.c */
    PL_SERVER_OUTLAST, /* it takes part no more, and stays to read */
    PL_SERVER_ALONE,
    PL_SERVER_ROWS,      /* number: the table's; count: rows, where what is asked has some */
    PL_SERVER_ROWS_DONE, /* number: the table's; count: rows, where they were to be counted; loaded */
};

/** What is asked about the rows of a table. */
enum pl_server_rows {
    PL_SERVER_ROWS_PULL,
    PL_SERVER_ROWS_PUSH,
    PL_SERVER_ROWS_COUNT,
    PL_SERVER_ROWS_SAVE, /* in directory `path`, beside what is there; `moment`: that of the save */
    PL_SERVER_ROWS_LOAD, /* from there, the newest whole save that is not of later than `moment` */
    PL_SERVER_ROWS_KEEP, /* the save of `moment` is whole: remove all others there */
    PL_SERVER_ROWS_DROP, /* it is not: remove it */
    PL_SERVER_ROWS_END,  /* none: how many there are */
};

enum pl_server_state_way { PL_SERVER_STATE_PULL, PL_SERVER_STATE_ASSIGN };

enum {
    PL_SERVER_MOST_VALUES = 64,
    PL_SERVER_TEXT_BYTES = 512,
    PL_SERVER_MOST_WORKERS = 4096, /* of a job */
    PL_SERVER_MOST_SUMMED = 1 << 24,
};

struct pl_server_rows_request {
    uint64_t what; /* enum pl_server_rows */
    uint64_t moment;
    char path[PL_SERVER_TEXT_BYTES - 2 * sizeof(uint64_t)]; /* ends in a NUL */
};

/** What servers have loaded. */
struct pl_server_rows_loaded {
    uint64_t oldest, newest; /* moments of the saves: two where not all servers have loaded the same */
    char passed[PL_SERVER_TEXT_BYTES - 2 * sizeof(uint64_t)]; /* why not the newest, or ""; ends in a NUL */
};

struct pl_server_message {
    uint32_t kind;
    int32_t number;
    uint64_t count;
    union {
        double values[PL_SERVER_MOST_VALUES];
        char text[PL_SERVER_TEXT_BYTES]; /* ends in a NUL */
        struct pl_server_rows_request rows;
        struct pl_server_rows_loaded loaded;
    };
};

/**
 * What the other side sent is not to be trusted: a known kind that `from_worker` may send, counts within their bounds,
 * a text that ends. PL_CORRUPT says what is wrong.
 */
enum pl_status pl_server_message_check(const struct pl_server_message *message, size_t bytes, bool from_worker,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** The address of the server's socket at `path`. PL_INVALID: too long. */
enum pl_status pl_server_message_address(const char *path, struct sockaddr_un *ret_address,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/** Its descriptors stay the caller's. PL_PEER: the other side has closed. */
enum pl_status pl_server_message_send(int socket_fd, const struct pl_server_message *message, const int *fds,
                                      size_t fd_count, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A message that is there, checked, with its descriptors: 1 of JOIN and of a worker's STATE, 3 of WELCOME, else none.
 * `ret_fds` NULL: one with descriptors is PL_CORRUPT, and they are closed.
 * `*ret_closed`: the other side has closed, and there is no message.
 */
enum pl_status pl_server_message_receive(int socket_fd, bool from_worker, struct pl_server_message *ret_message,
                                         int ret_fds[3], bool *ret_closed, struct pl_error *reterr) PL_MUST_CHECK;

#endif
