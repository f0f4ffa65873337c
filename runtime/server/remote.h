/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between the servers of a job, over the transport of their bootstrap: a packet, and data after it where it
 * names some, in parts where the transport's messages are shorter. Of one pair of servers they come in the order sent.
 * Nothing here waits. Internal to runtime/server/.
 *
 * Test  tests/unit/runtime/server/test_server.c
 */
#ifndef PL_RUNTIME_SERVER_REMOTE_H
#define PL_RUNTIME_SERVER_REMOTE_H

#include "collectives/bootstrap.h"
#include "runtime/server/message.h"

enum pl_server_packet_kind {
    PL_SERVER_PACKET_LAYOUT, /* data: the sender's, see layout.h */
    PL_SERVER_PACKET_JOINED, /* worker, at step `steps` */
    PL_SERVER_PACKET_LEFT,   /* worker; `is_lost`: without a word; `stays`: it still reads, until it has left again */
    PL_SERVER_PACKET_STEPS,  /* worker has finished `steps` steps */
    PL_SERVER_PACKET_PUSH,   /* to the owner of `piece`: worker, push, rate; data: the piece */
    PL_SERVER_PACKET_FETCH,  /* to the owner of `piece` */
    PL_SERVER_PACKET_VALUES, /* from the owner: data; whom of the receiver's workers it answers, see enum below */
    PL_SERVER_PACKET_ASK,    /* to the owner of `piece`, for its state: worker */
    PL_SERVER_PACKET_STATE,  /* from the owner: worker of the receiver; steps: updates; data: values, slots */
    PL_SERVER_PACKET_GIVE,   /* to the owner: worker; steps: updates; data: values, slots, which become the piece's */
    PL_SERVER_PACKET_TAKEN,  /* from the owner, answers GIVE: worker of the receiver */
    PL_SERVER_PACKET_STOP,   /* a worker asks all to stop */
    PL_SERVER_PACKET_SUM,    /* to server 0: worker, count, values */
    PL_SERVER_PACKET_TOTAL,  /* from server 0: count, values; `is_lost`: the workers gave different counts */
    PL_SERVER_PACKET_END, /* the last of its sender's; pl_server_remote_end() sends it, and the receiver sees it not */
    PL_SERVER_PACKET_FAILED, /* the sender ends: count is an enum pl_status, text says why */
    PL_SERVER_PACKET_ROWS,   /* worker asks of table `piece` what `rows` says; data: `steps` ids, a push's gradients */
    PL_SERVER_PACKET_ROWS_DONE, /* to it; steps: rows that there are; loaded; data: a pull's; or count and text */
};

/* `worker` of VALUES that answers no single one: all that have pushed the piece, nobody, or a FETCH. */
enum { PL_SERVER_ANSWERS_ALL = -1, PL_SERVER_ANSWERS_NONE = -2, PL_SERVER_ANSWERS_FETCH = -3 };

struct pl_server_packet {
    uint32_t kind;
    int32_t worker; /* of the job */
    uint64_t piece;
    uint64_t data_bytes;
    uint64_t steps;
    double rate;
    uint32_t push; /* enum pl_server_push */
    uint32_t is_lost;
    uint32_t stays;
    uint32_t stops; /* of PUSH and VALUES: a worker asks all to stop */
    uint32_t count;
    uint32_t transfer; /* of ASK and GIVE, and of their answers: which of the worker's it is for */
    union {
        double values[PL_SERVER_MOST_VALUES];
        char text[PL_SERVER_TEXT_BYTES]; /* ends in a NUL */
        struct pl_server_rows_request rows;
        struct pl_server_rows_loaded loaded;
    };
};

struct pl_server_remote;

/** Who takes what comes; a failure of theirs ends pl_server_remote_poll() with it. */
struct pl_server_receiver {
    void *context;
    /** Where the data of `packet` is to go, [packet->data_bytes]; checks the packet. */
    enum pl_status (*place)(void *context, int server, const struct pl_server_packet *packet, void **ret_data,
                            struct pl_error *reterr);
    /** The whole of it is there; `data` as place() gave it, or NULL. */
    enum pl_status (*handle)(void *context, int server, const struct pl_server_packet *packet, void *data,
                             struct pl_error *reterr);
};

/** `bootstrap` outlives it. PL_MEMORY; a transport's failure. */
enum pl_status pl_server_remote_new(struct pl_bootstrap *bootstrap, const struct pl_server_receiver *receiver,
                                    struct pl_server_remote **ret_remote, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Cancel what is under way. False: the transport may still read what was to be sent, or write where something was to
 * come to. NULL is fine.
 */
bool pl_server_remote_free(struct pl_server_remote *remote);

/**
 * Send to server `server`. `data` [packet->data_bytes] stays as it is until it is sent; with `owned` it is freed then
 * (and where this fails), else it is the caller's.
 */
enum pl_status pl_server_remote_send(struct pl_server_remote *remote, int server, const struct pl_server_packet *packet,
                                     void *data, bool owned, struct pl_error *reterr) PL_MUST_CHECK;

/** To all other servers, without data that is owned. */
enum pl_status pl_server_remote_send_all(struct pl_server_remote *remote, const struct pl_server_packet *packet,
                                         void *data, struct pl_error *reterr) PL_MUST_CHECK;

/** Advance everything; `*ret_moved`: something was sent or has come. */
enum pl_status pl_server_remote_poll(struct pl_server_remote *remote, bool *ret_moved,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Advance what is being sent alone. */
enum pl_status pl_server_remote_flush(struct pl_server_remote *remote, bool *ret_moved,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Nothing more is sent from here; poll on until pl_server_remote_has_ended(). Later calls do nothing. */
enum pl_status pl_server_remote_end(struct pl_server_remote *remote, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether everything was sent and all others have ended too: the transport has nothing of it any more. */
bool pl_server_remote_has_ended(const struct pl_server_remote *remote);

/** Whether everything was sent. */
bool pl_server_remote_is_idle(const struct pl_server_remote *remote);

#endif
