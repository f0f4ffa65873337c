/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by id: records in chunks, and an index to them. */
#include "runtime/server/row_store.h"

#include "base/memory.h"
#include "device/kernel_private.h"
#include "runtime/gradient/optimizer_rule.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    CHUNK_BYTES = 32 << 20, /* approximate; a page is allocated at its first use */
    FIRST_SLOTS = 1024,
    LARGE_PAGE_BYTES = 2 << 20,
    BATCH = 16, /* number of rows whose memory is prefetched together */
    LINE_BYTES = 64,
    MOST_LINES = 8, /* most cache lines of a record that are prefetched; the hardware fetches the others */
};

/* The index stores 32 bits of a hash, so it has at most 2^32 slots, of which 4/5 are used. */
#define MOST_RECORDS (UINT32_MAX / 5 * 4)

struct slot {
    uint32_t number; /* number of the record, from 1; 0: the slot is free */
    uint32_t hash;   /* lower half of the hash of the record's id */
};

struct pl_row_store {
    struct pl_table table;
    struct pl_device_step step;
    uint64_t record_bytes;
    unsigned chunk_shift; /* a chunk has 2^chunk_shift records */
    char **chunks;
    size_t chunk_count, chunk_capacity;
    uint64_t rows;
    struct slot *slots;
    uint64_t slot_mask;
};

enum pl_status pl_row_store_new(const struct pl_table *table, struct pl_row_store **ret_store, struct pl_error *reterr)
{
    struct pl_optimizer_options optimizer = pl_table_optimizer(table);
    struct pl_row_store *store;

    PL_TRY(pl_optimizer_rule_check(&optimizer, reterr));
    PL_TRY(pl_memory_alloc(&store, 1, sizeof(*store), reterr));
    store->table = *table;
    store->step = pl_optimizer_rule_step(&optimizer, 1, table->rate, 1.0);
    store->record_bytes = sizeof(int64_t) + (table->columns + pl_table_state_columns(table)) * sizeof(float);
    store->record_bytes = (store->record_bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
    while (store->record_bytes << (store->chunk_shift + 1) <= CHUNK_BYTES) {
        store->chunk_shift++;
    }
    store->slots = pl_memory_new(FIRST_SLOTS, sizeof(*store->slots), reterr);
    store->slot_mask = FIRST_SLOTS - 1;
    if (!store->slots) {
        free(store);
        return PL_MEMORY;
    }
    *ret_store = store;
    return PL_OK;
}

void pl_row_store_free(struct pl_row_store *store)
{
    if (!store) {
        return;
    }
    for (size_t c = 0; c < store->chunk_count; c++) {
        free(store->chunks[c]);
    }
    free(store->chunks);
    free(store->slots);
    free(store);
}

void pl_row_store_clear(struct pl_row_store *store)
{
    for (size_t c = 0; c < store->chunk_count; c++) {
        free(store->chunks[c]);
    }
    store->chunk_count = 0;
    store->rows = 0;
    memset(store->slots, 0, (store->slot_mask + 1) * sizeof(*store->slots));
}

uint64_t pl_row_store_rows(const struct pl_row_store *store)
{
    return store->rows;
}

uint64_t pl_row_store_record_bytes(const struct pl_row_store *store)
{
    return store->record_bytes;
}

uint64_t pl_row_store_bytes(const struct pl_row_store *store)
{
    return store->rows * store->record_bytes + store->chunk_capacity * sizeof(*store->chunks) +
           (store->slot_mask + 1) * sizeof(*store->slots);
}

uint64_t pl_row_store_chunks(const struct pl_row_store *store)
{
    return store->chunk_count;
}

struct iovec pl_row_store_chunk(const struct pl_row_store *store, uint64_t chunk)
{
    uint64_t before = chunk << store->chunk_shift, most = UINT64_C(1) << store->chunk_shift;
    uint64_t records = store->rows - before < most ? store->rows - before : most;

