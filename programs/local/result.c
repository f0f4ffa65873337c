/* SPDX-License-Identifier: Apache-2.0 */
/* Packs a job's results, prints its end, and writes job.json and the report. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_NS (60 * PL_NS_PER_S) /* how long the report may take, of a log of gigabytes too */

enum { COPY_BYTES = 64 * 1024, REASON_CHARACTERS = 1024 /* SageMaker's limit of FailureReason */ };

/* A package: the folder `part` of each host's tree. */
struct package {
    struct pl_local *local;
    const char *part, *name;
    struct archive *out;
    size_t index;  /* number of the host whose tree is packed now */
    size_t twice;  /* number of its names that earlier hosts have too */
    size_t others; /* number of entries that are no file, folder or link */
    size_t first;  /* number of the host that has the first of these entries */
    struct pl_text first_other;
};

static void free_archive(struct archive **archive)
{
    archive_write_free(*archive);
}

static void free_entry(struct archive_entry **entry)
{
    archive_entry_free(*entry);
}

static enum pl_status raise_archive(struct archive *out, const char *name, struct pl_error *reterr)
{
    const char *words = archive_error_string(out);
    const int code = archive_errno(out);
    char text[64];

    return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_ARCHIVE, code, "cannot pack '%s': %s%s%s", name,
                          words ? words : "libarchive gives no reason", code > 0 ? ": " : "",
                          code > 0 ? strerror_r(code, text, sizeof(text)) : "");
}

static enum pl_status check_stops(struct pl_local *local, struct pl_error *reterr)
{
    const unsigned known = local->stops, stops = pl_local_stops(local);

    if (stops > local->stops_allowed) {
        return pl_error_set(reterr, PL_CANCELLED, "stopped while the results were packed");
    }
    if (stops > known) {
        pl_log(PL_LOG_INFO, "the job has ended, and its results are packed; a second Control-C ends this without them");
    }
    return PL_OK;
}

static enum pl_status pack_data(struct pl_local *local, struct archive *out, const char *path, off_t left,
                                struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    char data[COPY_BYTES];

    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", path);
    }
    while (left > 0) {
        const ssize_t bytes = read(fd, data, left < COPY_BYTES ? (size_t)left : COPY_BYTES);

        PL_TRY(check_stops(local, reterr));
        if (bytes <= 0) {
            return bytes == 0 ? pl_error_set(reterr, PL_FAILED, "'%s' became shorter while it was packed", path)
                              : pl_error_errno(reterr, "read '%s'", path);
        }
        if (archive_write_data(out, data, (size_t)bytes) != bytes) {
            return raise_archive(out, path, reterr);
        }
        left -= bytes;
    }
    return PL_OK;
}

static enum pl_status pack_entry(const struct package *package, const FTSENT *found, const char *name,
                                 struct pl_error *reterr)
{
    __attribute__((cleanup(free_entry))) struct archive_entry *entry = archive_entry_new();
    char link[PATH_MAX];
    ssize_t length;

    PL_TRY(check_stops(package->local, reterr));
    if (!entry) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for an archive");
    }
    archive_entry_copy_stat(entry, found->fts_statp);
    archive_entry_set_pathname(entry, name);
    if (found->fts_info == FTS_SL) {
        length = readlink(found->fts_path, link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        archive_entry_set_symlink(entry, link);
    }
    if (archive_write_header(package->out, entry) != ARCHIVE_OK) {
        return raise_archive(package->out, name, reterr);
    }
    return found->fts_info == FTS_F
               ? pack_data(package->local, package->out, found->fts_path, found->fts_statp->st_size, reterr)
               : PL_OK;
}

/* Whether an earlier host has packed the name. `ret_info` gets that host's entry. */
static bool is_packed(const struct package *package, const char *name, struct stat *ret_info)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    for (size_t i = 0; i < package->index; i++) {
        if (pl_local_path(package->local, &path, NULL, "%s/%s/%s", package->local->hosts[i].name, package->part,
                          name) == PL_OK &&
            lstat(path.data, ret_info) == 0 &&
            (S_ISREG(ret_info->st_mode) || S_ISDIR(ret_info->st_mode) || S_ISLNK(ret_info->st_mode))) {
            return true;
        }
    }
    return false;
}

/* Packs an entry that a walk has found as `name`, unless an earlier host has it. */
static enum pl_status take(struct package *package, const FTSENT *found, const char *name, struct pl_error *reterr)
{
    struct stat earlier;

