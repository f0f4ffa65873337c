/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3 cp`: copies files and objects. */
#include "programs/s3/s3.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/strv.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_get.h"
#include "s3io/source.h"
#include "s3io/store.h"
#include "s3io/store_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BAR = 24, DRAW_MS = 100 };

/* ---- the progress line on a terminal ---- */

struct progress {
    bool shown;
    uint64_t total_bytes, moved_bytes;
    int64_t begun_ns, drawn_ns;
};

static void progress_begin(struct progress *progress, uint64_t total_bytes, bool quiet)
{
    *progress = (struct progress){
        .shown = !quiet && isatty(STDERR_FILENO), .total_bytes = total_bytes, .begun_ns = pl_clock_now_ns()};
}

static void print_bytes(double bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;

    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, text_bytes, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void draw(const struct progress *progress, const char *name)
{
    double part = progress->total_bytes ? (double)progress->moved_bytes / (double)progress->total_bytes : 0;
    double seconds = (double)(pl_clock_now_ns() - progress->begun_ns) / 1e9;
    double rate = seconds > 0 ? (double)progress->moved_bytes / seconds : 0;
    char moved[32], total[32], speed[32], bar[BAR + 1];
    const char *slash = strrchr(name, '/');
    int full;

    part = part > 1 ? 1 : part;
    full = (int)(part * BAR);
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)full);
    bar[BAR] = '\0';
    print_bytes((double)progress->moved_bytes, moved, sizeof(moved));
    print_bytes((double)progress->total_bytes, total, sizeof(total));
    print_bytes(rate, speed, sizeof(speed));
    if (progress->total_bytes) {
        double left_s = rate > 0 ? (double)(progress->total_bytes - progress->moved_bytes) / rate : 0;

        fprintf(stderr, "\r[%s] %3.0f %% %s of %s, %s/s, %.0f s left  %.40s\033[K", bar, part * 100, moved, total,
                speed, left_s, slash ? slash + 1 : name);
    } else {
        fprintf(stderr, "\r%s, %s/s  %.40s\033[K", moved, speed, slash ? slash + 1 : name);
    }
}

static void progress_move(struct progress *progress, const char *name, uint64_t bytes)
{
    int64_t now_ns = pl_clock_now_ns();

    progress->moved_bytes += bytes;
    if (progress->shown && now_ns - progress->drawn_ns >= DRAW_MS * PL_NS_PER_MS) {
        progress->drawn_ns = now_ns;
        draw(progress, name);
    }
}

static void progress_end(struct progress *progress)
{
    if (progress->shown) {
        draw(progress, "");
        fputc('\n', stderr);
    }
}

/* ---- downloads ---- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool is_directory(const char *path)
{
    struct stat info;
    size_t length = strlen(path);

    return (length && path[length - 1] == '/') || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

static void moved(void *context, const char *name, uint64_t bytes)
{
    progress_move(context, name, bytes);
}

/* Downloads all of `fetches`, with a progress line. The list is reordered. */
static enum pl_status download(struct pl_tool *tool, struct pl_s3_fetch *fetches, size_t count, struct pl_error *reterr)
{
    struct progress progress;
    struct pl_s3_progress callback = {&progress, moved};
    uint64_t total_bytes = 0;
    enum pl_status status;

    for (size_t i = 0; i < count; i++) {
        total_bytes += fetches[i].object.size_bytes;
    }
    progress_begin(&progress, total_bytes, tool->quiet);
    status = pl_s3_download(tool->client, fetches, count, &tool->stream_options, tool->again, tool->timeout_ns,
                            &callback, reterr);
    progress_end(&progress);
    return status;
}

static struct pl_s3_object object_of(const char *bucket, const char *key, const struct pl_s3_info *info)
{
    return (struct pl_s3_object){
        .bucket = bucket, .key = key, .etag = info->etag, .size_bytes = info->size_bytes, .checksum = info->checksum};
}

static enum pl_status download_one(struct pl_tool *tool, const char *uri, const char *target, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_s3_info info = {.etag = NULL};
    struct pl_s3_fetch fetch = {.path = target};
    enum pl_status status;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    if (!*key || key[strlen(key) - 1] == '/') {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not an object; use --recursive for the objects below it", uri);
    }
    if (is_directory(target)) {
        PL_TRY(pl_s3_local_path(target, last_part(key), &path, reterr));
        fetch.path = path.data;
    }
    PL_TRY(pl_tool_connect(tool, reterr));
    status = pl_s3_head(tool->client, bucket, key, pl_deadline_after_ns(tool->timeout_ns), &info, reterr);
    if (status == PL_NOT_FOUND) { /* S3's answer to a HEAD request has no message */
        pl_error_context(reterr, "no such object; use --recursive for the objects below such a name");
    }
    PL_TRY(status);
    fetch.object = object_of(bucket, key, &info);
    fetch.modified_s = info.modified_s;
    status = download(tool, &fetch, 1, reterr);
    pl_s3_info_done(&info);
    return status;
}

static enum pl_status download_tree(struct pl_tool *tool, const char *uri, const char *target, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *prefix = NULL;
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    PL_AUTO_FREE struct pl_s3_fetch *fetches = NULL;
    PL_AUTO_STRV struct pl_strv names = PL_STRV_NONE; /* the download reorders its list */
    size_t count = 0, cut;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &prefix, reterr));
    PL_TRY(pl_tool_connect(tool, reterr));
    PL_TRY(pl_tool_list(tool, bucket, prefix, &listing, reterr));
    if (listing.count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "nothing under '%s'", uri);
    }
    PL_TRY(pl_memory_alloc(&fetches, listing.count, sizeof(*fetches), reterr));
    cut = (size_t)(last_part(prefix) - prefix); /* file names keep the part after the prefix's last slash */
    for (size_t i = 0; i < listing.count; i++) {
        const struct pl_s3_entry *entry = &listing.items[i];
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        enum pl_status status;

        if (entry->size_bytes == 0 && entry->key[strlen(entry->key) - 1] == '/') {
            /* this object marks a folder; one with bytes cannot become a file and must not be skipped silently */
            continue;
        }
        status = pl_s3_local_path(target, entry->key + cut, &path, reterr);
        if (status != PL_OK) {
            pl_error_context(reterr, "s3://%s/%s", bucket, entry->key);
            return status;
        }
        pl_strv_add(&names, path.data);
        PL_TRY(pl_strv_check(&names, reterr));
        fetches[count++] = (struct pl_s3_fetch){
            .object = {.bucket = bucket, .key = entry->key, .etag = entry->etag, .size_bytes = entry->size_bytes},
            .path = names.items[names.count - 1],
            .modified_s = entry->modified_s};
    }
    return download(tool, fetches, count, reterr);
}

/* An object that a manifest names; the download reorders its own list. */
struct named {
    char *key, *path;
    struct pl_s3_info info;
};

struct objects {
    struct pl_tool *tool;
    const struct pl_manifest *manifest;
    const char *target;
    struct pl_s3_fetch *fetches;
    struct named *named;
};

/* Finds one object's size and ETag. */
static enum pl_status look_up(void *context, size_t index, struct pl_error *reterr)
{
    const struct objects *objects = context;
    const struct pl_manifest *manifest = objects->manifest;
    struct named *named = &objects->named[index];
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE, path = PL_TEXT_NONE;
    enum pl_status status;

    pl_text_printf(&key, "%s%s", manifest->prefix, manifest->keys[index]);
    PL_TRY(pl_text_take(&key, &named->key, reterr));
    status = pl_s3_local_path(objects->target, manifest->keys[index], &path, reterr);
    if (status == PL_OK) {
        status = pl_text_take(&path, &named->path, reterr);
    }
    if (status == PL_OK) {
        status = pl_s3_head(objects->tool->client, manifest->bucket, named->key,
                            pl_deadline_after_ns(objects->tool->timeout_ns), &named->info, reterr);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "s3://%s/%s, which the manifest names", manifest->bucket, named->key);
        return status;
    }
    objects->fetches[index] = (struct pl_s3_fetch){.object = object_of(manifest->bucket, named->key, &named->info),
                                                   .path = named->path,
                                                   .modified_s = named->info.modified_s};
    return PL_OK;
}

/* Copies the objects that the manifest at `uri` names into the directory `target`, by their names in the manifest. */
static enum pl_status download_manifest(struct pl_tool *tool, const char *uri, const char *target,
                                        struct pl_error *reterr)
{
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_FREE struct pl_s3_fetch *fetches = NULL;
    PL_AUTO_FREE struct named *named = NULL;
    struct objects objects = {.tool = tool, .manifest = &manifest, .target = target};
    enum pl_status status;

    PL_TRY(pl_tool_connect(tool, reterr));
    PL_TRY(pl_manifest_fetch(tool->client, uri, pl_deadline_after_ns(tool->timeout_ns), &manifest, reterr));
    pl_manifest_sort(&manifest); /* a key that it has twice is one file */
    objects.fetches = fetches = pl_memory_new(manifest.count + 1, sizeof(*fetches), reterr);
    objects.named = named = pl_memory_new(manifest.count + 1, sizeof(*named), reterr);
    PL_TRY(fetches && named ? PL_OK : PL_MEMORY);
    status = pl_tool_each(manifest.count, look_up, &objects, reterr);
    if (status == PL_OK) {
        status = download(tool, fetches, manifest.count, reterr);
    }
    for (size_t i = 0; i < manifest.count; i++) {
        pl_s3_info_done(&named[i].info);
        free(named[i].key);
        free(named[i].path);
    }
    return status;
}

/* ---- uploads ---- */

struct upload_progress {
    const struct pl_tool *tool;
    struct progress *progress;
    pthread_mutex_t *lock;
    const char *name;
    uint64_t reported_bytes;
};

static void uploaded(void *context, uint64_t bytes)
{
    struct upload_progress *upload = context;

    pthread_mutex_lock(upload->lock);
    progress_move(upload->progress, upload->name, bytes - upload->reported_bytes);
    pthread_mutex_unlock(upload->lock);
    upload->reported_bytes = bytes;
}

static bool goes_on(void *context)
{
    return pl_tool_goes_on(((const struct upload_progress *)context)->tool);
}

static enum pl_status read_input(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                 size_t *ret_bytes, struct pl_error *reterr)
{
    return pl_file_read_some(STDIN_FILENO, data, bytes, deadline_ns, source->name, ret_bytes, reterr);
}

static void close_input(struct pl_source *source)
{
    free(source);
}

/* Opens standard input, of any kind, as a source. */
static enum pl_status open_input(struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = read_input, .close = close_input};
    struct pl_source *source = pl_memory_new(1, sizeof(*source), reterr);
    enum pl_status status = source ? pl_source_init(source, &ops, "standard input", reterr) : PL_MEMORY;

    if (status != PL_OK) {
        free(source);
        return status;
    }
    *ret_source = source;
    return PL_OK;
}

/* Finds the object to copy: its size decides how large the copy's parts are, and its properties are kept. */
static enum pl_status find_object(struct pl_tool *tool, const char *uri, struct pl_s3_info *ret_info,
                                  struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    PL_TRY(pl_s3_head(tool->client, bucket, key, pl_deadline_after_ns(tool->timeout_ns), ret_info, reterr));
    return pl_s3_headers_add_carried(&tool->headers, ret_info->head, reterr);
}

/* Uploads a file, standard input ("-") or another object, which `object` describes, to s3://bucket/key. */
static enum pl_status upload_source(struct pl_tool *tool, const char *from, const struct pl_s3_info *object,
                                    const char *bucket, const char *key, uint64_t budget_bytes,
                                    struct progress *progress, pthread_mutex_t *lock, struct pl_error *reterr)
{
    PL_AUTO_FREE char *from_bucket = NULL, *from_key = NULL;
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    struct pl_s3_stream_options stream = tool->stream_options;
    struct upload_progress state = {.tool = tool, .progress = progress, .lock = lock, .name = from};
    struct pl_s3_upload_options options = {.budget_bytes = budget_bytes,
                                           .part_bytes = tool->stream_options.part_bytes,
                                           .no_checksums = tool->no_checksums,
                                           .headers = &tool->headers,
                                           .progress = uploaded,
                                           .go_on = goes_on,
                                           .context = &state};
    uint64_t size_bytes = PL_S3_SIZE_UNKNOWN;
    struct pl_s3_object from_object;
    struct stat info;

    if (pl_s3_uri_is(from)) {
        options.budget_bytes = budget_bytes / 2;
        size_bytes = object->size_bytes;
        stream.budget_bytes = budget_bytes - options.budget_bytes;
        PL_TRY(pl_s3_uri_parse(from, &from_bucket, &from_key, reterr));
        from_object = object_of(from_bucket, from_key, object);
        PL_TRY(pl_source_s3_open(tool->client, from, &from_object, &stream, &source, reterr));
    } else if (strcmp(from, "-") == 0) {
        PL_TRY(open_input(&source, reterr));
    } else {
        PL_TRY(pl_source_open_file(from, &source, reterr));
        size_bytes = stat(from, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : PL_S3_SIZE_UNKNOWN;
    }
    return pl_s3_upload(tool->client, bucket, key, source, size_bytes, &options, PL_DEADLINE_NEVER, reterr);
}

/* Checks, before any request, that the source is standard input, a file that exists, or the address of an object. */
static enum pl_status check_source(const char *from, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;
    struct stat info;

    if (pl_s3_uri_is(from)) {
        PL_TRY(pl_s3_uri_parse(from, &bucket, &key, reterr));
        return *key ? PL_OK : pl_error_set(reterr, PL_INVALID, "'%s' is a bucket: expected an object", from);
    }
    if (strcmp(from, "-") == 0) {
        return PL_OK;
    }
    if (stat(from, &info) != 0) {
        return pl_error_errno(reterr, "find '%s'", from);
    }
    return S_ISDIR(info.st_mode)
               ? pl_error_set(reterr, PL_INVALID, "'%s' is a directory; use --recursive for its files", from)
               : PL_OK;
}

static enum pl_status upload_one(struct pl_tool *tool, const char *from, const char *uri, struct pl_error *reterr)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;
    PL_AUTO_TEXT struct pl_text full = PL_TEXT_NONE;
    struct pl_s3_info object = {.etag = NULL};
    struct progress progress;
    struct stat info;
    enum pl_status status = PL_OK;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    pl_text_append(&full, key);
    if (!*key || key[strlen(key) - 1] == '/') {
        if (strcmp(from, "-") == 0) {
            return pl_error_set(reterr, PL_INVALID,
                                "standard input has no file name to add to '%s'; give the whole key", uri);
        }
        pl_text_append(&full, last_part(from));
    }
    PL_TRY(pl_text_check(&full, reterr));
    PL_TRY(check_source(from, reterr));
    PL_TRY(pl_tool_connect(tool, reterr));
    if (pl_s3_uri_is(from)) {
        /* here a signal still ends the process: there is nothing to clean up */
        status = find_object(tool, from, &object, reterr);
    }
    if (status == PL_OK) {
        status = pl_tool_hold_stop(tool, reterr);
    }
    if (status == PL_OK) {
        progress_begin(&progress, stat(from, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0,
                       tool->quiet);
        status = upload_source(tool, from, &object, bucket, full.data, tool->stream_options.budget_bytes, &progress,
                               &lock, reterr);
        progress_end(&progress);
        pl_tool_let_stop(tool);
    }
    pl_s3_info_done(&object);
    return status;
}

struct tree_upload {
    struct pl_tool *tool;
    const char *directory, *bucket, *prefix;
    const struct pl_object_list *files;
    const struct pl_s3_listing *there;
    uint64_t budget_bytes; /* memory budget for one file */
    pthread_mutex_t lock;
    struct progress progress; /* guarded by `lock` */
};

static enum pl_status upload_file(void *context, size_t index, struct pl_error *reterr)
{
    struct tree_upload *tree = context;
    const struct pl_object *file = &tree->files->items[index];
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;
    const struct pl_s3_entry *there;
    struct stat info;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s", tree->directory, file->key));
    PL_TRY(pl_text_set(&key, reterr, "%s%s%s", tree->prefix,
                       *tree->prefix && tree->prefix[strlen(tree->prefix) - 1] != '/' ? "/" : "", file->key));
    there = pl_s3_listing_find(tree->there, key.data);
    if (!tree->tool->again && there && there->size_bytes == file->size_bytes && stat(path.data, &info) == 0 &&
        there->modified_s >= (int64_t)info.st_mtim.tv_sec + (info.st_mtim.tv_nsec > 0)) {
        pthread_mutex_lock(&tree->lock);
        progress_move(&tree->progress, path.data, file->size_bytes);
        pthread_mutex_unlock(&tree->lock);
        return PL_OK;
    }
    return upload_source(tree->tool, path.data, NULL, tree->bucket, key.data, tree->budget_bytes, &tree->progress,
                         &tree->lock, reterr);
}

/*
 * Returns the memory budget of one file of a tree. Small files need only their size; files that are uploaded in parts
 * share the rest.
 */
static uint64_t share_of_budget(uint64_t budget_bytes, const struct pl_object_list *files)
{
    size_t at_a_time = files->count < TOOL_AT_A_TIME ? files->count : TOOL_AT_A_TIME, large = 0;
    uint64_t others_bytes;

    for (size_t i = 0; i < files->count && large < at_a_time; i++) {
        large += files->items[i].size_bytes >= PL_S3_LEAST_PART_BYTES;
    }
    others_bytes = (at_a_time - large) * PL_S3_LEAST_PART_BYTES;
    return large && budget_bytes > others_bytes ? (budget_bytes - others_bytes) / large : PL_S3_LEAST_PART_BYTES;
}

static enum pl_status upload_tree(struct pl_tool *tool, const char *from, const char *uri, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *prefix = NULL;
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_OBJECT_LIST struct pl_object_list files = {.items = NULL};
    PL_AUTO_S3_LISTING struct pl_s3_listing there = {.items = NULL};
    struct tree_upload tree = {
        .tool = tool, .directory = from, .files = &files, .there = &there, .lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t total_bytes = 0;
    enum pl_status status;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &prefix, reterr));
    PL_TRY(pl_store_open_directory(from, true, &store, reterr));
    PL_TRY(pl_store_list(store, pl_deadline_after_ns(tool->timeout_ns), &files, reterr));
    PL_TRY(pl_tool_connect(tool, reterr));
    if (!tool->again) {
        PL_TRY(pl_tool_list(tool, bucket, prefix, &there, reterr));
    }
    tree.bucket = bucket;
    tree.prefix = prefix;
    tree.budget_bytes = share_of_budget(tool->stream_options.budget_bytes, &files);
    for (size_t i = 0; i < files.count; i++) {
        total_bytes += files.items[i].size_bytes;
    }
    PL_TRY(pl_tool_hold_stop(tool, reterr));
    progress_begin(&tree.progress, total_bytes, tool->quiet);
    status = pl_tool_each(files.count, upload_file, &tree, reterr);
    progress_end(&tree.progress);
    pl_tool_let_stop(tool);
    return status;
}

enum pl_status pl_tool_cp(struct pl_tool *tool, struct pl_error *reterr)
{
    const char *from, *to;
    bool is_upload, is_download;

    if (tool->arg_count != 2 || !*tool->args[0] || !*tool->args[1]) {
        return pl_error_set(reterr, PL_INVALID, "expected FROM and TO");
    }
    from = tool->args[0];
    to = tool->args[1];
    is_upload = pl_s3_uri_is(to);
    is_download = pl_s3_uri_is(from);
    if (!is_upload && !is_download) {
        return pl_error_set(reterr, PL_INVALID, "neither '%s' nor '%s' is an s3://BUCKET/KEY address", from, to);
    }
    if (tool->manifest && (is_upload || tool->recursive || strcmp(to, "-") == 0)) {
        return pl_error_set(reterr, PL_INVALID,
                            "--manifest copies an s3:// manifest's objects into a directory, and "
                            "does not go with --recursive");
    }
    if (tool->recursive &&
        ((is_upload && (is_download || !is_directory(from))) || (is_download && strcmp(to, "-") == 0))) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a directory; --recursive needs one",
                            is_upload ? from : to);
    }
    if (is_download && strcmp(to, "-") == 0) {
        tool->arg_count = 1;
        return pl_tool_cat(tool, reterr);
    }
    if (tool->manifest) {
        return download_manifest(tool, from, to, reterr);
    }
    if (is_upload) {
        PL_TRY(pl_s3_headers_add_encryption(&tool->headers, &tool->encryption, reterr));
        return tool->recursive ? upload_tree(tool, from, to, reterr) : upload_one(tool, from, to, reterr);
    }
    return tool->recursive ? download_tree(tool, from, to, reterr) : download_one(tool, from, to, reterr);
}
