/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/row_file.c, runtime/server/rows.c, runtime/server/worker_rows.c. */
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "runtime/server/row_store.h"
#include "runtime/server/worker.h"
#include "runtime/server_rows.h"
#include "tests/unit/runtime/server/job.h"

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { COLUMNS = 3, IDS = 200, LIST = 60 };

static const struct pl_server_table shared_table = {.name = "shared", .columns = COLUMNS, .kind = PL_SGD, .rate = -1.0};
static const struct pl_server_table own_table = {.name = "own",
                                                 .columns = COLUMNS,
                                                 .initial = PL_SERVER_UNIFORM,
                                                 .bound = 0.25,
                                                 .seed = 5,
                                                 .kind = PL_ADAGRAD,
                                                 .rate = 0.125};

static _Atomic bool has_no_memory; /* for a chunk of rows */

void *__real_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);
void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr);

void *__wrap_pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr)
{
    if (has_no_memory && count * item_bytes >= (16U << 20)) {
        pl_error_set(reterr, PL_MEMORY, "as the test wants it");
        return NULL;
    }
    return __real_pl_memory_new(count, item_bytes, reterr);
}

/* A worker with these tables, which has joined and started; it has a tensor because a plan has one at least. */
static struct pl_server *new_worker(const struct job *job, int worker, struct pl_world *world,
                                    const struct pl_server_table *const *tables, size_t count)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, 1, 0);

    for (size_t t = 0, index; t < count; t++) {
        ck_ok(pl_server_rows_add, server, tables[t], &index);
        ck_assert_uint_eq(index, t);
    }
    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server);
    return server;
}

static void meet(struct pl_server *server)
{
    ck_ok(pl_server_sum, server, NULL, 0);
}

static void pull(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count, float *rows)
{
    ck_ok(pl_server_rows_pull, server, table, ids, count, rows);
}

static void push(struct pl_server *server, size_t table, const int64_t *ids, uint64_t count, const float *rows)
{
    ck_ok(pl_server_rows_push, server, table, ids, count, rows);
}

static int64_t id_of(uint64_t k)
{
    return (int64_t)(k * UINT64_C(0x9E3779B97F4A7C15)); /* of both signs */
}

/* ---- random programs against plain arrays ---- */

struct program {
    uint64_t seed;
    _Atomic int64_t sums[IDS];
};

/* What one worker alone has of the table `own`: an id of it is this worker's where k modulo 8 is its number. */
struct model {
    float value[IDS][COLUMNS];
    float square[IDS][COLUMNS];
    bool is_known[IDS];
};

static void push_own(struct pl_server *server, struct model *model, const uint64_t *key, uint64_t count,
                     uint64_t *random)
{
    static const int64_t nothing;
    int64_t ids[LIST] = {0};
    float rows[LIST][COLUMNS], sums[LIST][COLUMNS];
    uint64_t distinct[LIST], distinct_count = 0;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t d = 0;

        ids[i] = id_of(key[i]);
        while (d < distinct_count && distinct[d] != key[i]) {
            d++;
        }
        if (d == distinct_count) {
            distinct[distinct_count++] = key[i];
            memset(sums[d], 0, sizeof(sums[d]));
        }
        for (int c = 0; c < COLUMNS; c++) {
            rows[i][c] = (float)((double)(pl_random_next(random) >> 40) / (double)(1 << 24) - 0.5);
            sums[d][c] += rows[i][c];
        }
    }
    push(server, 1, count > 0 ? ids : &nothing, count, rows[0]);
    for (uint64_t d = 0; d < distinct_count; d++) {
        for (int c = 0; c < COLUMNS; c++) {
            float *value = &model->value[distinct[d]][c], *square = &model->square[distinct[d]][c];

            *square += sums[d][c] * sums[d][c];
            *value -= 0.125F * sums[d][c] / (sqrtf(*square) + 1e-8F);
        }
    }
}

