/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/server/row_file.c, runtime/server/worker_rows.c. */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "runtime/server/row_store.h"
#include "runtime/server_rows.h"
#include "tests/unit/runtime/server/job.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { HOSTS = 2, IDS = 100 };

static const struct pl_server_table options = {.name = "t", .columns = 1, .kind = PL_SGD, .rate = -1.0};

/* ---- hosts that have no room, or other files ---- */

static _Atomic(const char *) full;     /* files with this in their names cannot be written */
static _Atomic(const char *) of_other; /* where host 1 loads from */

enum pl_status __real_pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                                 struct pl_error *reterr);
enum pl_status __wrap_pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                                 struct pl_error *reterr);
enum pl_status __real_pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                       int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                       struct pl_error *reterr);
enum pl_status __wrap_pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                       int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                       struct pl_error *reterr);

enum pl_status __wrap_pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                                 struct pl_error *reterr)
{
    const char *word = full;

    return word && strstr(path, word) ? pl_error_set(reterr, PL_SYSTEM, "as the test wants it")
                                      : __real_pl_file_write_atomic_parts(path, parts, count, mode, reterr);
}

enum pl_status __wrap_pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                       int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                       struct pl_error *reterr)
{
    const char *other = of_other;

    return __real_pl_row_file_read(other && host == 1 ? other : directory, table, store, host, hosts, most, ret_loaded,
                                   reterr);
}

/* ---- folders ---- */

static size_t count_files(const char *directory)
{
    DIR *stream = opendir(directory);
    const struct dirent *entry;
    size_t count = 0;

    ck_assert_ptr_nonnull(stream);
    while ((entry = readdir(stream))) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    ck_assert_int_eq(closedir(stream), 0);
    return count;
}

/* All of `from` is in `to` too. */
static void link_files(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    struct dirent *entry;
    char source[PATH_MAX], target[PATH_MAX];

    ck_assert_ptr_nonnull(stream);
    while ((entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            ck_assert_int_lt(snprintf(source, sizeof(source), "%s/%s", from, entry->d_name), (int)sizeof(source));
            ck_assert_int_lt(snprintf(target, sizeof(target), "%s/%s", to, entry->d_name), (int)sizeof(target));
            ck_assert(link(source, target) == 0 || errno == EEXIST);
        }
    }
    ck_assert_int_eq(closedir(stream), 0);
}

/* ---- through the servers ---- */

struct folders {
    char directory[PATH_MAX], other[PATH_MAX];
    int log_fd; /* a memory file */
};

static void push_ones(struct pl_server *server)
{
    float ones[IDS];
    int64_t ids[IDS];

    for (int i = 0; i < IDS; i++) {
        ids[i] = i;
        ones[i] = 1.0F;
    }
    ck_ok(pl_server_rows_push, server, 0, ids, IDS, ones);
}

static void expect_rows(struct pl_server *server, float value)
{
    float rows[IDS];
    int64_t ids[IDS];

    for (int i = 0; i < IDS; i++) {
        ids[i] = i;
    }
    ck_ok(pl_server_rows_pull, server, 0, ids, IDS, rows);
    for (int i = 0; i < IDS; i++) {
        ck_assert_msg(rows[i] == value, "row %d is %g, not %g", i, (double)rows[i], (double)value);
    }
}

static void save(struct pl_server *server, const char *directory)
{
    ck_ok(pl_server_rows_save, server, 0, directory);
}

/* Load, and what has been logged by then has `word`, or is nothing where that is NULL. */
static void load(struct pl_server *server, const struct folders *folders, const char *word)
{
    char said[4096];
    ssize_t bytes;

    ck_ok(pl_server_rows_load, server, 0, folders->directory);
    bytes = pread(folders->log_fd, said, sizeof(said) - 1, 0);
    ck_assert_int_ge(bytes, 0);
    said[bytes] = '\0';
    ck_assert_msg(word ? !!strstr(said, word) : bytes == 0, "it has logged '%s'", said);
}

