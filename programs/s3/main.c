/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3`: lists, reads and copies objects in S3. */
#include "programs/s3/s3.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/verbs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

enum option_code {
    OPTION_RECURSIVE = 'r',
    OPTION_QUIET = 'q',
    OPTION_VERBOSE = 'v',
    OPTION_HELP = 'h',
    OPTION_AGAIN = 256,
    OPTION_ENDPOINT,
    OPTION_REGION,
    OPTION_PATH,
    OPTION_VIRTUAL,
    OPTION_ANONYMOUS,
    OPTION_METADATA,
    OPTION_REQUESTER,
    OPTION_NO_CHECKSUMS,
    OPTION_CONNECTIONS,
    OPTION_BUDGET,
    OPTION_PART,
    OPTION_STALL,
    OPTION_TIMEOUT,
    OPTION_SSE,
    OPTION_SSE_KEY,
    OPTION_BUCKET_KEY,
    OPTION_JSON,
    OPTION_MANIFEST,
};

static const struct option long_options[] = {{"recursive", no_argument, NULL, OPTION_RECURSIVE},
                                             {"manifest", no_argument, NULL, OPTION_MANIFEST},
                                             {"json", no_argument, NULL, OPTION_JSON},
                                             {"again", no_argument, NULL, OPTION_AGAIN},
                                             {"quiet", no_argument, NULL, OPTION_QUIET},
                                             {"verbose", no_argument, NULL, OPTION_VERBOSE},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {"endpoint-url", required_argument, NULL, OPTION_ENDPOINT},
                                             {"region", required_argument, NULL, OPTION_REGION},
                                             {"path-style", no_argument, NULL, OPTION_PATH},
                                             {"virtual-style", no_argument, NULL, OPTION_VIRTUAL},
                                             {"no-sign-request", no_argument, NULL, OPTION_ANONYMOUS},
                                             {"metadata", no_argument, NULL, OPTION_METADATA},
                                             {"requester-pays", no_argument, NULL, OPTION_REQUESTER},
                                             {"no-checksums", no_argument, NULL, OPTION_NO_CHECKSUMS},
                                             {"sse", required_argument, NULL, OPTION_SSE},
                                             {"sse-kms-key-id", required_argument, NULL, OPTION_SSE_KEY},
                                             {"bucket-key-enabled", no_argument, NULL, OPTION_BUCKET_KEY},
                                             {"connections", required_argument, NULL, OPTION_CONNECTIONS},
                                             {"budget", required_argument, NULL, OPTION_BUDGET},
                                             {"part", required_argument, NULL, OPTION_PART},
                                             {"stall", required_argument, NULL, OPTION_STALL},
                                             {"timeout", required_argument, NULL, OPTION_TIMEOUT},
                                             {NULL, 0, NULL, 0}};

static enum pl_status take_number(struct pl_tool *tool, int option, const char *text, struct pl_error *reterr)
{
    uint64_t number;

    switch (option) {
    case OPTION_CONNECTIONS:
        PL_TRY(pl_options_whole("connections", text, 1, 1024, &number, reterr));
        tool->client_options.connections = (unsigned)number;
        return PL_OK;
    case OPTION_BUDGET:
        PL_TRY(pl_options_whole("budget", text, 1, 1UL << 20, &number, reterr));
        tool->stream_options.budget_bytes = number << 20;
        return PL_OK;
    case OPTION_PART:
        PL_TRY(pl_options_whole("part", text, 1, 1UL << 12, &number, reterr));
        tool->stream_options.part_bytes = number << 20;
        return PL_OK;
    case OPTION_STALL:
        PL_TRY(pl_options_whole("stall", text, 1, 3600, &number, reterr));
        tool->client_options.stall_ns = (int64_t)number * PL_NS_PER_S;
        return PL_OK;
    default:
        PL_TRY(pl_options_whole("timeout", text, 1, 1000000, &number, reterr));
        tool->timeout_ns = (int64_t)number * PL_NS_PER_S;
        return PL_OK;
    }
}

static enum pl_status take_option(struct pl_tool *tool, int option, const char *argument, struct pl_error *reterr)
{
    struct pl_s3_options *client = &tool->client_options;

    switch (option) {
    case OPTION_JSON:
        tool->json = true;
        return PL_OK;
    case OPTION_MANIFEST:
        tool->manifest = true;
        return PL_OK;
    case OPTION_RECURSIVE:
        tool->recursive = true;
        return PL_OK;
    case OPTION_AGAIN:
        tool->again = true;
        return PL_OK;
    case OPTION_QUIET:
        tool->quiet = true;
        return PL_OK;
    case OPTION_VERBOSE:
        pl_log_set_level(PL_LOG_DEBUG);
        return PL_OK;
    case OPTION_ENDPOINT:
        client->endpoint_url = argument;
        return PL_OK;
    case OPTION_REGION:
        client->region = argument;
        return PL_OK;
    case OPTION_PATH:
        client->style = PL_S3_STYLE_PATH;
        return PL_OK;
    case OPTION_VIRTUAL:
        client->style = PL_S3_STYLE_VIRTUAL;
        return PL_OK;
    case OPTION_ANONYMOUS:
        client->credentials.anonymous = true;
        return PL_OK;
    case OPTION_METADATA:
        client->credentials.allow_metadata = true;
        return PL_OK;
    case OPTION_REQUESTER:
        client->requester_pays = true;
        return PL_OK;
    case OPTION_NO_CHECKSUMS:
        tool->no_checksums = true;
        return PL_OK;
    case OPTION_SSE:
        tool->encryption.algorithm = argument;
        return PL_OK;
    case OPTION_SSE_KEY:
        tool->encryption.key_id = argument;
        return PL_OK;
    case OPTION_BUCKET_KEY:
        tool->encryption.bucket_key = true;
        return PL_OK;
    default:
        return take_number(tool, option, argument, reterr);
    }
}

/* ---- for the subcommands ---- */

enum pl_status pl_tool_connect(struct pl_tool *tool, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(pl_environment_new(&tool->environment, reterr));
    status = pl_s3_client_new(tool->environment, &tool->client_options, &tool->client, reterr);
    if (status == PL_NOT_FOUND && !tool->again) { /* a person calls it, not the entry point */
        pl_error_context(reterr, "public data needs no credentials with --no-sign-request");
    }
    return status;
}

/*
 * Returns the signals to hold, except those that our parent set to be ignored: if they were blocked, they would be
 * delivered nevertheless.
 */
static void stop_signals(sigset_t *ret_signals)
{
    static const int signals[] = {SIGINT, SIGTERM};

    sigemptyset(ret_signals);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(signals); i++) {
        struct sigaction action;

        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(ret_signals, signals[i]);
        }
    }
}

enum pl_status pl_tool_hold_stop(struct pl_tool *tool, struct pl_error *reterr)
{
    sigset_t stop;

    stop_signals(&stop);
    /* the client's thread blocks all signals itself, and later threads inherit this mask */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    tool->stop_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    return tool->stop_fd >= 0 ? PL_OK : pl_error_errno(reterr, "set up signals");
}

bool pl_tool_goes_on(const struct pl_tool *tool)
{
    struct pollfd stop = {.fd = tool->stop_fd, .events = POLLIN};

    return poll(&stop, 1, 0) <= 0;
}

void pl_tool_let_stop(struct pl_tool *tool)
{
    sigset_t stop;

    pl_file_close_at(&tool->stop_fd);
    stop_signals(&stop);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* a pending signal, which was not read, is delivered now */
}

/* ---- the program ---- */

static const struct {
    const char *name;
    enum pl_status (*run)(struct pl_tool *tool, struct pl_error *reterr);
} subcommands[] = {{"ls", pl_tool_ls}, {"cat", pl_tool_cat}, {"cp", pl_tool_cp}};

static enum pl_status take_options(struct pl_tool *tool, int argc, char **argv, bool *ret_help, struct pl_error *reterr)
{
    enum pl_status status;
    int option;

    while ((status = pl_options_next(argc, argv, "rqvh", long_options, &option, reterr)) == PL_OK) {
        if (option == OPTION_HELP) {
            *ret_help = true;
            return PL_OK;
        }
        PL_TRY(take_option(tool, option, optarg, reterr));
    }
    return status == PL_END ? pl_s3_encryption_check(&tool->encryption, &pl_s3_encryption_options, reterr) : status;
}

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
    bool help = false;

    pl_log_open("paceline s3");
    if (take_options(&tool, argc, argv, &help, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    if (help || optind == argc) {
        pl_verbs_print_help("s3", help ? stdout : stderr);
        return help ? EXIT_SUCCESS : PL_EXIT_USAGE;
    }
    signal(SIGPIPE, SIG_IGN); /* report a reader that is gone as an error with a message, instead of dying silently */
    status = run(&tool, argc - optind, argv + optind, &error);
    pl_s3_client_free(tool.client);
    pl_s3_headers_done(&tool.headers);
    pl_environment_free(tool.environment);
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? PL_EXIT_USAGE : EXIT_FAILURE;
}