static void check_own(struct pl_server *server, struct model *model, const uint64_t *key, uint64_t count)
{
    int64_t ids[LIST] = {0};
    float rows[LIST][COLUMNS];

    for (uint64_t i = 0; i < count; i++) {
        ids[i] = id_of(key[i]);
    }
    pull(server, 1, ids, count, rows[0]);
    for (uint64_t i = 0; i < count; i++) {
        if (!model->is_known[key[i]]) { /* nobody has pushed it */
            memcpy(model->value[key[i]], rows[i], sizeof(rows[i]));
            model->is_known[key[i]] = true;
        }
        ck_assert_msg(memcmp(rows[i], model->value[key[i]], sizeof(rows[i])) == 0,
                      "row %d has other bits than Adagrad alone: %g, not %g", (int)key[i], (double)rows[i][0],
                      (double)model->value[key[i]][0]);
    }
}

static void run_program(struct job *job, int worker, struct pl_world *world)
{
    static const struct pl_server_table *const tables[] = {&shared_table, &own_table};
    struct program *program = job->context;
    uint64_t random = program->seed * 1000 + (uint64_t)worker, all_ids[IDS], own_sum[IDS] = {0}, rows_there;
    struct pl_server *server = new_worker(job, worker, world, tables, 2);
    struct model *model = calloc(1, sizeof(*model));
    float rows[IDS][COLUMNS];
    int64_t ids[IDS] = {0};

    ck_assert_ptr_nonnull(model);
    for (int round = 0; round < 40; round++) {
        uint64_t count = pl_random_next(&random) % LIST, own[LIST];

        for (uint64_t i = 0; i < count; i++) {
            own[i] = pl_random_next(&random) % (IDS / 8) * 8 + (uint64_t)worker;
            all_ids[i] = pl_random_next(&random) % IDS;
            ids[i] = id_of(all_ids[i]);
        }
        switch (pl_random_next(&random) % 4) {
        case 0:
            check_own(server, model, own, count);
            push_own(server, model, own, count, &random);
            break;
        case 1:
            check_own(server, model, own, count);
            break;
        case 2:
            for (uint64_t i = 0; i < count; i++) {
                for (int c = 0; c < COLUMNS; c++) {
                    rows[i][c] = (float)(1 + i % 3);
                }
                own_sum[all_ids[i]] += 1 + i % 3;
                program->sums[all_ids[i]] += 1 + (int64_t)(i % 3);
            }
            push(server, 0, ids, count, rows[0]);
            break;
        default:
            pull(server, 0, ids, count, rows[0]);
            for (uint64_t i = 0; i < count; i++) {
                ck_assert_msg(rows[i][0] >= (float)own_sum[all_ids[i]] && rows[i][0] <= rows[i][1] &&
                                  rows[i][0] >= rows[i][2],
                              "row %d has %g, %g, %g: half an update, or less than this worker's own", (int)all_ids[i],
                              (double)rows[i][0], (double)rows[i][1], (double)rows[i][2]);
            }
        }
    }
    meet(server);
    for (uint64_t k = 0; k < IDS; k++) {
        ids[k] = id_of(k);
    }
    pull(server, 0, ids, IDS, rows[0]);
    for (uint64_t k = 0, pushed = 0; k < IDS; k++) {
        int64_t sum = program->sums[k];

        ck_assert_msg((int64_t)rows[k][0] == sum && (int64_t)rows[k][2] == sum, "row %d is %g, not %lld", (int)k,
                      (double)rows[k][0], (long long)sum);
        pushed += sum > 0;
        if (k + 1 == IDS) {
            ck_ok(pl_server_rows_count, server, 0, &rows_there);
            ck_assert_uint_eq(rows_there, pushed);
        }
    }
    free(model);
    job_leave(server);
}

TEST(random_programs_have_the_rows_of_plain_arrays)
{
    static const int shapes[][2] = {{1, 1}, {1, 4}, {2, 1}, {2, 2}, {3, 1}};

    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct program program = {.seed = seed};
        struct job job = {.hosts = shapes[seed % 5][0],
                          .workers = shapes[seed % 5][1],
                          .staleness = seed % 2 == 0 ? "none" : "2",
                          .body = run_program,
                          .context = &program};

        job_run(&job);
    }
}

/* ---- lists longer than what is shared ---- */

