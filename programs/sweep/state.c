/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all parts of a sweep use: its failure, and its hosts by name and number. */
#include "programs/sweep/state.h"

#include "entrypoint/ssh/exec.h"

#include <stdarg.h>
#include <stdio.h>

int pl_sweep_hosts_find(const struct pl_sweep *sweep, const char *name)
{
    return pl_strv_find(&sweep->job->hosts, name);
}

enum pl_status pl_sweep_hosts_words(const struct pl_sweep *sweep, int host, enum pl_exec_kind kind,
                                    const struct pl_strv *program, struct pl_strv *argv, struct pl_error *reterr)
{
    return host == 0 ? pl_strv_add_all(argv, program, reterr)
                     : pl_exec_words(&sweep->sshd, sweep->run_dir, sweep->job->hosts.items[host], kind, program, argv,
                                     reterr);
}

void pl_sweep_fail(struct pl_sweep *sweep, const char *format, ...)
{
    va_list args;

    if (sweep->failed) {
        return;
    }
    sweep->failed = true;
    va_start(args, format);
    vsnprintf(sweep->reason, sizeof(sweep->reason), format, args);
    va_end(args);
}

void pl_sweep_fail_status(struct pl_sweep *sweep, enum pl_status status, const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    if (status != PL_OK) {
        pl_sweep_fail(sweep, "%s", pl_error_text(error, text, sizeof(text)));
    }
}
