/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures rows by id of parameter servers, as a worker of paceline-server, or with `store` the row store alone.
 *
 *   build/tests/bench/server_rows store [ROWS [COLUMNS [adagrad]]]
 *   paceline server --workers 2 build/tests/bench/server_rows [ROWS [COLUMNS [LIST [SECONDS]]]]
 *
 * `store`: one thread puts ROWS (10,000,000) rows of COLUMNS (64) into a store, and prints its memory as a multiple of
 * the bytes of rows and optimizer state, by its own count and by the process's resident bytes; then rows pushed and
 * pulled per second in lists of 4096, evenly over all rows and by Zipf's law; and a dense array of 2^22 elements with
 * the same optimizer, in bytes/s: 12 per element (gradient read, value read and written), 20 by Adagrad, 8 by a pull.
 *
 * As a worker: each pulls and pushes lists of LIST (4096) distinct ids of ROWS (1,000,000) for SECONDS (3) each. Worker
 * 0 prints the rows per second of all workers and the share of a core that the server used if it is the parent process.
 */
#include "runtime/paceline.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "device/kernel_private.h"
#include "runtime/gradient/optimizer_rule.h"
#include "runtime/server/row_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORE_LIST = 4096, DENSE_ELEMS = 1 << 22, MOST_STAT_BYTES = 4096 };

struct bench {
    uint64_t rows, columns, list;
    double seconds;
    int64_t *ids;  /* [list] */
    float *values; /* [list, columns] */
    uint64_t random;
};

static double now_s(void)
{
    return (double)pl_clock_now_ns() / (double)PL_NS_PER_S;
}

static enum pl_status make_lists(struct bench *bench, struct pl_error *reterr)
{
    bench->ids = pl_memory_new(bench->list, sizeof(*bench->ids), reterr);
    bench->values = pl_memory_new(bench->list * bench->columns, sizeof(float), reterr);
    return bench->ids && bench->values ? PL_OK : PL_MEMORY;
}

static void draw(struct bench *bench, bool by_zipf)
{
    for (uint64_t i = 0; i < bench->list; i++) {
        double unit = (double)(pl_random_next(&bench->random) >> 11) / 9007199254740992.0;

        bench->ids[i] = (int64_t)(by_zipf ? exp(unit * log((double)bench->rows)) - 1.0 : unit * (double)bench->rows);
    }
}

/* Resident memory of this process, in bytes. */
static double resident(void)
{
    double pages[2] = {0.0, 0.0};
    FILE *file = fopen("/proc/self/statm", "re");

    if (file) {
        if (fscanf(file, "%lf %lf", &pages[0], &pages[1]) != 2) {
            pages[1] = 0.0;
        }
        fclose(file);
    }
    return pages[1] * (double)sysconf(_SC_PAGESIZE);
}

/* Measures the optimizer over a dense array, in bytes per second. */
static double measure_dense(const struct pl_table *table)
{
    float *value = pl_memory_new(DENSE_ELEMS, sizeof(float), NULL);
    float *gradient = pl_memory_new(DENSE_ELEMS, sizeof(float), NULL);
    float *slots[PL_OPTIMIZER_MOST_SLOTS] = {pl_memory_new(DENSE_ELEMS, sizeof(float), NULL)};
    struct pl_optimizer_options options = pl_table_optimizer(table);
    struct pl_device_step step = pl_optimizer_rule_step(&options, 1, 1e-9, 1.0);
    double best_s = 1e9;

    for (int round = 0; value && gradient && slots[0] && round < 20; round++) {
        double began_s = now_s(), took_s;

        pl_optimizer_rule_apply(&step, DENSE_ELEMS, value, gradient, slots);
        took_s = now_s() - began_s;
        best_s = took_s < best_s ? took_s : best_s;
    }
    free(value);
    free(gradient);
    free(slots[0]);
    return (table->kind == PL_ADAGRAD ? 20.0 : 12.0) * DENSE_ELEMS / best_s;
}

