/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a job's specification: in the job's settings, or in a file that they name. */
#include "programs/sweep/job_sweep.h"

#include "base/file.h"
#include "base/memory.h"

#include <string.h>

enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, PL_SWEEP_SPEC_BYTES_MAX, &text, &bytes, reterr));
    return pl_sweep_space_parse(text, bytes, path, ret_space, reterr);
}

enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr)
{
    const char *setting = job->settings.sweep;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    if (!setting) {
        *ret_space = NULL;
        return PL_OK;
    }
    if (setting[strspn(setting, " \t\r\n")] == '{') {
        return pl_sweep_space_parse(setting, strlen(setting), "paceline_sweep", ret_space, reterr);
    }
    pl_text_printf(&path, "%s%s%s", setting[0] == '/' ? "" : job->paths.code, setting[0] == '/' ? "" : "/", setting);
    PL_TRY(pl_text_check(&path, reterr));
    status = pl_sweep_space_read(pl_text_string(&path), ret_space, reterr);
    if (status == PL_NOT_FOUND) {
        pl_error_context(reterr, "paceline_sweep: expected a JSON object or a file in the code directory");
    }
    return status;
}
