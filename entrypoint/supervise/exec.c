/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs for other programs of this host. */
#include "entrypoint/supervise/exec.h"

#include "base/log.h"
#include "base/memory.h"

/* Start the frame's words as a program, with the environment of this container. */
static enum pl_status start(struct pl_supervisor *supervisor, struct pl_connection *connection,
                            const struct pl_frame *frame, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    pid_t pid;
    struct pl_shim_options options = {.source = PL_EXIT_SOURCE_EXEC,
                                      .rank = -1,
                                      .host = supervisor->job->current_host,
                                      .progress_ns = PL_BARS_KEEP, /* the caller may be a terminal */
                                      .program_words = 1,
                                      .setup = PL_PROCESS_SETUP_NONE};

    for (size_t i = 0; i < frame->count; i++) {
        pl_strv_add(&argv, frame->fields[i]);
    }
    PL_TRY(pl_strv_check(&argv, reterr));
    PL_TRY(pl_environment_new_copy(supervisor->job->process, &environment, reterr));
    PL_TRY(pl_environment_set(environment, PL_RUNDIR_VARIABLE, supervisor->rundir.path, reterr));
    options.setup.argv = (const char *const *)argv.items;
    options.setup.environment = pl_environment_strings(environment);
    options.setup.cwd = supervisor->job->paths.base;
    PL_TRY(pl_shim_fork_for(&options, supervisor->signals, connection->link.fd, connection->link.fds,
                            connection->link.fds_count, &pid, reterr));
    pl_watch_note_exec(&supervisor->watch, argv.items[0], pid);
    return PL_OK;
}

void pl_exec_run(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    if (frame->type == PL_FRAME_EXEC && frame->count > 0 && connection->link.fds_count > 0 &&
        start(supervisor, connection, frame, &error) != PL_OK) {
        pl_log_error(&error, "run '%s' for another program", frame->fields[0]);
    }
    /* the connection now belongs to the shim; or, after a failure, its client sees the end */
    connection->dropped = true;
}