static void save_twice(struct job *job, int worker, struct pl_world *world)
{
    const struct pl_optimizer_options sgd = {.kind = PL_SGD};
    const struct folders *folders = job->context;
    const char *directory = folders->directory, *other = folders->other;
    struct pl_server *server = job_new_server(job, worker, world, &sgd, 1, 0);
    size_t index;

    ck_ok(pl_server_rows_add, server, &options, &index);
    ck_ok(pl_server_join, server);
    ck_ok(pl_server_start, server);
    if (worker == 0) {
        push_ones(server);
        save(server, directory);
        for (int host = 0; host < HOSTS; host++) { /* which has no room for the second */
            push_ones(server);
            full = host == 0 ? "t-00000-of-00002." : "t-00001-of-00002.";
            ck_fails(PL_SYSTEM, "as the test wants it", pl_server_rows_save, server, 0, directory);
            full = NULL;
            load(server, folders, NULL);
            expect_rows(server, 1.0F);
            ck_assert_uint_eq(count_files(directory), HOSTS);
        }
        /* host 1 has a copy of the first save alone, and host 0 has that and the second */
        link_files(directory, other);
        push_ones(server);
        save(server, directory);
        ck_assert_uint_eq(count_files(directory), HOSTS);
        load(server, folders, NULL);
        expect_rows(server, 2.0F);
        link_files(other, directory);
        of_other = other;
        load(server, folders, "is not used, but an older one: some hosts have no file of it");
        expect_rows(server, 1.0F);
        of_other = NULL;
    }
    ck_ok(pl_server_sum, server, NULL, 0);
    expect_rows(server, 1.0F);
    job_leave(server);
}

TEST(a_save_that_one_server_does_not_end_leaves_the_save_before)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct folders folders;
    struct job job = {.hosts = HOSTS, .workers = 1, .staleness = "none", .body = save_twice, .context = &folders};

    folders.log_fd = memfd_create("log", MFD_CLOEXEC);
    ck_assert_int_ge(folders.log_fd, 0);
    pl_log_set_fd(folders.log_fd);
    scratch_path(&scratch, "d", folders.directory);
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "other", folders.other), 0777), 0);
    job_run(&job);
    pl_log_set_fd(STDERR_FILENO);
    ck_assert_int_eq(close(folders.log_fd), 0);
}

/* ---- a crash at every point ---- */

enum { FIRST = 1000, SECOND = 2000, THIRD = 3000 };

/* Of what a save does: a host has a file that is not finished, its part, or has removed what was before. */
struct step {
    enum { WRITE_HALF, WRITE, CLEAN } deed;
    int host;
};

static struct pl_row_store *new_store(struct pl_table *ret_table)
{
    struct pl_row_store *store = NULL;

    ck_ok(pl_table_make, &options, ret_table);
    ck_ok(pl_row_store_new, ret_table, &store);
    return store;
}

/* Host `host` writes its part of the save of `time_ns`, whose rows all have that value. */
static void write_part(const char *directory, int host, int time_ns)
{
    struct pl_table table;
    struct pl_row_store *store = new_store(&table);
    float value = (float)time_ns;

    for (int64_t id = 0; id < IDS; id++) {
        if (pl_table_owner(id, HOSTS) == host) {
            ck_ok(pl_row_store_push, store, &id, NULL, 1, &value);
        }
    }
    ck_ok(pl_row_file_write, directory, &table, store, host, HOSTS, (uint64_t)time_ns);
    pl_row_store_free(store);
}

/* The same, from `parts`, which has all of them: to write them again each time takes long. */
static void place_part(const char *parts, const char *directory, int host, int time_ns)
{
    char from[PATH_MAX], to[PATH_MAX];

    snprintf(from, sizeof(from), "%s/t-0000%d-of-00002.%016x.rows", parts, host, (unsigned)time_ns);
    snprintf(to, sizeof(to), "%s/%s", directory, strrchr(from, '/') + 1);
    ck_assert_msg(link(from, to) == 0, "link '%s': %s", to, strerror(errno));
}

static void clean(const char *directory, int time_ns)
{
    struct pl_table table;

    ck_ok(pl_table_make, &options, &table);
    ck_ok(pl_row_file_remove, directory, &table, (uint64_t)time_ns, true);
}

/* Both servers load; all rows are of one save, that of `time_ns`. */
static void expect_save(const char *directory, int time_ns, const char *passed)
{
    for (int host = 0; host < HOSTS; host++) {
        struct pl_server_rows_loaded loaded;
        struct pl_table table;
        struct pl_row_store *store = new_store(&table);
        float value;

        ck_ok(pl_row_file_read, directory, &table, store, host, HOSTS, UINT64_MAX, &loaded);
        ck_assert(loaded.oldest == (uint64_t)time_ns && loaded.newest == (uint64_t)time_ns);
        ck_assert_msg(passed ? !!strstr(loaded.passed, passed) : !*loaded.passed, "passed over: '%s'", loaded.passed);
        for (int64_t id = 0; id < IDS; id++) {
            if (pl_table_owner(id, HOSTS) == host) {
                pl_row_store_pull(store, &id, NULL, 1, &value);
                ck_assert_msg(value == (float)time_ns, "row %d is %g, not %d", (int)id, (double)value, time_ns);
            }
        }
        pl_row_store_free(store);
    }
}

