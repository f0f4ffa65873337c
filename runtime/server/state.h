/* SPDX-License-Identifier: Apache-2.0 */
/** What the files of a parameter server share: serve.c is its life, workers.c its own workers, pieces.c the values,
 * rows.c the tables. */
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
    bool stays; /* it has left, and still reads */
    bool is_lost;
    uint64_t steps; /* finished, since the job began */
    uint32_t sum_count;
    uint64_t sum_left; /* values of the whole sum that were not summed before */
    double *sum;       /* [PL_SERVER_MOST_VALUES], server 0 */
};

/** Values and optimizer state on their way to a worker of this host or from it, in a file of its own. */
struct pl_server_transfer {
    int fd;          /* -1: none is under way */
    uint32_t number; /* counts up: answers to one that was given up may still come */
    enum pl_server_state_way way;
    uint64_t next;    /* the piece that is begun next */
    uint64_t waiting; /* pieces that other servers have been asked for, or given */
};

/** A worker of this host. */
struct pl_server_local {
    int fd; /* -1: not there (yet, or any more) */
    int event_fd;
    bool is_notified; /* in this round of the loop */
    bool waits_for_sum;
    bool waits_to_be_alone;
    struct pl_server_transfer transfer;
    uint64_t taken;   /* of what it has pushed */
    uint64_t fetches; /* of its requests for all pieces, those that are answered next */
    bool *is_pushing; /* [pieces]: passed on to their owner, whose answer is still to come */
    float *residual;  /* [elems], of gradients that are sent rounded, which those of other hosts' pieces are */
};

/** A step that waits for all workers, of one piece of this server's (staleness 0). */
struct pl_server_round {
    int count;           /* workers that have given their gradient */
    double rate;         /* of the first of them */
    bool stops;          /* one of them asks for it */
    const float **given; /* [total workers], NULL: not yet */
};

struct pl_server_state {
    const struct pl_server_serve_options *options;
    int host;
    int hosts;
    int total;                        /* workers of the job */
    struct pl_server_worker *workers; /* [total] */
    int left;                         /* of them */
    int staying;                      /* of those that have left */
    int lost;
    int last_lost;
    int64_t few_deadline_ns;        /* too few are left: until when to wait for the reason; 0: there are enough */
    struct pl_server_local *locals; /* [options->workers] */
    int listen_fd;
    bool is_bound;
    int pending[SERVER_MOST_PENDING]; /* accepted, before their JOIN; -1: free */
    int64_t pending_since_ns[SERVER_MOST_PENDING];
    int ended_fd;                    /* see serve.h; -1: none */
    int event_fd;                    /* this host's workers write to it */
    struct pl_server_remote *remote; /* NULL: one host */

    struct pl_server_layout layout; /* zero: nobody has joined */
    bool is_told;                   /* another server has failed, and all know */
    int memory_fd;
    struct pl_server_view view;
    uint64_t fetching;                    /* pieces that this host has asked other owners for */
    bool *is_known;                       /* [pieces]: its values are there */
    uint64_t *updates;                    /* [pieces] of this server's: by gradients */
    float *slot[PL_OPTIMIZER_MOST_SLOTS]; /* [elems], of which those of its pieces are used */
    unsigned slots;
    struct pl_optimizer_options optimizer;
    bool is_synchronous;
    uint64_t *known_updates; /* [total][pieces]: after how many a worker knew it, + 1; 0: never. Asynchronous */
    struct pl_server_serve_counts counts;
    struct pl_server_round *rounds; /* [pieces], synchronous */
    float *sum;                     /* [longest piece], synchronous */
    float **store;                  /* [total]: gradients of other hosts' workers [elems], synchronous */
    float **stage;                  /* [hosts]: a piece that comes from another server [1 + slots][longest piece] + 1 */
    float *unpacked;                /* [longest piece]: of a rounded one, which is applied at once */
    struct server_rows *rows;       /* NULL: no tables */
};

