/* SPDX-License-Identifier: Apache-2.0 */
/* The table of announced tensors: compares definitions, and finds tensors, groups and joins that are complete. */
#include "runtime/named/table.h"

#include "base/hash.h"
#include "base/memory.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

/* Members of a group that wait until all members are complete. */
struct named_group {
    uint64_t hash;
    uint32_t members;
    uint32_t complete;
    struct pl_named_entry **entries; /* [members]: the complete ones */
    struct named_group *next;
};

enum { FIRST_SLOTS = 256 };

static size_t words_for(int ranks)
{
    return ((size_t)ranks + 63) / 64;
}

static bool bit_get(const uint64_t *bits, int rank)
{
    return bits[rank / 64] >> (rank % 64) & 1;
}

static void bit_set(uint64_t *bits, int rank)
{
    bits[rank / 64] |= UINT64_C(1) << (rank % 64);
}

enum pl_status pl_named_table_init(struct pl_named_table *table, const struct pl_world *world, struct pl_error *reterr)
{
    memset(table, 0, sizeof(*table));
    table->world = world;
    table->ranks = pl_world_size(world);
    table->last_joined = -1;
    table->slot_count = FIRST_SLOTS;
    table->slots = pl_memory_new(table->slot_count, sizeof(struct pl_named_entry *), reterr);
    table->joined = pl_memory_new(words_for(table->ranks), sizeof(uint64_t), reterr);
    return table->slots && table->joined ? PL_OK : PL_MEMORY;
}

static void entry_free(struct pl_named_entry *entry)
{
    free(entry->name);
    free(entry->announced_by);
    free(entry->rows);
    free(entry->conflict);
    free(entry);
}

void pl_named_table_done(struct pl_named_table *table)
{
    for (size_t i = 0; table->slots && i < table->slot_count; i++) {
        for (struct pl_named_entry *entry = table->slots[i], *next; entry; entry = next) {
            next = entry->next_in_slot;
            entry_free(entry);
        }
    }
    for (struct named_group *group = table->groups, *next; group; group = next) {
        next = group->next;
        free(group->entries);
        free(group);
    }
    free(table->slots);
    free(table->known);
    free(table->joined);
    free(table->ready);
    memset(table, 0, sizeof(*table));
}

