/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a job's channels: links, folders, and FIFOs with their feeders. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_get.h"
#include "s3io/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIFO_NS (310 * PL_NS_PER_S) /* the feeder itself gives a list 300 s */
#define NAP_NS (2 * PL_NS_PER_MS)

enum { FIFO_MODE = 0600, MOST_MANIFEST_BYTES = 256 << 20 };

/* Whether the host `index` gets the channel. */
static bool has(const struct pl_local *local, size_t index, const struct pl_local_channel *channel)
{
    return pl_local_channel_is_of(channel, local->hosts[index].group);
}

static bool is_remote(const struct pl_local_channel *channel)
{
    return strncmp(channel->from, "s3://", 5) == 0;
}

static enum pl_status check_fifos(const struct pl_local *local, const char *channel, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &path, reterr, "fifo"));
    unlink(path.data);
    if (mkfifo(path.data, FIFO_MODE) != 0) {
        return pl_error_errno(reterr, "make a FIFO in '%s', which Pipe mode of the channel '%s' needs", local->folder,
                              channel);
    }
    unlink(path.data);
    return PL_OK;
}

/* Whether the channel is a copy of data on S3. The job may change its own copy, as on SageMaker. */
static bool is_fetched(const struct pl_local_channel *channel)
{
    return is_remote(channel) && channel->mode != PL_LOCAL_PIPE; /* the feeder reads S3 by itself */
}

/* Whether hosts see the channel as links to some of its files: a shard, or those that a manifest names. */
static bool is_linked(const struct pl_local_channel *channel)
{
    return channel->sharded || channel->manifest;
}

/* Checks that the folder has the file, and that the name does not lead out of the folder. */
static enum pl_status check_name(const char *manifest, const char *folder, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info;

    if (pl_s3_local_path(folder, name, &path, reterr) != PL_OK) {
        pl_error_context(reterr, "the manifest '%s'", manifest);
        return PL_INVALID;
    }
    return stat(path.data, &info) == 0 && S_ISREG(info.st_mode)
               ? PL_OK
               : pl_error_set(reterr, PL_NOT_FOUND, "the manifest '%s' names '%s', and '%s' has no such file", manifest,
                              name, folder);
}

/* Adds the names of a ManifestFile of this machine, sorted, each once. `folder` stands for its prefix. */
static enum pl_status read_manifest(const char *path, const char *folder, struct pl_object_list *files,
                                    struct pl_error *reterr)
{
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, MOST_MANIFEST_BYTES, &text, &bytes, reterr));
    PL_TRY(pl_manifest_parse(text, bytes, path, &manifest, reterr));
    pl_manifest_sort(&manifest);
    for (size_t i = 0; i < manifest.count; i++) {
        PL_TRY(check_name(path, folder, manifest.keys[i], reterr));
        PL_TRY(pl_object_list_add(files, manifest.keys[i], strlen(manifest.keys[i]), 0, reterr));
    }
    return PL_OK;
}

/* Lists the files of a linked channel, for all its hosts together. */
static enum pl_status list_files(const struct pl_local_channel *channel, const char *folder,
                                 struct pl_object_list *files, struct pl_error *reterr)
{
    PL_AUTO_STORE struct pl_store *store = NULL;

    if (channel->manifest) {
        return read_manifest(channel->manifest, folder, files, reterr);
    }
    PL_TRY(pl_store_open_directory(folder, true, &store, reterr));
    return pl_store_list(store, PL_DEADLINE_NEVER, files, reterr);
}

