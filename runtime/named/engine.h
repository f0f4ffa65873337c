/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The structs of named tensors, internal to runtime/, in the order in which a call uses them:
 *
 *   pl_named_submission   a call of the program with its operations: made by service.c, reported by service_step.c
 *   pl_operation          one tensor of a submission on this rank: queued by named.c, run by operation.c (device.c)
 *   pl_named_entry        a name and the ranks that have announced it, equal on all ranks: rounds.c, table.c
 *   pl_named_batch        operations in device memory that share a collective: device.c
 *   pl_request            the collective of an operation, or of a round: collectives/core
 */
#ifndef PL_RUNTIME_NAMED_ENGINE_H
#define PL_RUNTIME_NAMED_ENGINE_H

#include "collectives/arena.h"
#include "device/device.h"
#include "device/device_private.h"
#include "runtime/named/buffer.h"
#include "runtime/named/table.h"

/** How far an operation has come. */
enum pl_operation_state {
    OPERATION_QUEUED,    /* in the engine's queue, for the next round */
    OPERATION_ANNOUNCED, /* waits until the other ranks announce it */
    OPERATION_RUNNING,   /* all ranks agree; the operation is in the list of running ones or in a batch of the device */
    OPERATION_ENDED,
};

/** One operation of this rank. `submission` is NULL if this rank has joined and takes part in another rank's. */
struct pl_operation {
    struct pl_named_submission *submission;
    struct pl_named_entry *entry; /* set when the engine takes the operation */
    struct pl_operation *next;    /* next operation in the queue or in the list of running ones */
    enum pl_operation_state state;
    bool is_anonymous;
    bool is_detached; /* runs in device memory; its entry no longer points to it, so the name is free */
    struct pl_named_definition definition;
    const void *send;
    void *recv;
    uint64_t *row_counts;       /* rows or splits, see pl_named_definition_row_counts() */
    struct pl_request *request; /* request of its collective in host memory, while it runs */
    struct pl_named_result result;
    void *scratch; /* memory of a joined rank for an operation of the others */
};

/** True if only the engine knows the size of the result, so that the engine makes its memory. */
static inline bool pl_named_makes_memory(enum pl_kind kind)
{
    return kind == PL_ALLGATHER || kind == PL_ALLTOALL;
}

/**
 * Called when a submission on the device fails, before the device continues without its data, because a stream of the
 * program may wait for the submission.
 */
typedef void pl_named_lose(struct pl_named_submission *submission, const struct pl_error *error);

enum pl_named_submission_kind {
    SUBMISSION_OPERATIONS, /* one operation, or a group of them */
    SUBMISSION_JOIN,
    SUBMISSION_ADD_SET, /* ADD_SET and REMOVE_SET: a fence in set 0, then the change */
    SUBMISSION_REMOVE_SET,
};

struct pl_completion;
struct pl_service;
struct pl_service_name;

/** One call of the program until it has ended: one operation, or a group. Zero-initialise. */
struct pl_named_submission {
    /* set by the caller of the engine */
    struct pl_named_result *results; /* [count], zeroed: one result for each operation; NULL: results are dropped */
    /* not NULL: the submission is also listed when all of it is queued on the device, before it has ended there */
    pl_named_lose *lose;
    struct pl_device_event *ready; /* for device memory: the event of pl_named_mark(), until the end */
    const char *name;              /* name of the operation, or of the group; NULL: an automatic name */
    bool is_grouped;
    size_t count;

    /* used by the engine */
    bool is_entered;   /* the engine has the submission, until pl_named_submission_end() */
    size_t undone;     /* number of operations that have not ended */
    size_t unagreed;   /* number of operations that still need a round */
    size_t unlaunched; /* number of operations that are not queued on the device yet */
    enum pl_status status;
    char *failure;
    struct pl_device_event *end;               /* event after the last operation, once all are queued on the device */
    struct pl_named_submission *next;          /* next one in a list of submitted or ended submissions */
    struct pl_named_submission *next_launched; /* next one in the list of launched submissions */