static void use_long_lists(struct job *job, int worker, struct pl_world *world)
{
    enum { WIDE = 8192, LONG = 300 };
    const struct pl_server_table wide = {
        .name = "wide", .columns = WIDE, .initial = PL_SERVER_UNIFORM, .bound = 1.0, .kind = PL_SGD, .rate = 0.5};
    struct pl_server *server = new_worker(job, worker, world, (const struct pl_server_table *const[]){&wide}, 1);
    float *before = calloc((size_t)LONG * WIDE, sizeof(float)), *after = calloc((size_t)LONG * WIDE, sizeof(float));
    int64_t ids[LONG];
    int others = 0;

    ck_assert(before && after && (size_t)LONG * WIDE * sizeof(float) > 2 * (size_t)PL_SERVER_ROWS_BYTES);
    for (int i = 0; i < LONG; i++) {
        ids[i] = 1000 * worker + (i < 200 ? 199 - i : i - 200); /* not ascending, and the first 100 twice */
    }
    pull(server, 0, ids, LONG, before);
    for (size_t i = 0; i < (size_t)LONG * WIDE; i++) {
        after[i] = (float)(i % 7);
    }
    push(server, 0, ids, LONG, after);
    pull(server, 0, ids, LONG, after);
    for (size_t row = 0; row < LONG; row++) {
        for (size_t c = 0; c < WIDE; c++) {
            size_t twin = row >= 200 ? 399 - row : row >= 100 ? 399 - row : row;
            float sum = (float)((row * WIDE + c) % 7) + (twin == row ? 0.0F : (float)((twin * WIDE + c) % 7));

            others += after[row * WIDE + c] != before[row * WIDE + c] - 0.5F * sum;
        }
    }
    ck_assert_msg(others == 0, "%d elements differ from those of the steps", others);
    free(before);
    free(after);
    job_leave(server);
}

TEST(lists_of_any_length_come_in_parts)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {.hosts = hosts, .workers = 2 / hosts, .staleness = "none", .body = use_long_lists};

        job_run(&job);
    }
}

/* ---- files ---- */

struct files {
    char from[PATH_MAX], to[PATH_MAX]; /* directories; "": worker 0 makes the rows; nothing is saved */
    float rows[IDS][COLUMNS];
    float later[IDS][COLUMNS]; /* after one more step with 1 */
    enum pl_status load_status, save_status;
    const char *word; /* of a failure */
    struct pl_server_table table;
};

static void check_failure(const struct files *test, enum pl_status status, enum pl_status expected,
                          const struct pl_error *error)
{
    ck_assert_msg(status == expected && (status == PL_OK || strstr(error->cause, test->word)), "%s: %s",
                  pl_status_name(status), error->cause);
}

static void use_files(struct job *job, int worker, struct pl_world *world)
{
    struct files *test = job->context;
    const struct pl_server_table *const tables[] = {&shared_table, &test->table};
    struct pl_server *server = new_worker(job, worker, world, tables, 2);
    struct pl_error error = PL_ERROR_NONE;
    const bool is_first = !*test->from, is_loaded = test->load_status == PL_OK;
    float rows[IDS][COLUMNS], ones[IDS][COLUMNS];
    uint64_t count;
    int64_t ids[IDS] = {0};

    for (uint64_t k = 0; k < IDS; k++) {
        ids[k] = id_of(k);
        for (int c = 0; c < COLUMNS; c++) {
            rows[k][c] = (float)(k + 1) * 0.125F - (float)c;
            ones[k][c] = 1.0F;
        }
    }
    if (worker == 0 && is_first) {
        push(server, 1, ids, IDS - 10, rows[0]);
        push(server, 1, ids + 50, IDS - 60, rows[0]);
    } else if (worker == 0) {
        push(server, 1, ids, IDS, ones[0]); /* what was there before is gone */
        check_failure(test, pl_server_rows_load(server, 1, test->from, &error), test->load_status, &error);
    }
    meet(server);
    if (is_loaded) {
        float pulled[IDS][COLUMNS];

        pull(server, 1, ids, IDS, pulled[0]);
        if (is_first && worker == 0) {
            memcpy(test->rows, pulled, sizeof(pulled));
        }
        meet(server);
        ck_assert_msg(memcmp(pulled, test->rows, sizeof(pulled)) == 0, "worker %d: a loaded row has other values",
                      worker);
        ck_ok(pl_server_rows_count, server, 1, &count);
        ck_assert_uint_eq(count, IDS - 10); /* the others were not pushed before they were saved */
    }
    if (worker == 0 && *test->to) {
        check_failure(test, pl_server_rows_save(server, 1, test->to, &error), test->save_status, &error);
    }
    meet(server);
    if (worker == 0 && is_loaded) {
        push(server, 1, ids, IDS, ones[0]); /* it needs the state */
        pull(server, 1, ids, IDS, rows[0]);
        if (is_first) {
            memcpy(test->later, rows, sizeof(rows));
        }
        ck_assert_msg(memcmp(rows, test->later, sizeof(rows)) == 0, "a step after loading gives other values");
    }
    job_leave(server);
}

