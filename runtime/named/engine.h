/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The structs of the engine of named tensors. Those who work on them, from the bottom up: queue.c (what was submitted),
 * batch.c (requests), device.c (many sums as one), run.c (what is ready), rounds.c (what ranks tell each other),
 * named.c (the calls). Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_ENGINE_H
#define PL_RUNTIME_NAMED_ENGINE_H

#include "device/device.h"
#include "runtime/named/table.h"

/** This rank's operation of one name, from submit to done. */
struct pl_named_local {
    struct pl_named_entry *entry;
    struct pl_named_definition definition;
    const void *send;
    void *recv;
    uint64_t *row_counts; /* rows or splits, see pl_named_definition_row_counts() */
    uint64_t bytes;
    size_t slot;   /* of the handle that it belongs to */
    size_t member; /* and its index there */
    bool anonymous;
    struct pl_named_local *next; /* in the queue of those not yet announced */
};

/** What a handle stands for. */
struct pl_named_slot {
    bool used;
    uint32_t generation;
    size_t members;
    size_t undone;     /* members that have not ended */
    size_t unagreed;   /* members that still need a round */
    size_t next_ended; /* in the list of those that have ended, as index + 1 */
    void *owner;       /* the service's; NULL: no service */
    enum pl_status status;
    char *failure;
    struct pl_named_result *results; /* [members] */
};

/** One entry of a request under way. */
struct pl_named_item {
    struct pl_named_entry *entry;
    struct pl_named_local *local; /* NULL where this rank has joined */
    void *scratch;                /* what a joined rank receives into */
    bool in_device_memory;        /* the scratch */
    struct pl_named_result result;
};

/**
 * Sums in device memory that are fused into one allreduce; cached for the next time that the same buffers come together
 * (device.c).
 */
struct named_fusion;

struct pl_named_batch {
    struct pl_request *request;
    struct named_fusion *fusion; /* NULL: one entry, in place */
    struct pl_named_batch *next;
    size_t count;
    struct pl_named_item items[];
};

enum {
    NAMED_HEAD_UPDATES = 1 << 0, /* has updates: announces, joins or leaves */
    NAMED_HEAD_WAITING = 1 << 1, /* blocked until other ranks announce more */
    NAMED_HEAD_JOIN = 1 << 2,
    NAMED_HEAD_LEAVE = 1 << 3,
    NAMED_HEAD_EXPIRED = 1 << 4, /* expired: rounds have agreed on nothing for as long as a rank may wait */
    NAMED_HEAD_RANGES = 7,
};

/**
 * What every rank sends in a round: 64 bytes. Known names go as ranges of numbers, all else into the payload that
 * follows.
 */
struct pl_named_head {
    uint32_t flags;
    uint32_t payload_bytes;
    struct {
        uint32_t first, count;
    } ranges[NAMED_HEAD_RANGES];
};

struct pl_named_round {
    struct pl_request *request; /* NULL: no round under way */
    bool in_payload;            /* the heads have arrived, the payloads are under way */
    struct pl_named_head own;
    struct pl_named_head *heads; /* [n] */
    struct pl_text payload;      /* own */
    uint64_t *payload_bytes;     /* [n] */
    unsigned char *received;     /* payloads, in rank order */
    size_t received_capacity;
    uint64_t oldest_number; /* pending_number of the entry that waits longest, on rank 0 */
    int64_t oldest_since_ns, oldest_reported_ns;
    /* while rounds agree on nothing although names are waited for: the deadline of that; else 0 */
    int64_t deadline_ns;
    /* with several threads: since when rounds have carried nothing, and before when no other such round begins */
    int64_t quiet_since_ns, quiet_until_ns;
};

/** What operations in device memory need. */
struct pl_named_device {
    struct pl_device *device; /* NULL: the world has none */
    void *stream;             /* packs, unpacks; made when first needed */
    void *submitted;          /* event: what the program's stream had been given */
    struct named_fusion *fusions;
    uint64_t fusion_bytes;
    uint64_t uses; /* counts up, so that the fusion least recently used is known */
};

struct pl_named {
    struct pl_world *world;
    struct pl_named_device device;
    int rank, ranks;
    struct pl_named_options options;
    struct pl_named_table table;
    struct pl_named_round round;
    struct pl_named_slot *slots;
    size_t slot_count, slot_capacity, free_slot_hint;
    struct pl_named_local *first_unannounced, *last_unannounced;
    uint64_t unannounced_bytes;
    struct pl_named_batch *first_batch, *last_batch; /* requests under way, in order */
    uint64_t numbered[PL_KIND_COUNT];                /* operations without a name since the last join; as for groups */
    uint64_t numbered_groups;
    uint64_t joins; /* that have ended */
    bool joining, join_announced;
    int join_last_rank;
    bool leaving, left;
    int left_rank;
    struct pl_error failure;  /* of the world; sticky */
    bool held;                /* a fence has ended: no round begins */
    uint64_t moves;           /* counts what has ended, so that a service sees whether anything moved */
    size_t first_ended;       /* slots with an owner that have ended, as index + 1 */
    struct pl_named *sibling; /* sibling: next in the circular list of engines that go on while this one waits */
};

#endif
