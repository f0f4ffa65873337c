/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the rate of the device's kernels with the limit that its memory sets.
 *
 *   bench_device [--device N] [--gradients LIST.json] [--json FILE] [--pool-mib 2048]
 *
 * The ceiling is a device-to-device copy of half a pool, bytes read plus bytes written; there are four pools, many
 * times any cache. Every other figure is the bytes that a kernel must move (each input read once, each output written
 * once) over its time, as a share of that ceiling and of a copy of as many bytes. Times are between two events around
 * many launches, which go round through more memory than the caches hold, and medians of ROUNDS. Launches are queued
 * after a kernel that only takes time, so that the device does not wait for the calls: a launch over 4 MiB ends sooner
 * than the CPU makes the next. Input is random, so that half of the bits change; results are checked in
 * tests/unit/device, not here. "host" rows are the time that the calls take on the CPU.
 *
 * Prints a table; FILE gets one JSON object per line: {"case", "bytes", "us", "gb_s", "of_peak", "of_copy"} or {"case",
 * "host_us"}.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"
#include "examples/synthetic/gradient_list.h"
#include "tests/bench/median.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, LAUNCHES = 40, HOST_STEPS = 200, ALIGN_ELEMS = 64, ALIGN_BYTES = 256 };

#define BUCKET_BYTES (UINT64_C(4) << 20)

static const uint64_t LEAD_NS = PL_NS_PER_MS; /* long enough for LAUNCHES calls */

struct bench {
    struct pl_device *device;
    void *stream;
    void *began, *ended; /* events with timestamps */
    unsigned char *from, *to;
    float *slots[2];
    FILE *json;
    uint64_t pool_bytes; /* size of each of the four pools */
    double peak_gb_s;
    struct gradient_list list;
};

/* Type of a launch over `bytes` of the pools from `offset_bytes` on. */
typedef enum pl_status launch(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                              struct pl_error *reterr);

static int64_t deadline(void)
{
    return pl_deadline_after_ns(60 * PL_NS_PER_S);
}

/* Times launches, each over the next `bytes` of the pools; `*ret_us` is per launch. */
static enum pl_status time_launches(struct bench *b, launch *call, const void *context, uint64_t bytes, double *ret_us,
                                    struct pl_error *reterr)
{
    uint64_t places = b->pool_bytes / bytes;
    uint64_t next = 0;
    double us[ROUNDS];

    for (int round = -1; round < ROUNDS; round++) { /* the first round warms up */
        double ms;

        PL_TRY(pl_device_spin(b->device, LEAD_NS, 1, b->stream, reterr));
        PL_TRY(pl_device_event_record(b->device, b->began, b->stream, reterr));
        for (int n = 0; n < LAUNCHES; n++) {
            PL_TRY(call(b, context, next++ % places * bytes, bytes, reterr));
        }
        PL_TRY(pl_device_event_record(b->device, b->ended, b->stream, reterr));
        PL_TRY(pl_device_stream_finish(b->device, b->stream, deadline(), reterr));
        PL_TRY(pl_device_event_ms(b->device, b->began, b->ended, &ms, reterr));
        if (round >= 0) {
            us[round] = ms * 1e3 / LAUNCHES;
        }
    }
    *ret_us = median(us, ROUNDS);
    return PL_OK;
}

static enum pl_status launch_copy(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                                  struct pl_error *reterr)
{
    (void)context;
    return pl_device_copy(b->device, b->to + offset_bytes, b->from + offset_bytes, bytes, b->stream, reterr);
}

/* Reports a kernel that moves `moved_bytes` per launch, compared with a copy that moves as many. */
static enum pl_status report(struct bench *b, const char *name, uint64_t moved_bytes, double us,
                             struct pl_error *reterr)
{
    double gb_s = (double)moved_bytes / us / 1e3;
    double copy_us;
    uint64_t copy_bytes = moved_bytes / 2 < b->pool_bytes ? moved_bytes / 2 : b->pool_bytes;

