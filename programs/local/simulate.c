/* SPDX-License-Identifier: Apache-2.0 */
/* Simulations: switches hosts off, cuts their network, and tells what the job made of that, and of a spot stop. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "s3io/store_private.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_SECONDS = 10 * 86400, MOST_REASON_BYTES = 300 };

enum pl_status pl_local_simulate_seconds(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    PL_AUTO_FREE char *digits = pl_memory_string(text, reterr);
    const size_t length = strlen(text);
    double seconds;

    PL_TRY(digits ? PL_OK : PL_MEMORY);
    if (length > 1 && digits[length - 1] == 's') {
        digits[length - 1] = '\0';
    }
    PL_TRY(pl_options_real(name, digits, 0.001, MOST_SECONDS, &seconds, reterr));
    *(uint64_t *)field = (uint64_t)(seconds * (double)PL_NS_PER_S);
    return PL_OK;
}

enum pl_status pl_local_simulate_read(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    const bool has_length = strcmp(name, "cut") == 0;
    PL_AUTO_FREE char *words = pl_memory_string(text, reterr);
    struct pl_local_outage outage = {.number = 0};
    char *at, *comma, *end = NULL;
    unsigned long number;

    PL_TRY(words ? PL_OK : PL_MEMORY);
    at = strchr(words, '@');
    comma = at ? strchr(at, ',') : NULL;
    number = strncmp(words, "algo-", 5) == 0 && words[5] >= '1' && words[5] <= '9' ? strtoul(words + 5, &end, 10) : 0;
    if (number == 0 || number > PL_LOCAL_MOST_HOSTS || !at || end != at || has_length == !comma) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a host and a time such as algo-2@30s%s", name,
                            text, has_length ? ",5s" : "");
    }
    if (comma) {
        *comma = '\0';
        PL_TRY(pl_local_simulate_seconds(name, comma + 1, &outage.length_ns, reterr));
    }
    PL_TRY(pl_local_simulate_seconds(name, at + 1, &outage.after_ns, reterr));
    outage.number = (unsigned)number;
    *(struct pl_local_outage *)field = outage;
    return PL_OK;
}

static enum pl_status check(const struct pl_local *local, const char *name, const struct pl_local_outage *outage,
                            struct pl_error *reterr)
{
    if (outage->number == 0) {
        return PL_OK;
    }
    if (outage->number > local->job->hosts) {
        return pl_error_set(reterr, PL_INVALID, "--%s names algo-%u, and the job has %zu host%s", name, outage->number,
                            local->job->hosts, local->job->hosts == 1 ? "" : "s");
    }
    return local->kind == PL_LOCAL_PLAIN
               ? pl_error_set(reterr, PL_INVALID, "--%s is not for a plain host, and this job has one", name)
               : PL_OK;
}

enum pl_status pl_local_simulate_check(const struct pl_local *local, struct pl_error *reterr)
{
    PL_TRY(check(local, "lose", &local->lose, reterr));
    PL_TRY(check(local, "cut", &local->cut, reterr));
    if (local->cut.number > 0 && local->kind == PL_LOCAL_CONTAINERS) {
        return pl_error_set(reterr, PL_INVALID, "--cut needs hosts in namespaces, and --image has containers");
    }
    return local->cut.number == 0 || local->job->hosts > 1
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "--cut needs two hosts: a single one has no network to cut");
}

static struct pl_local_host *host_of(struct pl_local *local, const struct pl_local_outage *outage)
{
    return &local->hosts[outage->number - 1];
}

static void set_cable(const struct pl_local *local, const struct pl_local_outage *outage, bool is_in)
{
    struct pl_error error = PL_ERROR_NONE;

    if (local->job->hosts > 1 && pl_local_network_set_cable(local, outage->number, is_in, &error) != PL_OK) {
        pl_log_error(&error, "cannot switch the network of algo-%u", outage->number);
    }
}

/* Unplugs the cable first: a process that ends would close its connections, which a host without power does not. */
void pl_local_simulate_lose(struct pl_local *local)
{
    struct pl_local_host *host = host_of(local, &local->lose);
    struct pl_error error = PL_ERROR_NONE;

    if (host->pid == 0) {
        return;
    }
    pl_log(PL_LOG_INFO, "simulating the loss of a host: %s is switched off", host->name);
    host->lost = true;
    if (local->kind != PL_LOCAL_CONTAINERS) {
        set_cable(local, &local->lose, false);
        kill(host->pid, SIGKILL);
    } else if (pl_local_container_lose(local, local->lose.number - 1, &error) != PL_OK) {
        pl_log_error(&error, "cannot switch %s off", host->name);
        return;
    }
    local->lose.begin_ns = pl_clock_now_ns();
}