    /* used by the service */
    enum pl_named_submission_kind kind;
    struct pl_completion *completion;
    struct pl_service *service;
    bool is_small;                   /* the submission's memory is reused for another one */
    int number;                      /* number of its process set */
    struct pl_named *named;          /* the set's engine; NULL: the set was removed before the submission was taken */
    struct pl_service_name *of_name; /* NULL: the name is automatic, or is free again */
    const int *ranks;                /* ADD_SET */
    int rank_count;
    int *set; /* ADD_SET: output; REMOVE_SET: input */
    struct pl_named_submission *previous_taken, *next_taken;

    struct pl_operation operations[];
};

/** How far a batch in device memory has come. */
enum pl_named_stage {
    NAMED_QUEUED,   /* all ranks agree; the batch waits for the world or for a buffer */
    NAMED_POSTED,   /* the request of the batch, or of one of its pieces, runs */
    NAMED_LAUNCHED, /* all its work is queued on the device */
};

/** Operations in device memory that share one collective. */
struct pl_named_batch {
    struct pl_request *request; /* NULL while the batch is queued */
    struct pl_named_batch *next;
    bool fused; /* the batch has many tensors, packed in `buffer` */
    bool ended; /* the last test has found that the request is done */
    enum pl_named_stage stage;
    struct pl_collective collective; /* the collective to post */
    uint64_t *counts;                /* memory of the collective's counts */
    char *name;                      /* name of the collective, if it is not an entry's name */
    struct pl_named_buffer *buffer;  /* memory of the fused tensors, the zeros of a joined rank, or the result */
    uint64_t whole_elems;            /* number of elements of a tensor that is sent in pieces; 0: sent whole */
    uint64_t at_elems;               /* element at which the current piece begins */
    struct pl_device_event *end;     /* event after the results; NULL: the request's own end is enough */
    size_t count;
    struct pl_operation *operations[]; /* a pointer is NULL after a failure that its submission knows already */
};

enum {
    NAMED_HEAD_UPDATES = 1 << 0, /* this rank announces operations, a join or a leave, in the head or in the payload */
    NAMED_HEAD_JOIN = 1 << 2,
    NAMED_HEAD_LEAVE = 1 << 3,
    NAMED_HEAD_EXPIRED = 1 << 4, /* rounds have agreed on nothing for timeout_s */
    NAMED_HEAD_RANGES = 7,
};

/**
 * The 64 bytes that every rank sends in a round: its announcements of known names as ranges of numbers. All other
 * announcements are in the payload that follows.
 */
struct pl_named_head {
    uint32_t flags;
    uint32_t payload_bytes;
    struct {
        uint32_t first, count;
    } ranges[NAMED_HEAD_RANGES];
};

struct pl_named_round {
    struct pl_request *request;    /* NULL if no round is in flight */
    struct pl_request *persistent; /* the request that exchanges the heads */
    bool in_payload;               /* the heads have arrived; the payloads are in flight */
    struct pl_named_head own;
    struct pl_named_head *heads; /* [n]: heads of all ranks */
    struct pl_text payload;      /* payload of this rank */
    uint64_t *payload_bytes;     /* [n]: lengths of all payloads */
    unsigned char *received;     /* payloads, in rank order */
    size_t received_capacity;
    uint64_t oldest_number; /* on rank 0: pending_number of the entry that has been pending longest */
    int64_t oldest_since_ns, oldest_reported_ns;
    /* deadline for the next agreement while ranks wait for names; else 0 */
    int64_t deadline_ns;
    /* quiet_since_ns: start of the rounds that agree on nothing; quiet_until_ns: no such round begins before */
    int64_t quiet_since_ns, quiet_until_ns;
};

struct pl_named_maker;

/** State for operations in device memory. */
struct pl_named_device {
    struct pl_device *_Atomic device; /* NULL if the world has no device; any thread may read it */
    struct pl_world *world;           /* world of the operations in device memory; NULL until the first one */
    struct pl_named_maker *maker;     /* makes `world` or `arena`; NULL: neither is being made */
    void *pack, *unpack;              /* streams; created at the first use */
    struct pl_named_buffer *buffers;
    struct pl_span arena;                /* memory shared with the ranks of this host */
    struct pl_named_buffer *pieces;      /* buffers in the arena, all of one size */
    unsigned fused;                      /* number of fused batches that have a buffer */
    struct pl_named_batch *first, *last; /* batches in flight, in order */
    int64_t moved_ns;                    /* time of the last progress of a batch; 0: no batch is in flight */
    int64_t looked_ns, left_ns;          /* times of the last check of peers, and of the first that found one gone */
};

