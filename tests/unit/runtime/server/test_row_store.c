/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/row_store.c, runtime/server/layout.c. */
#include "base/memory.h"
#include "runtime/server/row_store.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 5, IDS = 3000, LIST = 70 };

static const struct pl_server_table sgd = {.name = "t",
                                           .columns = COLUMNS,
                                           .initial = PL_SERVER_UNIFORM,
                                           .bound = 0.5,
                                           .seed = 7,
                                           .kind = PL_SGD,
                                           .rate = 0.1};
static const struct pl_server_table adagrad = {.name = "t",
                                               .columns = COLUMNS,
                                               .initial = PL_SERVER_UNIFORM,
                                               .bound = 0.5,
                                               .seed = 7,
                                               .kind = PL_ADAGRAD,
                                               .rate = 0.1};

static size_t fails_from_bytes; /* 0: memory never ends */

void *__real_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);
void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);

void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr)
{
    if (fails_from_bytes > 0 && count * item_bytes >= fails_from_bytes) {
        pl_error_set(reterr, PL_MEMORY, "as the test wants it");
        return NULL;
    }
    return __real_pl_memory_new(count, item_bytes, reterr);
}

static struct pl_row_store *new_store(const struct pl_server_table *options)
{
    struct pl_row_store *store = NULL;
    struct pl_table table;

    ck_ok(pl_table_make, options, &table);
    ck_ok(pl_row_store_new, &table, &store);
    return store;
}

/* Ids that are near each other, far from each other, and negative. */
static int64_t id_of(uint64_t k)
{
    return k % 3 == 0 ? (int64_t)k : k % 3 == 1 ? (int64_t)(k << 40) : -(int64_t)k;
}

static float gradient_of(uint64_t *random)
{
    return (float)((double)(pl_random_next(random) >> 40) / (double)(1 << 24) - 0.5);
}

/* What a step is, written down once more. */
static void step(const struct pl_server_table *options, float *value, float *square, const float *gradient)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (options->kind == PL_SGD) {
            value[c] -= (float)options->rate * gradient[c];
        } else {
            square[c] += gradient[c] * gradient[c];
            value[c] -= (float)options->rate * gradient[c] / (sqrtf(square[c]) + 1e-8F);
        }
    }
}

TEST(rows_are_those_of_a_plain_array)
{
    static const struct pl_server_table *const tables[] = {&sgd, &adagrad};
    static float values[IDS][COLUMNS], squares[IDS][COLUMNS], first[IDS][COLUMNS];
    static bool is_there[IDS];

    for (size_t t = 0; t < PL_ARRAY_ITEMS(tables); t++) {
        struct pl_row_store *store = new_store(tables[t]);
        uint64_t random = 11 + t, there = 0;
        int64_t ids[LIST];

        memset(squares, 0, sizeof(squares));
        memset(is_there, 0, sizeof(is_there));
        for (uint64_t k = 0; k < IDS; k++) {
            ids[0] = id_of(k);
            pl_row_store_pull(store, ids, NULL, 1, first[k]);
        }
        memcpy(values, first, sizeof(values));
        ck_assert_uint_eq(pl_row_store_rows(store), 0); /* a pull makes none */
        for (int round = 0; round < 400; round++) {
            uint64_t count = pl_random_next(&random) % LIST, key[LIST];
            float rows[LIST][COLUMNS];
            uint32_t at[LIST];
            bool with_at = round % 2 == 0;

            for (uint64_t i = 0; i < LIST; i++) {
                key[i] = pl_random_next(&random) % IDS;
                key[i] = i > 0 && pl_random_next(&random) % 8 == 0 ? key[i - 1] : key[i];
                ids[i] = id_of(key[i]);
                at[i] = (uint32_t)(with_at ? (i * 37 + 5) % LIST : i); /* a permutation */
                for (int c = 0; c < COLUMNS; c++) {
                    rows[i][c] = gradient_of(&random);
                }
            }
            if (round % 3 == 0) {
                pl_row_store_pull(store, ids, with_at ? at : NULL, count, rows[0]);
                for (uint64_t i = 0; i < count; i++) {
                    ck_assert_msg(memcmp(rows[at[i]], values[key[at[i]]], sizeof(rows[0])) == 0,
                                  "row %lld has other values than the array", (long long)ids[at[i]]);
                }
                continue;
            }
            ck_ok(pl_row_store_push, store, ids, with_at ? at : NULL, count, rows[0]);
            for (uint64_t i = 0; i < count; i++) {
                there += !is_there[key[at[i]]];
                is_there[key[at[i]]] = true;
                step(tables[t], values[key[at[i]]], squares[key[at[i]]], rows[at[i]]);
            }
            ck_assert_uint_eq(pl_row_store_rows(store), there);
        }
        pl_row_store_clear(store);
        ck_assert_uint_eq(pl_row_store_rows(store), 0);
        for (uint64_t k = 0; k < IDS; k++) {
            float again[COLUMNS];

            ids[0] = id_of(k);
            pl_row_store_pull(store, ids, NULL, 1, again);
            ck_assert_mem_eq(again, first[k], sizeof(again));
        }
        pl_row_store_free(store);
    }
}

