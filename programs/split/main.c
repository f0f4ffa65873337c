/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline split CHANNEL
 *
 * Divides a channel in Pipe Mode among the ranks of this host, which find their FIFOs in the job's run directory.
 * `paceline train` starts it beside a program that has several ranks here.
 */
#include "base/environment.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/text.h"
#include "entrypoint/ssh/rundir.h"
#include "s3io/pipe/split.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>

enum { EXIT_USAGE = 2 };

/* Whether the job says that the channel's objects are CSV. */
static enum pl_status find_csv(const struct pl_environment *environment, const char *name, bool *ret_is_csv,
                               struct pl_error *reterr)
{
    const char *text = pl_environment_get_or(environment, "SM_INPUT_DATA_CONFIG", "{}"), *type;
    PL_AUTO_JSON struct pl_json *config = NULL;
    struct pl_json_value channel;

    PL_TRY(pl_json_parse(text, strlen(text), "SM_INPUT_DATA_CONFIG", &config, reterr));
    channel = pl_json_member(pl_json_root(config), name);
    PL_TRY(pl_json_text_or(pl_json_member(channel, "ContentType"), "", &type, reterr));
    *ret_is_csv = strncasecmp(type, "text/csv", strlen("text/csv")) == 0;
    return PL_OK;
}

/* Divides the channel until its ranks have ended or a signal stops it. The log has the reason of a failure before the
 * ranks get it. */
static enum pl_status split_channel(const struct pl_split_options *options, struct pl_error *reterr)
{
    struct pl_split *split;
    enum pl_status status;

    PL_TRY(pl_split_new(options, &split, reterr));
    status = pl_split_run(split, reterr);
    if (status != PL_OK && status != PL_CANCELLED) {
        pl_log_error(reterr, "cannot divide '%s'", options->channel->path);
        status = pl_split_hold(split, reterr) ? PL_OK : status;
    }
    pl_split_free(split);
    return status;
}

static enum pl_status run(const char *name, int cancel_fd, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_TEXT struct pl_text directory = PL_TEXT_NONE, opened = PL_TEXT_NONE;
    struct pl_channel_setup setup = {.name = NULL};
    struct pl_split_options options = {.channel = &setup.info, .cancel_fd = cancel_fd};
    const char *run_dir;
    enum pl_status status;

    PL_TRY(pl_environment_new(&environment, reterr));
    run_dir = pl_environment_get_or(environment, PL_RUNDIR_VARIABLE, NULL);
    if (!run_dir) {
        return pl_error_set(reterr, PL_INVALID, PL_RUNDIR_VARIABLE " is not set: `paceline train` starts this program");
    }
    PL_TRY(pl_text_set(&directory, reterr, "%s/" PL_RUNDIR_FIFOS, run_dir));
    PL_TRY(pl_text_set(&opened, reterr, "%s/" PL_RUNDIR_OPENED, run_dir, name));
    options.directory = directory.data;
    options.opened_path = opened.data;
    PL_TRY(find_csv(environment, name, &options.is_csv, reterr));
    PL_TRY(pl_channel_setup_find_in(environment, name, &setup, reterr));
    status = split_channel(&options, reterr);
    pl_channel_setup_done(&setup);
    return status;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    sigset_t stop;

    pl_log_open("paceline split");
    if (argc != 2) {
        pl_log(PL_LOG_ERROR, "usage: paceline split CHANNEL");
        return EXIT_USAGE;
    }
    signal(SIGPIPE, SIG_IGN); /* a rank that leaves early is a normal end */
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    status = run(argv[1], signalfd(-1, &stop, SFD_CLOEXEC), &error);
    if (status == PL_OK || status == PL_CANCELLED) {
        return EXIT_SUCCESS;
    }
    pl_log_error(&error, "cannot divide channel '%s'", argv[1]);
    return EXIT_FAILURE;
}
