/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline feed`: writes the FIFOs that SageMaker writes in Pipe Mode, on any machine. */
#include "base/clock.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "s3io/pipe/feeder.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_get.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#define LIST_NS (300 * PL_NS_PER_S) /* limit for listing objects, and for reading a manifest */

struct tool {
    struct pl_feeder_options options;
    struct pl_s3_options s3;
    uint64_t first;
    uint64_t epochs;
    bool quiet;
    bool failure; /* tell the reason of a failure on standard output, too */
    bool told;    /* the reason was told already */
    bool manifest;
    const char *attributes; /* as given, for example "source-ref,class"; NULL if it is not an augmented manifest */
    const char *from;
    const char *path;
};

enum { MOST_ATTRIBUTES = 16 }; /* limit of SageMaker */

/* The data from which every epoch of an augmented manifest is made. */
struct augmented {
    struct pl_s3_client *client;
    struct pl_augmented lines;
    struct pl_augmented_options options;
};

static enum pl_status read_shard(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    unsigned rank, size;
    char more;

    if (sscanf(text, "%u/%u%c", &rank, &size, &more) != 2 || rank >= size) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected R/N with R below N", name, text);
    }
    *(struct pl_shard *)field = (struct pl_shard){.rank = rank, .size = size};
    return PL_OK;
}

static enum pl_status read_shuffle(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_feeder_options *options = field;

    options->shuffle = true;
    return pl_options_whole(name, text, 0, UINT64_MAX, &options->seed, reterr);
}

#define PL_OPTIONS_OF struct tool
static const struct pl_option table[] = {PL_FEED_OPTIONS(PL_OPTION) PL_OPTIONS_END};

/* Parses and checks the arguments. */
static enum pl_status parse_arguments(struct tool *tool, int argc, char **argv, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;

    if (argc != 2 || !*argv[0] || !*argv[1]) {
        return pl_error_set(reterr, PL_INVALID, "expected FROM and PATH, found %d arguments; --help tells more", argc);
    }
    tool->from = argv[0];
    tool->path = argv[1];
    /* The records of an augmented manifest are framed already, and never decompressed. */
    if (tool->attributes && (tool->manifest || tool->options.compression || tool->options.wrapper)) {
        return pl_error_set(reterr, PL_INVALID,
                            "--augmented goes with neither --manifest, --recordio nor --decompress");
    }
    if (pl_s3_uri_is(tool->from)) {
        return pl_s3_uri_parse(tool->from, &bucket, &key, reterr);
    }
    if (tool->manifest || tool->attributes) {
        return pl_error_set(reterr, PL_INVALID, "'%s': a manifest is an object on S3, s3://BUCKET/KEY", tool->from);
    }
    return PL_OK;
}

static void say_epoch(const struct tool *tool, uint64_t epoch, const struct pl_feeder_counts *counts, int64_t ns)
{
    double seconds = (double)ns / (double)PL_NS_PER_S;

    if (!tool->quiet) {
        pl_log(PL_LOG_INFO, "epoch %" PRIu64 ": %" PRIu64 " objects, %" PRIu64 " bytes in %.3f s%s", epoch,
               counts->objects, counts->bytes, seconds, counts->closed_early ? "; the reader left early" : "");
    }
}

static void stop_signals(sigset_t *ret_signals)
{
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGTERM);
    sigaddset(ret_signals, SIGINT);
}

static void tell_failure(struct tool *tool, const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES];

    if (tool->told) {
        return;
    }
    tool->told = true;
    pl_log_error(error, "cannot feed '%s'", tool->path);
    if (tool->failure) {
        printf("%s: %s\n", tool->path, pl_error_text(error, text, sizeof(text)));
        fflush(stdout);
    }
}

/* Feeds all epochs and closes the feeder. On a stop request the FIFOs must be removed first; before them, while objects
 * are listed, a signal ends this process. */
static enum pl_status feed(struct tool *tool, struct pl_feeder *feeder, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;
    sigset_t stop;

    stop_signals(&stop);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    for (uint64_t epoch = tool->first; status == PL_OK && epoch - tool->first < tool->epochs; epoch++) {
        int64_t begin_ns = pl_clock_now_ns();
        struct pl_feeder_counts counts;

        status = pl_feeder_run(feeder, epoch, &counts, reterr);
        if (status == PL_OK) {
            say_epoch(tool, epoch, &counts, pl_clock_now_ns() - begin_ns);
        }
    }
    if (status != PL_OK && status != PL_CANCELLED) {
        tell_failure(tool, reterr);
        pl_feeder_hold(feeder);
    }
    pl_feeder_close(feeder);
    return status;
}

static enum pl_status open_augmented_epoch(void *context, uint64_t epoch, struct pl_source **ret_source,
                                           struct pl_error *reterr)
{
    struct augmented *augmented = context;

    augmented->options.epoch = epoch;
    return pl_source_augmented_open(augmented->client, &augmented->lines, &augmented->options, ret_source, reterr);
}

static enum pl_status feed_augmented(struct tool *tool, struct pl_s3_client *client, struct pl_error *reterr)
{
    PL_AUTO_FREE char *names = pl_memory_string(tool->attributes, reterr);
    const char *attributes[MOST_ATTRIBUTES];
    struct augmented augmented = {.client = client,
                                  .options = {.deal = tool->options.shard, .shuffle = tool->options.shuffle}};
    struct pl_feeder_epochs epochs = {.context = &augmented, .open = open_augmented_epoch};
    struct pl_feeder *feeder;
    size_t count = 0;
    char *rest = NULL;
    enum pl_status status;

    if (!names) {
        return PL_MEMORY;
    }
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (count == MOST_ATTRIBUTES) {
            return pl_error_set(reterr, PL_INVALID, "more than %d attributes", (int)MOST_ATTRIBUTES);
        }
        attributes[count++] = name;
    }
    augmented.options.seed = tool->options.seed;
    if (augmented.options.deal.size == 0) {
        augmented.options.deal.size = 1;
    }
    PL_TRY(pl_manifest_fetch_augmented(client, tool->from, attributes, count, pl_deadline_after_ns(LIST_NS),
                                       &augmented.lines, reterr));
    status = pl_feeder_open_epochs(&epochs, tool->path, &tool->options, &feeder, reterr);
    if (status == PL_OK) {
        status = feed(tool, feeder, reterr);
    }
    pl_manifest_augmented_done(&augmented.lines);
    return status;
}

static enum pl_status run(struct tool *tool, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;
    PL_AUTO_STORE struct pl_store *store = NULL;
    int64_t deadline_ns = pl_deadline_after_ns(LIST_NS);
    struct pl_feeder *feeder;

    if (pl_s3_uri_is(tool->from)) {
        PL_TRY(pl_environment_new(&environment, reterr));
        PL_TRY(pl_s3_client_new(environment, &tool->s3, &client, reterr));
    }
    if (tool->attributes) {
        return feed_augmented(tool, client, reterr);
    }
    PL_TRY(client ? pl_store_s3_open(client, tool->from, tool->manifest, deadline_ns, &store, reterr)
                  : pl_store_open_directory(tool->from, false, &store, reterr));
    PL_TRY(pl_feeder_open(store, tool->path, &tool->options, deadline_ns, &feeder, reterr));
    return feed(tool, feeder, reterr);
}

int main(int argc, char **argv)
{
    struct tool tool = {.epochs = UINT64_MAX};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    sigset_t stop;

    pl_log_open("paceline feed");
    status = pl_verbs_read("feed", table, argc, argv, &tool, &error);
    status = status == PL_OK ? parse_arguments(&tool, argc - optind, argv + optind, &error) : status;
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves early is a normal end of an epoch */
    stop_signals(&stop);
    tool.options.cancel_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    status = run(&tool, &error);
    if (status == PL_CANCELLED) {
        return EXIT_SUCCESS;
    }
    if (status != PL_OK) {
        tell_failure(&tool, &error);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