    copy_bytes -= copy_bytes % ALIGN_BYTES; /* a copy from an odd address takes longer */
    PL_TRY(time_launches(b, launch_copy, NULL, copy_bytes, &copy_us, reterr));
    copy_us *= (double)moved_bytes / 2.0 / (double)copy_bytes;
    printf("%-44s %8.1f MB %9.1f us %8.1f GB/s %6.1f %% of peak %6.1f %% of a copy\n", name, (double)moved_bytes / 1e6,
           us, gb_s, 100.0 * gb_s / b->peak_gb_s, 100.0 * copy_us / us);
    if (b->json) {
        fprintf(
            b->json,
            "{\"case\": \"%s\", \"bytes\": %llu, \"us\": %.2f, \"gb_s\": %.1f, \"of_peak\": %.4f, \"of_copy\": %.4f}\n",
            name, (unsigned long long)moved_bytes, us, gb_s, gb_s / b->peak_gb_s, copy_us / us);
    }
    return PL_OK;
}

struct cast {
    const char *name;
    enum pl_dtype from, to;
    double factor;
};

/* Number of elements of a cast whose wider type fills `bytes`. */
static uint64_t cast_elems(const struct cast *cast, uint64_t bytes)
{
    size_t from = pl_dtype_bytes(cast->from), to = pl_dtype_bytes(cast->to);

    return bytes / (from > to ? from : to);
}

static enum pl_status launch_cast(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                                  struct pl_error *reterr)
{
    const struct cast *cast = context;

    return pl_device_scale(b->device, b->to + offset_bytes, cast->to, b->from + offset_bytes, cast->from,
                           cast_elems(cast, bytes), cast->factor, b->stream, reterr);
}

static enum pl_status bench_casts(struct bench *b, uint64_t mib, struct pl_error *reterr)
{
    static const struct cast casts[] = {
        {"scale float32", PL_FLOAT32, PL_FLOAT32, 0.25},
        {"cast float32 to float16", PL_FLOAT32, PL_FLOAT16, 0.25},
        {"cast float32 to bfloat16", PL_FLOAT32, PL_BFLOAT16, 0.25},
        {"cast float16 to float32", PL_FLOAT16, PL_FLOAT32, 4.0},
        {"cast bfloat16 to float32", PL_BFLOAT16, PL_FLOAT32, 4.0},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(casts); i++) {
        uint64_t elems = cast_elems(&casts[i], mib << 20);
        char name[80];
        double us;

        PL_TRY(time_launches(b, launch_cast, &casts[i], mib << 20, &us, reterr));
        snprintf(name, sizeof(name), "%s, %llu MiB", casts[i].name, (unsigned long long)mib);
        PL_TRY(report(b, name, elems * (pl_dtype_bytes(casts[i].from) + pl_dtype_bytes(casts[i].to)), us, reterr));
    }
    return PL_OK;
}

/* Lists of pieces for every place in the pools. They are made before the measurement, as a program makes its list
 * once. */
struct packing {
    const char *name;
    enum pl_dtype flat;
    double factor;
    bool back;
    struct pl_device_pieces **lists; /* [places] */
};

static enum pl_status launch_packing(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                                     struct pl_error *reterr)
{
    const struct packing *packing = context;
    const struct pl_device_pieces *pieces = packing->lists[offset_bytes / bytes];

    return packing->back ? pl_device_unpack(pieces, PL_FLOAT32, b->to + offset_bytes, packing->flat, packing->factor,
                                            b->stream, reterr)
                         : pl_device_pack(pieces, PL_FLOAT32, b->to + offset_bytes, packing->flat, packing->factor,
                                          b->stream, reterr);
}