static void run_files(struct files *test, int hosts, int workers)
{
    struct job job = {.hosts = hosts, .workers = workers, .staleness = "none", .body = use_files, .context = test};

    job_run(&job);
}

TEST(rows_are_saved_and_loaded_by_any_number_of_servers)
{
    static const int hosts[] = {2, 3, 1, 1, 2};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct files test;
    char name[16], left[PATH_MAX];

    test = (struct files){.table = own_table};
    ck_ok(pl_file_make_dirs, scratch_path(&scratch, "a/step-0", left), 0777);
    scratch_write(&scratch, "a/step-0/.own-00001-of-00002.rows.7.8", "half", 4); /* of a server that was killed */
    for (size_t i = 0; i < PL_ARRAY_ITEMS(hosts); i++) {
        snprintf(name, sizeof(name), "a/step-%zu", i);
        scratch_path(&scratch, name, test.to);
        run_files(&test, hosts[i], 1 + (int)(i % 2));
        memcpy(test.from, test.to, sizeof(test.from)); /* what was saved last is loaded next */
    }
    ck_assert_int_eq(access(scratch_path(&scratch, "a/step-0/.own-00001-of-00002.rows.7.8", left), F_OK), -1);
}

static void flip_bit(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;

    ck_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    ck_assert(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static void fail_to_load(struct files *test, enum pl_status status, const char *word)
{
    test->load_status = status;
    test->word = word;
    run_files(test, 2, 1);
}

/* The files of a save whose names begin so, of which there are `count`, by their names. */
static void find_files(const struct scratch *scratch, const char *begin, size_t count, char found[][PATH_MAX])
{
    char pattern[PATH_MAX + 1];
    glob_t files;

    scratch_path(scratch, begin, pattern);
    strcat(pattern, "*");
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    ck_assert_uint_eq(files.gl_pathc, count);
    for (size_t i = 0; i < count; i++) {
        strcpy(found[i], files.gl_pathv[i]);
    }
    globfree(&files);
}

TEST(files_that_are_not_as_they_were_saved_are_refused)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static char part[3][PATH_MAX];
    char other[PATH_MAX], kept[PATH_MAX];
    static struct files test;
    struct stat info;
    char *end;

    test = (struct files){.table = own_table};
    scratch_path(&scratch, "d", test.to);
    run_files(&test, 2, 1);
    memcpy(test.from, test.to, sizeof(test.from));
    run_files(&test, 3, 1); /* another number of servers takes their place */
    find_files(&scratch, "d/", 3, part);
    run_files(&test, 2, 1);
    find_files(&scratch, "d/", 2, part);
    test.to[0] = '\0';

    test.table.columns = COLUMNS + 1;
    test.load_status = PL_MISMATCH;
    {
        /* the body's lists are of the right table's columns: load alone */
        struct pl_server_rows_loaded loaded;
        struct pl_table table;
        struct pl_row_store *store = NULL;
        struct pl_error error = PL_ERROR_NONE;

        ck_ok(pl_table_make, &test.table, &table);
        ck_ok(pl_row_store_new, &table, &store);
        ck_assert_int_eq(pl_row_file_read(test.from, &table, store, 0, 1, UINT64_MAX, &loaded, &error), PL_MISMATCH);
        ck_assert_msg(strstr(error.cause, "3 columns") && strstr(error.cause, "4 and adagrad"), "%s", error.cause);
        pl_row_store_free(store);
    }
    test.table.columns = COLUMNS;

    flip_bit(part[1], (off_t)sizeof(struct pl_row_file_head) + 100);
    fail_to_load(&test, PL_CORRUPT, "the CRC-32C of its rows differs");
    flip_bit(part[1], (off_t)sizeof(struct pl_row_file_head) + 100);
    flip_bit(part[1], 90);
    fail_to_load(&test, PL_CORRUPT, "the CRC-32C of its head differs");
    flip_bit(part[1], 90);
    ck_assert(stat(part[1], &info) == 0 && truncate(part[1], info.st_size - 8) == 0);
    fail_to_load(&test, PL_CORRUPT, "bytes, expected");
    ck_assert_int_eq(unlink(part[1]), 0);
    fail_to_load(&test, PL_NOT_FOUND, "a file of the table is missing");
    ck_assert(mkfifo(part[1], 0600) == 0);
    fail_to_load(&test, PL_CORRUPT, "not a regular file");
    ck_assert_int_eq(unlink(part[1]), 0);
    /* of another save */
    ck_assert_int_eq(rename(part[0], scratch_path(&scratch, "d/kept", kept)), 0);
    test = (struct files){.table = own_table};
    scratch_path(&scratch, "d", test.to);
    run_files(&test, 2, 1);
    memcpy(test.from, test.to, sizeof(test.from));
    test.to[0] = '\0';
    find_files(&scratch, "d/own", 2, part);
    ck_assert_int_eq(rename(kept, part[0]), 0);
    fail_to_load(&test, PL_CORRUPT, "another save than its name");
    strcpy(other, part[0]);
    end = strstr(other, "of-00002");
    ck_assert_ptr_nonnull(end);
    end[strlen("of-0000")] = '1';
    ck_assert_int_eq(rename(part[0], other), 0);
    fail_to_load(&test, PL_INVALID, "servers and by");
    ck_assert(unlink(other) == 0 && unlink(part[1]) == 0);
    fail_to_load(&test, PL_NOT_FOUND, "has no files of table 'own'");
    test.from[strlen(test.from) - 1] = 'x';
    fail_to_load(&test, PL_NOT_FOUND, "open directory");
}

/* Saves of versions before had no time in their names. */
TEST(files_without_a_time_in_their_names_are_loaded_and_their_place_is_taken)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static char part[2][PATH_MAX];
    static struct files test;
    char name[64], old[PATH_MAX];

    test = (struct files){.table = own_table};
    scratch_path(&scratch, "d", test.to);
    run_files(&test, 2, 1);
    memcpy(test.from, test.to, sizeof(test.from));
    find_files(&scratch, "d/", 2, part);
    for (int p = 0; p < 2; p++) {
        snprintf(name, sizeof(name), "d/own-%05d-of-00002.rows", p);
        ck_assert_int_eq(rename(part[p], scratch_path(&scratch, name, old)), 0);
    }
    run_files(&test, 1, 1);
    find_files(&scratch, "d/own-00000-of-00001.", 1, part);
    find_files(&scratch, "d/", 1, part);
    ck_assert_int_eq(rename(part[0], scratch_path(&scratch, "d/own-00000-of-00002.rows", old)), 0);
    test.to[0] = '\0';
    fail_to_load(&test, PL_CORRUPT, "its head says part 0 of 1, its name another one");
}

