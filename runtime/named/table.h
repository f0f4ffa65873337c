/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The table of names that every rank keeps alike: which ranks have announced what, whether the definitions agree, and
 * which tensors are ready. Pure bookkeeping: nothing is sent from here. Internal to runtime/; rounds.c drives it.
 *
 * Ranks stay alike because the table changes only through announcements that all ranks see in the same order. The
 * exceptions are `local`, which points to this rank's own operation, `request`, and entries of names that so far only
 * this rank has submitted.
 */
#ifndef PL_RUNTIME_NAMED_TABLE_H
#define PL_RUNTIME_NAMED_TABLE_H

#include "base/text.h"
#include "runtime/named.h"

/**
 * The properties that ranks must agree on. They are compared as bytes: zero the struct before filling it. Dimension 0
 * of ALLGATHER and ALLTOALL is 0 here.
 */
struct pl_named_definition {
    uint8_t kind, dtype, op, scaled;
    uint16_t flags;
    uint8_t memory, is_scaled_by_caller;
    int32_t root;
    uint32_t dims;
    double prescale, postscale;
    uint64_t shape[PL_NAMED_MAX_DIMS];
    uint64_t group;         /* hash of the group's base name and size */
    uint32_t group_members; /* 0 outside groups */
    uint32_t group_index;
};

struct pl_operation;
struct pl_request;
struct named_group;

struct pl_named_entry {
    char *name;
    bool known;  /* every rank has announced `agreed` once, so that its number can stand for it */
    uint32_t id; /* its number, if `known` */
    struct pl_named_definition agreed;

    /* Valid from the first announcement until the entry is ready. */
    struct pl_named_definition definition; /* the definition that was announced first */
    int first_rank;
    int announced;           /* number of ranks that have announced it */
    uint64_t *announced_by;  /* one bit per rank */
    uint64_t *rows;          /* ALLGATHER: [n], by rank; ALLTOALL: [n * n], by sender; else NULL */
    char *conflict;          /* how definitions differ; NULL while they agree */
    bool awaits_group;       /* complete, but other members of its group are not */
    uint64_t pending_number; /* number of the entry in the order in which entries became pending */
    struct pl_named_entry *previous_pending, *next_pending;

    struct pl_operation *local; /* this rank's operation, from its submission to its end */
    struct pl_request *request; /* the persistent one of a reduction that was agreed on; NULL: there is none */
    bool anonymous;             /* it has an automatic name, and is dropped at its end */
    uint64_t hash;
    struct pl_named_entry *next_in_slot;
};

struct pl_named_table {
    const struct pl_world *world; /* world, for the global numbers of its ranks */
    int ranks;
    uint64_t pending_count;        /* number of entries that ever became pending */
    struct pl_named_entry **slots; /* hash chains; their number is a power of two */
    size_t slot_count;
    size_t entry_count;
    struct pl_named_entry **known; /* indexed by id */
    size_t known_count, known_capacity;
    struct pl_named_entry *first_pending, *last_pending;
    struct named_group *groups;
    uint64_t *joined; /* one bit per rank */
    int joined_count;
    bool strict_join; /* see struct pl_named_options */
    int last_joined;  /* rank of the latest join flag */
    /* The entries that the announcements have made ready, in the order in which every rank runs them. */
    struct pl_named_entry **ready;
    size_t ready_count, ready_capacity;
};

/* A flag of a definition, beside PL_REPRODUCIBLE and similar ones. */
enum {
    /* a barrier after which no round begins until the caller sets `held` of the engine back */
    NAMED_FENCE = 1 << 15,
};

enum {
    /* how many names get numbers (response cache); other names are announced whole each time */
    NAMED_MAX_KNOWN = 65536,
};

enum pl_status pl_named_table_init(struct pl_named_table *table, const struct pl_world *world,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_named_table_done(struct pl_named_table *table);

/** Returns the entry called `name`, and makes it if it does not exist. NULL without memory. */
struct pl_named_entry *pl_named_table_find(struct pl_named_table *table, const char *name, struct pl_error *reterr);

/** Drops `entry` if nothing needs it: it is not known, not in flight, and has no local operation. */
void pl_named_table_drop_idle(struct pl_named_table *table, struct pl_named_entry *entry);

/**
 * Returns how many numbers an announcement of `definition` carries in addition: rows (1) for ALLGATHER, splits (n) for
 * ALLTOALL.
 */
size_t pl_named_definition_row_counts(const struct pl_named_definition *definition, int ranks);

/**
 * Returns the number of elements of a definition's shape, of its dimensions from `first` on; 1 gives the elements of a
 * row.
 */
uint64_t pl_named_definition_elems(const struct pl_named_definition *definition);
uint64_t pl_named_definition_elems_from(const struct pl_named_definition *definition, uint32_t first);

/**
 * Records that rank `rank` has announced `entry` with `definition` (NULL: the agreed one) and `row_counts` (may be
 * unaligned; NULL if there are none).
 */
enum pl_status pl_named_table_announce(struct pl_named_table *table, struct pl_named_entry *entry, int rank,
                                       const struct pl_named_definition *definition, const void *row_counts,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the same ranks have announced `a` and `b`, and the same ranks are joined. */
bool pl_named_table_same_ranks(const struct pl_named_table *table, const struct pl_named_entry *a,
                               const struct pl_named_entry *b);

/** Records that rank `rank` has joined. Later calls of pl_named_table_collect() take it into account. */
void pl_named_table_join(struct pl_named_table *table, int rank);
void pl_named_table_join_reset(struct pl_named_table *table);

/** Moves complete entries from pending to `ready`. Entries with a conflict are ready too: they fail on all ranks. */
enum pl_status pl_named_table_collect(struct pl_named_table *table, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends `entry`. If `agrees`, its number may be used from now on. */
enum pl_status pl_named_table_retire(struct pl_named_table *table, struct pl_named_entry *entry, bool agrees,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Prints "allreduce sum of float32 [3,4] prescale 0.5". */
void pl_named_definition_text(const struct pl_named_definition *definition, struct pl_text *text);

/** Prints one line for `entry`: "'w': submitted by ranks 0-2, not by 3". */
void pl_named_entry_waiting_text(const struct pl_named_table *table, const struct pl_named_entry *entry,
                                 struct pl_text *text);

#endif