TEST(first_values_are_the_seeds_and_the_ids_alone)
{
    struct pl_server_table other = sgd;
    struct pl_row_store *a = new_store(&sgd), *b = new_store(&adagrad), *c;
    float of_a[COLUMNS], of_b[COLUMNS], of_c[COLUMNS], zeroes[COLUMNS] = {0.0F}, least = 1.0F, most = -1.0F;
    double sum = 0.0;
    int same = 0;

    other.seed = 8;
    c = new_store(&other);
    for (int64_t k = 0; k < 1000; k++) {
        int64_t id = 999 - k;

        ck_ok(pl_row_store_push, b, &id, NULL, 1, zeroes);
        pl_row_store_pull(a, &k, NULL, 1, of_a);
        pl_row_store_pull(c, &k, NULL, 1, of_c);
        for (int i = 0; i < COLUMNS; i++) {
            sum += (double)of_a[i];
            least = of_a[i] < least ? of_a[i] : least;
            most = of_a[i] > most ? of_a[i] : most;
            same += of_a[i] == of_c[i];
        }
    }
    for (int64_t k = 0; k < 1000; k++) {
        pl_row_store_pull(a, &k, NULL, 1, of_a);
        pl_row_store_pull(b, &k, NULL, 1, of_b); /* made in another order, by steps of nothing */
        ck_assert_mem_eq(of_a, of_b, sizeof(of_a));
    }
    ck_assert_msg(least >= -0.5F && least < -0.49F && most < 0.5F && most > 0.49F, "from %g to %g", (double)least,
                  (double)most);
    ck_assert_msg(fabs(sum / (1000 * COLUMNS)) < 0.02 && same < 5, "mean %g, %d as with another seed", sum / 5000,
                  same);
    pl_row_store_free(a);
    pl_row_store_free(b);
    pl_row_store_free(c);
}

TEST(memory_is_little_more_than_the_rows)
{
    struct pl_server_table wide = {.name = "wide", .columns = 64, .kind = PL_SGD, .rate = 0.1};
    struct pl_row_store *store = new_store(&wide);
    static float gradient[64];
    uint64_t in_chunks = 0;
    const int64_t rows = 300000;

    for (int64_t id = 0; id < rows; id++) {
        ck_ok(pl_row_store_push, store, &id, NULL, 1, gradient);
    }
    ck_assert_msg((double)pl_row_store_bytes(store) <= 1.3 * (double)rows * 64 * sizeof(float), "%llu bytes",
                  (unsigned long long)pl_row_store_bytes(store));
    for (uint64_t c = 0; c < pl_row_store_chunks(store); c++) {
        in_chunks += pl_row_store_chunk(store, c).iov_len;
    }
    ck_assert_uint_eq(in_chunks, (uint64_t)rows * pl_row_store_record_bytes(store));
    pl_row_store_free(store);
}