static enum pl_status measure_lists(struct bench *bench, struct pl_row_store *store, bool by_zipf, double dense,
                                    bool is_adagrad, struct pl_error *reterr)
{
    double push_s = 0.0, pull_s = 0.0, rows = 0.0;

    while (push_s + pull_s < bench->seconds) {
        double at_s[3];

        draw(bench, by_zipf);
        at_s[0] = now_s();
        PL_TRY(pl_row_store_push(store, bench->ids, NULL, bench->list, bench->values, reterr));
        at_s[1] = now_s();
        draw(bench, by_zipf);
        at_s[2] = now_s();
        push_s += at_s[1] - at_s[0];
        pl_row_store_pull(store, bench->ids, NULL, bench->list, bench->values);
        pull_s += now_s() - at_s[2];
        rows += (double)bench->list;
        memset(bench->values, 0, bench->list * bench->columns * sizeof(float));
    }
    printf(
        "%s: pushed %.2f million rows/s, %.2f GB/s, %.2f of the dense array; pulled %.2f million rows/s, %.2f GB/s\n",
        by_zipf ? "by Zipf's law" : "evenly", 1e-6 * rows / push_s,
        1e-9 * rows / push_s * (double)bench->columns * (is_adagrad ? 20.0 : 12.0),
        rows / push_s * (double)bench->columns * (is_adagrad ? 20.0 : 12.0) / dense, 1e-6 * rows / pull_s,
        1e-9 * rows / pull_s * (double)bench->columns * 8.0);
    return PL_OK;
}

static enum pl_status run_store(struct bench *bench, bool is_adagrad, struct pl_error *reterr)
{
    const struct pl_server_table options = {.name = "rows",
                                            .columns = bench->columns,
                                            .initial = PL_SERVER_UNIFORM,
                                            .bound = 0.05,
                                            .kind = is_adagrad ? PL_ADAGRAD : PL_SGD,
                                            .rate = 0.1};
    double before = resident(), dense, began_s, least = (double)(bench->rows * bench->columns * sizeof(float));
    struct pl_row_store *store = NULL;
    struct pl_table table;

    least *= is_adagrad ? 2.0 : 1.0;
    PL_TRY(pl_table_make(&options, &table, reterr));
    PL_TRY(pl_row_store_new(&table, &store, reterr));
    PL_TRY(make_lists(bench, reterr));
    began_s = now_s();
    for (uint64_t id = 0; id < bench->rows; id += bench->list) {
        uint64_t count = bench->rows - id < bench->list ? bench->rows - id : bench->list;

        for (uint64_t i = 0; i < count; i++) {
            bench->ids[i] = (int64_t)(id + i);
        }
        PL_TRY(pl_row_store_push(store, bench->ids, NULL, count, bench->values, reterr));
    }
    printf(
        "%llu rows of %llu columns, %s: made %.2f million rows/s; memory %.3f times rows and state (%.3f resident)\n",
        (unsigned long long)pl_row_store_rows(store), (unsigned long long)bench->columns,
        is_adagrad ? "Adagrad" : "SGD", 1e-6 * (double)bench->rows / (now_s() - began_s),
        (double)pl_row_store_bytes(store) / least, (resident() - before) / least);
    dense = measure_dense(&table);
    printf("a dense array: %.2f GB/s\n", 1e-9 * dense);
    PL_TRY(measure_lists(bench, store, false, dense, is_adagrad, reterr));
    PL_TRY(measure_lists(bench, store, true, dense, is_adagrad, reterr));
    pl_row_store_free(store);
    return PL_OK;
}

/* User and system time of the server, which is the parent process, in seconds. */
static double server_cpu_s(void)
{
    PL_AUTO_FREE char *stat = NULL;
    char path[64];
    double user = 0.0, system = 0.0;
    const char *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
    if (pl_file_read(path, MOST_STAT_BYTES, &stat, NULL, NULL) != PL_OK || !(at = strrchr(stat, ')'))) {
        return 0.0;
    }
    return sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lf %lf", &user, &system) == 2
               ? (user + system) / (double)sysconf(_SC_CLK_TCK)
               : 0.0;
}