    switch (found->fts_info) {
    case FTS_DP:
        return PL_OK;
    case FTS_D:
    case FTS_F:
    case FTS_SL:
        break;
    case FTS_DEFAULT:
        if (package->others++ == 0) {
            package->first = package->index;
            pl_text_append(&package->first_other, name);
        }
        return PL_OK;
    default:
        errno = found->fts_errno;
        return pl_error_errno(reterr, "read '%s'", found->fts_path);
    }
    if (!is_packed(package, name, &earlier)) {
        return pack_entry(package, found, name, reterr);
    }
    if (!(found->fts_info == FTS_D && S_ISDIR(earlier.st_mode)) && package->twice++ == 0) {
        pl_log(PL_LOG_WARNING, "%s: '%s' of %s exists on an earlier host too, and SageMaker keeps one of them",
               package->part, name, package->local->hosts[package->index].name);
    }
    return PL_OK;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void close_walk(FTS **walk_at)
{
    if (*walk_at) {
        fts_close(*walk_at);
    }
}

static enum pl_status pack_host(struct package *package, struct pl_error *reterr)
{
    const char *host = package->local->hosts[package->index].name;
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    __attribute__((cleanup(close_walk))) FTS *walk = NULL;

    package->twice = 0;
    PL_TRY(pl_local_path(package->local, &folder, reterr, "%s/%s", host, package->part));
    if (access(folder.data, F_OK) != 0) {
        pl_log(PL_LOG_WARNING, "%s has no folder '%s' at the end of the job", host, package->part);
        return PL_OK;
    }
    walk = fts_open((char *const[]){folder.data, NULL}, FTS_NOCHDIR | FTS_COMFOLLOW | FTS_PHYSICAL, by_name);
    if (!walk) {
        return pl_error_errno(reterr, "open the folder '%s'", folder.data);
    }
    errno = 0;
    for (const FTSENT *found; (found = fts_read(walk)); errno = 0) {
        if (found->fts_level > 0) {
            PL_TRY(take(package, found, found->fts_path + folder.length + 1, reterr));
        }
    }
    return errno == 0 ? PL_OK : pl_error_errno(reterr, "read '%s'", folder.data);
}

static enum pl_status pack_hosts(struct package *package, const char *path, struct pl_error *reterr)
{
    if (archive_write_add_filter_gzip(package->out) != ARCHIVE_OK ||
        archive_write_set_format_gnutar(package->out) != ARCHIVE_OK ||
        archive_write_open_filename(package->out, path) != ARCHIVE_OK) {
        return raise_archive(package->out, package->name, reterr);
    }
    for (; package->index < package->local->job->hosts; package->index++) {
        PL_TRY(pack_host(package, reterr));
    }
    return archive_write_close(package->out) == ARCHIVE_OK ? PL_OK : raise_archive(package->out, package->name, reterr);
}

static enum pl_status pack(struct pl_local *local, const char *part, const char *name, struct pl_error *reterr)
{
    __attribute__((cleanup(free_archive))) struct archive *out = archive_write_new();
    struct package package = {.local = local, .part = part, .name = name, .out = out, .first_other = PL_TEXT_NONE};
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    PL_TRY(pl_local_path(local, &path, reterr, "%s", name));
    status =
        out ? pack_hosts(&package, path.data, reterr) : pl_error_set(reterr, PL_MEMORY, "no memory for an archive");
    if (package.others > 0) {
        pl_log(PL_LOG_WARNING,
               "%s: FIFOs, sockets and devices are not packed: %zu of them %s left out, the first one: '%s/%s' of %s",
               name, package.others, package.others == 1 ? "is" : "are", part, pl_text_string(&package.first_other),
               local->hosts[package.first].name);
    }
    pl_text_done(&package.first_other);
    if (status != PL_OK && out) {
        archive_write_fail(out); /* else its end would be filled with zeros, up to the size of the file */
        unlink(path.data);       /* an incomplete archive must not look complete */
    }
    return status;
}

enum pl_status pl_local_result_pack(struct pl_local *local, struct pl_error *reterr)
{
    enum pl_status status;

    local->stops_allowed = pl_local_stops_allowed(local);
    status = pack(local, "model", "model.tar.gz", reterr);
    status = status == PL_OK ? pack(local, "output/data", "output.tar.gz", reterr) : status;
    local->packed_ns = pl_clock_now_ns();
    if (status != PL_OK && reterr) {
        snprintf(local->unpacked, sizeof(local->unpacked), "%s", reterr->cause);
        local->keep = local->keep || status != PL_CANCELLED; /* nothing else has the model */
    }
    return status;
}

static double seconds(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) / (double)PL_NS_PER_S;
}

