/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between the servers of a job, over the transport of their bootstrap. A message is a packet and, if the
 * packet says so, data, in several parts if the transport's messages are shorter. A server's messages to another arrive
 * in the order sent. Nothing here waits. Internal to runtime/server/.
 *
 * Test  tests/unit/runtime/server/test_server.c
 */
#ifndef PL_RUNTIME_SERVER_REMOTE_H
#define PL_RUNTIME_SERVER_REMOTE_H

#include "collectives/bootstrap.h"
#include "runtime/server/message.h"

enum pl_server_packet_kind {
    PL_SERVER_PACKET_LAYOUT, /* data: the sender's layout, see layout.h */
    PL_SERVER_PACKET_JOINED, /* `worker` joined at step `steps` */
    /* `worker` has left; `is_lost`: without a LEAVE message; `stays`: it still reads, and sends LEFT again later */
    PL_SERVER_PACKET_LEFT,
    PL_SERVER_PACKET_STEPS, /* `worker` has finished `steps` steps */
    PL_SERVER_PACKET_PUSH,  /* gradient for the owner of `piece`: worker, push, rate; data: the gradient */
    PL_SERVER_PACKET_FETCH, /* asks the owner of `piece` for its values */
    /* values from the owner of `piece`; data: values; `worker`: the worker of the receiver that gets the answer, or a
     * PL_SERVER_ANSWERS_ value */
    PL_SERVER_PACKET_VALUES,
    PL_SERVER_PACKET_ASK,    /* asks the owner of `piece` for its state, for `worker` */
    PL_SERVER_PACKET_STATE,  /* answer to ASK, for `worker` of the receiver; steps: updates; data: values, slots */
    PL_SERVER_PACKET_GIVE,   /* state for the owner of `piece`, from `worker`; steps: updates; data: values, slots */
    PL_SERVER_PACKET_TAKEN,  /* answer to GIVE, for `worker` of the receiver */
    PL_SERVER_PACKET_STOP,   /* a worker asks all workers to stop */
    PL_SERVER_PACKET_SUM,    /* addends for server 0: worker, count, values */
    PL_SERVER_PACKET_TOTAL,  /* sum from server 0: count, values; `is_lost`: the workers gave different counts */
    PL_SERVER_PACKET_END,    /* the sender's last packet; remote.c sends and handles it */
    PL_SERVER_PACKET_FAILED, /* the sender has failed: count is an enum pl_status, text is the reason */
    /* `worker` sends the request `rows` about table `piece`; data: `steps` ids, and for a push their gradients */
    PL_SERVER_PACKET_ROWS,
    /* answer to ROWS; steps: number of rows; loaded; data: rows of a pull; after a failure count and text */
    PL_SERVER_PACKET_ROWS_DONE,
};

/* Values of `worker` in VALUES: the values are for all workers that have pushed the piece, for none, or for a FETCH. */
enum { PL_SERVER_ANSWERS_ALL = -1, PL_SERVER_ANSWERS_NONE = -2, PL_SERVER_ANSWERS_FETCH = -3 };

struct pl_server_packet {
    uint32_t kind;
    int32_t worker; /* number of the worker in the job */
    uint64_t piece;
    uint64_t data_bytes;
    uint64_t steps;
    double rate;
    uint32_t push; /* value of enum pl_server_push */
    uint32_t is_lost;
    uint32_t stays;
    uint32_t stops; /* PUSH and VALUES: 1 if a worker asks all workers to stop */
    uint32_t count;
    uint32_t transfer; /* ASK, GIVE and their answers: number of the transfer */
    union {
        double values[PL_SERVER_MOST_VALUES];
        char text[PL_SERVER_TEXT_BYTES]; /* NUL-terminated */
        struct pl_server_rows_request rows;
        struct pl_server_rows_loaded loaded;
    };
};

struct pl_server_remote;

/** Callbacks for received packets. If one fails, pl_server_remote_poll() returns its error. */
struct pl_server_receiver {
    void *context;
    /** Checks `packet` and returns where its data [packet->data_bytes] is to be written. */
    enum pl_status (*place)(void *context, int server, const struct pl_server_packet *packet, void **ret_data,
                            struct pl_error *reterr);
    /** Handles a packet that has arrived completely; `data` is the memory that place() returned, or NULL. */
    enum pl_status (*handle)(void *context, int server, const struct pl_server_packet *packet, void *data,
                             struct pl_error *reterr);
};

/** Makes the queues. `bootstrap` must outlive the result. Errors: PL_MEMORY; failures of the transport. */
enum pl_status pl_server_remote_new(struct pl_bootstrap *bootstrap, const struct pl_server_receiver *receiver,
                                    struct pl_server_remote **ret_remote, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Cancels the messages in flight, and frees the memory. NULL is fine. Returns false if the transport may still read or
 * write their buffers.
 */
bool pl_server_remote_free(struct pl_server_remote *remote);

/**
 * Sends to server `server`. `data` [packet->data_bytes] must not change until it is sent. With `owned` it is freed
 * then, or when this call fails; otherwise it still belongs to the caller.
 */
enum pl_status pl_server_remote_send(struct pl_server_remote *remote, int server, const struct pl_server_packet *packet,
                                     void *data, bool owned, struct pl_error *reterr) PL_MUST_CHECK;

/** Sends to all other servers. `data` belongs to the caller. */
enum pl_status pl_server_remote_send_all(struct pl_server_remote *remote, const struct pl_server_packet *packet,
                                         void *data, struct pl_error *reterr) PL_MUST_CHECK;

/** Advances all messages. Sets `*ret_moved` if something was sent or received. */
enum pl_status pl_server_remote_poll(struct pl_server_remote *remote, bool *ret_moved,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Advances outgoing messages only. */
enum pl_status pl_server_remote_flush(struct pl_server_remote *remote, bool *ret_moved,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Announces that this server sends nothing more. Poll on until pl_server_remote_has_ended(). A repeated call does
 * nothing.
 */
enum pl_status pl_server_remote_end(struct pl_server_remote *remote, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns whether everything was sent and all other servers have ended too: the transport holds no messages then. */
bool pl_server_remote_has_ended(const struct pl_server_remote *remote);

/** Returns whether everything was sent. */
bool pl_server_remote_is_idle(const struct pl_server_remote *remote);

#endif
