/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that fetch the user's code into the code directory; each runs a companion program. */
#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"
#include "entrypoint/launch/steps.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char bringing[] = "bringing the code into place";

/* Add `paceline-unpack --look SOURCE`, which checks that a file with an archive's name is an archive. */
static enum pl_status add_look(const char *companion, const char *source, struct pl_launch_plan_steps *steps,
                               struct pl_error *reterr)
{
    struct pl_strv *argv = NULL;

    PL_TRY(pl_steps_add_look(steps, bringing, &argv, reterr));
    return pl_strv_add_list(argv, (const char *const[]){companion, "--look", source, NULL}, reterr);
}

/* Add `paceline-unpack SOURCE CODE`, which copies a directory or a file, or unpacks an archive. A file fetched from S3
 * is an archive. */
static enum pl_status add_unpack(const struct pl_job *job, const char *source, bool fetched,
                                 struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    PL_AUTO_FREE char *companion = NULL;
    struct pl_strv *argv = NULL;

    PL_TRY(pl_companion_find(job->self_path, "paceline-unpack", &companion, reterr));
    if (!fetched) {
        PL_TRY(add_look(companion, source, steps, reterr));
    }
    PL_TRY(pl_steps_add(steps, bringing, NULL, &argv, reterr));
    PL_TRY(pl_strv_add(argv, companion, reterr));
    if (fetched) {
        PL_TRY(pl_strv_add(argv, "--fetched", reterr));
    }
    PL_TRY(pl_strv_add_list(argv, (const char *const[]){"--unfinished", PL_PROGRAM_UNFINISHED, "--max-bytes", NULL},
                            reterr));
    PL_TRY(pl_strv_printf(argv, reterr, "%" PRId64, job->settings.source_max_bytes));
    return pl_strv_add_list(argv, (const char *const[]){source, job->paths.code, NULL}, reterr);
}

static enum pl_status add_s3(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    PL_AUTO_FREE char *companion = NULL;
    PL_AUTO_TEXT struct pl_text file = PL_TEXT_NONE, what = PL_TEXT_NONE;
    struct pl_strv *argv = NULL;

    if (pl_companion_find(job->self_path, "paceline-s3", &companion, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "the code is at %s, and this image has no paceline-s3 to fetch it: put the code into the "
                            "image's %s or into a channel",
                            job->submit_uri, job->paths.code);
    }
    pl_text_printf(&file, "%s/paceline-%ld-source", pl_environment_get_or(job->process, "TMPDIR", "/tmp"),
                   (long)getpid());
    PL_TRY(pl_text_check(&file, reterr));
    pl_text_printf(&what, "fetching the code from %.300s", job->submit_uri);
    PL_TRY(pl_text_check(&what, reterr));
    PL_TRY(pl_steps_add(steps, pl_text_string(&what), NULL, &argv, reterr));
    PL_TRY(pl_strv_add_list(
        argv, (const char *const[]){companion, "--again", "cp", job->submit_uri, pl_text_string(&file), NULL}, reterr));
    return add_unpack(job, pl_text_string(&file), true, steps, reterr);
}

/* Version 3 of the SDK leaves the user's archive packed, in the code directory itself. */
static enum pl_status add_archive(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text file = PL_TEXT_NONE;

    pl_text_printf(&file, "%s/%s", job->paths.code, pl_drivers_archive(&job->drivers));
    PL_TRY(pl_text_check(&file, reterr));
    if (access(pl_text_string(&file), R_OK) != 0) {
        return pl_error_errno(reterr, "the archive '%s', which sourcecode.json names", pl_text_string(&file));
    }
    return add_unpack(job, pl_text_string(&file), false, steps, reterr);
}

enum pl_status pl_source_plan(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    const char *uri = job->submit_uri;
    struct stat source;
    struct stat code;

    if (job->settings.trial) {
        return PL_OK; /* the sweep has fetched the code once for all its trials */
    }
    if (pl_drivers_archive(&job->drivers)) {
        return add_archive(job, steps, reterr);
    }
    if (!uri || pl_program_has_code(job)) {
        return PL_OK;
    }
    if (strncmp(uri, "s3://", 5) == 0) {
        return add_s3(job, steps, reterr);
    }
    if (strncmp(uri, "file://", 7) == 0) {
        uri += 7;
    } else if (strstr(uri, "://")) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "sagemaker_submit_directory: expected s3://, file:// or a path, found %s", uri);
    }
    if (stat(uri, &source) != 0) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "sagemaker_submit_directory: expected code at %s, found nothing there", uri);
    }
    if (stat(job->paths.code, &code) == 0 && code.st_dev == source.st_dev && code.st_ino == source.st_ino) {
        return PL_OK;
    }
    return add_unpack(job, uri, false, steps, reterr);
}