    return (struct iovec){.iov_base = store->chunks[chunk], .iov_len = records * store->record_bytes};
}

static char *record_at(const struct pl_row_store *store, uint64_t number)
{
    uint64_t in_chunk = number & ((UINT64_C(1) << store->chunk_shift) - 1);

    return store->chunks[number >> store->chunk_shift] + in_chunk * store->record_bytes;
}

static float *values_of(char *record)
{
    return (float *)(void *)(record + sizeof(int64_t));
}

static bool is_of(const char *record, int64_t id)
{
    return *(const int64_t *)(const void *)record == id;
}

/* Returns the record of row `id`, or NULL if the row does not exist. */
static char *find(const struct pl_row_store *store, int64_t id, uint64_t hash)
{
    for (uint64_t s = hash & store->slot_mask;; s = (s + 1) & store->slot_mask) {
        const struct slot *slot = &store->slots[s];

        if (slot->number == 0) {
            return NULL;
        }
        if (slot->hash == (uint32_t)hash) {
            char *record = record_at(store, slot->number - 1);

            if (is_of(record, id)) {
                return record;
            }
        }
    }
}

/* Prefetches `count` rows, at most BATCH: first their index slots, then the records that these probably name. */
static void fetch(const struct pl_row_store *store, const int64_t *ids, const uint32_t *at, uint64_t count,
                  uint64_t *ret_hash)
{
    uint64_t lines = store->record_bytes / LINE_BYTES + 1;

    lines = lines < MOST_LINES ? lines : MOST_LINES;
    for (uint64_t i = 0; i < count; i++) {
        ret_hash[i] = pl_table_hash(ids[at ? at[i] : i]);
        __builtin_prefetch(&store->slots[ret_hash[i] & store->slot_mask]);
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t s = ret_hash[i] & store->slot_mask;

        while (store->slots[s].number != 0 && store->slots[s].hash != (uint32_t)ret_hash[i]) {
            s = (s + 1) & store->slot_mask;
        }
        if (store->slots[s].number != 0) {
            const char *record = record_at(store, store->slots[s].number - 1);

            for (uint64_t line = 0; line < lines; line++) {
                __builtin_prefetch(record + line * LINE_BYTES, 1);
            }
        }
    }
}

static void set_first_values(const struct pl_table *table, int64_t id, float *values)
{
    uint64_t state = table->seed;

    if (table->initial == PL_SERVER_ZEROS) {
        memset(values, 0, table->columns * sizeof(*values));
        return;
    }
    state = pl_random_next(&state) ^ (uint64_t)id;
    state = pl_random_next(&state); /* otherwise an id's numbers would be the next id's numbers, shifted by one */
    for (uint64_t c = 0; c < table->columns; c++) {
        double unit = (double)(pl_random_next(&state) >> 40) / (double)(1 << 24);

        values[c] = (float)(table->bound * (2.0 * unit - 1.0));
    }
}

void pl_row_store_pull(const struct pl_row_store *store, const int64_t *ids, const uint32_t *at, uint64_t count,
                       float *values)
{
    const uint64_t columns = store->table.columns;

    for (uint64_t done = 0; done < count; done += BATCH) {
        uint64_t batch = count - done < BATCH ? count - done : BATCH, hash[BATCH];
        const uint32_t *batch_at = at ? at + done : NULL;
        const int64_t *batch_ids = at ? ids : ids + done;
        float *batch_values = at ? values : values + done * columns;

        fetch(store, batch_ids, batch_at, batch, hash);
        for (uint64_t i = 0; i < batch; i++) {
            uint64_t row = batch_at ? batch_at[i] : i;
            char *record = find(store, batch_ids[row], hash[i]);

            if (record) {
                memcpy(batch_values + row * columns, values_of(record), columns * sizeof(*values));
            } else {
                set_first_values(&store->table, batch_ids[row], batch_values + row * columns);
            }
        }
    }
}

static enum pl_status say_full(const struct pl_row_store *store, uint64_t bytes, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_MEMORY,
                        "table '%s' has %llu rows in %llu bytes on this server, which cannot allocate %llu more bytes",
                        store->table.name, (unsigned long long)store->rows,
                        (unsigned long long)pl_row_store_bytes(store), (unsigned long long)bytes);
}

static void insert(struct slot *slots, uint64_t mask, struct slot slot)
{
    uint64_t s = slot.hash & mask;

    while (slots[s].number != 0) {
        s = (s + 1) & mask;
    }
    slots[s] = slot;
}