TEST(records_make_the_same_rows_elsewhere)
{
    struct pl_row_store *a = new_store(&adagrad), *b = new_store(&adagrad);
    float gradient[COLUMNS], of_a[COLUMNS], of_b[COLUMNS];
    uint64_t random = 3;

    for (int round = 0; round < 3; round++) {
        for (uint64_t k = 0; k < 1000; k++) {
            for (int c = 0; c < COLUMNS; c++) {
                gradient[c] = gradient_of(&random);
            }
            ck_ok(pl_row_store_push, a, &(int64_t){id_of(k)}, NULL, 1, gradient);
        }
        /* the second time over rows that are there; and both take the same steps afterwards */
        for (uint64_t c = 0; c < pl_row_store_chunks(a); c++) {
            struct iovec chunk = pl_row_store_chunk(a, c);

            for (size_t at = 0; at < chunk.iov_len; at += pl_row_store_record_bytes(a)) {
                ck_ok(pl_row_store_put, b, (const char *)chunk.iov_base + at);
            }
        }
        ck_assert_uint_eq(pl_row_store_rows(b), 1000);
        for (uint64_t k = 0; k < 1000; k++) {
            int64_t id = id_of(k);

            ck_ok(pl_row_store_push, a, &id, NULL, 1, gradient);
            ck_ok(pl_row_store_push, b, &id, NULL, 1, gradient);
            pl_row_store_pull(a, &id, NULL, 1, of_a);
            pl_row_store_pull(b, &id, NULL, 1, of_b);
            ck_assert_mem_eq(of_a, of_b, sizeof(of_a));
        }
    }
    pl_row_store_free(a);
    pl_row_store_free(b);
}

TEST(a_store_that_cannot_grow_says_its_rows_and_bytes)
{
    struct pl_row_store *store = new_store(&sgd);
    struct pl_error error = PL_ERROR_NONE;
    float gradient[COLUMNS] = {0.0F};
    int64_t id = 0;

    ck_ok(pl_row_store_push, store, &id, NULL, 1, gradient);
    fails_from_bytes = 1 << 20;
    while (error.status == PL_OK && id < 1000000) {
        id++;
        error.status = pl_row_store_push(store, &id, NULL, 1, gradient, &error);
    }
    fails_from_bytes = 0;
    ck_assert_int_eq(error.status, PL_MEMORY);
    ck_assert_msg(strstr(error.cause, "table 't' has ") && strstr(error.cause, " rows in ") &&
                      strstr(error.cause, "cannot allocate "),
                  "%s", error.cause);
    ck_assert_uint_eq(pl_row_store_rows(store), (uint64_t)id);
    ck_ok(pl_row_store_push, store, &id, NULL, 1, gradient); /* it is as it was */
    pl_row_store_free(store);
}

TEST(tables_that_cannot_be_are_refused)
{
    struct pl_server_table bad[] = {sgd, sgd, sgd, sgd, sgd, sgd, sgd, sgd, sgd};
    static const char *const words[] = {"name",  "name", "columns",        "columns", "SGD or Adagrad",
                                        "bound", "rate", "initial values", "epsilon"};
    struct pl_table table;

    bad[0].name = "a/b";
    bad[1].name = NULL;
    bad[2].columns = 0;
    bad[3].columns = PL_SERVER_MOST_COLUMNS + 1;
    bad[4].kind = PL_ADAM;
    bad[5].bound = -1.0;
    bad[6].rate = (double)NAN;
    bad[7].initial = (enum pl_server_initial)2;
    bad[8].kind = PL_ADAGRAD;
    bad[8].epsilon = -1.0;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(bad); i++) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status = pl_table_make(&bad[i], &table, &error);

        ck_assert_msg(status == (i == 4 ? PL_UNSUPPORTED : PL_INVALID) && strstr(error.cause, words[i]), "%zu: %s %s",
                      i, pl_status_name(status), error.cause);
    }
}

UNIT_MAIN("runtime/row_store")
