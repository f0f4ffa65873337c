/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3`: look into, read and copy what lies in S3. */
#include "s3io/tool_s3.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "s3io/s3_list.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

static const char usage[] = "usage: paceline s3 ls [--recursive] s3://BUCKET/PREFIX\n"
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
                            "  --part MIB             size of one range (an eighth of the budget, at most 4)\n"
                            "  --stall SECONDS        a transfer that moves no byte for so long is begun anew (10)\n"
                            "  --timeout SECONDS      longest wait for the next bytes, all attempts together (300)\n"
                            "  --verbose\n";

static bool parse_number(const char *text, unsigned long most, unsigned long *ret_number)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number == 0 || number > most) {
        fprintf(stderr, "paceline s3: '%s' is not a number from 1 to %lu\n", text, most);
        return false;
    }
    *ret_number = number;
    return true;
}

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

static bool take_number_option(struct tool *tool, int option, const char *text)
{
    unsigned long number;

    switch (option) {
    case OPTION_CONNECTIONS:
        if (!parse_number(text, 1024, &number)) {
            return false;
        }
        tool->client_options.connections = (unsigned)number;
        return true;
    case OPTION_BUDGET:
        if (!parse_number(text, 1UL << 20, &number)) {
            return false;
        }
        tool->stream_options.budget_bytes = (uint64_t)number << 20;
        return true;
    case OPTION_PART:
        if (!parse_number(text, 1UL << 12, &number)) {
            return false;
        }
        tool->stream_options.part_bytes = (uint64_t)number << 20;
        return true;
    case OPTION_STALL:
        if (!parse_number(text, 3600, &number)) {
            return false;
        }
        tool->client_options.stall_ns = (int64_t)number * PL_NS_PER_S;
        return true;
    default:
        if (!parse_number(text, 1000000, &number)) {
            return false;
        }
        tool->timeout_ns = (int64_t)number * PL_NS_PER_S;
        return true;
    }
}

static bool take_option(struct tool *tool, int option, const char *argument)
{
    struct pl_s3_options *client = &tool->client_options;

    switch (option) {
    case OPTION_RECURSIVE:
        return tool->recursive = true;
    case OPTION_AGAIN:
        return tool->again = true;
    case OPTION_QUIET:
        return tool->quiet = true;
    case OPTION_VERBOSE:
        pl_log_set_level(PL_LOG_DEBUG);
        return true;
    case OPTION_ENDPOINT:
        client->endpoint_url = argument;
        return true;
    case OPTION_REGION:
        client->region = argument;
        return true;
    case OPTION_PATH:
        client->style = PL_S3_STYLE_PATH;
        return true;
    case OPTION_VIRTUAL:
        client->style = PL_S3_STYLE_VIRTUAL;
        return true;
    case OPTION_ANONYMOUS:
        return client->credentials.anonymous = true;
    case OPTION_METADATA:
        return client->credentials.allow_metadata = true;
    case OPTION_REQUESTER:
        return client->requester_pays = true;
    case OPTION_NO_CHECKSUMS:
        return tool->no_checksums = true;
    case OPTION_CONNECTIONS:
    case OPTION_BUDGET:
    case OPTION_PART:
    case OPTION_STALL:
    case OPTION_TIMEOUT:
        return take_number_option(tool, option, argument);
    default:
        return false;
    }
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
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};

    if (tool->word_count != 1) {
        return pl_error_set(reterr, PL_INVALID, "ls takes one s3://BUCKET/PREFIX");
    }
    PL_TRY(pl_s3_uri_parse(tool->words[0], &bucket, &prefix, reterr));
    PL_TRY(pl_s3_list(tool->client, bucket, prefix, tool->recursive ? NULL : "/", pl_deadline_after_ns(tool->timeout_ns), &listing, reterr));
    for (size_t i = 0; i < listing.count; i++) {
        print_entry(&listing.items[i]);
    }
    if (listing.count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "nothing under '%s'", tool->words[0]);
    }
    return fflush(stdout) == 0 ? PL_OK : pl_error_set(reterr, PL_SYSTEM, "standard output is gone");
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
        return pl_error_set(reterr, PL_INVALID, "cat takes s3://BUCKET/KEY...");
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
        status = pl_s3_stream_open(tool->client, objects, (size_t)tool->word_count, &tool->stream_options, &stream, reterr);
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

static enum pl_status run(struct tool *tool, const char *verb, struct pl_error *reterr)
{
    PL_TRY(pl_environment_new(&tool->environment, reterr));
    PL_TRY(pl_s3_client_new(tool->environment, &tool->client_options, &tool->client, reterr));
    if (strcmp(verb, "ls") == 0) {
        return tool_ls(tool, reterr);
    }
    if (strcmp(verb, "rm") == 0) {
        return tool_rm(tool, reterr);
    }
    return strcmp(verb, "cat") == 0 ? tool_cat(tool, reterr) : tool_cp(tool, reterr);
}

int main(int argc, char **argv)
{
    struct tool tool = {.timeout_ns = 300 * PL_NS_PER_S};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    const char *verb;
    int option;

    pl_log_set_prefix("paceline s3");
    while ((option = getopt_long(argc, argv, "rqvh", long_options, NULL)) != -1) {
        if (option == OPTION_HELP) {
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (!take_option(&tool, option, optarg)) {
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    verb = optind < argc ? argv[optind] : "";
    if (strcmp(verb, "ls") != 0 && strcmp(verb, "cat") != 0 && strcmp(verb, "cp") != 0 && strcmp(verb, "rm") != 0) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    tool.words = argv + optind + 1;
    tool.word_count = argc - optind - 1;
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error with a name, not a silent death */
    status = run(&tool, verb, &error);
    if (status != PL_OK) {
        pl_log_error(&error, "%s", verb);
    }
    pl_s3_client_free(tool.client);
    pl_environment_free(tool.environment);
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? EXIT_USAGE : EXIT_FAILURE;
}
