/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of paceline-bench. */
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "collectives/collective.h"
#include "programs/bench/bench.h"

#include <stdlib.h>
#include <string.h>

static enum pl_status take_bytes(const char *name, const char *text, uint64_t least, uint64_t *ret_bytes,
                                 struct pl_error *reterr)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = !strcmp(end, "KiB") ? 10 : !strcmp(end, "MiB") ? 20 : !strcmp(end, "GiB") ? 30 : 0;

    if (*text < '0' || *text > '9' || (*end && !shift) || value > UINT64_MAX >> 1 >> shift || value << shift < least) {
        return pl_error_set(reterr, PL_INVALID,
                            "--%s is '%s', expected a number from %llu, or one followed by KiB, MiB or GiB", name, text,
                            (unsigned long long)least);
    }
    *ret_bytes = (uint64_t)value << shift;
    return PL_OK;
}

static enum pl_status take_type(const char *text, enum pl_dtype *ret_dtype, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    if (pl_dtype_find(text, ret_dtype)) {
        return PL_OK;
    }
    for (int i = 0; i < PL_DTYPE_COUNT; i++) {
        pl_text_printf(&names, "%s%s", i ? ", " : "", pl_dtype_text((enum pl_dtype)i));
    }
    return pl_error_set(reterr, PL_INVALID, "--type is '%s', expected one of %s", text, pl_text_string(&names));
}

/* Finds the index of `text` in `words`, which end with a NULL. */
static enum pl_status take_word(const char *name, const char *text, const char *const *words, int *ret_place,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret_place = i;
            return PL_OK;
        }
        pl_text_printf(&list, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    }
    return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected %s", name, text, pl_text_string(&list));
}

static enum pl_status take_option(struct pl_bench_options *options, int letter, const char *text,
                                  struct pl_error *reterr)
{
    uint64_t number = 0;
    int affinity = 0;

    switch (letter) {
    case 'm':
        return take_bytes("min-bytes", text, 1, &options->min_bytes, reterr);
    case 'M':
        return take_bytes("max-bytes", text, 1, &options->max_bytes, reterr);
    case 'f':
        return take_bytes("factor", text, 2, &options->factor, reterr);
    case 't':
        return take_type(text, &options->dtype, reterr);
    case 'b':
        PL_TRY(
            take_word("buffers", text, (const char *const[]){"arena", "private", "device", NULL}, &affinity, reterr));
        options->buffers = (const enum pl_bench_buffers[]){BUFFERS_ARENA, BUFFERS_PRIVATE, BUFFERS_DEVICE}[affinity];
        return PL_OK;
    case 'p':
        PL_TRY(take_word("peer", text, (const char *const[]){"mpi", "mpi-best", NULL}, &affinity, reterr));
        options->peer = affinity ? PEER_MPI_BEST : PEER_MPI;
        return PL_OK;
    case 'w':
        PL_TRY(take_word("wire", text, (const char *const[]){"float16", "bfloat16", NULL}, &affinity, reterr));
        options->flags |= affinity ? PL_WIRE_BFLOAT16 : PL_WIRE_FLOAT16;
        return PL_OK;
    case 'n':
        PL_TRY(pl_options_whole("pairs", text, 1, 999, &number, reterr));
        options->pairs = (int)number;
        return PL_OK;
    case 'l':
        return pl_options_real("loop-ms", text, 0.001, 1e6, &options->loop_ms, reterr);
    case 'T':
        PL_TRY(pl_options_whole("threads", text, 1, 64, &number, reterr));
        options->threads = (int)number;
        return PL_OK;
    case 'a':
        options->alone = true;
        return PL_OK;
    case 'B':
        options->bound = true;
        return PL_OK;
    case 'r':
        options->flags |= PL_REPRODUCIBLE;
        return PL_OK;
    default:
        options->json = true;
        return PL_OK;
    }
}

enum pl_status pl_bench_options_parse(int argc, char **argv, struct pl_bench_options *options, struct pl_error *reterr)
{
    static const struct option table[] = {
        {"min-bytes", 1, NULL, 'm'},    {"max-bytes", 1, NULL, 'M'}, {"factor", 1, NULL, 'f'},
        {"type", 1, NULL, 't'},         {"buffers", 1, NULL, 'b'},   {"peer", 1, NULL, 'p'},
        {"alone", 0, NULL, 'a'},        {"bound", 0, NULL, 'B'},     {"wire", 1, NULL, 'w'},
        {"reproducible", 0, NULL, 'r'}, {"pairs", 1, NULL, 'n'},     {"loop-ms", 1, NULL, 'l'},
        {"threads", 1, NULL, 'T'},      {"json", 0, NULL, 'j'},      {NULL, 0, NULL, 0}};
    static const enum pl_kind kinds[] = {PL_ALLREDUCE, PL_ALLGATHER, PL_BROADCAST};
    enum pl_status status;
    bool found = false;
    int letter;

    while ((status = pl_options_next(argc, argv, "", table, &letter, reterr)) == PL_OK) {
        PL_TRY(take_option(options, letter, optarg, reterr));
    }
    PL_TRY(status == PL_END ? PL_OK : status);
    for (size_t i = 0; optind + 1 == argc && i < PL_ARRAY_ITEMS(kinds); i++) {
        if (strcmp(argv[optind], pl_kind_text(kinds[i])) == 0) {
            options->kind = kinds[i];
            found = true;
        }
    }
    if (!found) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected one operation, allreduce, allgather or broadcast, found '%s'; --help lists the "
                            "options",
                            optind < argc ? argv[argc - 1] : "");
    }
    if (options->kind != PL_ALLREDUCE &&
        (options->flags || options->bound || options->buffers == BUFFERS_DEVICE || options->peer == PEER_MPI_BEST)) {
        return pl_error_set(reterr, PL_INVALID,
                            "--wire, --reproducible, --bound, --peer mpi-best and device buffers are for allreduce, "
                            "not for %s",
                            pl_kind_text(options->kind));
    }
    if (options->min_bytes > options->max_bytes) {
        return pl_error_set(reterr, PL_INVALID, "--min-bytes is above --max-bytes");
    }
    if (options->buffers == BUFFERS_DEVICE) {
        options->alone = true;
        if (options->peer != PEER_NONE || options->bound) {
            return pl_error_set(reterr, PL_INVALID, "device buffers are measured alone, without --peer and --bound");
        }
    }
    return PL_OK;
}