static void do_step(const struct step *step, const char *parts, const char *directory)
{
    char path[PATH_MAX];
    int fd;

    if (step->deed == WRITE) {
        place_part(parts, directory, step->host, SECOND);
    } else if (step->deed == CLEAN) {
        clean(directory, SECOND);
    } else {
        snprintf(path, sizeof(path), "%s/.t-0000%d-of-00002.00000000000007d0.rows.7.8", directory, step->host);
        fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        ck_assert(fd >= 0 && write(fd, "half", 4) == 4 && close(fd) == 0);
    }
}

/* Hosts have a directory each, or one for both; `count` steps of the second save are done. */
static void crash_after(const char *parts, size_t count, bool is_shared)
{
    static const struct step steps[] = {{WRITE_HALF, 0}, {WRITE, 0}, {WRITE_HALF, 1},
                                        {WRITE, 1},      {CLEAN, 0}, {CLEAN, 1}};
    const size_t whole_after = 4;
    const int first_host = is_shared;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char directories[HOSTS][PATH_MAX], all[PATH_MAX], path[PATH_MAX], missing[64];

    ck_assert_uint_le(count, PL_ARRAY_ITEMS(steps));
    for (int host = 0; host < HOSTS; host++) {
        scratch_path(&scratch, is_shared || host == 0 ? "d" : "e", directories[host]);
        ck_assert(mkdir(directories[host], 0777) == 0 || is_shared);
        place_part(parts, directories[host], host, FIRST);
    }
    for (size_t i = 0; i < count; i++) {
        const struct step step = {steps[i].deed, steps[i].host ^ first_host};

        do_step(&step, parts, directories[step.host]);
    }
    if (is_shared && count == whole_after) { /* and between two files that are removed */
        ck_assert_int_eq(unlink(scratch_path(&scratch, "d/t-00001-of-00002.00000000000003e8.rows", path)), 0);
    }
    ck_assert_int_eq(mkdir(scratch_path(&scratch, "all", all), 0777), 0);
    link_files(directories[0], all);
    link_files(directories[1], all);
    snprintf(missing, sizeof(missing), "/t-0000%d-of-00002.00000000000007d0.rows", !first_host);
    expect_save(all, count < whole_after ? FIRST : SECOND, count > 1 && count < whole_after ? missing : NULL);
    /* the next save that ends removes what is left */
    for (int host = 0; host < HOSTS; host++) {
        place_part(parts, directories[host], host, THIRD);
    }
    for (int host = 0; host < HOSTS; host++) {
        clean(directories[host], THIRD);
        ck_assert_uint_eq(count_files(directories[host]), is_shared ? HOSTS : 1);
    }
}

TEST(after_a_crash_at_any_point_one_whole_save_is_loaded)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char parts[PATH_MAX];

    scratch_path(&scratch, "parts", parts);
    for (int i = 0; i < 3 * HOSTS; i++) {
        write_part(parts, i % HOSTS, (int[]){FIRST, SECOND, THIRD}[i / HOSTS]);
    }
    for (size_t count = 0; count <= 6; count++) {
        crash_after(parts, count, false);
        crash_after(parts, count, true);
    }
}

TEST(a_save_that_is_damaged_is_passed_over_for_a_whole_one)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char directory[PATH_MAX], path[PATH_MAX];

    scratch_path(&scratch, "d", directory);
    for (int host = 0; host < HOSTS; host++) {
        write_part(directory, host, FIRST);
        write_part(directory, host, SECOND);
        write_part(directory, host, THIRD);
    }
    ck_assert_int_eq(truncate(scratch_path(&scratch, "d/t-00001-of-00002.0000000000000bb8.rows", path), 200), 0);
    expect_save(directory, SECOND, "it has 200 bytes, expected");
    scratch_write(&scratch, "d/t-00000-of-00002.00000000000007d0.rows", "", 0);
    expect_save(directory, FIRST, "it has 200 bytes, expected");
}

UNIT_MAIN("runtime/row_file")