/* ---- what is wrong is said ---- */

static void disagree(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, 1, 0);
    struct pl_server_table table = own_table;
    struct pl_error error = PL_ERROR_NONE;
    double sum = 0.0;
    size_t index;

    table.seed += worker == 1 && !job->context ? 1 : 0;
    if (worker == 0 || !job->context) {
        ck_ok(pl_server_rows_add, server, &table, &index);
    }
    ck_assert_int_eq(pl_plan_seal(pl_server_plan(server), &error) == PL_OK ? pl_server_sum(server, &sum, 1, &error)
                                                                           : error.status,
                     PL_MISMATCH);
    if (job->context) {
        ck_assert_ptr_nonnull(strstr(error.cause, "more tensors or tables"));
    } else {
        ck_assert_ptr_nonnull(strstr(error.cause, "table 'own' [3 columns] initial=uniform bound=0.25 seed=5 "));
        ck_assert_ptr_nonnull(strstr(error.cause, " seed=6 optimizer=adagrad rate=0.125 "));
    }
    pl_server_free(server);
}

TEST(a_table_that_differs_among_workers_ends_the_job_by_name)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {
            .hosts = hosts, .workers = 2 / hosts, .staleness = "none", .body = disagree, .server_status = PL_MISMATCH};

        job_run(&job);
        job.context = &job; /* one of them has none */
        job_run(&job);
    }
}

