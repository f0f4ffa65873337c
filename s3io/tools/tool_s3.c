/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3`: lists, reads, copies and deletes objects in S3. */
#include "s3io/tools/tool_s3.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* A list may take so many times the longest wait for one page to bring a new key: where many objects were deleted,
 * pages without keys are many. */
enum { LIST_PATIENCE = 10 };

static const char usage[] =
    "usage: paceline s3 ls [--recursive] s3://BUCKET/PREFIX\n"
    "       paceline s3 cat s3://BUCKET/KEY...\n"
    "       paceline s3 cp [--recursive] FROM TO     either may be s3://BUCKET/KEY, a file, or - for a stream\n"
    "       paceline s3 rm [--recursive] s3://BUCKET/KEY\n"
    "\n"
    "  --recursive            everything below a prefix or directory\n"
    "  --again                copy also what is there already with the same size and time\n"
    "  --quiet                no progress line\n"
    "  --endpoint-url URL     another S3 server (also AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)\n"
    "  --region NAME          (also AWS_REGION; learnt from the server where it says so)\n"
    "  --path-style, --virtual-style\n"
    "  --no-sign-request      public data without keys\n"
    "  --metadata             take keys from the machine's metadata service as the last resort\n"
    "  --requester-pays\n"
    "  --no-checksums         do not send x-amz-checksum-crc32c\n"
    "  --connections N        transfers at a time (16)\n"
    "  --budget MIB           memory for data under way (64)\n"
    "  --part MIB             size of one range (an eighth of the budget, at most 4), or of an upload's part (16)\n"
    "  --stall SECONDS        a transfer that moves no byte for so long is started again (10)\n"
    "  --timeout SECONDS      longest wait for the next bytes, all attempts together (300);\n"
    "                         ten times that for a list's next key\n"
    "  --verbose              a line for each request\n";

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
};

static const struct option long_options[] = {{"recursive", no_argument, NULL, OPTION_RECURSIVE},
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
                                             {"connections", required_argument, NULL, OPTION_CONNECTIONS},
                                             {"budget", required_argument, NULL, OPTION_BUDGET},
                                             {"part", required_argument, NULL, OPTION_PART},
                                             {"stall", required_argument, NULL, OPTION_STALL},
                                             {"timeout", required_argument, NULL, OPTION_TIMEOUT},
                                             {NULL, 0, NULL, 0}};

static enum pl_status take_number(struct tool *tool, int option, const char *text, struct pl_error *reterr)
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

static enum pl_status take_option(struct tool *tool, int option, const char *argument, struct pl_error *reterr)
{
    struct pl_s3_options *client = &tool->client_options;

    switch (option) {
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
    default:
        return take_number(tool, option, argument, reterr);
    }
}

enum pl_status tool_connect(struct tool *tool, struct pl_error *reterr)
{
    PL_TRY(pl_environment_new(&tool->environment, reterr));
    return pl_s3_client_new(tool->environment, &tool->client_options, &tool->client, reterr);
}

static enum pl_status next_page(struct tool *tool, const char *bucket, const char *prefix, const char *delimiter,
                                struct pl_s3_pages *pages, struct pl_s3_listing *listing, struct pl_error *reterr)
{
    size_t before = pages->count;
    enum pl_status status = pl_s3_list_page(tool->client, bucket, prefix, delimiter, pages,
                                            pl_deadline_after_ns(tool->timeout_ns), listing, reterr);

    if (status == PL_TIMEOUT && pages->count > before) { /* no request's time has passed */
        pl_error_context(reterr, "a longer --timeout allows %d times as much", LIST_PATIENCE);
    }
    return status;
}

enum pl_status tool_list(struct tool *tool, const char *bucket, const char *prefix, struct pl_s3_listing *listing,
                         struct pl_error *reterr)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.patience_ns = LIST_PATIENCE * tool->timeout_ns};

    do {
        PL_TRY(next_page(tool, bucket, prefix, NULL, &pages, listing, reterr));
    } while (pages.token);
    return PL_OK;
}

/* Except signals that our parent had us ignore: blocked, they would be delivered all the same. */
static void stop_signals(sigset_t *ret_signals)
{
    static const int signals[] = {SIGINT, SIGTERM};

    (void)sigemptyset(ret_signals);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(signals); i++) {
        struct sigaction action;

        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            (void)sigaddset(ret_signals, signals[i]);
        }
    }
}

enum pl_status tool_hold_stop(struct tool *tool, struct pl_error *reterr)
{
    sigset_t stop;

    stop_signals(&stop);
    /* the client's thread blocks all signals, and later threads inherit this mask */
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
    tool->stop_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    return tool->stop_fd >= 0 ? PL_OK : pl_error_errno(reterr, "set up signals");
}

bool tool_goes_on(const struct tool *tool)
{
    struct pollfd stop = {.fd = tool->stop_fd, .events = POLLIN};

    return poll(&stop, 1, 0) <= 0;
}

void tool_let_stop(struct tool *tool)
{
    sigset_t stop;

    pl_file_close_at(&tool->stop_fd);
    stop_signals(&stop);
    (void)sigprocmask(SIG_UNBLOCK, &stop, NULL); /* nothing has read it: a pending signal is delivered now */
}

static void print_entry(const struct pl_s3_entry *entry)
{
    char when[32] = "";
    time_t modified = (time_t)entry->modified_s;
    struct tm utc;

    if (entry->is_prefix) {
        printf("%20s %15s %s\n", "", "PREFIX", entry->key);
        return;
    }
    if (entry->modified_s >= 0 && gmtime_r(&modified, &utc)) {
        (void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    printf("%20s %15llu %s\n", when, (unsigned long long)entry->size_bytes, entry->key);
}

enum pl_status tool_ls(struct tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *prefix = NULL;
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.patience_ns = LIST_PATIENCE * tool->timeout_ns};
    size_t count = 0;

    if (tool->word_count != 1) {
        return pl_error_set(reterr, PL_INVALID, "expected one s3://BUCKET/PREFIX");
    }
    PL_TRY(pl_s3_uri_parse(tool->words[0], &bucket, &prefix, reterr));
    PL_TRY(tool_connect(tool, reterr));
    do {
        PL_AUTO_S3_LISTING struct pl_s3_listing page = {.items = NULL};

        PL_TRY(next_page(tool, bucket, prefix, tool->recursive ? NULL : "/", &pages, &page, reterr));
        for (size_t i = 0; i < page.count && !ferror(stdout); i++) {
            print_entry(&page.items[i]);
        }
        if (ferror(stdout) || fflush(stdout) != 0) { /* a reader that has seen enough (`| head`) is no failure */
            return errno == EPIPE ? PL_OK : pl_error_errno(reterr, "write standard output");
        }
        count += page.count;
    } while (pages.token);
    return count ? PL_OK : pl_error_set(reterr, PL_NOT_FOUND, "nothing under '%s'", tool->words[0]);
}

enum pl_status tool_cat(struct tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_object *objects = pl_memory_new((size_t)tool->word_count, sizeof(*objects), reterr);
    struct pl_s3_stream *stream = NULL;
    enum pl_status status = PL_OK;
    int parsed = 0;

    if (!objects) {
        return PL_MEMORY;
    }
    if (tool->word_count == 0) {
        return pl_error_set(reterr, PL_INVALID, "expected s3://BUCKET/KEY...");
    }
    for (; parsed < tool->word_count && status == PL_OK; parsed++) {
        char *bucket = NULL, *key = NULL;

        status = pl_s3_uri_parse(tool->words[parsed], &bucket, &key, reterr);
        objects[parsed].bucket = bucket;
        objects[parsed].key = key;
        if (status == PL_OK && !*key) {
            status = pl_error_set(reterr, PL_INVALID, "'%s' names a bucket, not an object", tool->words[parsed]);
        }
    }
    if (status == PL_OK) {
        status = tool_connect(tool, reterr);
    }
    if (status == PL_OK) {
        status =
            pl_s3_stream_open(tool->client, objects, (size_t)tool->word_count, &tool->stream_options, &stream, reterr);
    }
    while (status == PL_OK) {
        struct pl_s3_chunk chunk;

        status = pl_s3_stream_next(stream, pl_deadline_after_ns(tool->timeout_ns), &chunk, reterr);
        if (status == PL_OK) {
            status = pl_fd_write(STDOUT_FILENO, chunk.data, chunk.bytes, "standard output", reterr);
        }
    }
    pl_s3_stream_close(stream);
    for (int i = 0; i < parsed; i++) {
        free((char *)(uintptr_t)objects[i].bucket);
        free((char *)(uintptr_t)objects[i].key);
    }
    return status == PL_END ? PL_OK : status;
}

static const struct {
    const char *name;
    enum pl_status (*run)(struct tool *tool, struct pl_error *reterr);
} verbs[] = {{"ls", tool_ls}, {"cat", tool_cat}, {"cp", tool_cp}, {"rm", tool_rm}};

static enum pl_status take_options(struct tool *tool, int argc, char **argv, bool *ret_help, struct pl_error *reterr)
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
    return status == PL_END ? PL_OK : status;
}

/* Arguments are checked before credentials: each subcommand connects once it knows what to request. */
static enum pl_status run(struct tool *tool, int argc, char **argv, struct pl_error *reterr)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(verbs); i++) {
        if (strcmp(argv[0], verbs[i].name) == 0) {
            enum pl_status status;

            tool->words = argv + 1;
            tool->word_count = argc - 1;
            status = verbs[i].run(tool, reterr);
            if (status != PL_OK) {
                pl_log_error(reterr, "%s", argv[0]);
            }
            return status;
        }
    }
    pl_log(PL_LOG_ERROR, "expected ls, cat, cp or rm, found '%s'; --help tells more", argv[0]);
    return PL_INVALID;
}

int main(int argc, char **argv)
{
    struct tool tool = {
        .timeout_ns = 300 * PL_NS_PER_S, .stream_options = {.budget_bytes = UINT64_C(64) << 20}, .stop_fd = -1};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    bool help = false;

    pl_log_set_prefix("paceline s3");
    if (take_options(&tool, argc, argv, &help, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    if (help || optind == argc) {
        fputs(usage, help ? stdout : stderr);
        return help ? EXIT_SUCCESS : PL_EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error with a message, not a silent death */
    status = run(&tool, argc - optind, argv + optind, &error);
    pl_s3_client_free(tool.client);
    pl_environment_free(tool.environment);
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? PL_EXIT_USAGE : EXIT_FAILURE;
}