static enum pl_status check_one(const struct pl_local *local, const struct pl_local_channel *channel, char **ret_source,
                                struct pl_error *reterr)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list named = {.items = NULL};
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    struct stat info;

    if (channel->mode == PL_LOCAL_PIPE) {
        PL_TRY(check_fifos(local, channel->name, reterr));
    }
    if (is_remote(channel) && channel->manifest) {
        return pl_error_set(reterr, PL_INVALID,
                            "channel '%s': the manifest '%s' needs a folder on this machine, and '%s' is in S3",
                            channel->name, channel->manifest, channel->from);
    }
    if (is_fetched(channel)) {
        PL_TRY(pl_local_path(local, &folder, reterr, "input/%s", channel->name));
        return pl_text_take(&folder, ret_source, reterr);
    }
    if (is_remote(channel)) {
        *ret_source = pl_memory_string(channel->from, reterr);
        return *ret_source ? PL_OK : PL_MEMORY;
    }
    if (channel->kind == PL_LOCAL_FROM_AUGMENTED) {
        return pl_error_set(reterr, PL_INVALID,
                            "channel '%s': an augmented manifest is an object on S3, s3://BUCKET/KEY, found '%s'",
                            channel->name, channel->from);
    }
    *ret_source = realpath(channel->from, NULL);
    if (!*ret_source && (errno == ENOENT || errno == ENOTDIR)) {
        return pl_error_set(reterr, PL_NOT_FOUND, "channel '%s': there is no folder '%s'%s", channel->name,
                            channel->from,
                            strchr(channel->from, ':') ? "; the words after a colon are pipe, fastfile, sharded, "
                                                         "recordio, shuffle=SEED, manifest=FILE and augmented=NAMES"
                                                       : "");
    }
    if (!*ret_source || stat(*ret_source, &info) != 0) {
        return pl_error_errno(reterr, "find '%s' of the channel '%s'", channel->from, channel->name);
    }
    if (!S_ISDIR(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s': '%s' is not a folder", channel->name, channel->from);
    }
    if (channel->manifest && read_manifest(channel->manifest, *ret_source, &named, reterr) != PL_OK) {
        pl_error_context(reterr, "channel '%s'", channel->name);
        return PL_INVALID;
    }
    return PL_OK;
}

enum pl_status pl_local_channels_check(struct pl_local *local, struct pl_error *reterr)
{
    PL_TRY(pl_memory_alloc(&local->sources, local->job->channel_count + 1, sizeof(*local->sources), reterr));
    for (size_t i = 0; i < local->job->channel_count; i++) {
        PL_TRY(check_one(local, &local->job->channels[i], &local->sources[i], reterr));
    }
    return PL_OK;
}

/* Fetches a channel; the program limits its own waits. */
static enum pl_status fetch(struct pl_local *local, const struct pl_local_channel *channel, const char *to,
                            struct pl_error *reterr)
{
    const char *what = channel->kind == PL_LOCAL_FROM_MANIFEST ? "--manifest" : "--recursive";
    PL_AUTO_TEXT struct pl_text doing = PL_TEXT_NONE;
    enum pl_status status;

    PL_TRY(pl_text_set(&doing, reterr, "the channel '%s' was fetched", channel->name));
    PL_TRY(pl_file_make_dirs(to, PL_LOCAL_FOLDER_MODE, reterr));
    status =
        pl_local_run_program(local, (const char *const[]){local->paceline, "s3", "cp", what, channel->from, to, NULL},
                             NULL, 0, PL_DEADLINE_NEVER, doing.data, reterr);
    return status != PL_FAILED
               ? status
               : pl_error_set(reterr, PL_FAILED, "channel '%s' cannot be fetched, see above", channel->name);
}

static enum pl_status link_one(const char *from, const char *folder, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text target = PL_TEXT_NONE, place = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&target, reterr, "%s/%s", from, name));
    PL_TRY(pl_text_set(&place, reterr, "%s/%s", folder, name));
    PL_TRY(pl_file_make_parents(place.data, PL_LOCAL_FOLDER_MODE, reterr));
    return symlink(target.data, place.data) == 0 ? PL_OK : pl_error_errno(reterr, "make the link '%s'", place.data);
}

/* Makes links below `place` to each `count`-th file of the channel from number `first` on; `from` is the folder as the
 * host sees it. */
static enum pl_status link_files(const struct pl_local_channel *channel, const char *folder, const char *from,
                                 const char *place, size_t first, size_t count, struct pl_error *reterr)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list files = {.items = NULL};

    PL_TRY(list_files(channel, folder, &files, reterr));
    for (size_t i = first; i < files.count; i += count) {
        PL_TRY(link_one(from, place, files.items[i].key, reterr));
    }
    return PL_OK;
}

/* Feeders, which run on the machine, read a folder of links instead of a manifest. */
static enum pl_status link_for_feeders(const struct pl_local *local, const struct pl_local_channel *channel,
                                       char **source_at, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &folder, reterr, "input/%s", channel->name));
    pl_file_remove_tree(folder.data);
    PL_TRY(link_files(channel, *source_at, *source_at, folder.data, 0, 1, reterr));
    free(*source_at);
    *source_at = NULL;
    return pl_text_take(&folder, source_at, reterr);
}

