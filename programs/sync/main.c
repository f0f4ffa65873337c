/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `paceline sync`: copies files of a directory to S3 while they are written, as SageMaker's toolkit does with
 * intermediate output.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "s3io/s3/s3_client.h"
#include "s3io/source.h"

#include <errno.h>
#include <fts.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_BYTES = 64 << 10, LOOK_S = 10 };

/* Wait after a file was closed: its writer may open it again at once. */
#define STABLE_NS (300 * PL_NS_PER_MS)
#define TRY_AGAIN_NS (30 * PL_NS_PER_S)
#define UPLOAD_NS (1800 * PL_NS_PER_S)
#define DEFAULT_FINISH_S 60
#define SAME_STOP_NS (5 * PL_NS_PER_S) /* a signal to a whole process group may reach one process twice */

/* The version of one file. */
struct version {
    int64_t modified_ns;
    int64_t size_bytes;
    uint64_t inode;
};

struct entry {
    char *name; /* path below the directory */
    struct version sent;
    struct version seen; /* version at the last check */
    int64_t due_ns;      /* PL_DEADLINE_NEVER if there is nothing to do */
    bool complained;
};

struct watched {
    int id;     /* inotify's number */
    char *name; /* path below the directory; "" for the directory itself */
};

struct sync {
    struct pl_s3_client *client;
    struct pl_s3_options client_options;
    struct pl_s3_upload_options upload;
    struct pl_s3_encryption encryption;
    struct pl_s3_headers headers; /* request headers for the encryption */
    char *directory;              /* absolute path */
    char *bucket, *prefix;
    int events_fd; /* -1 if there is no inotify */
    int signals_fd;
    bool scans;             /* inotify does not report all changes: also scan every LOOK_S */
    size_t unread_count;    /* number of directories that the last walk could not read */
    struct pl_error unread; /* error of the first of them */
    double finish_s;        /* time for the last uploads */
    int64_t finish_ns;      /* `finish_s` in nanoseconds */
    int64_t finish_by_ns;   /* deadline of the last uploads, once a signal has arrived */
    uint32_t stop_signal;   /* first signal; 0 before a signal arrives */
    int64_t stop_ns;        /* time of its arrival */
    struct entry *entries;  /* sorted by name */
    size_t entry_count, entry_capacity;
    struct watched *watched;
    size_t watched_count, watched_capacity;
};

static bool is_same(const struct version *left, const struct version *right)
{
    return left->modified_ns == right->modified_ns && left->size_bytes == right->size_bytes &&
           left->inode == right->inode;
}

static struct version version_of(const struct stat *info)
{
    return (struct version){.modified_ns = (int64_t)info->st_mtim.tv_sec * PL_NS_PER_S + info->st_mtim.tv_nsec,
                            .size_bytes = (int64_t)info->st_size,
                            .inode = (uint64_t)info->st_ino};
}

