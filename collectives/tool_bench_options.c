/* SPDX-License-Identifier: Apache-2.0 */
/* paceline-bench's options. */
#include "collectives/collective.h"
#include "collectives/tool_bench.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char bench_usage[] = "usage: paceline bench allreduce [options]          (several ranks: mpirun -n N paceline bench allreduce ...)\n"
                           "  --min-bytes N --max-bytes N   sizes, 4 to 64 MiB; KiB, MiB and GiB are understood\n"
                           "  --factor N                    from one size to the next, 4\n"
                           "  --type TYPE                   float32\n"
                           "  --buffers arena|private|device arena; device: in the GPU's memory, on a stream, alone, without peer and bound\n"
                           "  --peer mpi|mpi-best           beside MPI_Allreduce; mpi-best: the fastest of whole and cut into 64 KiB to 4 MiB\n"
                           "  --alone                       the operation alone, without rewriting and reading the buffers around it\n"
                           "  --bound                       also the time of reading and writing every rank's buffer once, as the limit\n"
                           "  --wire float16|bfloat16       narrow float32 between hosts\n"
                           "  --reproducible                same bits whatever the layout\n"
                           "  --pairs N                     7\n"
                           "  --loop-ms N                   8: shortest loop that is timed\n"
                           "  --threads N                   N threads of this process as ranks, without mpirun\n"
                           "  --json                        one object a line: bytes ranks time_us busbw_gbs wrong peer_time_us ratio\n";

static bool parse_bytes(const char *text, uint64_t *ret_bytes)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = !strcmp(end, "KiB") ? 10 : !strcmp(end, "MiB") ? 20 : !strcmp(end, "GiB") ? 30 : 0;

    *ret_bytes = (uint64_t)value << shift;
    return end != text && (!*end || shift) && value > 0;
}

static bool parse_peer(const char *text, enum bench_peer *ret_peer)
{
    *ret_peer = !strcmp(text, "mpi") ? PEER_MPI : !strcmp(text, "mpi-best") ? PEER_MPI_BEST : PEER_NONE;
    return *ret_peer != PEER_NONE;
}

static bool parse_buffers(const char *text, enum bench_buffers *ret_buffers)
{
    *ret_buffers = !strcmp(text, "arena") ? BUFFERS_ARENA : !strcmp(text, "private") ? BUFFERS_PRIVATE : BUFFERS_DEVICE;
    return *ret_buffers != BUFFERS_DEVICE || !strcmp(text, "device");
}

/* Says what is wrong; always false. */
static bool PL_PRINTF(1, 2) misused(const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "paceline bench: %s; --help lists the options\n", text);
    return false;
}

bool bench_options_parse(int argc, char **argv, struct bench_options *options)
{
    static const struct option names[] = {
        {"min-bytes", 1, NULL, 'm'}, {"max-bytes", 1, NULL, 'M'}, {"factor", 1, NULL, 'f'},  {"type", 1, NULL, 't'}, {"buffers", 1, NULL, 'b'},
        {"peer", 1, NULL, 'p'},      {"alone", 0, NULL, 'a'},     {"bound", 0, NULL, 'B'},   {"wire", 1, NULL, 'w'}, {"reproducible", 0, NULL, 'r'},
        {"pairs", 1, NULL, 'n'},     {"loop-ms", 1, NULL, 'l'},   {"threads", 1, NULL, 'T'}, {"json", 0, NULL, 'j'}, {NULL, 0, NULL, 0}};
    bool good = true;
    int letter;
    int name = 0;

    opterr = 0;
    while ((letter = getopt_long(argc, argv, ":", names, &name)) != -1) {
        switch (letter) {
        case 'm':
            good = parse_bytes(optarg, &options->min_bytes);
            break;
        case 'M':
            good = parse_bytes(optarg, &options->max_bytes);
            break;
        case 'f':
            good = parse_bytes(optarg, &options->factor) && options->factor > 1;
            break;
        case 't':
            good = pl_dtype_find(optarg, &options->dtype);
            break;
        case 'b':
            good = parse_buffers(optarg, &options->buffers);
            break;
        case 'p':
            good = parse_peer(optarg, &options->peer);
            break;
        case 'a':
            options->alone = true;
            break;
        case 'B':
            options->bound = true;
            break;
        case 'w':
            options->flags |= !strcmp(optarg, "float16") ? PL_WIRE_FLOAT16 : PL_WIRE_BFLOAT16;
            good = !strcmp(optarg, "float16") || !strcmp(optarg, "bfloat16");
            break;
        case 'r':
            options->flags |= PL_REPRODUCIBLE;
            break;
        case 'n':
            options->pairs = atoi(optarg);
            good = options->pairs > 0 && options->pairs < 1000;
            break;
        case 'l':
            options->loop_ms = atof(optarg);
            good = options->loop_ms > 0;
            break;
        case 'T':
            options->threads = atoi(optarg);
            good = options->threads > 0 && options->threads <= 64;
            break;
        case 'j':
            options->json = true;
            break;
        case ':':
            return misused("%s needs a value", argv[optind - 1]);
        default:
            return misused("there is no option %s", argv[optind - 1]);
        }
        if (!good) {
            return misused("--%s cannot be '%s'", names[name].name, optarg);
        }
    }
    if (optind + 1 != argc || strcmp(argv[optind], "allreduce") != 0) {
        return misused("expected the word allreduce alone, found '%s'", optind < argc ? argv[argc - 1] : "");
    }
    if (options->min_bytes > options->max_bytes) {
        return misused("--min-bytes is above --max-bytes");
    }
    if (options->buffers == BUFFERS_DEVICE) {
        options->alone = true;
        return (options->peer == PEER_NONE && !options->bound) || misused("device buffers are measured alone, without --peer and --bound");
    }
    return true;
}
