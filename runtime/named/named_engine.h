/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What named.c (calls), named_round.c (rounds), named_run.c (execution) and named_device.c share. Internal to runtime/.
 */
#ifndef PL_RUNTIME_NAMED_NAMED_ENGINE_H
#define PL_RUNTIME_NAMED_NAMED_ENGINE_H

#include "device/device.h"
#include "runtime/named/named_table.h"

/** This rank's operation of one name, from submit to done. */
struct named_local {
    struct named_entry *entry;
    struct named_definition definition;
    const void *send;
    void *recv;
    uint64_t *extras; /* rows or splits, see named_definition_extras() */
    uint64_t bytes;
    size_t slot;   /* of the handle that it belongs to */
    size_t member; /* and its index there */
    bool transient;
    struct named_local *next; /* in the queue of those not yet announced */
};

/** What a handle stands for. */
struct named_slot {
    bool used;
    uint32_t generation;
    size_t members;
    size_t undone;   /* members that have not ended */
    size_t unagreed; /* members that still need a round */
    enum pl_status status;
    char *failure;
    struct pl_named_result *results; /* [members] */
};

/** One entry of a request under way. */
struct named_item {
    struct named_entry *entry;
    struct named_local *local; /* NULL where this rank has joined */
    void *scratch;             /* what a joined rank receives into */
    bool in_device_memory;     /* the scratch */
    struct pl_named_result result;
};

/**
 * Sums in device memory that are fused into one allreduce; cached for the next time that the same buffers come together
 * (named_device.c).
 */
struct named_fusion;

struct named_batch {
    struct pl_request *request;
    struct named_fusion *fusion; /* NULL: one entry, in place */
    struct named_batch *next;
    size_t count;
    struct named_item items[];
};

enum {
    NAMED_HEAD_NEWS = 1 << 0,    /* has updates: announces, joins or leaves */
    NAMED_HEAD_WAITING = 1 << 1, /* blocked until other ranks announce more */
    NAMED_HEAD_JOIN = 1 << 2,
    NAMED_HEAD_LEAVE = 1 << 3,
    NAMED_HEAD_LATE = 1 << 4, /* expired: rounds have agreed on nothing for as long as a rank may wait */
    NAMED_HEAD_RUNS = 7,
};

/**
 * What every rank sends in a round: 64 bytes. Known names go as ranges of numbers, all else into the payload that
 * follows.
 */
struct named_head {
    uint32_t flags;
    uint32_t payload_bytes;
    struct {
        uint32_t first, count;
    } runs[NAMED_HEAD_RUNS];
};

struct named_round {
    struct pl_request *request; /* NULL: no round under way */
    bool in_payload;            /* the heads have arrived, the payloads are under way */
    struct named_head own;
    struct named_head *heads; /* [n] */
    struct pl_text payload;   /* own */
    uint64_t *payload_bytes;  /* [n] */
    unsigned char *received;  /* payloads, in rank order */
    size_t received_capacity;
    uint64_t oldest_number; /* pending_number of the entry that waits longest, on rank 0 */
    int64_t oldest_since_ns, oldest_told_ns;
    /* while rounds agree on nothing although names are waited for: the deadline of that; else 0 */
    int64_t deadline_ns;
};

/** What operations in device memory need. */
struct named_device {
    struct pl_device *device; /* NULL: the world has none */
    void *stream;             /* packs, unpacks; made when first needed */
    void *submitted;          /* event: what the program's stream had been given */
    struct named_fusion *fusions;
    uint64_t fusion_bytes;
    uint64_t uses; /* counts up, so that the fusion least recently used is known */
};

struct pl_named {
    struct pl_world *world;
    struct named_device device;
    int rank, ranks;
    struct pl_named_options options;
    struct named_table table;
    struct named_round round;
    struct named_slot *slots;
    size_t slot_count, slot_capacity, free_slot_hint;
    struct named_local *first_unannounced, *last_unannounced;
    uint64_t unannounced_bytes;
    struct named_batch *first_batch, *last_batch; /* requests under way, in order */
    uint64_t numbered[PL_KIND_COUNT];
    uint64_t numbered_groups;
    bool joining, join_told;
    int join_last_rank;
    bool leaving, left;
    int left_rank;
    struct pl_error failure; /* of the world; sticky */
    struct pl_named *beside; /* sibling: next in the circular list of engines that go on while this one waits */
};

/**
 * Let two engines of one rank go on while the other waits, until one is freed. A thread in one of them may then be in
 * both.
 */
void named_link(struct pl_named *named, struct pl_named *other);

/** How many operations were submitted with `handle`; 0 where pl_named_wait() would not know it. */
size_t named_members(const struct pl_named *named, pl_named_handle handle);

/**
 * The name of an operation of this rank that has not ended; NULL: there is none, or none will end any more as the world
 * has failed.
 */
const char *named_under_way(const struct pl_named *named);

void named_local_free(struct named_local *local);
void named_batch_free(struct pl_named *named, struct named_batch *batch);

/**
 * Advance once: end what has ended, and begin a round where one is needed. With `block` wait until something moved.
 * `need_round`: the caller waits for what only a round can change. A failure is also kept in named->failure.
 */
enum pl_status named_drive(struct pl_named *named, bool need_round, bool block, struct pl_error *reterr);

/**
 * Advance the sibling engines that have work, without waiting, because a rank that this one waits for may first wait
 * for this one there. Their failures are reported by their own calls. False when none had any work.
 */
bool named_drive_beside(struct pl_named *named);

/** Run what the table has made ready (named_run.c). */
enum pl_status named_run_ready(struct pl_named *named, struct pl_error *reterr) PL_MUST_CHECK;

/** A batch of `count` entries; the caller fills and posts it. */
struct named_batch *named_batch_new(struct named_entry **entries, size_t count, struct pl_error *reterr);

/** Append a posted batch, whose entries no longer take part in rounds. */
enum pl_status named_batch_posted(struct pl_named *named, struct named_batch *batch,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Elements of a definition's shape. */
uint64_t named_definition_elems(const struct named_definition *definition);

/**
 * The name of its collective. Compression keeps residuals by that name, so NULL for an automatic name, which is used
 * once.
 */
const char *named_collective_name(const struct named_entry *entry);

/** `elems` elements that change nothing under `op`, in host memory. */
void named_fill_neutral(void *data, uint64_t elems, enum pl_dtype dtype, enum pl_op op);

/** What a reduction of `contributors` ranks' tensors needs besides buffers. */
void named_describe_sum(const struct pl_named *named, const struct named_definition *definition, int contributors,
                        struct pl_collective *collective);

/* named_device.c: */

/** Whether the entry is to be fused with others of its kind. */
bool named_device_packs(const struct named_entry *entry);

/** Post `count` entries that named_device_packs() and that differ in nothing but buffers and shapes as one request. */
enum pl_status named_device_post(struct pl_named *named, struct named_entry **entries, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The request of a fused batch has ended: unpack the results. */
enum pl_status named_device_finish(struct pl_named *named, struct named_batch *batch,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Memory of a joined rank for something that it has not submitted, in the operation's kind of memory; `fill` gives its
 * contents, NULL: zeros.
 */
enum pl_status named_device_scratch(struct pl_named *named, uint64_t bytes, const void *fill, void **ret_scratch,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void named_device_done(struct named_device *device);

/** End this rank's operation: count it down at its handle, drop an automatic name. `failure` NULL means success. */
void named_end_local(struct pl_named *named, struct named_local *local, enum pl_status status, const char *failure);

/** The requests of `batch` have ended well: hand results over and free it. */
void named_batch_end(struct pl_named *named, struct named_batch *batch);

#endif
