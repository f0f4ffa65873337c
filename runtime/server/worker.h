/* SPDX-License-Identifier: Apache-2.0 */
/** What the files of a worker share: worker.c is its life and its steps, worker_rows.c its tables. */
#ifndef PL_RUNTIME_SERVER_WORKER_H
#define PL_RUNTIME_SERVER_WORKER_H

#include "runtime/server/layout.h"
#include "runtime/server/message.h"
#include "runtime/server/shared.h"

struct pl_server {
    struct pl_world *world;
    struct pl_plan *plan;
    struct pl_optimizer_options optimizer;
    struct sockaddr_un address;
    int number; /* on its host */
    int64_t staleness;
    int worker; /* of the job */
    int workers;
    int fd;
    int server_event_fd; /* wakes the server */
    int event_fd;        /* the server wakes us */
    struct pl_server_view view;
    struct pl_server_slot *slot;
    uint64_t *sequence; /* [pieces]: which update of each the plan's values have */
    double rate;
    bool has_started;
    bool has_left;
    bool is_pushed; /* a step is under way: pl_server_wait() comes next */
    struct pl_server_counts counts;
    struct pl_table *tables;
    size_t table_count;
    size_t table_capacity;
};

/**
 * Send `message` and wait for the answer of `kind`, up to the setting timeout_s. PL_INVALID: it has not joined, or has
 * left; what the server refuses; PL_PEER, PL_TIMEOUT.
 */
enum pl_status worker_ask(struct pl_server *server, const struct pl_server_message *message, uint32_t kind,
                          struct pl_server_message *ret_answer, struct pl_error *reterr) PL_MUST_CHECK;

#endif
