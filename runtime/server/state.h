/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The state that the files of a parameter server share: serve.c is its life, workers.c its own workers, answer.c what
 * it answers them, pieces.c the values, rows.c the tables.
 */
#ifndef PL_RUNTIME_SERVER_STATE_H
#define PL_RUNTIME_SERVER_STATE_H

#include "collectives/reduce/kernel.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/server/layout.h"
#include "runtime/server/remote.h"
#include "runtime/server/serve.h"
#include "runtime/server/shared.h"

enum { SERVER_MOST_PENDING = 16 };

struct server_rows;

/** A worker of the job. */
struct pl_server_worker {
    bool has_joined;
    bool has_left;
    bool has_summed;
    bool stays; /* it has left, but still reads */
    bool is_lost;
    uint64_t steps; /* number of finished steps since the job began */
    uint32_t sum_count;
    uint64_t sum_left; /* number of values of the whole sum that were not summed before */
    double *sum;       /* [PL_SERVER_MOST_VALUES], on server 0 */
};

/** A copy of values and optimizer state, in a file of its own, to a worker of this host or from it. */
struct pl_server_transfer {
    int fd;          /* -1 if no transfer is under way */
    uint32_t number; /* counts the transfers; answers to one that was cancelled may still arrive */
    enum pl_server_state_way way;
    uint64_t next; /* the piece that begins next */
    /* number of pieces that were requested from other servers, or sent to them, and are not answered yet */
    uint64_t waiting;
};

/** A worker of this host. */
struct pl_server_local {
    int fd; /* -1 if it is not connected */
    int event_fd;
    bool is_notified; /* it is woken at the end of this round of the loop */
    bool waits_for_sum;
    bool waits_to_be_alone;
    struct pl_server_transfer transfer;
    uint64_t taken;   /* number of its pushed pieces that were taken */
    uint64_t fetches; /* number of its requests for all pieces that the next answer covers */
    bool *is_pushing; /* [pieces]: the piece was sent to its owner, and the answer has not arrived yet */
    float *residual;  /* [elems]: rounding errors of the gradients that are sent to other hosts */
};

/** With staleness 0: a step of one piece of this server, which waits for all workers. */
struct pl_server_round {
    int count;           /* number of workers that have given their gradient */
    double rate;         /* learning rate of the first of them */
    bool stops;          /* one of them asks all workers to stop */
    const float **given; /* [total workers]: their gradients, NULL until given */
};

struct pl_server_state {
    const struct pl_server_serve_options *options;
    int host;
    int hosts;
    int total;                        /* number of workers of the job */
    struct pl_server_worker *workers; /* [total] */
    int left;                         /* number of workers that have left */
    int staying;                      /* number of those that have left and still read */
    int lost;
    int last_lost;
    /* too few workers are left: the end of the wait for the reason; 0: there are enough */
    int64_t few_deadline_ns;
    struct pl_server_local *locals; /* [options->workers] */
    int listen_fd;
    bool is_bound;
    int pending[SERVER_MOST_PENDING]; /* accepted sockets before their JOIN; -1: free */
    int64_t pending_since_ns[SERVER_MOST_PENDING];
    int ended_fd;                    /* see serve.h; -1 if there is no such pipe */
    int event_fd;                    /* the workers of this host write to it */
    struct pl_server_remote *remote; /* NULL if the job has one host */

    struct pl_server_layout layout; /* zero until a worker joins */
    bool is_told;                   /* another server has failed, and all servers know it */
    int memory_fd;
    struct pl_server_view view;
    uint64_t fetching;                    /* number of pieces that this host has requested from other owners */
    bool *is_known;                       /* [pieces]: this host has the values of the piece */
    uint64_t *updates;                    /* [pieces]: number of updates by gradients, for pieces of this server */
    float *slot[PL_OPTIMIZER_MOST_SLOTS]; /* [elems]; only the ranges of this server's pieces are used */
    unsigned slots;
    struct pl_optimizer_options optimizer;
    bool is_synchronous;
    /* Asynchronous, [total][pieces]: 1 + the number of updates of the piece when a worker last read it; 0: it never
     * did. */
    uint64_t *known_updates;
    struct pl_server_serve_counts counts;
    struct pl_server_round *rounds; /* [pieces], with staleness 0 */
    float *sum;                     /* [longest piece], with staleness 0 */
    float **store;                  /* [total]: gradients of other hosts' workers [elems], with staleness 0 */
    /* [hosts]: a piece that arrives from another server [1 + slots][longest piece] + 1 */
    float **stage;
    float *unpacked;          /* [longest piece]: a rounded gradient as float32, which is applied at once */
    struct server_rows *rows; /* NULL if there are no tables */
};