int64_t pl_local_simulate_cut(struct pl_local *local)
{
    struct pl_local_outage *outage = &local->cut;
    const struct pl_local_host *host = host_of(local, outage);

    if (host->pid == 0) {
        return PL_DEADLINE_NEVER; /* the cable has ended with the host's processes */
    }
    if (outage->begin_ns > 0) {
        set_cable(local, outage, true);
        outage->end_ns = pl_clock_now_ns();
        pl_log(PL_LOG_INFO, "%s has its network again", host->name);
        return PL_DEADLINE_NEVER;
    }
    pl_log(PL_LOG_INFO, "simulating a cut cable: %s has no network for %g s", host->name,
           (double)outage->length_ns / (double)PL_NS_PER_S);
    set_cable(local, outage, false);
    outage->begin_ns = pl_clock_now_ns();
    return pl_deadline_after_ns((int64_t)outage->length_ns);
}

/* Appends the failed host's reason in one line, or that it gives none. */
static void append_reason(const struct pl_local *local, const struct pl_local_host *host, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *failure = NULL;
    size_t bytes;

    if (pl_local_path(local, &path, NULL, "%s/output/failure", host->name) != PL_OK ||
        pl_file_read(path.data, PL_LOCAL_MOST_FAILURE_BYTES, &failure, NULL, NULL) != PL_OK) {
        pl_text_printf(text, ": %s wrote no reason", host->name);
        return;
    }
    bytes = strcspn(failure, "\n");
    bytes = pl_text_whole_bytes(failure, bytes < MOST_REASON_BYTES ? bytes : MOST_REASON_BYTES);
    pl_text_mask(failure, bytes);
    pl_text_printf(text, ": %.*s", (int)bytes, failure);
}

static void append_end(const struct pl_local *local, int64_t begin_ns, struct pl_text *text)
{
    const double later_s = (double)(local->ended_ns - begin_ns) / (double)PL_NS_PER_S;
    const struct pl_local_host *failed;
    const int code = pl_local_run_code(local, &failed);

    if (local->end == PL_LOCAL_FAILS) {
        pl_text_printf(text, "the other hosts did not end by themselves, and were stopped %.1f s later",
                       (double)(local->stopped_ns - begin_ns) / (double)PL_NS_PER_S);
    } else if (local->end != PL_LOCAL_ENDS) {
        pl_text_append(text, "the job went on until it was stopped");
    } else if (code == 0) {
        pl_text_append(text, "the job went on");
    } else {
        pl_text_printf(text, "the job ended %.1f s later with exit code %d", later_s, code);
        append_reason(local, failed, text);
    }
}

static void say(const struct pl_local *local, const struct pl_local_outage *outage)
{
    const bool is_cut = outage == &local->cut;
    const double after_s = (double)outage->after_ns / (double)PL_NS_PER_S;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *host;

    if (outage->number == 0) {
        return;
    }
    host = local->hosts[outage->number - 1].name;
    if (outage->begin_ns == 0) {
        pl_log(PL_LOG_WARNING,
               is_cut ? "cut: the network of %s was not cut: it ended within %g s"
                      : "lose: %s was not switched off: it ended within %g s",
               host, after_s);
        return;
    }
    if (is_cut && outage->end_ns > 0) {
        pl_text_printf(&text, "cut: %s had no network for %.1f s; ", host,
                       (double)(outage->end_ns - outage->begin_ns) / (double)PL_NS_PER_S);
    } else {
        pl_text_printf(&text,
                       is_cut ? "cut: %s had no network from %g s on; " : "lose: %s was switched off after %g s; ",
                       host, after_s);
    }
    append_end(local, outage->begin_ns, &text);
    pl_log(PL_LOG_INFO, "%s", pl_text_string(&text));
}

void pl_local_simulate_say(struct pl_local *local)
{
    say(local, &local->lose);
    say(local, &local->cut);
    local->lose = local->cut = (struct pl_local_outage){.number = 0};
}

/* ---- a spot stop ---- */

void pl_local_spot_begin(struct pl_local *local)
{
    /* the clock from which the kernel takes the times of files */
    clock_gettime(CLOCK_REALTIME_COARSE, &local->spot.begin);
}