static uint64_t padded(uint64_t elems)
{
    return (elems + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
}

/* Times packing of tensors of `counts` elements, which are padded in `from` and adjacent in `to`. */
static enum pl_status bench_packing(struct bench *b, const char *what, const uint64_t *counts, size_t tensors,
                                    struct pl_error *reterr)
{
    struct packing packings[] = {{"pack", PL_FLOAT32, 1.0, false, NULL},
                                 {"unpack", PL_FLOAT32, 1.0, true, NULL},
                                 {"pack and scale", PL_FLOAT32, 0.25, false, NULL},
                                 {"pack as bfloat16", PL_BFLOAT16, 0.25, false, NULL},
                                 {"unpack from bfloat16", PL_BFLOAT16, 4.0, true, NULL}};
    PL_AUTO_FREE struct pl_device_piece *pieces = pl_memory_new(tensors, sizeof(*pieces), reterr);
    PL_AUTO_FREE struct pl_device_pieces **lists = NULL;
    uint64_t elems = 0, place_bytes = 0, places;
    enum pl_status status = PL_OK;

    for (size_t i = 0; i < tensors; i++) {
        elems += counts[i];
        place_bytes += padded(counts[i]) * sizeof(float);
    }
    places = b->pool_bytes / place_bytes;
    if (places == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s do not fit into pools of %llu MiB", what,
                            (unsigned long long)(b->pool_bytes >> 20));
    }
    lists = pl_memory_new(places, sizeof(struct pl_device_pieces *), reterr);
    if (!pieces || !lists) {
        return PL_MEMORY;
    }
    for (uint64_t place = 0; status == PL_OK && place < places; place++) {
        uint64_t at = place * place_bytes / sizeof(float), offset = 0;

        for (size_t i = 0; i < tensors; i++) {
            pieces[i] = (struct pl_device_piece){
                .tensor = (float *)(void *)b->from + at, .offset_elems = offset, .count_elems = counts[i]};
            at += padded(counts[i]);
            offset += counts[i];
        }
        status = pl_device_pieces_new(b->device, pieces, tensors, &lists[place], reterr);
    }
    for (size_t i = 0; status == PL_OK && i < PL_ARRAY_ITEMS(packings); i++) {
        char name[80];
        double us = 0.0;

        packings[i].lists = lists;
        status = time_launches(b, launch_packing, &packings[i], place_bytes, &us, reterr);
        snprintf(name, sizeof(name), "%s, %s", packings[i].name, what);
        if (status == PL_OK) {
            status = report(b, name, elems * (sizeof(float) + pl_dtype_bytes(packings[i].flat)), us, reterr);
        }
    }
    for (uint64_t place = 0; place < places; place++) {
        pl_device_pieces_free(lists[place]);
    }
    return status;
}

static enum pl_status launch_adamw(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                                   struct pl_error *reterr)
{
    const enum pl_dtype *gradient = context;
    struct pl_device_step step = {
        .kind = PL_DEVICE_ADAM,
        .factors = {.gradient = 1.0F,
                    .rate = 1e-3F,
                    .shrink = 1e-5F,
                    .beta1 = 0.9F,
                    .beta2 = 0.999F,
                    .epsilon = 1e-8F,
                    .correct1 = 1.0F,
                    .correct2 = 1.0F},
    };
    uint64_t first = offset_bytes / sizeof(float);

    return pl_device_optimize(b->device, &step, bytes / sizeof(float), (float *)(void *)b->to + first,
                              b->from + offset_bytes, *gradient, b->slots[0] + first, b->slots[1] + first, b->stream,
                              reterr);
}

/* Times AdamW: value, mean and variance are read and written, the gradient is read. */
static enum pl_status bench_adamw(struct bench *b, uint64_t bytes, const char *what, struct pl_error *reterr)
{
    static const enum pl_dtype dtypes[] = {PL_FLOAT32, PL_BFLOAT16};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(dtypes); i++) {
        char name[80];
        double us;

        PL_TRY(time_launches(b, launch_adamw, &dtypes[i], bytes, &us, reterr));
        snprintf(name, sizeof(name), "AdamW, %s gradients, %s", pl_dtype_text(dtypes[i]), what);
        PL_TRY(report(b, name, bytes / sizeof(float) * (6 * sizeof(float) + pl_dtype_bytes(dtypes[i])), us, reterr));
    }
    return PL_OK;
}

static enum pl_status launch_norm(struct bench *b, const void *context, uint64_t offset_bytes, uint64_t bytes,
                                  struct pl_error *reterr)
{
    (void)context;
    return pl_device_squared_norm(b->device, b->from + offset_bytes, PL_FLOAT32, bytes / sizeof(float), b->slots[0],
                                  (double *)(void *)(b->slots[0] + PL_DEVICE_NORM_BYTES / sizeof(float)), b->stream,
                                  reterr);
}

/* Makes the calls of one step: a pack of all tensors, then for each bucket an event, a wait for it and the
 * optimizer, then an unpack. */
static enum pl_status host_step(struct bench *b, const struct pl_device_pieces *pieces, void *other_stream, void *event,
                                struct pl_error *reterr)
{
    static const enum pl_dtype dtype = PL_FLOAT32;
    uint64_t left = b->list.elems * sizeof(float), at = 0;

