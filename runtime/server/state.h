/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The state that the files of a parameter server share. serve.c is its life, workers.c handles its own workers, lost.c
 * its answers and lost workers, pieces.c the values, rows.c the tables.
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
    bool stays; /* the worker has left, but still reads */
    bool is_lost;
    uint64_t steps; /* number of finished steps since the job began */
    uint32_t sum_count;
    uint64_t sum_left; /* number of values of the sum that are not summed yet */
    double *sum;       /* [PL_SERVER_MOST_VALUES], used on server 0 */
};

/** A transfer of values and optimizer state between the servers and a file of a worker of this host. */
struct pl_server_transfer {
    int fd;          /* -1 if no transfer is under way */
    uint32_t number; /* number of the transfer: answers to a cancelled one may still arrive */
    enum pl_server_state_way way;
    uint64_t next; /* next piece to begin */
    /* number of pieces that were requested from other servers, or sent to them, without an answer yet */
    uint64_t waiting;
};

/** A worker of this host. */
struct pl_server_local {
    int fd; /* -1 if the worker is not connected */
    int event_fd;
    bool is_notified; /* the worker is woken at the end of this round of the loop */
    bool waits_for_sum;
    bool waits_to_be_alone;
    struct pl_server_transfer transfer;
    uint64_t taken;   /* number of pushed pieces that the server has taken */
    uint64_t fetches; /* number of requests for all pieces that the next answer covers */
    bool *is_pushing; /* [pieces]: the piece was sent to its owner, which has not answered yet */
    float *residual;  /* [elems]: rounding errors of gradients sent to other hosts */
};

/** Staleness 0: a step of one piece of this server, which waits for all workers. */
struct pl_server_round {
    int count;           /* number of workers that have given their gradients */
    double rate;         /* learning rate of the first of these workers */
    bool stops;          /* one of these workers asks all workers to stop */
    const float **given; /* [total workers]: gradients, NULL until given */
};

struct pl_server_state {
    const struct pl_server_serve_options *options;
    int host;
    int hosts;
    int total;                        /* number of workers of the job */
    struct pl_server_worker *workers; /* [total]: all workers of the job */
    int left;                         /* number of workers that have left */
    int staying;                      /* number of workers that have left and still read */
    int lost;
    int last_lost;
    /* while too few workers are left: deadline of the wait for the reason; 0: enough are left */
    int64_t few_deadline_ns;
    struct pl_server_local *locals; /* [options->workers]: the workers of this host */
    int listen_fd;
    bool is_bound;
    int pending[SERVER_MOST_PENDING]; /* accepted sockets before their JOIN; -1: free */
    int64_t pending_since_ns[SERVER_MOST_PENDING];
    int ended_fd;                    /* see serve.h; -1 if there is no such pipe */
    int event_fd;                    /* eventfd to which the workers of this host write */
    struct pl_server_remote *remote; /* NULL if the job has one host */