void pl_local_spot_read(struct pl_local *local, const char *line, size_t bytes)
{
    struct pl_local_spot *spot = &local->spot;
    uint64_t step;

    if (!spot->is_second && pl_local_metrics_number_after(line, bytes, "stopped after step ", &step)) {
        spot->knows_last = true;
        spot->last_step = step;
    }
    if (spot->is_second && !spot->has_resumed &&
        pl_local_metrics_number_after(line, bytes, "resuming after step ", &step)) {
        spot->has_resumed = true;
        spot->resumed_step = step;
    }
}

/* Whether this is the file that the runtime writes last into its checkpoint. */
static bool is_whole_checkpoint(const char *path, uint64_t *ret_step)
{
    static const char prefix[] = "checkpoint-";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *end;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || !isdigit((unsigned char)name[sizeof(prefix) - 1])) {
        return false;
    }
    *ret_step = strtoull(name + sizeof(prefix) - 1, &end, 10);
    return strcmp(end, ".json") == 0;
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void look_at(struct pl_local_spot *spot, const char *path, const char *name)
{
    struct stat info;
    uint64_t step;
    double taken_s;

    if (stat(path, &info) != 0) {
        return;
    }
    taken_s = seconds_between(&spot->begin, &info.st_mtim);
    if (taken_s < 0.0) {
        return;
    }
    spot->files++;
    spot->taken_s = taken_s > spot->taken_s ? taken_s : spot->taken_s;
    if (is_whole_checkpoint(name, &step)) {
        spot->has_saved = true;
        spot->saved_step = step > spot->saved_step ? step : spot->saved_step;
    }
}

void pl_local_spot_look(struct pl_local *local)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list files = {.items = NULL};
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    local->spot.is_second = true;
    for (size_t i = 0; i < local->job->hosts; i++) {
        local->spot.was_killed = local->spot.was_killed || local->hosts[i].killed;
    }
    if (!local->job->checkpoint_path) {
        return;
    }
    if (pl_local_path(local, &path, &error, "checkpoints") != PL_OK ||
        pl_store_open_directory(path.data, true, &store, &error) != PL_OK ||
        pl_store_list(store, PL_DEADLINE_NEVER, &files, &error) != PL_OK) {
        pl_log_error(&error, "cannot look for checkpoints");
        return;
    }
    for (size_t i = 0; i < files.count; i++) {
        if (pl_local_path(local, &path, NULL, "checkpoints/%s", files.items[i].key) == PL_OK) {
            look_at(&local->spot, path.data, files.items[i].key);
        }
    }
}

static void append_saved(const struct pl_local *local, struct pl_text *text)
{
    const struct pl_local_spot *spot = &local->spot;
    const char *path = local->job->checkpoint_path;

    if (!path) {
        pl_text_append(text, "the job has no CheckpointConfig and saved nothing");
    } else if (spot->has_saved) {
        pl_text_printf(text, "rank 0 saved step %llu in %.1f s", (unsigned long long)spot->saved_step, spot->taken_s);
    } else if (spot->files > 0) {
        pl_text_printf(text, "the job wrote %zu file%s to %s, the last one %.1f s after SIGTERM", spot->files,
                       spot->files == 1 ? "" : "s", path, spot->taken_s);
    } else if (spot->was_killed) {
        pl_text_append(text, "the job saved nothing until it was killed");
    } else {
        pl_text_printf(text, "the job wrote nothing to %s after SIGTERM", path);
    }
}

void pl_local_spot_say(const struct pl_local *local)
{
    const struct pl_local_spot *spot = &local->spot;
    const uint64_t last_step = spot->knows_last ? spot->last_step : spot->saved_step;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    append_saved(local, &text);
    if (!spot->has_resumed) {
        pl_text_append(&text, "; the second run did not print 'resuming after step N'");
    } else {
        pl_text_printf(&text, "; the second run went on after step %llu", (unsigned long long)spot->resumed_step);
        if ((spot->knows_last || spot->has_saved) && last_step >= spot->resumed_step) {
            const uint64_t repeated = last_step - spot->resumed_step;

            pl_text_printf(&text, ", %llu step%s repeated", (unsigned long long)repeated, repeated == 1 ? "" : "s");
        }
    }
    pl_log(PL_LOG_INFO, "spot stop: %s", pl_text_string(&text));
}