/* Returns the bytes of the characters that SageMaker keeps. A byte that is not a part of UTF-8 counts as one. */
static size_t reason_bytes(const char *text, const char *end)
{
    const char *at = text;

    for (int i = 0; i < REASON_CHARACTERS && at < end; i++) {
        const size_t bytes = pl_text_character_bytes(at, end);

        at += bytes > 0 ? bytes : 1;
    }
    return (size_t)(at - text);
}

/* Appends SageMaker's reason for data that it cannot download, or for results that it cannot upload. */
static const struct pl_local_host *client_reason(const struct pl_local *local, struct pl_text *reason)
{
    if (local->end == PL_LOCAL_UNFED) {
        pl_text_printf(reason, "ClientError: Data download failed: %s", local->unfed);
        return reason->failed ? NULL : &local->hosts[local->unfed_host];
    }
    pl_text_printf(reason, "ClientError: Artifact upload failed: %s", local->unpacked);
    return reason->failed ? NULL : &local->hosts[0];
}

/* Returns Completed, Failed, Stopped or Interrupted (a spot stop without a second run). */
static const char *status_of(const struct pl_local *local)
{
    const struct pl_local_host *failed;

    switch (local->end) {
    case PL_LOCAL_STOP:
    case PL_LOCAL_LIMIT:
        return "Stopped";
    case PL_LOCAL_SPOT:
        return "Interrupted";
    default:
        return pl_local_run_code(local, &failed) == 0 && *local->unpacked == '\0' ? "Completed" : "Failed";
    }
}

/* Appends the FailureReason as SageMaker cuts it; nothing if the job did not fail. Returns the host that caused it. */
static const struct pl_local_host *reason_of(const struct pl_local *local, struct pl_text *reason)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *failure = NULL;
    const struct pl_local_host *host;
    size_t bytes = 0;

    pl_local_run_code(local, &host);
    if (strcmp(status_of(local), "Failed") != 0) {
        return NULL;
    }
    if (!host || local->end == PL_LOCAL_UNFED) {
        return client_reason(local, reason);
    }
    pl_text_append(reason, "AlgorithmError: ");
    if (pl_local_path(local, &path, NULL, "%s/output/failure", host->name) == PL_OK &&
        pl_file_read(path.data, PL_LOCAL_MOST_FAILURE_BYTES, &failure, &bytes, NULL) == PL_OK) {
        while (bytes > 0 && (failure[bytes - 1] == '\n' || failure[bytes - 1] == ' ')) {
            bytes--;
        }
        pl_text_append_n(reason, failure, bytes);
        pl_text_append(reason, ", ");
    }
    pl_text_printf(reason, "exit code: %d", host->code);
    if (reason->failed) {
        return NULL;
    }
    reason->length = reason_bytes(reason->data, reason->data + reason->length);
    reason->data[reason->length] = '\0';
    pl_text_mask(reason->data, reason->length);
    return host;
}

static void print_archive(const struct pl_local *local, const char *what, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info;

    if (pl_local_path(local, &path, NULL, "%s", name) == PL_OK && stat(path.data, &info) == 0) {
        const double bytes = (double)info.st_size;

        if (bytes < 1e3) {
            printf("%s: %s (%.0f bytes)\n", what, path.data, bytes);
        } else {
            printf("%s: %s (%.1f %s)\n", what, path.data, bytes < 1e6 ? bytes / 1e3 : bytes / 1e6,
                   bytes < 1e6 ? "kB" : "MB");
        }
    }
}

void pl_local_result_say_stop(const struct pl_local *local)
{
    const double taken_s = seconds(local->stopped_ns, local->ended_ns);
    size_t killed = 0;

    if (local->end != PL_LOCAL_STOP && local->end != PL_LOCAL_SPOT && local->end != PL_LOCAL_LIMIT) {
        return;
    }
    for (size_t i = 0; i < local->job->hosts; i++) {
        killed += local->hosts[i].killed;
    }
    if (killed > 0) {
        pl_log(PL_LOG_WARNING,
               "stop: %zu of %zu hosts were killed %.1f s after SIGTERM: what they had not saved is lost", killed,
               local->job->hosts, taken_s);
    } else {
        pl_log(PL_LOG_INFO, "stop: every host ended by itself, the last one %.1f s after SIGTERM", taken_s);
    }
}