/* The objects below s3://BUCKET/a/b are fetched as b/..., because the prefix may match a/bc too. If all objects are
 * below a/b/, SageMaker's channel has them without b/: then changes the source to the inner folder. */
static enum pl_status enter_prefix(const struct pl_local_channel *channel, char **source_at, struct pl_error *reterr)
{
    const char *key = strchr(channel->from + sizeof("s3://") - 1, '/'), *name = key ? strrchr(key, '/') + 1 : "";
    PL_AUTO_DIRECTORY DIR *directory = opendir(*source_at);
    PL_AUTO_TEXT struct pl_text inner = PL_TEXT_NONE;
    const struct dirent *entry;
    struct stat info;

    if (!directory) {
        return pl_error_errno(reterr, "read '%s'", *source_at);
    }
    while ((entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, name) != 0) {
            return PL_OK;
        }
    }
    PL_TRY(pl_text_set(&inner, reterr, "%s/%s", *source_at, name));
    if (*name == '\0' || lstat(inner.data, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return PL_OK; /* the prefix ends with a slash, or is an object's whole key */
    }
    free(*source_at);
    *source_at = NULL;
    return pl_text_take(&inner, source_at, reterr);
}

enum pl_status pl_local_channels_fetch(struct pl_local *local, struct pl_error *reterr)
{
    for (size_t i = 0; i < local->job->channel_count; i++) {
        const struct pl_local_channel *channel = &local->job->channels[i];
        enum pl_status status;

        if (channel->manifest && channel->mode == PL_LOCAL_PIPE) {
            PL_TRY(link_for_feeders(local, channel, &local->sources[i], reterr));
        }
        if (!is_fetched(channel)) {
            continue;
        }
        status = fetch(local, channel, local->sources[i], reterr);
        if (status != PL_OK) {
            pl_file_remove_tree(local->sources[i]); /* an incomplete copy must not look complete */
            return status;
        }
        if (channel->kind != PL_LOCAL_FROM_MANIFEST) {
            PL_TRY(enter_prefix(channel, &local->sources[i], reterr));
        }
    }
    return PL_OK;
}

/* Counts the hosts that have the channel, and tells which of them the host `index` is. */
static void count_hosts(const struct pl_local *local, const struct pl_local_channel *channel, size_t index,
                        size_t *ret_rank, size_t *ret_count)
{
    *ret_rank = *ret_count = 0;
    for (size_t i = 0; i < local->job->hosts; i++) {
        const bool is_there = has(local, i, channel);

        *ret_rank += is_there && i < index;
        *ret_count += is_there;
    }
}

enum pl_status pl_local_channels_show(const struct pl_local *local, size_t index, pl_local_show *show, void *context,
                                      struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(show(context, local->hosts[index].tree, "/opt/ml", false, reterr));
    if (local->has_code) {
        PL_TRY(show(context, local->cwd, "/opt/ml/code", false, reterr));
    }
    for (size_t i = 0; i < local->job->channel_count; i++) {
        const struct pl_local_channel *channel = &local->job->channels[i];

        if (channel->mode != PL_LOCAL_PIPE && has(local, index, channel)) { /* FIFOs are the feeder's */
            PL_TRY(pl_text_set(&text, reterr, "%s/%s", is_linked(channel) ? PL_LOCAL_SHARDED : "/opt/ml/input/data",
                               channel->name));
            PL_TRY(show(context, local->sources[i], text.data, !is_fetched(channel), reterr));
        }
    }
    /* all hosts and runs of this name share the checkpoints */
    PL_TRY(pl_local_path(local, &text, reterr, "checkpoints"));
    return local->job->checkpoint_path ? show(context, text.data, local->job->checkpoint_path, false, reterr) : PL_OK;
}

/* Makes a link in the tree of a plain host. For a channel of links it leads to the folder of the files. */
static enum pl_status show_plain(void *context, const char *from, const char *to, bool read_only,
                                 struct pl_error *reterr)
{
    static const char base[] = "/opt/ml/";
    const struct pl_local_host *host = context;
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;