static void grow_slots(struct pl_named_table *table)
{
    size_t count = table->slot_count * 2;
    struct pl_named_entry **slots = calloc(count, sizeof(struct pl_named_entry *));

    if (!slots) {
        return; /* the only cost is longer chains */
    }
    for (size_t i = 0; i < table->slot_count; i++) {
        for (struct pl_named_entry *entry = table->slots[i], *next; entry; entry = next) {
            next = entry->next_in_slot;
            entry->next_in_slot = slots[entry->hash & (count - 1)];
            slots[entry->hash & (count - 1)] = entry;
        }
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = count;
}

struct pl_named_entry *pl_named_table_find(struct pl_named_table *table, const char *name, struct pl_error *reterr)
{
    uint64_t hash = pl_hash(PL_HASH_START, name, strlen(name));
    struct pl_named_entry *entry;

    for (entry = table->slots[hash & (table->slot_count - 1)]; entry; entry = entry->next_in_slot) {
        if (entry->hash == hash && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    entry = pl_memory_new(1, sizeof(*entry), reterr);
    if (!entry) {
        return NULL;
    }
    entry->name = pl_memory_string(name, reterr);
    entry->announced_by = pl_memory_new(words_for(table->ranks), sizeof(uint64_t), reterr);
    if (!entry->name || !entry->announced_by) {
        entry_free(entry);
        return NULL;
    }
    if (table->entry_count >= table->slot_count) {
        grow_slots(table);
    }
    entry->hash = hash;
    entry->next_in_slot = table->slots[hash & (table->slot_count - 1)];
    table->slots[hash & (table->slot_count - 1)] = entry;
    table->entry_count++;
    return entry;
}

void pl_named_table_drop_idle(struct pl_named_table *table, struct pl_named_entry *entry)
{
    struct pl_named_entry **at = &table->slots[entry->hash & (table->slot_count - 1)];

    if (entry->known || entry->announced || entry->local) {
        return;
    }
    while (*at != entry) {
        at = &(*at)->next_in_slot;
    }
    *at = entry->next_in_slot;
    table->entry_count--;
    entry_free(entry);
}

size_t pl_named_definition_row_counts(const struct pl_named_definition *definition, int ranks)
{
    if (definition->kind == PL_ALLGATHER) {
        return 1;
    }
    return definition->kind == PL_ALLTOALL ? (size_t)ranks : 0;
}

uint64_t pl_named_definition_elems_from(const struct pl_named_definition *definition, uint32_t first)
{
    uint64_t elems = 1;

    for (uint32_t i = first; i < definition->dims; i++) {
        elems *= definition->shape[i]; /* the product was checked at the submission */
    }
    return elems;
}

uint64_t pl_named_definition_elems(const struct pl_named_definition *definition)
{
    return pl_named_definition_elems_from(definition, 0);
}

static void pending_append(struct pl_named_table *table, struct pl_named_entry *entry)
{
    entry->pending_number = ++table->pending_count;
    entry->previous_pending = table->last_pending;
    entry->next_pending = NULL;
    *(table->last_pending ? &table->last_pending->next_pending : &table->first_pending) = entry;
    table->last_pending = entry;
}

static void pending_remove(struct pl_named_table *table, struct pl_named_entry *entry)
{
    *(entry->previous_pending ? &entry->previous_pending->next_pending : &table->first_pending) = entry->next_pending;
    *(entry->next_pending ? &entry->next_pending->previous_pending : &table->last_pending) = entry->previous_pending;
    entry->previous_pending = entry->next_pending = NULL;
}

/* Records how `given`, from `rank`, differs from the entry's definition, unless a difference was recorded before. */
static enum pl_status note_conflict(const struct pl_named_table *table, struct pl_named_entry *entry, int rank,
                                    const struct pl_named_definition *given, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (entry->conflict) {
        return PL_OK;
    }
    pl_text_printf(&text, "'%s': rank %d: ", entry->name, pl_world_global_rank(table->world, entry->first_rank));
    pl_named_definition_text(&entry->definition, &text);
    pl_text_printf(&text, "; rank %d: ", pl_world_global_rank(table->world, rank));
    pl_named_definition_text(given, &text);
    return pl_text_take(&text, &entry->conflict, reterr);
}

enum pl_status pl_named_table_announce(struct pl_named_table *table, struct pl_named_entry *entry, int rank,
                                       const struct pl_named_definition *definition, const void *row_counts,
                                       struct pl_error *reterr)
{
    size_t ranks = (size_t)table->ranks;

    if (!definition) {
        PL_BUG_IF(!entry->known);
        definition = &entry->agreed;
    }
    PL_BUG_IF(bit_get(entry->announced_by, rank));
    if (entry->announced == 0) {
        entry->definition = *definition;
        entry->first_rank = rank;
        free(entry->rows); /* the old array may belong to another kind */
        entry->rows = NULL;
        pending_append(table, entry);
    } else if (memcmp(&entry->definition, definition, sizeof(*definition)) != 0) {
        PL_TRY(note_conflict(table, entry, rank, definition, reterr));
    }
    bit_set(entry->announced_by, rank);
    entry->announced++;
    if (row_counts && entry->definition.kind == definition->kind) {
        size_t rank_counts = pl_named_definition_row_counts(definition, table->ranks);

        if (!entry->rows) {
            PL_TRY(pl_memory_alloc(&entry->rows, ranks * rank_counts, sizeof(uint64_t), reterr));
        }
        memcpy(entry->rows + (size_t)rank * rank_counts, row_counts, rank_counts * sizeof(uint64_t));
    }
    return PL_OK;
}

bool pl_named_table_same_ranks(const struct pl_named_table *table, const struct pl_named_entry *a,
                               const struct pl_named_entry *b)
{
    return memcmp(a->announced_by, b->announced_by, words_for(table->ranks) * sizeof(uint64_t)) == 0;
}

void pl_named_table_join(struct pl_named_table *table, int rank)
{
    if (!bit_get(table->joined, rank)) {
        bit_set(table->joined, rank);
        table->joined_count++;
        table->last_joined = rank;
    }
}

void pl_named_table_join_reset(struct pl_named_table *table)
{
    memset(table->joined, 0, words_for(table->ranks) * sizeof(uint64_t));
    table->joined_count = 0;
    table->last_joined = -1;
}

/* Joined ranks contribute neutral elements. A tensor for which none exists gets a conflict. */
static enum pl_status check_joined(struct pl_named_table *table, struct pl_named_entry *entry, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const struct pl_named_definition *definition = &entry->definition;
    bool impossible = false;

    if (entry->announced == table->ranks || entry->conflict) {
        return PL_OK;
    }
    switch ((enum pl_kind)definition->kind) {
    case PL_ALLREDUCE: /* the factor is applied to the joined rank's element too, so only 0 stays neutral */
        impossible = definition->prescale != 1 &&
                     (definition->op == PL_MIN || definition->op == PL_MAX || definition->op == PL_PRODUCT);
        break;
    case PL_BROADCAST:
        impossible = table->strict_join || !bit_get(entry->announced_by, definition->root);
        break;
    case PL_ALLTOALL:
    case PL_REDUCE_SCATTER:
        impossible = true;
        break;
    case PL_ALLGATHER:
        impossible = table->strict_join;
        break;
    case PL_BARRIER:
        impossible = definition->flags & NAMED_FENCE;
        break;
    case PL_REDUCE:
        break;
    }
    if (!impossible) {
        return PL_OK;
    }
    pl_text_printf(&text, "'%s': ", entry->name);
    pl_named_definition_text(definition, &text);
    pl_text_printf(&text, " cannot run while %d of %d ranks have joined", table->joined_count, table->ranks);
    return pl_text_take(&text, &entry->conflict, reterr);
}

static bool is_complete(const struct pl_named_table *table, const struct pl_named_entry *entry)
{
    int present = entry->announced;

    if (present == table->ranks || table->joined_count == 0) {
        return present == table->ranks;
    }
    for (size_t i = 0; i < words_for(table->ranks); i++) {
        present += __builtin_popcountll(table->joined[i] & ~entry->announced_by[i]);
    }
    return present == table->ranks;
}

static enum pl_status ready_append(struct pl_named_table *table, struct pl_named_entry *entry, struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&table->ready, &table->ready_capacity, table->ready_count + 1,
                          sizeof(struct pl_named_entry *), reterr));
    table->ready[table->ready_count++] = entry;
    return PL_OK;
}

static struct named_group *find_group(struct pl_named_table *table, const struct pl_named_definition *definition,
                                      struct pl_error *reterr)
{
    struct named_group *group;

    for (group = table->groups; group; group = group->next) {
        if (group->hash == definition->group) {
            return group;
        }
    }
    group = pl_memory_new(1, sizeof(*group), reterr);
    if (!group) {
        return NULL;
    }
    group->entries = pl_memory_new(definition->group_members, sizeof(struct pl_named_entry *), reterr);
    if (!group->entries) {
        free(group);
        return NULL;
    }
    group->hash = definition->group;
    group->members = definition->group_members;
    group->next = table->groups;
    table->groups = group;
    return group;
}

/* Drops the list of a group's complete members, when all are complete or the group has failed. */
static void forget_group(struct pl_named_table *table, uint64_t hash)
{
    for (struct named_group **at = &table->groups; *at; at = &(*at)->next) {
        struct named_group *group = *at;

        if (group->hash == hash) {
            *at = group->next;
            free(group->entries);
            free(group);
            return;
        }
    }
}

/*
 * Records that a member is complete. When all members are complete, they become ready. A conflict of one member becomes
 * a conflict of all.
 */
static enum pl_status collect_member(struct pl_named_table *table, struct pl_named_entry *entry, bool *ret_ready,
                                     struct pl_error *reterr)
{
    struct named_group *group = find_group(table, &entry->definition, reterr);
    const char *conflict = NULL;

    if (!group) {
        return PL_MEMORY;
    }
    PL_BUG_IF(group->entries[entry->definition.group_index]);
    group->entries[entry->definition.group_index] = entry;
    entry->awaits_group = true;
    *ret_ready = ++group->complete == group->members;
    if (!*ret_ready) {
        return PL_OK;
    }
    for (uint32_t i = 0; i < group->members && !conflict; i++) {
        conflict = group->entries[i]->conflict;
    }
    for (uint32_t i = 0; i < group->members; i++) {
        if (conflict && !group->entries[i]->conflict) {
            group->entries[i]->conflict = pl_memory_string(conflict, reterr);
            if (!group->entries[i]->conflict) {
                return PL_MEMORY;
            }
        }
        pending_remove(table, group->entries[i]);
        PL_TRY(ready_append(table, group->entries[i], reterr));
    }
    forget_group(table, group->hash);
    return PL_OK;
}

enum pl_status pl_named_table_collect(struct pl_named_table *table, struct pl_error *reterr)
{
    for (struct pl_named_entry *entry = table->first_pending, *next; entry; entry = next) {
        bool group_ready = false;

        next = entry->next_pending;
        if (entry->awaits_group || !is_complete(table, entry)) {
            continue;
        }
        PL_TRY(check_joined(table, entry, reterr));
        if (!entry->definition.group_members) {
            pending_remove(table, entry);
            PL_TRY(ready_append(table, entry, reterr));
            continue;
        }
        PL_TRY(collect_member(table, entry, &group_ready, reterr));
        if (group_ready) {
            next = table->first_pending; /* the members have left the list, and `next` may be one of them */
        }
    }
    return PL_OK;
}

static bool is_pending(const struct pl_named_table *table, const struct pl_named_entry *entry)
{
    return table->first_pending == entry || entry->previous_pending;
}

enum pl_status pl_named_table_retire(struct pl_named_table *table, struct pl_named_entry *entry, bool agrees,
                                     struct pl_error *reterr)
{
    if (is_pending(table, entry)) {
        pending_remove(table, entry);
    }
    if (!agrees && entry->definition.group_members) {
        forget_group(table, entry->definition.group);
    }
    if (agrees && !entry->known && !entry->anonymous && table->known_count < NAMED_MAX_KNOWN) {
        PL_TRY(pl_memory_grow(&table->known, &table->known_capacity, table->known_count + 1,
                              sizeof(struct pl_named_entry *), reterr));
        entry->id = (uint32_t)table->known_count;
        table->known[table->known_count++] = entry;
        entry->known = true;
    }
    if (agrees) {
        entry->agreed = entry->definition;
    }
    entry->announced = 0;
    entry->awaits_group = false;
    memset(entry->announced_by, 0, words_for(table->ranks) * sizeof(uint64_t));
    free(entry->conflict);
    entry->conflict = NULL;
    return PL_OK;
}

void pl_named_definition_text(const struct pl_named_definition *definition, struct pl_text *text)
{
    enum pl_kind kind = (enum pl_kind)definition->kind;
    bool ragged = kind == PL_ALLGATHER || kind == PL_ALLTOALL;

    pl_text_append(text, pl_kind_text(kind));
    if (kind == PL_BARRIER) {
        return;
    }
    if (kind == PL_ALLREDUCE || kind == PL_REDUCE_SCATTER) {
        pl_text_printf(text, " %s", pl_op_text((enum pl_op)definition->op));
    }
    pl_text_printf(text, " of %s [", pl_dtype_text((enum pl_dtype)definition->dtype));
    for (uint32_t i = 0; i < definition->dims; i++) {
        if (i == 0 && ragged) {
            pl_text_append(text, "rows");
        } else {
            pl_text_printf(text, "%s%llu", i ? "," : "", (unsigned long long)definition->shape[i]);
        }
    }
    pl_text_append(text, "]");
    if (definition->memory == PL_MEMORY_DEVICE) {
        pl_text_append(text, " in device memory");
    }
    if (kind == PL_BROADCAST) {
        pl_text_printf(text, " from root %d", definition->root);
    }
    if (definition->scaled) {
        pl_text_printf(text, " prescale %g postscale %g", definition->prescale, definition->postscale);
    }
    if (definition->flags) {
        pl_text_printf(text, " flags %u", definition->flags);
    }
    if (definition->group_members) {
        pl_text_printf(text, " member %u of %u of a group", definition->group_index, definition->group_members);
    }
}

/* Prints the global numbers of the ranks whose bit is `value`: "0-2,5". */
static void ranks_text(const struct pl_named_table *table, const uint64_t *bits, bool value, struct pl_text *text)
{
    const char *separator = "";

    for (int rank = 0; rank < table->ranks; rank++) {
        int first = pl_world_global_rank(table->world, rank), last = first;

        if (bit_get(bits, rank) != value) {
            continue;
        }
        while (rank + 1 < table->ranks && bit_get(bits, rank + 1) == value &&
               pl_world_global_rank(table->world, rank + 1) == last + 1) {
            rank++;
            last++;
        }
        pl_text_printf(text, last > first ? "%s%d-%d" : "%s%d", separator, first, last);
        separator = ",";
    }
}

void pl_named_entry_waiting_text(const struct pl_named_table *table, const struct pl_named_entry *entry,
                                 struct pl_text *text)
{
    if (entry->awaits_group) {
        pl_text_printf(text, "'%s': waits for other members of its group", entry->name);
        return;
    }
    pl_text_printf(text, "'%s': submitted by %s ", entry->name, entry->announced == 1 ? "rank" : "ranks");
    ranks_text(table, entry->announced_by, true, text);
    pl_text_append(text, ", not by ");
    ranks_text(table, entry->announced_by, false, text);
}
