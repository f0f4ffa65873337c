/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The structs of the engine of named tensors. The files that work on them, from the bottom up: ready.c (events of
 * submissions), buffer.c (device memory), queue.c (what was submitted), batch.c (requests), device_world.c and device.c
 * (batches in device memory), run.c (ready operations), rounds.c (announcements), named.c (the calls). Internal to
 * runtime/.
 */
#ifndef PL_RUNTIME_NAMED_ENGINE_H
#define PL_RUNTIME_NAMED_ENGINE_H

#include "collectives/arena.h"
#include "device/device.h"
#include "device/device_private.h"
#include "runtime/named/buffer.h"
#include "runtime/named/table.h"

/** This rank's operation of one name, from its submission to its end. */
struct pl_named_local {
    struct pl_named_entry *entry;
    struct pl_named_definition definition;
    const void *send;
    void *recv;
    uint64_t *row_counts;                 /* rows or splits, see pl_named_definition_row_counts() */
    bool agreed;                          /* ranks have agreed on it, and its collective is under way */
    bool is_detached;                     /* its name may be used again: the batch has it, the entry has not */
    struct pl_device_event *ready;        /* device memory: the event of the submission */
    struct pl_named_operation *operation; /* NULL: the engine has failed, and whoever submitted it knows */
    size_t member;                        /* its index among the members of the operation */
    bool anonymous;
    struct pl_named_local *next; /* next in the queue of operations that are not announced yet */
};

/** Whether an operation's result has a size that only the engine knows, and so memory that the engine makes. */
static inline bool pl_named_makes_memory(enum pl_kind kind)
{
    return kind == PL_ALLGATHER || kind == PL_ALLTOALL;
}

struct pl_named_operation;

/**
 * Told of a failure of an operation that is given to the device, before the device goes on without its data. A stream
 * of the program may follow that operation.
 */
typedef void pl_named_lose(struct pl_named_operation *operation, const struct pl_error *error);

/**
 * One submission, of one operation or of a group: the memory of whoever submits it, until pl_named_operation_end().
 * Zero-initialise; the submission sets what it does not say.
 */
struct pl_named_operation {
    struct pl_named_result *results; /* in: room for one of each member, zeroed; NULL: they are dropped */
    bool is_listed;                  /* in: the engine lists it when it has ended; the caller empties the list */
    /* in, with `is_listed`: it is listed, too, when all of it is given to the device, before it has ended there */
    pl_named_lose *lose;
    bool is_entered; /* the engine has taken it */
    size_t members;
    size_t undone;                            /* number of members that have not ended */
    size_t unagreed;                          /* number of members that still need a round */
    size_t unlaunched;                        /* number of members that are not given to the device */
    struct pl_named_operation *next_ended;    /* next in the list of ended ones */
    struct pl_named_operation *next_launched; /* next in the list of launched ones */
    struct pl_device_event *end;              /* the event after the last member, when all are launched */
    enum pl_status status;
    char *failure;
};

/** One entry of a request in flight. */
struct pl_named_item {
    struct pl_named_entry *entry;
    struct pl_named_local *local; /* NULL if this rank has joined */
    void *scratch;                /* receive buffer of a joined rank */
    struct pl_named_result result;
};

/** How far a batch in device memory has come. */
enum pl_named_stage {
    NAMED_QUEUED,   /* agreed on; it waits for the world, or for a buffer */
    NAMED_POSTED,   /* its request runs, or that of one of its pieces */
    NAMED_LAUNCHED, /* everything is given to the device */
};

struct pl_named_batch {
    struct pl_request *request; /* NULL while it is queued */
    struct pl_named_batch *next;
    /* The following is for device memory only. */
    bool on_device;
    bool fused; /* many tensors, in `buffer` */
    bool ended; /* the request has, as far as its last test knows */
    enum pl_named_stage stage;
    struct pl_collective collective; /* what is to be posted */
    uint64_t *counts;                /* memory of the collective's counts */
    char *name;                      /* that of the collective, if it is not one entry's */
    struct pl_named_buffer *buffer;  /* fused tensors, what stands for those of a joined rank, or the result */
    uint64_t whole_elems;            /* of a tensor that goes through an arena in pieces; 0: it does not */
    uint64_t at_elems;               /* where its piece under way begins */
    struct pl_device_event *end;     /* the event after the results; NULL: the request's end stands for it */
    size_t count;
    struct pl_named_item items[];
};