static enum pl_status run_worker(struct bench *bench, struct pl_world *world, struct pl_error *reterr)
{
    struct pl_server_options options = {.optimizer = {.kind = PL_SGD}};
    const struct pl_server_table table = {
        .name = "rows", .columns = bench->columns, .initial = PL_SERVER_UNIFORM, .bound = 0.05, .kind = PL_SGD};
    struct pl_server *server = NULL;
    size_t index;

    PL_TRY(pl_server_new(world, &options, &server, reterr));
    PL_TRY(pl_plan_add(pl_server_plan(server), "w", 1, &(uint64_t){1}, &index, reterr));
    PL_TRY(pl_server_rows_add(server, &table, &index, reterr));
    PL_TRY(pl_server_join(server, reterr));
    PL_TRY(pl_server_start(server, reterr));
    PL_TRY(make_lists(bench, reterr));
    for (int is_pull = 0; is_pull < 2; is_pull++) {
        double rows = 0.0, began_s, cpu_s;

        PL_TRY(pl_server_sum(server, NULL, 0, reterr));
        began_s = now_s();
        cpu_s = server_cpu_s();
        while (now_s() < began_s + bench->seconds) {
            /* ascending ids, so that rows need not be added up */
            uint64_t stride = bench->rows / bench->list, first = pl_random_next(&bench->random) % stride;

            for (uint64_t i = 0; i < bench->list; i++) {
                bench->ids[i] = (int64_t)(first + i * stride);
            }
            PL_TRY(is_pull ? pl_server_rows_pull(server, index, bench->ids, bench->list, bench->values, reterr)
                           : pl_server_rows_push(server, index, bench->ids, bench->list, bench->values, reterr));
            rows += (double)bench->list;
        }
        rows /= now_s() - began_s;
        cpu_s = (server_cpu_s() - cpu_s) / (now_s() - began_s);
        PL_TRY(pl_server_sum(server, &rows, 1, reterr));
        if (pl_server_worker(server) == 0) {
            printf("%s: %.3f million rows/s of %d workers, %.3f GB/s of rows; this host's server used %.2f of a core\n",
                   is_pull ? "pulled" : "pushed", 1e-6 * rows, pl_server_workers(server),
                   1e-9 * rows * (double)bench->columns * sizeof(float), cpu_s);
        }
    }
    PL_TRY(pl_server_leave(server, reterr));
    pl_server_free(server);
    return PL_OK;
}

static double word(int argc, char **argv, int index, double fallback)
{
    return argc > index ? atof(argv[index]) : fallback;
}

int main(int argc, char **argv)
{
    bool is_store = argc > 1 && strcmp(argv[1], "store") == 0;
    struct bench bench = {.rows = (uint64_t)word(argc, argv, 1 + is_store, is_store ? 1e7 : 1e6),
                          .columns = (uint64_t)word(argc, argv, 2 + is_store, 64),
                          .list = is_store ? STORE_LIST : (uint64_t)word(argc, argv, 3, 4096),
                          .seconds = is_store ? 3.0 : word(argc, argv, 4, 3.0),
                          .random = (uint64_t)getpid()};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_runtime *runtime = NULL;
    enum pl_status status;

    if (is_store) {
        status = run_store(&bench, argc > 4, &error);
    } else {
        status = pl_runtime_start(&runtime, &error);
        status = status == PL_OK ? run_worker(&bench, pl_runtime_world(runtime), &error) : status;
    }
    if (status != PL_OK) {
        pl_log_error(&error, "measuring rows of a parameter server");
        return EXIT_FAILURE;
    }
    free(bench.ids);
    free(bench.values);
    pl_runtime_stop(runtime);
    return EXIT_SUCCESS;
}
