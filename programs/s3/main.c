/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3`: lists, reads and copies objects in S3. */
#include "programs/s3/s3.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PL_OPTIONS_OF struct pl_tool
static const struct pl_option options[] = {PL_S3_OPTIONS(PL_OPTION) PL_OPTIONS_END};

static const struct {
    const char *name;
    enum pl_status (*run)(struct pl_tool *tool, struct pl_error *reterr);
} subcommands[] = {{"ls", pl_tool_ls}, {"cat", pl_tool_cat}, {"cp", pl_tool_cp}};

/* Arguments are checked before credentials: each subcommand connects once it knows its requests. */
static enum pl_status run(struct pl_tool *tool, int argc, char **argv, struct pl_error *reterr)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(subcommands); i++) {
        if (strcmp(argv[0], subcommands[i].name) == 0) {
            enum pl_status status;

            tool->args = argv + 1;
            tool->arg_count = argc - 1;
            status = subcommands[i].run(tool, reterr);
            if (status != PL_OK) {
                pl_log_error(reterr, "%s", argv[0]);
            }
            return status;
        }
    }
    pl_log(PL_LOG_ERROR, "expected ls, cat or cp, found '%s'; --help tells more", argv[0]);
    return PL_INVALID;
}

int main(int argc, char **argv)
{
    struct pl_tool tool = {
        .timeout_ns = 300 * PL_NS_PER_S, .stream_options = {.budget_bytes = UINT64_C(64) << 20}, .stop_fd = -1};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_open("paceline s3");
    status = pl_verbs_read("s3", options, argc, argv, &tool, &error);
    status = status == PL_OK ? pl_s3_encryption_check(&tool.encryption, &pl_s3_encryption_options, &error) : status;
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (tool.verbose) {
        pl_log_set_level(PL_LOG_DEBUG);
    }
    signal(SIGPIPE, SIG_IGN); /* report a reader that is gone as an error with a message, instead of dying silently */
    status = run(&tool, argc - optind, argv + optind, &error);
    pl_s3_client_free(tool.client);
    pl_s3_headers_done(&tool.headers);
    pl_environment_free(tool.environment);
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? PL_EXIT_USAGE : EXIT_FAILURE;
}