static void ask_for_too_much(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    struct pl_server *server = job_new_server(job, worker, world, &sgd, 1, 0);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_server_message message = {.kind = PL_SERVER_ROWS, .number = 1}, answer;
    float row[COLUMNS];
    size_t index;

    if (strcmp(job->staleness, "0") == 0) {
        ck_assert_int_eq(pl_server_rows_add(server, &own_table, &index, &error), PL_UNSUPPORTED);
        ck_assert_msg(strstr(error.cause, "table 'own'") && strstr(error.cause, "ps_staleness 0"), "%s", error.cause);
        ck_ok(pl_server_join, server);
        ck_fails(PL_INVALID, "", pl_server_rows_pull, server, 0, &(int64_t){1}, 1, row);
        job_leave(server);
        return;
    }
    ck_ok(pl_server_rows_add, server, &own_table, &index);
    ck_fails(PL_INVALID, "", pl_server_rows_add, server, &own_table, &index); /* its name */
    ck_fails(PL_INVALID, "pl_server_join() comes first", pl_server_rows_pull, server, 0, &(int64_t){1}, 1, row);
    ck_ok(pl_server_join, server);
    ck_fails(PL_INVALID, "", pl_server_rows_add, server, &shared_table, &index);
    ck_fails(PL_INVALID, "", pl_server_rows_pull, server, 1, &(int64_t){1}, 1, row);
    ck_fails(PL_INVALID, "absolute path", pl_server_rows_save, server, 0, "elsewhere");
    ck_fails(PL_SYSTEM, "", pl_server_rows_save, server, 0, "/dev/null/x");
    ck_ok(pl_server_rows_pull, server, 0, &(int64_t){1}, 1, row); /* it goes on */
    /* past the library: a table that is not there, and a list that is too long */
    ck_fails(PL_CORRUPT, "0 rows of table 1", pl_worker_ask, server, &message, -1, PL_SERVER_ROWS_DONE, &answer);
    pl_server_free(server);
}

TEST(what_cannot_be_asked_is_refused)
{
    struct job job = {.hosts = 1, .workers = 1, .staleness = "none", .body = ask_for_too_much};

    job_run(&job);
    job.staleness = "0";
    job_run(&job);
}

static void ask_past_the_end(struct job *job, int worker, struct pl_world *world)
{
    struct pl_server *server = new_worker(job, worker, world, (const struct pl_server_table *const[]){&own_table}, 1);
    struct pl_server_message message = {.kind = PL_SERVER_ROWS, .rows = {.what = PL_SERVER_ROWS_PULL}}, answer;

    message.count = PL_SERVER_ROWS_BYTES / (sizeof(int64_t) + COLUMNS * sizeof(float));
    ck_ok(pl_worker_ask, server, &message, -1, PL_SERVER_ROWS_DONE, &answer);
    message.count++;
    ck_fails(PL_CORRUPT, "", pl_worker_ask, server, &message, -1, PL_SERVER_ROWS_DONE, &answer);
    pl_server_free(server);
}

TEST(a_list_past_the_end_of_what_is_shared_is_refused)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {.hosts = hosts, .workers = 1, .staleness = "none", .body = ask_past_the_end};

        job_run(&job);
    }
}

/* The first push takes a chunk of memory on each server. */
static void push_without_memory(struct job *job, int worker, struct pl_world *world)
{
    struct pl_server *server = new_worker(job, worker, world, (const struct pl_server_table *const[]){&own_table}, 1);
    struct pl_error error = PL_ERROR_NONE;
    float rows[IDS][COLUMNS] = {{0.0F}};
    int64_t ids[IDS] = {0};

    for (uint64_t k = 0; k < IDS; k++) {
        ids[k] = id_of(k);
    }
    meet(server);
    has_no_memory = true;
    meet(server);
    ck_assert_int_eq(pl_server_rows_push(server, 0, ids, IDS, rows[0], &error), PL_MEMORY);
    ck_assert_msg(strstr(error.cause, "table 'own' has 0 rows in ") && strstr(error.cause, "cannot allocate "), "%s",
                  error.cause);
    pl_server_free(server);
}

TEST(a_server_without_memory_says_the_table_and_its_rows)
{
    for (int hosts = 1; hosts <= 2; hosts++) {
        struct job job = {.hosts = hosts, .workers = 1, .staleness = "none", .body = push_without_memory};

        has_no_memory = false;
        job_run(&job);
    }
    has_no_memory = false;
}

UNIT_MAIN("runtime/rows")