    struct pl_server_layout layout; /* zero until a worker joins */
    bool is_told;                   /* another server has failed and has told all servers */
    int memory_fd;
    struct pl_server_view view;
    uint64_t fetching;                    /* number of pieces requested from other owners that have not arrived */
    bool *is_known;                       /* [pieces]: the values of the piece are known here */
    uint64_t *updates;                    /* [pieces]: number of updates by gradients; only for this server's pieces */
    float *slot[PL_OPTIMIZER_MOST_SLOTS]; /* optimizer arrays [elems]; only this server's pieces are used */
    unsigned slots;
    struct pl_optimizer_options optimizer;
    bool is_synchronous;
    /* asynchronous: [total][pieces], 1 + number of updates of the piece when the worker last read it; 0: never read */
    uint64_t *known_updates;
    struct pl_server_serve_counts counts;
    struct pl_server_round *rounds; /* staleness 0: [pieces] */
    float *sum;                     /* staleness 0: [longest piece] */
    float **store;                  /* staleness 0: [total], gradients of other hosts' workers [elems] */
    /* [hosts]: buffer for a piece from another server, [1 + slots][longest piece] + 1 */
    float **stage;
    float *unpacked;          /* [longest piece]: a rounded gradient converted to float32 */
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
/** Makes the arrays of the pieces. Call it when the layout is known. */
enum pl_status pl_server_pieces_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_pieces_close(struct pl_server_state *server);
/** Takes the gradient or values in `data` that worker `worker` pushes to a piece of this server. */
enum pl_status pl_server_pieces_take(struct pl_server_state *server, int worker, const struct pl_server_packet *push,
                                     const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Ends the rounds that waited only for a worker that has left. Call it after that. */
enum pl_status pl_server_pieces_recheck(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
/** Stores values of a piece that have arrived from its owner. */
void pl_server_pieces_put(struct pl_server_state *server, const struct pl_server_packet *packet, const float *data);
/**
 * Copy the state of a piece of this server, [1 + slots][piece], to `data`, or set it from `data` and send the values to
 * all servers.
 */
void pl_server_pieces_read_state(const struct pl_server_state *server, uint64_t piece, float *data);
enum pl_status pl_server_pieces_write_state(struct pl_server_state *server, uint64_t piece, uint64_t updates,
                                            const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Replaces this host's copy of another server's piece by newer values. */
void pl_server_pieces_overwrite(struct pl_server_state *server, uint64_t piece, const float *data);
/** Tells the workers of this host that a worker has asked all workers to stop. */
void pl_server_pieces_stop(struct pl_server_state *server);
/** Sends a worker's gradient of a piece to its owner, another server. */
enum pl_status pl_server_pieces_push(struct pl_server_state *server, struct pl_server_packet *push, float *data,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Returns whether the packet's data is a rounded gradient. */
bool pl_server_pieces_is_packed(const struct pl_server_state *server, const struct pl_server_packet *packet);
/** Converts another server's rounded gradient `packed` to float32, see `wire_type`. */
float *pl_server_pieces_unpack(struct pl_server_state *server, const struct pl_server_packet *push, const void *packed);
/** Sends the values of a piece of this server to another server. */
enum pl_status pl_server_pieces_send(struct pl_server_state *server, int host, uint64_t piece, int worker,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/* lost.c */
/** Tells worker `local` that a piece that it had pushed has been applied. Call it after that. */
void pl_server_answer_applied(struct pl_server_state *server, int local);
/** Counts a piece that this host had requested. Call it when the piece has arrived. */
void pl_server_answer_fetched(struct pl_server_state *server);
/** Tells the workers of this host that all pieces that they had requested have arrived. */
void pl_server_answer_fetch(struct pl_server_state *server);
/** Sends worker `local` of this host, if it is still connected, an answer; `what` names the answer in the log. */
void pl_server_answer(struct pl_server_state *server, int local, const struct pl_server_message *message,
                      const char *what);
/** Tells the process at the other end of `fd` why it is refused; -1: there is none. */
void pl_server_answer_refuse(int fd, const struct pl_error *error);

/* workers.c */
/** Takes the pieces that workers of this host have pushed, and their requests for values. */
enum pl_status pl_server_workers_take(struct pl_server_state *server, bool *ret_moved,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Reads the messages that have arrived on the socket of worker `local`. */
enum pl_status pl_server_workers_hear(struct pl_server_state *server, int local, struct pl_error *reterr) PL_MUST_CHECK;
/** Reads a JOIN from an accepted socket. */
enum pl_status pl_server_workers_join(struct pl_server_state *server, int pending,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Takes the layout of another server's workers, and ownership of `layout`, even if it fails. */
enum pl_status pl_server_workers_adopt(struct pl_server_state *server, int host, struct pl_server_layout *layout,
                                       struct pl_error *reterr) PL_MUST_CHECK;
/** Marks worker `worker` of the job, on any host, as left. */
enum pl_status pl_server_workers_left(struct pl_server_state *server, int worker, bool is_lost,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Does the same for a worker that still reads. */
enum pl_status pl_server_workers_stay(struct pl_server_state *server, int worker,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Tells the workers of this host that wait in OUTLAST that all others have left. */
void pl_server_workers_tell_alone(struct pl_server_state *server);
/** Publishes to this host's workers the number of steps that all workers have finished, except those that have left. */
void pl_server_workers_publish_slowest(struct pl_server_state *server);
/** On server 0: adds the values of worker `worker` to a sum. */
enum pl_status pl_server_workers_add_sum(struct pl_server_state *server, int worker,
                                         const struct pl_server_packet *part, struct pl_error *reterr) PL_MUST_CHECK;
/** Sends the sum to the workers of this host. */
void pl_server_workers_give_total(struct pl_server_state *server, const struct pl_server_packet *total);
/** Handles the end of the process of a worker of this host: the worker has left, or is lost. */
enum pl_status pl_server_workers_ended(struct pl_server_state *server, const struct pl_server_ended *ended,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/* rows.c */
/** Makes the stores of the tables. Call it when the layout is known. */
enum pl_status pl_server_rows_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_rows_close(struct pl_server_state *server);
/** Checks a request about rows. Errors: PL_CORRUPT if worker `local` may not send it. */
enum pl_status pl_server_rows_check(const struct pl_server_state *server, int local,
                                    const struct pl_server_message *message, struct pl_error *reterr) PL_MUST_CHECK;
/** Begins a request of worker `local` of this host. It is answered when all servers have finished. */
enum pl_status pl_server_rows_ask(struct pl_server_state *server, int local, const struct pl_server_message *message,
                                  struct pl_error *reterr) PL_MUST_CHECK;
/** Returns whether server `host` may send this packet, ROWS or ROWS_DONE. */
bool pl_server_rows_may_send(const struct pl_server_state *server, int host, const struct pl_server_packet *packet);
/** Returns the memory for the data of such a packet. */
void *pl_server_rows_place(const struct pl_server_state *server, int host);
/** Handles this server's rows of a request of another server's worker. */
enum pl_status pl_server_rows_serve(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                                    const void *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Takes another server's answer for a worker of this host. */
void pl_server_rows_answered(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                             const void *data);

/** Counts worker `worker` of the job as lost, only once. */
void pl_server_lost_note(struct pl_server_state *server, int worker);
/**
 * Takes the exit status of worker `worker` of the job, which ran on this host: logs it, and counts the worker as lost
 * if it failed.
 */
enum pl_status pl_server_lost_process(struct pl_server_state *server, int worker, int wait_status,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Errors: PL_PEER if too few workers are left. `*ret_waits`: too few are left, but the server waits for the reason. */
enum pl_status pl_server_lost_check(const struct pl_server_state *server, bool *ret_waits,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* transfer.c */
/**
 * Begins the transfer that worker `local` requests by STATE. The server takes ownership of the file, even on failure.
 * Errors: PL_CORRUPT if the request is not valid.
 */
enum pl_status pl_server_transfer_begin(struct pl_server_state *server, int local,
                                        const struct pl_server_message *message, int fd,
                                        struct pl_error *reterr) PL_MUST_CHECK;
/** Begins one more piece of each transfer. */
enum pl_status pl_server_transfer_advance(struct pl_server_state *server, bool *ret_moved,
                                          struct pl_error *reterr) PL_MUST_CHECK;
/** Cancels the transfer of worker `local`, which is gone. */
void pl_server_transfer_cancel(struct pl_server_state *server, int local);
/** Handles an ASK, STATE, GIVE or TAKEN packet of another server. */
enum pl_status pl_server_transfer_handle(struct pl_server_state *server, int host,
                                         const struct pl_server_packet *packet, float *data,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