    PL_TRY(pl_device_pack(pieces, PL_FLOAT32, b->to, PL_FLOAT32, 1.0, b->stream, reterr));
    while (left > 0) {
        uint64_t bytes = left < BUCKET_BYTES ? left : BUCKET_BYTES;

        PL_TRY(pl_device_event_record(b->device, event, b->stream, reterr));
        PL_TRY(pl_device_stream_wait(b->device, other_stream, event, reterr));
        PL_TRY(launch_adamw(b, &dtype, at, bytes, reterr));
        at += bytes;
        left -= bytes;
    }
    return pl_device_unpack(pieces, PL_FLOAT32, b->to, PL_FLOAT32, 1.0, b->stream, reterr);
}

static enum pl_status bench_host(struct bench *b, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_device_piece *pieces = pl_memory_new(b->list.count, sizeof(*pieces), reterr);
    struct pl_device_pieces *list = NULL;
    void *other_stream = NULL, *event = NULL;
    uint64_t at = 0, offset = 0;
    double us[HOST_STEPS];

    if (!pieces) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < b->list.count; i++) {
        pieces[i] = (struct pl_device_piece){(float *)(void *)b->from + at, offset, b->list.counts[i]};
        at += padded(b->list.counts[i]);
        offset += b->list.counts[i];
    }
    PL_TRY(pl_device_pieces_new(b->device, pieces, b->list.count, &list, reterr));
    PL_TRY(pl_device_stream_new(b->device, &other_stream, reterr));
    PL_TRY(pl_device_event_new(b->device, false, &event, reterr));
    for (int n = -20; n < HOST_STEPS; n++) { /* the first steps warm up */
        int64_t began_ns = pl_clock_now_ns();

        PL_TRY(host_step(b, list, other_stream, event, reterr));
        us[n < 0 ? 0 : n] = (double)(pl_clock_now_ns() - began_ns) / (double)PL_NS_PER_US;
        PL_TRY(pl_device_stream_finish(b->device, b->stream, deadline(), reterr));
        PL_TRY(pl_device_stream_finish(b->device, other_stream, deadline(), reterr));
    }
    printf("%-44s %9.1f us on the CPU, %zu tensors in buckets of 4 MiB\n", "host, calls of a step",
           median(us, HOST_STEPS), b->list.count);
    if (b->json) {
        fprintf(b->json, "{\"case\": \"host, calls of a step\", \"tensors\": %zu, \"host_us\": %.2f}\n", b->list.count,
                median(us, HOST_STEPS));
    }
    pl_device_event_free(b->device, event);
    pl_device_stream_free(b->device, other_stream);
    pl_device_pieces_free(list);
    return PL_OK;
}

static enum pl_status fill_random(struct bench *b, struct pl_error *reterr)
{
    enum { CHUNK = 1 << 20 };
    PL_AUTO_FREE float *chunk = pl_memory_new(CHUNK, sizeof(float), reterr);
    uint64_t word = 88172645463325252U;

    if (!chunk) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < CHUNK; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        chunk[i] = (float)((double)(word >> 11) * 0x1p-52 - 1.0);
    }
    for (uint64_t at = 0; at < b->pool_bytes; at += CHUNK * sizeof(float)) {
        PL_TRY(pl_device_copy(b->device, b->from + at, chunk, CHUNK * sizeof(float), b->stream, reterr));
        PL_TRY(pl_device_copy(b->device, b->to + at, chunk, CHUNK * sizeof(float), b->stream, reterr));
    }
    return pl_device_stream_finish(b->device, b->stream, deadline(), reterr);
}

static enum pl_status open_bench(struct bench *b, int ordinal, struct pl_error *reterr)
{
    const struct pl_device_info *info;
    void *memory[4];
    double us;