static inline int pl_server_owner(const struct pl_server_state *server, uint64_t piece)
{
    return (int)(piece % (uint64_t)server->hosts);
}

static inline int pl_server_first_worker(const struct pl_server_state *server)
{
    return server->host * server->options->workers;
}

/** Wakes worker `local` of this host at the end of this round of the loop. */
static inline void pl_server_notify(struct pl_server_state *server, int local)
{
    server->locals[local].is_notified = true;
}

/* pieces.c */
/** Call when the layout is known: makes the arrays of the pieces. */
enum pl_status pl_server_pieces_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_pieces_close(struct pl_server_state *server);
/** Takes the gradient or values `data` that worker `worker` pushes for a piece of this server. */
enum pl_status pl_server_pieces_take(struct pl_server_state *server, int worker, const struct pl_server_packet *push,
                                     const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Call after a worker has left: ends the rounds that waited for this worker alone. */
enum pl_status pl_server_pieces_recheck(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
/** Takes values of a piece that have arrived from its owner. */
void pl_server_pieces_put(struct pl_server_state *server, const struct pl_server_packet *packet, const float *data);
/**
 * Copies the state of a piece of this server, [1 + slots][piece], to `data`, or sets it from `data` and sends the
 * values to all servers.
 */
void pl_server_pieces_read_state(const struct pl_server_state *server, uint64_t piece, float *data);
enum pl_status pl_server_pieces_write_state(struct pl_server_state *server, uint64_t piece, uint64_t updates,
                                            const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Replaces the values that this host has of another server's piece by newer ones. */
void pl_server_pieces_overwrite(struct pl_server_state *server, uint64_t piece, const float *data);
/** Tells the workers of this host that a worker has asked all to stop. */
void pl_server_pieces_stop(struct pl_server_state *server);
/** Sends a worker's gradient of a piece to its owner, another server. */
enum pl_status pl_server_pieces_push(struct pl_server_state *server, struct pl_server_packet *push, float *data,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Whether the packet's data is a rounded gradient. */
bool pl_server_pieces_is_packed(const struct pl_server_state *server, const struct pl_server_packet *packet);
/** Returns the values of the rounded gradient `packed` of another server, as of a plan's `wire_type`. */
float *pl_server_pieces_unpack(struct pl_server_state *server, const struct pl_server_packet *push, const void *packed);
/** Sends the values of a piece of this server to another server. */
enum pl_status pl_server_pieces_send(struct pl_server_state *server, int host, uint64_t piece, int worker,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/* lost.c */
/** Call after a piece that a worker of this host pushed has been applied to the values. */
void pl_server_answer_applied(struct pl_server_state *server, int local);
/** Call when a piece that this host had asked for has arrived. */
void pl_server_answer_fetched(struct pl_server_state *server);
/** Tell the workers of this host that every piece that they had asked for has arrived. */
void pl_server_answer_fetch(struct pl_server_state *server);
/** Send worker `local` of this host, if it is still connected, what it waits for; `what` it is, for the log. */
void pl_server_answer(struct pl_server_state *server, int local, const struct pl_server_message *message,
                      const char *what);
/** Tell the process at the other end of a socket, unless that is -1, why it is refused. */
void pl_server_answer_refuse(int fd, const struct pl_error *error);

/* workers.c */
/** Takes the pieces that workers of this host have pushed, and their requests for values. */
enum pl_status pl_server_workers_take(struct pl_server_state *server, bool *ret_moved,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Reads what has arrived on the socket of worker `local`. */
enum pl_status pl_server_workers_hear(struct pl_server_state *server, int local, struct pl_error *reterr) PL_MUST_CHECK;
/** Reads a JOIN from an accepted socket. */
enum pl_status pl_server_workers_join(struct pl_server_state *server, int pending,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Takes the layout of another server's workers. The server takes ownership of `layout`, also on failure. */
enum pl_status pl_server_workers_adopt(struct pl_server_state *server, int host, struct pl_server_layout *layout,
                                       struct pl_error *reterr) PL_MUST_CHECK;
/** Call when worker `worker` of the job has left, on this host or another. */
enum pl_status pl_server_workers_left(struct pl_server_state *server, int worker, bool is_lost,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** The same, but the worker still reads. */
enum pl_status pl_server_workers_stay(struct pl_server_state *server, int worker,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Tells the workers of this host that wait in OUTLAST that all others have left. */
void pl_server_workers_tell_alone(struct pl_server_state *server);
/** Publishes to the workers of this host how many steps every worker has finished, workers that have left excepted. */
void pl_server_workers_publish_slowest(struct pl_server_state *server);
/** On server 0: adds the values that worker `worker` gives to a sum. */
enum pl_status pl_server_workers_add_sum(struct pl_server_state *server, int worker,
                                         const struct pl_server_packet *part, struct pl_error *reterr) PL_MUST_CHECK;
/** Gives the sum to the workers of this host. */
void pl_server_workers_give_total(struct pl_server_state *server, const struct pl_server_packet *total);
/** Call when the process of a worker of this host has ended: the worker has left, or is lost. */
enum pl_status pl_server_workers_ended(struct pl_server_state *server, const struct pl_server_ended *ended,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/* rows.c */
/** Call when the layout is known: makes the stores of the tables. */
enum pl_status pl_server_rows_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_rows_close(struct pl_server_state *server);
/** Errors: PL_CORRUPT if worker `local` may not send this request. */
enum pl_status pl_server_rows_check(const struct pl_server_state *server, int local,
                                    const struct pl_server_message *message, struct pl_error *reterr) PL_MUST_CHECK;
/** Takes a request of worker `local` of this host. It is answered when all servers have done their part. */
enum pl_status pl_server_rows_ask(struct pl_server_state *server, int local, const struct pl_server_message *message,
                                  struct pl_error *reterr) PL_MUST_CHECK;
/** Whether server `host` may send this packet, ROWS or ROWS_DONE. */
bool pl_server_rows_may_send(const struct pl_server_state *server, int host, const struct pl_server_packet *packet);
/** Returns where the data of such a packet is to be written. */
void *pl_server_rows_place(const struct pl_server_state *server, int host);
/** Does the part of this server for a request of another server's worker. */
enum pl_status pl_server_rows_serve(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                                    const void *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Call when another server has done its part for a worker of this host. */
void pl_server_rows_answered(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                             const void *data);

/** Counts worker `worker` of the job as lost, once. */
void pl_server_lost_note(struct pl_server_state *server, int worker);
/**
 * Call with the exit status of worker `worker` of the job, which ran on this host: logs it and counts the worker as
 * lost if it failed.
 */
enum pl_status pl_server_lost_process(struct pl_server_state *server, int worker, int wait_status,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Errors: PL_PEER if too few workers are left. `*ret_waits`: too few are left, but the reason may arrive soon. */
enum pl_status pl_server_lost_check(const struct pl_server_state *server, bool *ret_waits,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* transfer.c */
/**
 * Begins the transfer that worker `local` asks for by STATE. The server takes ownership of the file, also on failure.
 * Errors: PL_CORRUPT if the request cannot be right.
 */
enum pl_status pl_server_transfer_begin(struct pl_server_state *server, int local,
                                        const struct pl_server_message *message, int fd,
                                        struct pl_error *reterr) PL_MUST_CHECK;
/** Begins one more piece of each transfer that is under way. */
enum pl_status pl_server_transfer_advance(struct pl_server_state *server, bool *ret_moved,
                                          struct pl_error *reterr) PL_MUST_CHECK;
/** Call when worker `local` is gone. */
void pl_server_transfer_cancel(struct pl_server_state *server, int local);
/** Handles ASK, STATE, GIVE or TAKEN of another server. */
enum pl_status pl_server_transfer_handle(struct pl_server_state *server, int host,
                                         const struct pl_server_packet *packet, float *data,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