/* Returns the index of `name` in the entries, or the index at which it must be inserted. */
static size_t find_place(const struct sync *sync, const char *name)
{
    size_t low = 0, high = sync->entry_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(sync->entries[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static enum pl_status find_entry(struct sync *sync, const char *name, struct entry **ret_entry, struct pl_error *reterr)
{
    size_t place = find_place(sync, name);

    if (place == sync->entry_count || strcmp(sync->entries[place].name, name) != 0) {
        char *copy = pl_memory_string(name, reterr);

        if (!copy || pl_memory_grow(&sync->entries, &sync->entry_capacity, sync->entry_count + 1,
                                    sizeof(*sync->entries), reterr) != PL_OK) {
            free(copy);
            return PL_MEMORY;
        }
        memmove(&sync->entries[place + 1], &sync->entries[place], (sync->entry_count - place) * sizeof(*sync->entries));
        sync->entries[place] = (struct entry){
            .name = copy, .sent = {.size_bytes = -1}, .seen = {.size_bytes = -1}, .due_ns = PL_DEADLINE_NEVER};
        sync->entry_count++;
    }
    *ret_entry = &sync->entries[place];
    return PL_OK;
}

/* Marks a file as due: it is sent if it has changed. */
static enum pl_status mark(struct sync *sync, const char *name, struct pl_error *reterr)
{
    struct entry *entry;

    PL_TRY(find_entry(sync, name, &entry, reterr));
    entry->due_ns = pl_deadline_after_ns(STABLE_NS);
    return PL_OK;
}

/* mark() if no events tell of closing: a file counts as complete if two scans find the same version. */
static enum pl_status mark_stable(struct sync *sync, const char *name, const struct stat *info, struct pl_error *reterr)
{
    struct version now = version_of(info);
    struct entry *entry;

    PL_TRY(find_entry(sync, name, &entry, reterr));
    if (is_same(&now, &entry->seen) && !is_same(&now, &entry->sent) && entry->due_ns == PL_DEADLINE_NEVER) {
        entry->due_ns = pl_deadline_after_ns(STABLE_NS);
    }
    entry->seen = now;
    return PL_OK;
}

/* Called if inotify or a directory fails: warns once, and from then on scans for changes. */
static void fall_back_to_scan(struct sync *sync, const struct pl_error *error)
{
    if (!sync->scans) {
        pl_log_error(error, "not all changes are reported, files are scanned every %d s", (int)LOOK_S);
    }
    sync->scans = true;
}

static bool is_gone(int code)
{
    return code == ENOENT || code == ENOTDIR;
}

static enum pl_status watch(struct sync *sync, const char *path, const char *name, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    struct watched *watched = NULL;
    char *copy;
    int id;

    if (sync->events_fd < 0) {
        return PL_OK;
    }
    id = inotify_add_watch(sync->events_fd, path,
                           IN_CLOSE_WRITE | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW);
    if (id < 0) {
        if (!is_gone(errno)) {
            pl_error_errno(&error, "watch '%s'", path);
            fall_back_to_scan(sync, &error);
        }
        return PL_OK;
    }
    for (size_t i = 0; i < sync->watched_count && !watched; i++) {
        watched = sync->watched[i].id == id ? &sync->watched[i] : NULL;
    }
    if (watched && strcmp(watched->name, name) == 0) {
        return PL_OK;
    }
    copy = pl_memory_string(name, reterr);
    if (copy && watched) { /* the directory has a new name: it was moved */
        free(watched->name);
        watched->name = copy;
        return PL_OK;
    }
    if (!copy || pl_memory_grow(&sync->watched, &sync->watched_capacity, sync->watched_count + 1,
                                sizeof(*sync->watched), reterr) != PL_OK) {
        free(copy);
        return PL_MEMORY;
    }
    sync->watched[sync->watched_count++] = (struct watched){.id = id, .name = copy};
    return PL_OK;
}

static enum pl_status path_below(const struct sync *sync, const char *name, struct pl_text *path,
                                 struct pl_error *reterr)
{
    return pl_text_set(path, reterr, "%s%s%s", sync->directory, *name ? "/" : "", name);
}

static void close_walk_at(FTS **walk)
{
    if (*walk) {
        fts_close(*walk);
    }
}

/* Which files are marked: every file (ALL), or those that two scans found unchanged (STABLE). */
enum which { ALL, STABLE };

static enum pl_status take_item(struct sync *sync, const FTSENT *item, enum which which, struct pl_error *reterr)
{
    const char *name = item->fts_path + strlen(sync->directory);
    struct pl_error error = PL_ERROR_NONE;

    while (*name == '/') {
        name++;
    }
    switch (item->fts_info) {
    case FTS_D: /* its contents are read after this, so nothing is missed */
        return watch(sync, item->fts_path, name, reterr);
    case FTS_F:
        return which == ALL ? mark(sync, name, reterr) : mark_stable(sync, name, item->fts_statp, reterr);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        if (!is_gone(item->fts_errno)) {
            errno = item->fts_errno;
            pl_error_errno(&error, "read '%s'", item->fts_path);
            fall_back_to_scan(sync, &error);
            if (sync->unread_count++ == 0) {
                sync->unread = error;
            }
        }
        return PL_OK;
    default:
        return PL_OK; /* links, sockets and the like are skipped */
    }
}

/* Watches the directory `name` and all directories below it, and marks the files in them. */
static enum pl_status scan(struct sync *sync, const char *name, enum which which, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    __attribute__((cleanup(close_walk_at))) FTS *walk = NULL;

    PL_TRY(path_below(sync, name, &path, reterr));
    sync->unread_count = 0;
    walk = fts_open((char *const[]){path.data, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) {
        return pl_error_errno(reterr, "walk through '%s'", path.data);
    }
    for (const FTSENT *item; errno = 0, (item = fts_read(walk));) {
        PL_TRY(take_item(sync, item, which, reterr));
    }
    return errno == 0 ? PL_OK : pl_error_errno(reterr, "walk through '%s'", path.data);
}

static enum pl_status take_event(struct sync *sync, const struct inotify_event *event, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;

    if (event->mask & IN_Q_OVERFLOW) {
        return scan(sync, "", ALL, reterr);
    }
    for (size_t i = 0; i < sync->watched_count; i++) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

        if (sync->watched[i].id != event->wd) {
            continue;
        }
        if (event->mask & IN_IGNORED) {
            if (!*sync->watched[i].name) { /* a directory of that name may be created again without an event */
                pl_error_set(&error, PL_NOT_FOUND, "'%s' was removed", sync->directory);
                fall_back_to_scan(sync, &error);
            }
            free(sync->watched[i].name);
            sync->watched[i] = sync->watched[--sync->watched_count];
            return PL_OK;
        }
        PL_TRY(pl_text_set(&name, reterr, "%s%s%s", sync->watched[i].name, *sync->watched[i].name ? "/" : "",
                           event->len ? event->name : ""));
        if (event->mask & IN_ISDIR) {
            return scan(sync, pl_text_string(&name), ALL, reterr);
        }
        return event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO) ? mark(sync, pl_text_string(&name), reterr) : PL_OK;
    }
    return PL_OK;
}

static enum pl_status take_events(struct sync *sync, struct pl_error *reterr)
{
    _Alignas(struct inotify_event) char buffer[EVENT_BYTES];

    for (;;) {
        ssize_t bytes = read(sync->events_fd, buffer, sizeof(buffer));

        if (bytes <= 0) {
            return bytes == 0 || errno == EAGAIN || errno == EINTR ? PL_OK
                                                                   : pl_error_errno(reterr, "read inotify's events");
        }
        for (ssize_t at = 0; at < bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)(buffer + at);

            PL_TRY(take_event(sync, event, reterr));
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    }
}

/*
 * The first stop request sets the deadline for everything. A second one sets the deadline to now, unless it only
 * repeats the first.
 */
static void check_stop(struct sync *sync)
{
    struct signalfd_siginfo info;

    while (read(sync->signals_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int64_t now_ns = pl_clock_now_ns();

        if (!sync->stop_signal) {
            sync->stop_signal = info.ssi_signo;
            sync->stop_ns = now_ns;
            sync->finish_by_ns =
                sync->finish_by_ns == PL_DEADLINE_NEVER ? pl_deadline_after_ns(sync->finish_ns) : sync->finish_by_ns;
        } else if (info.ssi_signo != sync->stop_signal || now_ns - sync->stop_ns > SAME_STOP_NS) {
            sync->finish_by_ns = now_ns;
        }
    }
}

/* Whether an upload still has time. A stop request may have arrived during the upload. */
static bool has_time(void *context)
{
    struct sync *sync = context;

    check_stop(sync);
    return !pl_deadline_passed(sync->finish_by_ns);
}

static enum pl_status upload(struct sync *sync, const struct entry *entry, const char *path, uint64_t size_bytes,
                             struct pl_error *reterr)
{
    PL_AUTO_SOURCE struct pl_source *file = NULL;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;
    enum pl_status status;

    PL_TRY(pl_text_set(&key, reterr, "%s%s%s", sync->prefix,
                       *sync->prefix && sync->prefix[strlen(sync->prefix) - 1] != '/' ? "/" : "", entry->name));
    PL_TRY(pl_source_open_file(path, &file, reterr));
    status = pl_s3_upload(sync->client, sync->bucket, key.data, file, size_bytes, &sync->upload,
                          pl_deadline_after_ns(UPLOAD_NS), reterr);
    if (status == PL_CANCELLED) {
        pl_error_context(reterr, "the time for the last uploads is over");
    }
    return status;
}

/*
 * Whether a later write could leave the file with the same size and time as `version`. File systems count time in
 * ticks: at most 10 ms by the kernel's clock, whole seconds on some, two seconds on FAT.
 */
static bool may_hide_a_write(const struct version *version)
{
    int64_t tick_ns = version->modified_ns % PL_NS_PER_S ? 20 * PL_NS_PER_MS : 2 * PL_NS_PER_S, age_ns;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    age_ns = (int64_t)now.tv_sec * PL_NS_PER_S + now.tv_nsec - version->modified_ns;
    /* a time further in the future is wrong, and waiting for it is useless */
    return age_ns > -tick_ns && age_ns < tick_ns;
}

/*
 * Sends the entry's file unless this version was sent before. A file that changes meanwhile is due again. `last`: no
 * process writes any more.
 */
static enum pl_status send_entry(struct sync *sync, struct entry *entry, bool last, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct version before;
    struct stat info;

    entry->due_ns = PL_DEADLINE_NEVER;
    PL_TRY(path_below(sync, entry->name, &path, reterr));
    errno = 0;
    /* the file was removed, or is not a file any more: the object stays as it was sent */
    if (lstat(pl_text_string(&path), &info) != 0 || !S_ISREG(info.st_mode)) {
        return errno == 0 || is_gone(errno) ? PL_OK : pl_error_errno(reterr, "stat '%s'", pl_text_string(&path));
    }
    before = version_of(&info);
    if (is_same(&before, &entry->sent)) {
        return PL_OK;
    }
    if (!last && may_hide_a_write(&before)) {
        entry->due_ns = pl_deadline_after_ns(STABLE_NS);
        return PL_OK;
    }
    PL_TRY(upload(sync, entry, pl_text_string(&path), (uint64_t)info.st_size, reterr));
    entry->sent = before;
    entry->complained = false;
    return PL_OK;
}

/* Sends the files that are due, and returns when the next one is due. */
static int64_t send_due(struct sync *sync, bool all)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    for (size_t i = 0; i < sync->entry_count; i++) {
        struct entry *entry = &sync->entries[i];
        struct pl_error error = PL_ERROR_NONE;

        check_stop(sync);
        if (!all && sync->finish_by_ns != PL_DEADLINE_NEVER) {
            break; /* the last round sends the remaining files */
        }
        if (entry->due_ns != PL_DEADLINE_NEVER && (all || pl_deadline_passed(entry->due_ns)) &&
            send_entry(sync, entry, all, &error) != PL_OK) {
            if (!entry->complained) {
                pl_log_error(&error, "cannot upload '%s'", entry->name);
            }
            entry->complained = true;
            entry->due_ns = pl_deadline_after_ns(TRY_AGAIN_NS);
        }
        next_ns = entry->due_ns < next_ns ? entry->due_ns : next_ns;
    }
    return next_ns;
}

/* Sends files as they are written, until a signal arrives. */
static enum pl_status follow(struct sync *sync, struct pl_error *reterr)
{
    int64_t look_ns = pl_deadline_after_ns(LOOK_S * PL_NS_PER_S);

    PL_TRY(scan(sync, "", ALL, reterr));
    while (sync->finish_by_ns == PL_DEADLINE_NEVER) {
        struct pollfd waits[2] = {{.fd = sync->events_fd, .events = POLLIN},
                                  {.fd = sync->signals_fd, .events = POLLIN}};
        int64_t next_ns = send_due(sync, false);

        if (sync->finish_by_ns != PL_DEADLINE_NEVER) {
            break; /* an upload has read the signal, so poll() would not wake up */
        }
        next_ns = sync->scans && look_ns < next_ns ? look_ns : next_ns;
        if (poll(waits, 2, pl_deadline_poll_ms(next_ns)) < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "wait for changes in '%s'", sync->directory);
        }
        if (sync->events_fd >= 0) {
            PL_TRY(take_events(sync, reterr));
        }
        if (sync->scans && pl_deadline_passed(look_ns)) {
            PL_TRY(scan(sync, "", STABLE, reterr));
            look_ns = pl_deadline_after_ns(LOOK_S * PL_NS_PER_S);
        }
        check_stop(sync);
    }
    return PL_OK;
}

static enum pl_status run(struct sync *sync, struct pl_error *reterr)
{
    enum pl_status status = follow(sync, reterr);
    size_t left = 0;

    if (status != PL_OK) { /* the last round runs nevertheless */
        sync->finish_by_ns = pl_deadline_after_ns(sync->finish_ns);
    }
    /* Include files that were never closed: their writers have ended. */
    if (scan(sync, "", ALL, status == PL_OK ? reterr : NULL) != PL_OK) {
        status = status == PL_OK ? PL_FAILED : status;
    }
    send_due(sync, true);
    for (size_t i = 0; i < sync->entry_count; i++) {
        left += sync->entries[i].due_ns != PL_DEADLINE_NEVER;
    }
    if (status == PL_OK && left) {
        return pl_error_set(reterr, PL_FAILED, "%zu of %zu files are not on S3", left, sync->entry_count);
    }
    if (status == PL_OK && sync->unread_count) {
        *reterr = sync->unread;
        pl_error_context(reterr, "%zu directories could not be read", sync->unread_count);
        return PL_FAILED;
    }
    return status;
}

static void release(struct sync *sync)
{
    for (size_t i = 0; i < sync->entry_count; i++) {
        free(sync->entries[i].name);
    }
    for (size_t i = 0; i < sync->watched_count; i++) {
        free(sync->watched[i].name);
    }
    free(sync->entries);
    free(sync->watched);
    free(sync->directory);
    free(sync->bucket);
    free(sync->prefix);
    pl_s3_headers_done(&sync->headers);
    pl_file_close_at(&sync->events_fd);
    pl_file_close_at(&sync->signals_fd);
    pl_s3_client_free(sync->client);
}

static enum pl_status open_sync(struct sync *sync, const char *directory, const char *uri, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_error error = PL_ERROR_NONE;
    struct stat info;
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL); /* block signals before the client's thread starts */
    sync->signals_fd = signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC);
    if (sync->signals_fd < 0) {
        return pl_error_errno(reterr, "set up signals");
    }
    sync->directory = realpath(directory, NULL);
    if (!sync->directory) {
        return pl_error_errno(reterr, "find directory '%s'", directory);
    }
    if (stat(sync->directory, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a directory", directory);
    }
    sync->events_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (sync->events_fd < 0) {
        pl_error_errno(&error, "set up inotify");
        fall_back_to_scan(sync, &error);
    }
    PL_TRY(pl_s3_uri_parse(uri, &sync->bucket, &sync->prefix, reterr));
    PL_TRY(pl_environment_new(&environment, reterr));
    return pl_s3_client_new(environment, &sync->client_options, &sync->client, reterr);
}