struct pl_named {
    struct pl_world *world;
    struct pl_named_device device;
    int rank, ranks;
    struct pl_named_options options;
    bool is_observed; /* the options' observer was active when the engine was last advanced */
    struct pl_named_table table;
    struct pl_named_round round;
    size_t undone, unagreed;                           /* sums over all submissions */
    struct pl_operation *first_queued, *last_queued;   /* queue for the next round */
    struct pl_operation *first_running, *last_running; /* operations running in host memory, in order of requests */
    struct pl_operation *spare;                        /* unused operations of a rank that had joined */
    /* number of operations and groups with automatic names since the last join */
    uint64_t numbered[PL_KIND_COUNT];
    uint64_t numbered_groups;
    uint64_t joins; /* number of joins that have ended */
    bool joining, join_announced;
    int join_last_rank;
    bool leaving, left;
    int left_rank;                                        /* number of a rank that has left, in this engine's world */
    struct pl_error failure;                              /* the first failure of the world */
    bool held;                                            /* a fence has ended: no round may begin */
    uint64_t moves;                                       /* counts rounds, and ended operations or batches: progress */
    struct pl_named_submission *first_ended, *last_ended; /* ended submissions, until the caller takes them */
    struct pl_named_submission *first_launched;           /* launched submissions, newest first, until taken */
    struct pl_named *next;                                /* the next set's engine in a service */
};

/*
 * The calls that a service makes. Only one thread at a time may use an engine; pl_named_check(), pl_named_define() and
 * pl_named_mark() may be called at any time.
 */

/**
 * Makes an engine on `world`, which must outlive it. `options` may be NULL, and must be equal on all ranks. Not
 * collective.
 */
enum pl_status pl_named_new(struct pl_world *world, const struct pl_named_options *options, struct pl_named **ret_named,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Releases an engine that has no submission, without waiting. Operations of other ranks that this rank takes part in
 * are cancelled; the world cannot be used after that. NULL is fine.
 */
void pl_named_free(struct pl_named *named);

/** Permits operations in the memory of `device`, which must outlive the engine; NULL: host memory only. */
void pl_named_use_device(struct pl_named *named, struct pl_device *device);

/** Returns PL_OK if the engine can run `op` as `name`. `known`: the entry of the name, or NULL. */
enum pl_status pl_named_check(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                              const struct pl_named_entry *known, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fills a zeroed operation from `op`, which was checked. The rows or splits are stored in `row_counts`; returns their
 * number.
 */
size_t pl_named_define(const struct pl_named *named, const struct pl_named_op *op, struct pl_operation *operation,
                       uint64_t *row_counts);

/**
 * Records an event in the stream of the operations in device memory. The engine reads and writes their tensors only
 * after this event. `*ret_event` is NULL if no operation is in device memory, or if there is no device.
 *
 * Errors   PL_INVALID: the operations have different streams. The errors of device.h.
 */
enum pl_status pl_named_mark(struct pl_named *named, const struct pl_named_op *ops, size_t count,
                             struct pl_device_event **ret_event, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Takes a submission whose operations are defined, and queues its operations for the next round. `known`: the entry of
 * its name, or NULL. If it fails, nothing was taken.
 */
enum pl_status pl_named_enter(struct pl_named *named, struct pl_named_submission *submission,
                              struct pl_named_entry *known, struct pl_error *reterr) PL_MUST_CHECK;

/** Appends the names that this rank waits for to a warning: `append` of struct pl_about. `subject` is an engine. */
void pl_named_append_awaited(const void *subject, struct pl_text *text);

/**
 * Advances the engine once: ends operations whose collectives are done, or begins a round if one is needed and allowed.
 * With `block` it waits for progress, except if nothing is in flight or an operation is in device memory. A failure is
 * also kept in named->failure.
 */
enum pl_status pl_named_progress(struct pl_named *named, bool block, struct pl_error *reterr);

/** Returns whether operations of this rank are in flight. */
bool pl_named_has_work(const struct pl_named *named);

#endif
