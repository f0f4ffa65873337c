/* SPDX-License-Identifier: Apache-2.0 */
/** Shared by a worker's files: worker.c (life, steps, optimizer state), worker_connect.c, worker_rows.c (tables). */
#ifndef PL_RUNTIME_SERVER_WORKER_H
#define PL_RUNTIME_SERVER_WORKER_H

#include "runtime/server.h"
#include "runtime/server/layout.h"
#include "runtime/server/message.h"
#include "runtime/server/shared.h"

struct pl_server {
    struct pl_world *world;
    struct pl_trace *trace; /* may be NULL */
    struct pl_plan *plan;
    struct pl_optimizer_options optimizer;
    struct pl_optimizer *copy; /* copy of the servers' optimizer; NULL until the program asks for it */
    struct sockaddr_un address;
    int number; /* number of this worker on its host */
    int64_t staleness;
    unsigned wire; /* 0 or a flag PL_WIRE_* */
    int worker;    /* number of this worker in the job */
    int workers;
    int fd;
    int server_event_fd; /* wakes the server */
    int event_fd;        /* wakes this worker */
    struct pl_server_view view;
    struct pl_server_slot *slot;
    uint64_t *sequence; /* [pieces]: sequence number of the piece's values in the plan */
    double rate;
    bool has_started;
    bool has_left;
    bool asks_stop;
    bool is_stopping; /* set at the end of the last step */
    bool is_pushed;   /* a step was pushed: pl_server_wait() must follow */
    struct pl_server_counts counts;
    struct pl_table *tables;
    size_t table_count;
    size_t table_capacity;
};

/* worker.c */
/** Errors: PL_INVALID before pl_server_join() and after pl_server_leave(). */
enum pl_status pl_worker_check_there(const struct pl_server *server, struct pl_error *reterr) PL_MUST_CHECK;

/* worker_connect.c */
/** Finds the server's socket, this worker's number and the staleness: in the options, else in the environment. */
enum pl_status pl_worker_find_server(struct pl_server *server, const struct pl_server_options *options,
                                     struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_worker_join(struct pl_server *server, const struct pl_server_layout *layout, int64_t deadline_ns,
                              struct pl_error *reterr) PL_MUST_CHECK;
void pl_worker_disconnect(struct pl_server *server);
/** Returns the failure in a REFUSED message, or PL_PEER if the connection was `closed`. */
enum pl_status pl_worker_read_failure(const struct pl_server_message *message, bool closed,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Sends a message. If the server is gone, returns the reason that it sent. */
enum pl_status pl_worker_send(struct pl_server *server, const struct pl_server_message *message, const int *sent_fds,
                              size_t fd_count, struct pl_error *reterr) PL_MUST_CHECK;
/** Returns the time at which a wait that begins now is logged (setting stall_s); the second function logs it, once. */
int64_t pl_worker_stall_ns(const struct pl_server *server);
void pl_worker_warn_stalled(const struct pl_server *server, const char *what, int64_t *stall_ns);
/**
 * Sends `message`, with `sent_fd` unless that is -1, and waits for the answer of `kind` up to the setting timeout_s.
 * Errors: the server's error, PL_PEER, PL_TIMEOUT.
 */
enum pl_status pl_worker_ask(struct pl_server *server, const struct pl_server_message *message, int sent_fd,
                             uint32_t kind, struct pl_server_message *ret_answer,
                             struct pl_error *reterr) PL_MUST_CHECK;

#endif