void pl_local_result_print(const struct pl_local *local)
{
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE, path = PL_TEXT_NONE;
    const struct pl_local_host *failed = reason_of(local, &reason);

    printf("\nStatus: %s%s\n", status_of(local), local->end == PL_LOCAL_LIMIT ? " (MaxRuntimeExceeded)" : "");
    if (failed) {
        printf("FailureReason (%s): %s\n", failed->name, reason.data);
    }
    printf("Seconds: preparation %.1f, program %.1f, end %.1f\n", seconds(local->begin_ns, local->run_ns),
           seconds(local->run_ns, local->ended_ns), seconds(local->ended_ns, local->packed_ns));
    fflush(stdout);
    pl_local_metrics_print(local->metrics, stdout);
    print_archive(local, "Model", "model.tar.gz");
    print_archive(local, "Output", "output.tar.gz");
    if (pl_local_path(local, &path, NULL, "report.html") == PL_OK && access(path.data, F_OK) == 0) {
        printf("Report: %s\n", path.data);
    }
    printf("Logs: %s/algo-*.log\n", local->folder);
    if (local->keep) {
        printf("Trees: %s/algo-*\n", local->folder);
    }
    fflush(stdout);
}

/* ---- job.json and the report ---- */

static void write_pairs(struct pl_json_writer *writer, const char *name, const struct pl_local_pairs *pairs)
{
    pl_json_write_object(writer, name);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct pl_local_pair *pair = &pairs->items[i];

        pl_json_write_text(writer, pair->name, pl_secrets_is_name(pair->name) ? "***" : pair->value);
    }
    pl_json_write_close(writer);
}

static void write_seconds(struct pl_json_writer *writer, const char *name, int64_t from_ns, int64_t to_ns)
{
    pl_json_write_double(writer, name, (double)((to_ns - from_ns) / PL_NS_PER_MS) / 1e3);
}

/* Writes the time of the wall clock at the moment `monotonic_ns`, as the AWS command line prints times. */
static void write_time(struct pl_json_writer *writer, const char *name, int64_t monotonic_ns)
{
    const time_t at = time(NULL) - (time_t)((pl_clock_now_ns() - monotonic_ns) / PL_NS_PER_S);
    struct tm utc;
    char text[32];

    if (gmtime_r(&at, &utc) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S+00:00", &utc) > 0) {
        pl_json_write_text(writer, name, text);
    }
}

static enum pl_status write_job(const struct pl_local *local, struct pl_error *reterr)
{
    const struct pl_local_job *job = local->job;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE, reason = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);

    writer.lines = true;
    pl_json_write_object(&writer, NULL);
    pl_json_write_text(&writer, "TrainingJobName", job->name);
    pl_json_write_text(&writer, "TrainingJobStatus", status_of(local));
    pl_json_write_text(&writer, "SecondaryStatus",
                       local->end == PL_LOCAL_LIMIT ? "MaxRuntimeExceeded" : status_of(local));
    if (reason_of(local, &reason)) {
        pl_json_write_text(&writer, "FailureReason", reason.data);
    }
    pl_json_write_object(&writer, "ResourceConfig");
    pl_json_write_int64(&writer, "InstanceCount", (int64_t)job->hosts);
    pl_json_write_close(&writer);
    write_time(&writer, "CreationTime", local->begin_ns);
    write_time(&writer, "TrainingStartTime", local->run_ns);
    write_time(&writer, "TrainingEndTime", local->packed_ns > 0 ? local->packed_ns : local->ended_ns);
    pl_json_write_object(&writer, "seconds");
    write_seconds(&writer, "preparation", local->begin_ns, local->run_ns);
    write_seconds(&writer, "program", local->run_ns, local->ended_ns);
    write_seconds(&writer, "end", local->ended_ns, local->packed_ns);
    pl_json_write_close(&writer);
    pl_json_write_list(&writer, "MetricDefinitions");
    for (size_t i = 0; i < job->metrics.count; i++) {
        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "Name", job->metrics.items[i].name);
        pl_json_write_text(&writer, "Regex", job->metrics.items[i].value);
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    write_pairs(&writer, "HyperParameters", &job->hyperparameters);
    write_pairs(&writer, "Environment", &job->environment);
    pl_json_write_close(&writer);
    PL_TRY(pl_local_path(local, &path, reterr, "job.json"));
    return pl_json_write_file(&writer, path.data, PL_LOCAL_FILE_MODE, reterr);
}

void pl_local_result_write(struct pl_local *local)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].log) {
            fflush(local->hosts[i].log);
        }
    }
    status = write_job(local, &error);
    if (status == PL_OK) {
        status = pl_local_run_program(local, (const char *const[]){local->paceline, "report", local->folder, NULL},
                                      NULL, local->stops_allowed, pl_deadline_after_ns(PAGE_NS),
                                      "`paceline report` wrote its page", &error);
    }
    if (status != PL_OK) {
        char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

        pl_log(PL_LOG_WARNING, "cannot write the report: %s", pl_error_text(&error, text, sizeof(text)));
    }
}