#define PL_OPTIONS_OF struct sync
static const struct pl_option table[] = {PL_SYNC_OPTIONS(PL_OPTION) PL_OPTIONS_END};

static enum pl_status check_arguments(struct sync *sync, int count, struct pl_error *reterr)
{
    if (count != 2) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected DIRECTORY and s3://BUCKET/PREFIX, found %d arguments; --help tells more", count);
    }
    PL_TRY(pl_s3_encryption_check(&sync->encryption, &pl_s3_encryption_options, reterr));
    sync->finish_ns = (int64_t)(sync->finish_s * (double)PL_NS_PER_S);
    sync->upload.headers = &sync->headers;
    return pl_s3_headers_add_encryption(&sync->headers, &sync->encryption, reterr);
}

int main(int argc, char **argv)
{
    struct sync sync = {
        .events_fd = -1, .signals_fd = -1, .finish_s = DEFAULT_FINISH_S, .finish_by_ns = PL_DEADLINE_NEVER};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    bool begun;

    pl_log_open("paceline sync");
    status = pl_verbs_read("sync", table, argc, argv, &sync, &error);
    status = status == PL_OK ? check_arguments(&sync, argc - optind, &error) : status;
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    sync.upload.go_on = has_time;
    sync.upload.context = &sync;
    status = open_sync(&sync, argv[optind], argv[optind + 1], &error);
    begun = status == PL_OK;
    if (begun) {
        status = run(&sync, &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "'%s' to '%s'", argv[optind], argv[optind + 1]);
    }
    release(&sync);
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID && !begun ? PL_EXIT_USAGE : EXIT_FAILURE;
}