    (void)read_only;
    if (strncmp(to, base, sizeof(base) - 1) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_text_set(&place, reterr, "%s/%s", host->tree, to + sizeof(base) - 1));
    return symlink(from, place.data) == 0 ? PL_OK : pl_error_errno(reterr, "make the link '%s'", place.data);
}

/* Makes the folder of a channel, which is filled with links, or covered by a mount. */
static enum pl_status lay_out(const struct pl_local *local, size_t number, size_t index, struct pl_error *reterr)
{
    const struct pl_local_channel *channel = &local->job->channels[number];
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE, from = PL_TEXT_NONE;
    const char *folder = local->sources[number];
    size_t rank = 0, count = 1;

    if (channel->mode == PL_LOCAL_PIPE || (local->kind == PL_LOCAL_PLAIN && !is_linked(channel))) {
        return PL_OK;
    }
    PL_TRY(pl_local_path(local, &place, reterr, "%s/input/data/%s", local->hosts[index].name, channel->name));
    PL_TRY(pl_file_make_dirs(place.data, PL_LOCAL_FOLDER_MODE, reterr));
    if (!is_linked(channel)) {
        return PL_OK;
    }
    if (channel->sharded) {
        count_hosts(local, channel, index, &rank, &count);
    }
    PL_TRY(pl_text_set(&from, reterr, PL_LOCAL_SHARDED "/%s", channel->name));
    return link_files(channel, folder, local->kind == PL_LOCAL_PLAIN ? folder : from.data, place.data, rank, count,
                      reterr);
}

enum pl_status pl_local_channels_lay_out(struct pl_local *local, struct pl_error *reterr)
{
    for (size_t i = 0; i < local->job->hosts; i++) {
        for (size_t j = 0; j < local->job->channel_count; j++) {
            if (has(local, i, &local->job->channels[j])) {
                PL_TRY(lay_out(local, j, i, reterr));
            }
        }
    }
    return local->kind == PL_LOCAL_PLAIN ? pl_local_channels_show(local, 0, show_plain, &local->hosts[0], reterr)
                                         : PL_OK;
}

/* Waits for the first epoch's FIFO: SageMaker makes it before the program starts. */
static enum pl_status await_fifo(struct pl_local *local, pid_t feeder, const char *channel, const char *place,
                                 struct pl_error *reterr)
{
    const int64_t deadline_ns = pl_deadline_after_ns(FIFO_NS);
    PL_AUTO_TEXT struct pl_text fifo = PL_TEXT_NONE;
    siginfo_t ended = {.si_pid = 0};

    PL_TRY(pl_text_set(&fifo, reterr, "%s_0", place));
    while (access(fifo.data, F_OK) != 0) {
        if (waitid(P_PID, (id_t)feeder, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0) {
            return pl_error_set(reterr, PL_FAILED, "channel '%s' cannot be fed, see above", channel);
        }
        if (pl_local_stops(local) > 0) {
            return pl_error_set(reterr, PL_CANCELLED, "stopped before the channel '%s' had its FIFO", channel);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "channel '%s': no FIFO '%s' after %d s", channel, fifo.data,
                                (int)(FIFO_NS / PL_NS_PER_S));
        }
        pl_clock_nap(NAP_NS, deadline_ns);
    }
    return PL_OK;
}

static enum pl_status feed(struct pl_local *local, size_t number, size_t index, int reasons_fd, struct pl_error *reterr)
{
    const struct pl_local_channel *channel = &local->job->channels[number];
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    size_t rank, hosts;