static inline int pl_server_owner(const struct pl_server_state *server, uint64_t piece)
{
    return (int)(piece % (uint64_t)server->hosts);
}

static inline int pl_server_first_worker(const struct pl_server_state *server)
{
    return server->host * server->options->workers;
}

/** Wake worker `local` of this host at the end of this round. */
static inline void pl_server_notify(struct pl_server_state *server, int local)
{
    server->locals[local].is_notified = true;
}

/* pieces.c */
/** The layout is known: make what depends on it. */
enum pl_status pl_server_pieces_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_pieces_close(struct pl_server_state *server);
/** Worker `worker` pushes its `data` of a piece of this server's. */
enum pl_status pl_server_pieces_take(struct pl_server_state *server, int worker, const struct pl_server_packet *push,
                                     const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** After a worker has left: rounds that waited for it alone end. */
enum pl_status pl_server_pieces_recheck(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
/** Values of a piece have come from its owner. */
void pl_server_pieces_put(struct pl_server_state *server, const struct pl_server_packet *packet, const float *data);
/** The state of a piece of this server's, [1 + slots][piece], to `data` or from there; all servers get the values. */
void pl_server_pieces_read_state(const struct pl_server_state *server, uint64_t piece, float *data);
enum pl_status pl_server_pieces_write_state(struct pl_server_state *server, uint64_t piece, uint64_t updates,
                                            const float *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Values that this host has of a piece of another's are no longer the newest: these are. */
void pl_server_pieces_overwrite(struct pl_server_state *server, uint64_t piece, const float *data);
/** A worker has asked all to stop: this host's learn it. */
void pl_server_pieces_stop(struct pl_server_state *server);
/** Send a worker's gradient of a piece to its owner, another server. */
enum pl_status pl_server_pieces_push(struct pl_server_state *server, struct pl_server_packet *push, float *data,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Whether the packet's data is a gradient that is rounded. */
bool pl_server_pieces_is_packed(const struct pl_server_state *server, const struct pl_server_packet *packet);
/** A gradient that another server has sent is `packed`, see wire.h: the values that it has. */
float *pl_server_pieces_unpack(struct pl_server_state *server, const struct pl_server_packet *push, const void *packed);
/** Send a piece of this server's to another server. */
enum pl_status pl_server_pieces_send(struct pl_server_state *server, int host, uint64_t piece, int worker,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/* answer.c */
/** Call after a piece that a worker of this host pushed has been applied to the values. */
void pl_server_answer_applied(struct pl_server_state *server, int local);
/** Call when a piece that this host had asked for has arrived. */
void pl_server_answer_fetched(struct pl_server_state *server);
/** Tell the workers of this host that every piece that they had asked for has arrived. */
void pl_server_answer_fetch(struct pl_server_state *server);
/** Tell all workers of this host that the job has failed, and why. */
void pl_server_answer_refuse(struct pl_server_state *server, const struct pl_error *error);
/** Tell the process at the other end of a socket why it is refused. */
void pl_server_answer_refuse_socket(int fd, const struct pl_error *error);
/** Tell worker `local` of this host, if it is still connected, why its request has failed. */
void pl_server_answer_refuse_one(struct pl_server_state *server, int local, const struct pl_error *error);

/* workers.c */
/** Take what this host's workers have pushed, and what they ask for. */
enum pl_status pl_server_workers_take(struct pl_server_state *server, bool *ret_moved,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Something can be read from worker `local`'s socket. */
enum pl_status pl_server_workers_hear(struct pl_server_state *server, int local, struct pl_error *reterr) PL_MUST_CHECK;
/** Something can be read from a socket that was accepted: a JOIN. */
enum pl_status pl_server_workers_join(struct pl_server_state *server, int pending,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Another server's workers have this layout; `layout` is the server's then in any case. */
enum pl_status pl_server_workers_adopt(struct pl_server_state *server, int host, struct pl_server_layout *layout,
                                       struct pl_error *reterr) PL_MUST_CHECK;
/** Worker `worker` of the job has left, here or elsewhere. */
enum pl_status pl_server_workers_left(struct pl_server_state *server, int worker, bool is_lost,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Likewise, but it still reads. */
enum pl_status pl_server_workers_stay(struct pl_server_state *server, int worker,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** Tell those of this host's workers that wait for it that all others have left. */
void pl_server_workers_tell_alone(struct pl_server_state *server);
/** What all workers that have not left have finished; tells this host's. */
void pl_server_workers_publish_slowest(struct pl_server_state *server);
/** Server 0: worker `worker` has given its part of a sum. */
enum pl_status pl_server_workers_add_sum(struct pl_server_state *server, int worker,
                                         const struct pl_server_packet *part, struct pl_error *reterr) PL_MUST_CHECK;
/** The sum is there. */
void pl_server_workers_give_total(struct pl_server_state *server, const struct pl_server_packet *total);
/** The process of a worker of this host has ended: it has left, or is lost. */
enum pl_status pl_server_workers_ended(struct pl_server_state *server, const struct pl_server_ended *ended,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/* rows.c */
/** The layout is known: make what depends on its tables. */
enum pl_status pl_server_rows_open(struct pl_server_state *server, struct pl_error *reterr) PL_MUST_CHECK;
void pl_server_rows_close(struct pl_server_state *server);
/** PL_CORRUPT: what worker `local` asks is none that it may. */
enum pl_status pl_server_rows_check(const struct pl_server_state *server, int local,
                                    const struct pl_server_message *message, struct pl_error *reterr) PL_MUST_CHECK;
/** Worker `local` of this host asks, and is answered once all servers have done their part. */
enum pl_status pl_server_rows_ask(struct pl_server_state *server, int local, const struct pl_server_message *message,
                                  struct pl_error *reterr) PL_MUST_CHECK;
/** Whether server `host` may send this: ROWS or ROWS_DONE. */
bool pl_server_rows_may_send(const struct pl_server_state *server, int host, const struct pl_server_packet *packet);
/** Where its data is to go. */
void *pl_server_rows_place(const struct pl_server_state *server, int host);
/** Another server's worker asks. */
enum pl_status pl_server_rows_serve(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                                    const void *data, struct pl_error *reterr) PL_MUST_CHECK;
/** Another server has done its part of what a worker of this host asks. */
void pl_server_rows_answered(struct pl_server_state *server, int host, const struct pl_server_packet *packet,
                             const void *data);

/* lost.c */
/** Count worker `worker` of the job as lost, once. */
void pl_server_lost_note(struct pl_server_state *server, int worker);
/** The process of worker `worker` of the job, which is this host's, has ended so: says it, and whether it is enough. */
enum pl_status pl_server_lost_process(struct pl_server_state *server, int worker, int wait_status,
                                      struct pl_error *reterr) PL_MUST_CHECK;
/** PL_PEER: too few are left. `*ret_waits`: so it is, and the reason may come soon. */
enum pl_status pl_server_lost_check(const struct pl_server_state *server, bool *ret_waits,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* transfer.c */
/** Worker `local` says STATE, with its file, which is the server's then in any case. PL_CORRUPT: it cannot be so. */
enum pl_status pl_server_transfer_begin(struct pl_server_state *server, int local,
                                        const struct pl_server_message *message, int fd,
                                        struct pl_error *reterr) PL_MUST_CHECK;
/** One more piece of each transfer that is under way. */
enum pl_status pl_server_transfer_advance(struct pl_server_state *server, bool *ret_moved,
                                          struct pl_error *reterr) PL_MUST_CHECK;
/** Worker `local` is gone. */
void pl_server_transfer_cancel(struct pl_server_state *server, int local);
/** ASK, STATE, GIVE or TAKEN of another server's. */
enum pl_status pl_server_transfer_handle(struct pl_server_state *server, int host,
                                         const struct pl_server_packet *packet, float *data,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
