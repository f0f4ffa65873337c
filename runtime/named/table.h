/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The table of names, equal on every rank: it knows which ranks have announced which names, whether the definitions
 * agree, and which tensors are ready. It sends nothing. Internal to runtime/; used by rounds.c.
 *
 * The tables stay equal because they change only by announcements, which all ranks see in the same order. Exceptions
 * are `local`, which points to this rank's own operation, `request`, and entries that only this rank has submitted so
 * far.
 */
#ifndef PL_RUNTIME_NAMED_TABLE_H
#define PL_RUNTIME_NAMED_TABLE_H

#include "base/text.h"
#include "runtime/named.h"

/**
 * The properties that ranks must agree on. They are compared as bytes: zero the struct before filling it. Dimension 0
 * is 0 for ALLGATHER and ALLTOALL.
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
    uint32_t group_members; /* 0: the operation is in no group */
    uint32_t group_index;
};

struct pl_operation;
struct pl_request;
struct named_group;

struct pl_named_entry {
    char *name;
    bool known;  /* the ranks have agreed on `agreed` once, so an announcement may send only `id` */
    uint32_t id; /* number of the name, if `known` */
    struct pl_named_definition agreed;

    /* valid from the first announcement until pl_named_table_retire() */
    struct pl_named_definition definition; /* the definition that was announced first */
    int first_rank;
    int announced;           /* number of ranks that have announced it */
    uint64_t *announced_by;  /* one bit per rank */
    uint64_t *rows;          /* ALLGATHER: [n], by rank; ALLTOALL: [n * n], by sender; else NULL */
    char *conflict;          /* how definitions differ; NULL while they agree */
    bool awaits_group;       /* all ranks have announced the entry, but not yet all members of its group */
    uint64_t pending_number; /* number of the entry in the order in which entries became pending */
    struct pl_named_entry *previous_pending, *next_pending;

    struct pl_operation *local; /* this rank's operation, from its submission to its end */
    struct pl_request *request; /* persistent request of a reduction that ranks have agreed on; NULL: there is none */
    bool anonymous;             /* the name is automatic; the entry is dropped when the operation ends */
    uint64_t hash;
    struct pl_named_entry *next_in_slot;
};

struct pl_named_table {
    const struct pl_world *world; /* gives the global numbers of the ranks */
    int ranks;
    uint64_t pending_count;        /* number of entries that ever became pending */
    struct pl_named_entry **slots; /* hash chains; their number is a power of two */
    size_t slot_count;
    size_t entry_count;
    struct pl_named_entry **known; /* indexed by id */
    size_t known_count, known_capacity;
    struct pl_named_entry *first_pending, *last_pending;
    struct named_group *groups;
    uint64_t *joined; /* one bit per rank that has joined */
    int joined_count;
    bool strict_join; /* see struct pl_named_options */
    int last_joined;  /* the rank that joined last */
    /* entries that announcements have made ready, in the order in which every rank runs them */
    struct pl_named_entry **ready;
    size_t ready_count, ready_capacity;
};

/* a flag of a definition, as PL_REPRODUCIBLE is one */
enum {
    /* a barrier that sets the engine's `held`; no round begins until the caller clears it */
    NAMED_FENCE = 1 << 15,
};

enum {
    /* most names with numbers (response cache); other names are always announced whole */
    NAMED_MAX_KNOWN = 65536,
};

enum pl_status pl_named_table_init(struct pl_named_table *table, const struct pl_world *world,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_named_table_done(struct pl_named_table *table);

/** Returns the entry called `name`, and makes it if needed. Returns NULL if memory is out. */
struct pl_named_entry *pl_named_table_find(struct pl_named_table *table, const char *name, struct pl_error *reterr);

/** Drops `entry` if nothing needs it: it is not known, not in flight, and has no local operation. */
void pl_named_table_drop_idle(struct pl_named_table *table, struct pl_named_entry *entry);

/** Returns how many row counts or splits follow a definition in an announcement: 1 for ALLGATHER, n for ALLTOALL. */
size_t pl_named_definition_row_counts(const struct pl_named_definition *definition, int ranks);

/**
 * Returns the number of elements of a definition's shape, counting dimensions from `first` on; with `first` 1 these are
 * the elements of a row.
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

/** Returns whether the same ranks have announced `a` and `b`, and the same ranks had joined before each. */
bool pl_named_table_same_ranks(const struct pl_named_table *table, const struct pl_named_entry *a,
                               const struct pl_named_entry *b);

/** Records that rank `rank` has joined. Later calls of pl_named_table_collect() regard it. */
void pl_named_table_join(struct pl_named_table *table, int rank);
void pl_named_table_join_reset(struct pl_named_table *table);

/** Moves complete entries from pending to `ready`, also those with a conflict, which fail on all ranks. */
enum pl_status pl_named_table_collect(struct pl_named_table *table, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends the announcement of `entry`. If `agrees`, the ranks agreed: its number may be used from now on. */
enum pl_status pl_named_table_retire(struct pl_named_table *table, struct pl_named_entry *entry, bool agrees,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Prints "allreduce sum of float32 [3,4] prescale 0.5". */
void pl_named_definition_text(const struct pl_named_definition *definition, struct pl_text *text);

/** Prints one line for `entry`: "'w': submitted by ranks 0-2, not by 3". */
void pl_named_entry_waiting_text(const struct pl_named_table *table, const struct pl_named_entry *entry,
                                 struct pl_text *text);

#endif