    pl_strv_add(&words, local->paceline, "feed", "--failure", "--quiet");
    if (channel->kind == PL_LOCAL_FROM_MANIFEST && !channel->manifest) {
        pl_strv_add(&words, "--manifest");
    } else if (channel->kind == PL_LOCAL_FROM_AUGMENTED) {
        pl_strv_add(&words, "--augmented", channel->attributes);
    }
    if (channel->recordio && channel->kind != PL_LOCAL_FROM_AUGMENTED) { /* augmented ones are wrapped anyway */
        pl_strv_add(&words, "--recordio");
    }
    if (channel->is_gzip) {
        pl_strv_add(&words, "--decompress");
    }
    if (channel->is_shuffled) {
        pl_strv_printf(&words, "--shuffle=%" PRIu64, channel->shuffle_seed);
    }
    if (channel->sharded) {
        count_hosts(local, channel, index, &rank, &hosts);
        pl_strv_printf(&words, "--shard=%zu/%zu", rank, hosts);
    }
    PL_TRY(pl_local_path(local, &place, reterr, "%s/input/data/%s", local->hosts[index].name, channel->name));
    pl_strv_add(&words, local->sources[number], place.data);
    PL_TRY(pl_strv_check(&words, reterr));
    PL_TRY(pl_local_spawn(local, (const char *const *)words.items, pl_environment_strings(local->environment), NULL,
                          reasons_fd, -1, &local->feeds[local->feed_count],
                          reterr)); /* at SIGTERM it removes its FIFOs */
    local->fed[local->feed_count++] = (struct pl_local_fed){.channel = channel->name, .host = index};
    return await_fifo(local, local->feeds[local->feed_count - 1], channel->name, place.data, reterr);
}

enum pl_status pl_local_channels_feed(struct pl_local *local, struct pl_error *reterr)
{
    const size_t most = local->job->hosts * local->job->channel_count + 1;
    PL_AUTO_CLOSE int reasons_fd = -1;
    int fds[2];

    free(local->feeds);
    free(local->fed);
    local->feed_count = 0;
    *local->unfed = '\0';
    local->feeds = pl_memory_new(most, sizeof(*local->feeds), reterr);
    local->fed = pl_memory_new(most, sizeof(*local->fed), reterr);
    PL_TRY(local->feeds && local->fed ? PL_OK : PL_MEMORY);
    pl_file_close_at(&local->reasons_fd);
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make the pipe of the feeders");
    }
    local->reasons_fd = fds[0];
    reasons_fd = fds[1];
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < local->job->hosts; i++) {
        for (size_t j = 0; j < local->job->channel_count; j++) {
            const struct pl_local_channel *channel = &local->job->channels[j];

            if (channel->mode == PL_LOCAL_PIPE && has(local, i, channel)) {
                PL_TRY(feed(local, j, i, reasons_fd, reterr));
            }
        }
    }
    return PL_OK;
}

/* Sets `local->unfed`, unless it has a reason already. */
static void PL_PRINTF(3, 4) set_unfed(struct pl_local *local, size_t feeder, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list arguments;

    if (*local->unfed != '\0') {
        return;
    }
    pl_text_printf(&text, "channel '%s': ", local->fed[feeder].channel);
    va_start(arguments, format);
    pl_text_vprintf(&text, format, arguments);
    va_end(arguments);
    snprintf(local->unfed, sizeof(local->unfed), "%s", pl_text_string(&text));
    local->unfed_host = local->fed[feeder].host;
}

/* Takes a line of a feeder: the path of a channel, a colon, and the reason. */
static void take_reason(struct pl_local *local, const char *line)
{
    for (size_t i = 0; i < local->feed_count; i++) {
        PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;

        if (pl_local_path(local, &place, NULL, "%s/input/data/%s: ", local->hosts[local->fed[i].host].name,
                          local->fed[i].channel) == PL_OK &&
            strncmp(line, place.data, place.length) == 0) {
            set_unfed(local, i, "%s", line + place.length);
        }
    }
}

void pl_local_channels_read_reasons(struct pl_local *local)
{
    char lines[PIPE_BUF + 1];
    ssize_t bytes;

    while ((bytes = read(local->reasons_fd, lines, PIPE_BUF)) > 0) {
        char *rest = NULL;

        lines[bytes] = '\0';
        for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            take_reason(local, line);
        }
    }
    if (bytes == 0) { /* all feeders have ended */
        pl_file_close_at(&local->reasons_fd);
    }
}

void pl_local_channels_ended(struct pl_local *local, size_t index, int wait_status)
{
    bool is_signal;
    const int code = pl_process_status_code(wait_status, &is_signal);

    pl_local_channels_read_reasons(local);
    if (code != 0) {
        set_unfed(local, index, "its feeder ended with %s %d", is_signal ? "signal" : "exit code", code);
    }
    local->feed_count--;
    local->feeds[index] = local->feeds[local->feed_count];
    local->fed[index] = local->fed[local->feed_count];
}
