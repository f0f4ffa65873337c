/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of paceline-bench. */
#include "base/memory.h"
#include "base/text.h"
#include "collectives/collective.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "programs/bench/bench.h"

#include <stdlib.h>
#include <string.h>

static enum pl_status read_bytes(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    const uint64_t least = strcmp(name, "factor") == 0 ? 2 : 1;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = !strcmp(end, "KiB") ? 10 : !strcmp(end, "MiB") ? 20 : !strcmp(end, "GiB") ? 30 : 0;

    if (*text < '0' || *text > '9' || (*end && !shift) || value > UINT64_MAX >> 1 >> shift || value << shift < least) {
        return pl_error_set(reterr, PL_INVALID,
                            "--%s is '%s', expected a number from %llu up; KiB, MiB or GiB may follow", name, text,
                            (unsigned long long)least);
    }
    *(uint64_t *)field = (uint64_t)value << shift;
    return PL_OK;
}

static enum pl_status read_type(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    if (pl_dtype_find(text, field)) {
        return PL_OK;
    }
    for (int i = 0; i < PL_DTYPE_COUNT; i++) {
        pl_text_printf(&names, "%s%s", i ? ", " : "", pl_dtype_text((enum pl_dtype)i));
    }
    return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected one of %s", name, text, pl_text_string(&names));
}

#define PL_OPTIONS_OF struct pl_bench_options
static const struct pl_option table[] = {PL_BENCH_OPTIONS(PL_OPTION) PL_OPTIONS_END};

enum pl_status pl_bench_options_parse(int argc, char **argv, struct pl_bench_options *options, struct pl_error *reterr)
{
    static const enum pl_kind kinds[] = {PL_ALLREDUCE, PL_ALLGATHER, PL_BROADCAST};
    bool found = false;

    PL_TRY(pl_verbs_read("bench", table, argc, argv, options, reterr));
    options->flags |= options->wire == WIRE_FLOAT16    ? PL_WIRE_FLOAT16
                      : options->wire == WIRE_BFLOAT16 ? PL_WIRE_BFLOAT16
                                                       : 0;
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