/* Asks for large pages: rows are accessed at random, and small pages would miss the TLB. A failure is harmless. */
static void use_large_pages(char *data, size_t bytes)
{
    size_t skipped = (LARGE_PAGE_BYTES - (uintptr_t)data % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES;

    if (bytes > skipped + LARGE_PAGE_BYTES) {
        madvise(data + skipped, (bytes - skipped) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES, MADV_HUGEPAGE);
    }
}

/* Makes room for one more record in the index and in the last chunk. */
static enum pl_status make_room(struct pl_row_store *store, struct pl_error *reterr)
{
    uint64_t slot_count = store->slot_mask + 1;

    if (store->rows >= MOST_RECORDS) {
        return pl_error_set(reterr, PL_LIMIT, "table '%s' has %llu rows on one server, the most that are possible",
                            store->table.name, (unsigned long long)store->rows);
    }
    if (store->rows + 1 > slot_count / 5 * 4) {
        struct slot *slots = pl_memory_new(2 * slot_count, sizeof(*slots), NULL);

        if (!slots) {
            return say_full(store, 2 * slot_count * sizeof(*slots), reterr);
        }
        use_large_pages((char *)slots, 2 * slot_count * sizeof(*slots));
        for (uint64_t s = 0; s < slot_count; s++) {
            if (store->slots[s].number != 0) {
                insert(slots, 2 * slot_count - 1, store->slots[s]);
            }
        }
        free(store->slots);
        store->slots = slots;
        store->slot_mask = 2 * slot_count - 1;
    }
    if (store->rows == store->chunk_count << store->chunk_shift) {
        size_t records = (size_t)1 << store->chunk_shift;

        if (pl_memory_grow(&store->chunks, &store->chunk_capacity, store->chunk_count + 1, sizeof(*store->chunks),
                           NULL) != PL_OK) {
            return say_full(store, (store->chunk_count + 1) * sizeof(*store->chunks), reterr);
        }
        store->chunks[store->chunk_count] = pl_memory_new(records, store->record_bytes, NULL);
        if (!store->chunks[store->chunk_count]) {
            return say_full(store, records * store->record_bytes, reterr);
        }
        if (store->chunk_count > 0) {
            use_large_pages(store->chunks[store->chunk_count], records * store->record_bytes);
        }
        store->chunk_count++;
    }
    return PL_OK;
}

/* Creates a record whose values and state are zero. */
static enum pl_status create(struct pl_row_store *store, int64_t id, uint64_t hash, char **ret_record,
                             struct pl_error *reterr)
{
    char *record;

    PL_TRY(make_room(store, reterr));
    record = record_at(store, store->rows);
    store->rows++;
    insert(store->slots, store->slot_mask, (struct slot){.number = (uint32_t)store->rows, .hash = (uint32_t)hash});
    *(int64_t *)(void *)record = id;
    *ret_record = record;
    return PL_OK;
}

enum pl_status pl_row_store_push(struct pl_row_store *store, const int64_t *ids, const uint32_t *at, uint64_t count,
                                 const float *gradients, struct pl_error *reterr)
{
    const uint64_t columns = store->table.columns;

    for (uint64_t done = 0; done < count; done += BATCH) {
        uint64_t batch = count - done < BATCH ? count - done : BATCH, hash[BATCH];

        fetch(store, at ? ids : ids + done, at ? at + done : NULL, batch, hash);
        for (uint64_t i = 0; i < batch; i++) {
            uint64_t row = at ? at[done + i] : done + i;
            char *record = find(store, ids[row], hash[i]);
            float *slot[PL_OPTIMIZER_MOST_SLOTS] = {NULL};

            if (!record) {
                PL_TRY(create(store, ids[row], hash[i], &record, reterr));
                set_first_values(&store->table, ids[row], values_of(record));
            }
            slot[0] = values_of(record) + columns;
            pl_optimizer_rule_apply(&store->step, columns, values_of(record), gradients + row * columns, slot);
        }
    }
    return PL_OK;
}

enum pl_status pl_row_store_put(struct pl_row_store *store, const void *record, struct pl_error *reterr)
{
    uint64_t hash;
    char *there;
    int64_t id;

    memcpy(&id, record, sizeof(id));
    hash = pl_table_hash(id);
    there = find(store, id, hash);
    if (!there) {
        PL_TRY(create(store, id, hash, &there, reterr));
    }
    memcpy(there, record, store->record_bytes);
    return PL_OK;
}
