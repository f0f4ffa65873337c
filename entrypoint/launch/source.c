/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that fetch the user's code into the code directory; each runs a companion program. */
#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/plan.h"
#include "entrypoint/launch/program.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Add `paceline-unpack SOURCE CODE`, which copies a directory or a file, or unpacks an archive. A file fetched from S3
 * is an archive; for another one `paceline-unpack --look SOURCE` checks that a file with an archive's name is one. */
static enum pl_status add_unpack(const struct pl_job *job, const char *source, bool fetched,
                                 struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    static const char bringing[] = "bringing the code into place";
    PL_AUTO_FREE char *companion = NULL;
    struct pl_strv *argv;

    PL_TRY(pl_companion_find(job->self_path, "paceline-unpack", &companion, reterr));
    if (!fetched) {
        pl_strv_add(pl_launch_plan_add_look(steps, bringing), companion, "--look", source);
    }
    argv = pl_launch_plan_add_step(steps, bringing, NULL);
    pl_strv_add(argv, companion);
    if (fetched) {
        pl_strv_add(argv, "--fetched");
    }
    pl_strv_add(argv, "--unfinished", PL_PROGRAM_UNFINISHED, "--max-bytes");
    pl_strv_printf(argv, "%" PRId64, job->settings.source_max_bytes);
    pl_strv_add(argv, source, job->paths.code);
    return pl_pool_check(&steps->pool, reterr);
}

static enum pl_status add_s3(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    PL_AUTO_FREE char *companion = NULL;
    const char *file = pl_pool_printf(&steps->pool, "%s/paceline-%ld-source",
                                      pl_environment_get_or(job->process, "TMPDIR", "/tmp"), (long)getpid());
    const char *what = pl_pool_printf(&steps->pool, "fetching the code from %.300s", job->submit_uri);

    if (pl_companion_find(job->self_path, "paceline-s3", &companion, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "the code is at %s, and this image has no paceline-s3 to fetch it: put the code into the "
                            "image's %s or into a channel",
                            job->submit_uri, job->paths.code);
    }
    pl_strv_add(pl_launch_plan_add_step(steps, what, NULL), companion, "--again", "cp", job->submit_uri, file);
    return add_unpack(job, file, true, steps, reterr);
}

/* Version 3 of the SDK leaves the user's archive packed, in the code directory itself. */
static enum pl_status add_archive(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    const char *file = pl_pool_printf(&steps->pool, "%s/%s", job->paths.code, job->drivers.archive);

    if (access(file, R_OK) != 0) {
        return pl_error_errno(reterr, "find the archive '%s', which sourcecode.json names", file);
    }
    return add_unpack(job, file, false, steps, reterr);
}

enum pl_status pl_source_plan(const struct pl_job *job, struct pl_launch_plan_steps *steps, struct pl_error *reterr)
{
    const char *uri = job->submit_uri;
    struct stat source;
    struct stat code;

    if (job->settings.trial) {
        return PL_OK; /* the sweep has fetched the code once for all its trials */
    }
    if (job->drivers.archive) {
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
