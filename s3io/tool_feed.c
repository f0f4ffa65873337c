/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline feed`: SageMaker's side of Pipe Mode, anywhere. */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "s3io/feeder.h"
#include "s3io/store_s3.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

static const char usage[] = "usage: paceline feed [options] FROM PATH\n"
                            "Write the objects of FROM (a directory or s3://BUCKET/PREFIX) into the FIFOs PATH_0, PATH_1, ..., one an epoch.\n"
                            "\n"
                            "  --epochs N          stop after N epochs (default: go on until told to stop)\n"
                            "  --first N           begin with epoch N (0)\n"
                            "  --recordio          wrap each object in a RecordIO record\n"
                            "  --decompress        undo gzip and zstd first\n"
                            "  --shuffle SEED      another order of objects in each epoch\n"
                            "  --shard R/N         only the objects of host R of N: object i when i mod N is R\n"
                            "  --late              make an epoch's FIFO only when the one before is over\n"
                            "  --copy              do not lend pages to the pipe; for readers that splice\n"
                            "  --timeout SECONDS   give up when nobody opens an epoch or reads on for so long (never)\n"
                            "  --cut BYTES         close each FIFO after so many bytes, to see what a program makes of it\n"
                            "  --endpoint-url URL  another S3 server (also AWS_ENDPOINT_URL_S3)\n"
                            "  --quiet             no line an epoch\n";

struct tool {
    struct pl_feeder_options options;
    struct pl_s3_options s3;
    uint64_t first;
    uint64_t epochs;
    bool quiet;
    const char *from;
    const char *path;
};

enum option_code {
    OPTION_EPOCHS = 256,
    OPTION_FIRST,
    OPTION_RECORDIO,
    OPTION_DECOMPRESS,
    OPTION_SHUFFLE,
    OPTION_SHARD,
    OPTION_LATE,
    OPTION_COPY,
    OPTION_TIMEOUT,
    OPTION_CUT,
    OPTION_ENDPOINT,
    OPTION_QUIET,
    OPTION_HELP,
};

static const struct option long_options[] = {{"epochs", required_argument, NULL, OPTION_EPOCHS},
                                             {"first", required_argument, NULL, OPTION_FIRST},
                                             {"recordio", no_argument, NULL, OPTION_RECORDIO},
                                             {"decompress", no_argument, NULL, OPTION_DECOMPRESS},
                                             {"shuffle", required_argument, NULL, OPTION_SHUFFLE},
                                             {"shard", required_argument, NULL, OPTION_SHARD},
                                             {"late", no_argument, NULL, OPTION_LATE},
                                             {"copy", no_argument, NULL, OPTION_COPY},
                                             {"timeout", required_argument, NULL, OPTION_TIMEOUT},
                                             {"cut", required_argument, NULL, OPTION_CUT},
                                             {"endpoint-url", required_argument, NULL, OPTION_ENDPOINT},
                                             {"quiet", no_argument, NULL, OPTION_QUIET},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {NULL, 0, NULL, 0}};

static bool parse_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number > most) {
        fprintf(stderr, "paceline feed: '%s' is not a number up to %" PRIu64 "\n", text, most);
        return false;
    }
    *ret_number = number;
    return true;
}

static bool parse_shard(const char *text, struct pl_deal *ret_shard)
{
    unsigned rank, size;
    char more;

    if (sscanf(text, "%u/%u%c", &rank, &size, &more) != 2 || rank >= size) {
        fprintf(stderr, "paceline feed: '%s' is not a shard; expected R/N with R below N\n", text);
        return false;
    }
    *ret_shard = (struct pl_deal){.rank = rank, .size = size};
    return true;
}

static bool take_option(struct tool *tool, int option, const char *argument)
{
    uint64_t seconds;

    switch (option) {
    case OPTION_EPOCHS:
        return parse_number(argument, UINT32_MAX, &tool->epochs);
    case OPTION_FIRST:
        return parse_number(argument, UINT32_MAX, &tool->first);
    case OPTION_RECORDIO:
        tool->options.wrapper = PL_CHANNEL_WRAPPER_RECORDIO;
        return true;
    case OPTION_DECOMPRESS:
        tool->options.compression = PL_COMPRESSION_AUTO;
        return true;
    case OPTION_SHUFFLE:
        tool->options.shuffle = true;
        return parse_number(argument, UINT64_MAX, &tool->options.seed);
    case OPTION_SHARD:
        return parse_shard(argument, &tool->options.shard);
    case OPTION_LATE:
        tool->options.late = true;
        return true;
    case OPTION_COPY:
        tool->options.copy = true;
        return true;
    case OPTION_TIMEOUT:
        if (!parse_number(argument, 1000000, &seconds)) {
            return false;
        }
        tool->options.timeout_ns = (int64_t)seconds * PL_NS_PER_S;
        return true;
    case OPTION_CUT:
        return parse_number(argument, UINT64_MAX, &tool->options.cut_bytes);
    case OPTION_ENDPOINT:
        tool->s3.endpoint_url = argument;
        return true;
    case OPTION_QUIET:
        tool->quiet = true;
        return true;
    default:
        return false;
    }
}

static bool parse_arguments(struct tool *tool, int argc, char **argv)
{
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == OPTION_HELP) {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        if (!take_option(tool, option, optarg)) {
            return false;
        }
    }
    if (argc - optind != 2) {
        return false;
    }
    tool->from = argv[optind];
    tool->path = argv[optind + 1];
    return true;
}

static void say_epoch(const struct tool *tool, uint64_t epoch, const struct pl_feeder_counts *counts, int64_t ns)
{
    double seconds = (double)ns / (double)PL_NS_PER_S;

    if (!tool->quiet) {
        pl_log(PL_LOG_INFO, "epoch %" PRIu64 ": %" PRIu64 " objects, %" PRIu64 " bytes in %.3f s%s", epoch, counts->objects, counts->bytes, seconds,
               counts->closed_early ? "; the reader left early" : "");
    }
}

static enum pl_status feed(struct tool *tool, struct pl_store *store, struct pl_error *reterr)
{
    struct pl_feeder *feeder;
    enum pl_status status;

    PL_TRY(pl_feeder_open(store, tool->path, &tool->options, pl_deadline_after_ns(300 * PL_NS_PER_S), &feeder, reterr));
    status = PL_OK;
    for (uint64_t epoch = tool->first; status == PL_OK && epoch - tool->first < tool->epochs; epoch++) {
        int64_t begin_ns = pl_clock_now_ns();
        struct pl_feeder_counts counts;

        status = pl_feeder_run(feeder, epoch, &counts, reterr);
        if (status == PL_OK) {
            say_epoch(tool, epoch, &counts, pl_clock_now_ns() - begin_ns);
        }
    }
    pl_feeder_close(feeder);
    return status;
}

static enum pl_status run(struct tool *tool, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;
    PL_AUTO_STORE struct pl_store *store = NULL;

    if (pl_s3_uri_is(tool->from)) {
        PL_TRY(pl_environment_new(&environment, reterr));
        PL_TRY(pl_s3_client_new(environment, &tool->s3, &client, reterr));
        PL_TRY(pl_store_open_s3(client, tool->from, 0, &store, reterr));
    } else {
        PL_TRY(pl_store_open_directory(tool->from, &store, reterr));
    }
    return feed(tool, store, reterr);
}

int main(int argc, char **argv)
{
    struct tool tool = {.epochs = UINT64_MAX};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    sigset_t stop;

    pl_log_set_prefix("paceline feed");
    if (!parse_arguments(&tool, argc, argv)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    /* A reader that leaves early is an ordinary end of an epoch; a wish to stop has to remove the FIFOs first. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTERM);
    (void)sigaddset(&stop, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &stop, NULL);
    tool.options.cancel_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    status = run(&tool, &error);
    if (status == PL_CANCELLED) {
        return EXIT_SUCCESS;
    }
    if (status != PL_OK) {
        pl_log_error(&error, "feeding '%s'", tool.path);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
