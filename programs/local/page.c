/* SPDX-License-Identifier: Apache-2.0 */
/* Writes job.json, and lets `paceline report` write its page. */
#include "programs/local/page.h"

#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "entrypoint/job/secrets.h"
#include "entrypoint/supervise/process.h"
#include "programs/local/result.h"
#include "programs/local/stop.h"

#include <signal.h>
#include <time.h>

#define PAGE_NS (60 * PL_NS_PER_S) /* how long the page may take, of a log of gigabytes too */

enum { FILE_MODE = 0644 };

static void write_pairs(struct pl_json_writer *writer, const char *name, const struct pl_local_pair *pairs,
                        size_t count)
{
    pl_json_write_object(writer, name);
    for (size_t i = 0; i < count; i++) {
        pl_json_write_text(writer, pairs[i].name, pl_secrets_is_name(pairs[i].name) ? "***" : pairs[i].value);
    }
    pl_json_write_close(writer);
}

static void write_seconds(struct pl_json_writer *writer, const char *name, int64_t from_ns, int64_t to_ns)
{
    pl_json_write_double(writer, name, (double)((to_ns - from_ns) / PL_NS_PER_MS) / 1e3);
}

/* The wall clock's time of a moment that `monotonic_ns` is, as the AWS command line prints times. */
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
    pl_json_write_text(&writer, "TrainingJobStatus", pl_local_result_status(local));
    pl_json_write_text(&writer, "SecondaryStatus",
                       local->end == PL_LOCAL_LIMIT ? "MaxRuntimeExceeded" : pl_local_result_status(local));
    if (pl_local_result_reason(local, &reason)) {
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
    for (size_t i = 0; i < job->metric_count; i++) {
        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "Name", job->metrics[i].name);
        pl_json_write_text(&writer, "Regex", job->metrics[i].value);
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    write_pairs(&writer, "HyperParameters", job->hyperparameters, job->hyperparameter_count);
    write_pairs(&writer, "Environment", job->environment, job->environment_count);
    pl_json_write_close(&writer);
    PL_TRY(pl_local_path(local, &path, reterr, "job.json"));
    return pl_json_write_file(&writer, path.data, FILE_MODE, reterr);
}

static enum pl_status run_report(struct pl_local *local, struct pl_error *reterr)
{
    const char *const words[] = {local->paceline, "report", local->folder, NULL};
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    pid_t program;

    setup.argv = words;
    setup.environment = pl_environment_strings(local->environment);
    setup.signals = &local->signals;
    setup.own_group = true; /* Control-C is for this program */
    setup.death_signal = SIGKILL;
    PL_TRY(pl_process_spawn(&setup, &program, reterr));
    return pl_local_await(local, program, local->stops_allowed, pl_deadline_after_ns(PAGE_NS),
                          "`paceline report` wrote its page", reterr);
}

void pl_local_page_write(struct pl_local *local)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].log) {
            fflush(local->hosts[i].log);
        }
    }
    status = write_job(local, &error);
    status = status == PL_OK ? run_report(local, &error) : status;
    if (status != PL_OK) {
        char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

        pl_log(PL_LOG_WARNING, "there is no report: %s", pl_error_text(&error, text, sizeof(text)));
    }
}