    PL_TRY(pl_device_open(ordinal, &b->device, reterr));
    PL_TRY(pl_device_stream_new(b->device, &b->stream, reterr));
    PL_TRY(pl_device_event_new(b->device, true, &b->began, reterr));
    PL_TRY(pl_device_event_new(b->device, true, &b->ended, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(memory); i++) {
        PL_TRY(pl_device_alloc(b->device, b->pool_bytes, &memory[i], reterr));
    }
    b->from = memory[0];
    b->to = memory[1];
    b->slots[0] = memory[2];
    b->slots[1] = memory[3];
    PL_TRY(fill_random(b, reterr));
    PL_TRY(time_launches(b, launch_copy, NULL, b->pool_bytes / 2, &us, reterr));
    b->peak_gb_s = (double)b->pool_bytes / us / 1e3;
    info = pl_device_info(b->device);
    printf("%s, driver for CUDA %d.%d, %.1f GB/s copying %llu MiB (read plus written)\n", info->name,
           info->driver_version / 1000, info->driver_version % 1000 / 10, b->peak_gb_s,
           (unsigned long long)(b->pool_bytes >> 21));
    if (b->json) {
        fprintf(b->json, "{\"case\": \"device\", \"name\": \"%s\", \"cuda\": %d, \"peak_gb_s\": %.1f}\n", info->name,
                info->driver_version, b->peak_gb_s);
    }
    return PL_OK;
}

static enum pl_status bench_all(struct bench *b, struct pl_error *reterr)
{
    for (uint64_t mib = 4; mib <= 256 && mib << 20 <= b->pool_bytes; mib *= 4) {
        uint64_t counts[16];
        char what[80];
        double us;

        for (size_t i = 0; i < PL_ARRAY_ITEMS(counts); i++) {
            counts[i] = (mib << 20) / sizeof(float) / PL_ARRAY_ITEMS(counts);
        }
        snprintf(what, sizeof(what), "16 tensors, %llu MiB", (unsigned long long)mib);
        PL_TRY(bench_packing(b, what, counts, PL_ARRAY_ITEMS(counts), reterr));
        PL_TRY(bench_casts(b, mib, reterr));
        snprintf(what, sizeof(what), "%llu MiB", (unsigned long long)mib);
        PL_TRY(bench_adamw(b, mib << 20, what, reterr));
        PL_TRY(time_launches(b, launch_norm, NULL, mib << 20, &us, reterr));
        snprintf(what, sizeof(what), "squared norm, %llu MiB", (unsigned long long)mib);
        PL_TRY(report(b, what, mib << 20, us, reterr));
    }
    if (b->list.count > 0) {
        char what[80];

        snprintf(what, sizeof(what), "%s's %zu tensors", b->list.name, b->list.count);
        PL_TRY(bench_packing(b, what, b->list.counts, b->list.count, reterr));
        PL_TRY(bench_adamw(b, padded(b->list.elems) * sizeof(float), what, reterr));
        PL_TRY(bench_host(b, reterr));
    }
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct bench bench = {.pool_bytes = UINT64_C(2) << 30};
    struct pl_error error = PL_ERROR_NONE;
    const char *gradients = NULL, *json = NULL;
    int ordinal = 0, count = 0;
    enum pl_status status;

    pl_log_set_prefix("bench_device");
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0) {
            ordinal = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--gradients") == 0) {
            gradients = argv[i + 1];
        } else if (strcmp(argv[i], "--pool-mib") == 0) {
            bench.pool_bytes = strtoull(argv[i + 1], NULL, 10) << 20;
        } else if (strcmp(argv[i], "--json") == 0) {
            json = argv[i + 1];
        }
    }
    if (pl_device_count(&count, &error) != PL_OK) {
        pl_log_error(&error, "nothing was measured");
        return 77;
    }
    bench.json = json ? fopen(json, "we") : NULL;
    setlinebuf(stdout); /* keep the results so far if the rest fails */
    if (bench.json) {
        setlinebuf(bench.json);
    }
    status = json && !bench.json ? pl_error_set(&error, PL_SYSTEM, "cannot write '%s'", json) : PL_OK;
    if (status == PL_OK && gradients) {
        status = gradient_list_read(gradients, &bench.list, &error);
    }
    if (status == PL_OK) {
        status = open_bench(&bench, ordinal, &error);
    }
    if (status == PL_OK) {
        status = bench_all(&bench, &error);
    }
    if (bench.json && fclose(bench.json) != 0 && status == PL_OK) {
        status = pl_error_set(&error, PL_SYSTEM, "cannot write '%s'", json);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "the measurement did not finish");
        return EXIT_FAILURE; /* the driver releases everything */
    }
    gradient_list_done(&bench.list);
    return EXIT_SUCCESS;
}