enum {
    NAMED_HEAD_UPDATES = 1 << 0, /* the payload has announcements, joins or leaves */
    NAMED_HEAD_JOIN = 1 << 2,
    NAMED_HEAD_LEAVE = 1 << 3,
    NAMED_HEAD_EXPIRED = 1 << 4, /* rounds have agreed on nothing for as long as a rank may wait */
    NAMED_HEAD_RANGES = 7,
};

/**
 * The 64 bytes that every rank sends in a round. Numbers of known names are sent here as ranges, everything else in the
 * payload that follows.
 */
struct pl_named_head {
    uint32_t flags;
    uint32_t payload_bytes;
    struct {
        uint32_t first, count;
    } ranges[NAMED_HEAD_RANGES];
};

struct pl_named_round {
    struct pl_request *request; /* NULL if no round is in flight */
    bool in_payload;            /* the heads have arrived, and the payloads are in flight */
    struct pl_named_head own;
    struct pl_named_head *heads; /* [n] */
    struct pl_text payload;      /* payload of this rank */
    uint64_t *payload_bytes;     /* [n] */
    unsigned char *received;     /* payloads, in rank order */
    size_t received_capacity;
    uint64_t oldest_number; /* on rank 0: pending_number of the entry that has waited longest */
    int64_t oldest_since_ns, oldest_reported_ns;
    /* deadline while rounds agree on nothing although names are waited for; else 0 */
    int64_t deadline_ns;
    /* the time since which rounds have agreed on nothing, and the time before which no other such round begins */
    int64_t quiet_since_ns, quiet_until_ns;
};

struct pl_named_maker;

/** The state for operations in device memory. */
struct pl_named_device {
    struct pl_device *_Atomic device; /* NULL if the world has no device; any thread may read it */
    struct pl_world *world;           /* where they run; NULL before the first one */
    struct pl_named_maker *maker;     /* makes `world`; NULL: nobody does */
    void *pack, *unpack;              /* streams; created at the first use */
    struct pl_named_buffer *buffers;
    struct pl_span arena;                /* memory that the ranks of this host share */
    struct pl_named_buffer *pieces;      /* the buffers of equal size that it is divided into */
    unsigned fused;                      /* number of fused batches that have a buffer */
    struct pl_named_batch *first, *last; /* batches in flight, in order */
    int64_t moved_ns;                    /* time at which one of them moved last; 0: none is in flight */
    int64_t looked_ns, left_ns; /* times of the last look at the peers, and of the first at which one was gone */
};

struct pl_named {
    struct pl_world *world;
    struct pl_named_device device;
    int rank, ranks;
    struct pl_named_options options;
    struct pl_named_table table;
    struct pl_named_round round;
    size_t undone, unagreed; /* sums of those of all operations */
    struct pl_named_local *first_unannounced, *last_unannounced;
    struct pl_named_batch *first_batch, *last_batch; /* requests in flight, in order */
    struct pl_named_batch *spare_batch;              /* those of one entry that have ended are used again */
    struct pl_named_local *spare_local;              /* likewise */
    struct pl_named_entry **sorted;                  /* what has become ready, in the order in which it is posted */
    size_t sorted_capacity;
    /* number of operations without a name since the last join; the same for groups */
    uint64_t numbered[PL_KIND_COUNT];
    uint64_t numbered_groups;
    uint64_t joins; /* number of joins that have ended */
    bool joining, join_announced;
    int join_last_rank;
    bool leaving, left;
    int left_rank;           /* in this engine's world */
    struct pl_error failure; /* the first failure of the world */
    bool held;               /* a fence has ended: no round begins */
    uint64_t moves;          /* counts ended operations, so that a service sees progress */
    struct pl_named_operation *first_ended, *first_launched; /* the lists, the last one first */
    struct pl_named *next;                                   /* the next set's engine in a service */
};

/**
 * Makes an engine on `world`, which must outlive it. `options` may be NULL, and must be equal on all ranks. Not
 * collective. One thread at a time uses it, but for pl_named_check() and pl_named_mark().
 */
enum pl_status pl_named_new(struct pl_world *world, const struct pl_named_options *options, struct pl_named **ret_named,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Releases the engine without waiting. Operations in flight are cancelled, which makes the world unusable. NULL is
 * fine.
 */
void pl_named_free(struct pl_named *named);

#endif
