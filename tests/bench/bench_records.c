/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of reading records: finding them in memory, reading a FIFO compared with raw reads of the same
 * FIFO, and batches of pictures from files: as bytes, and shuffled and turned into floats by the program. Prints one
 * JSON line per case; runs alternate, figures are medians. A FIFO's reader and writer have one CPU each if two are
 * allowed: on one CPU a read costs less than half, and the scheduler would otherwise choose between the two in each
 * run.
 *
 *   bench_records [MEGABYTES [ROUNDS]]
 */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/memory.h"
#include "s3io/dataset.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/bench/median.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROUNDS = 99, RAW_READ_BYTES = 256 << 10, PIPE_BYTES = 1 << 20 };

static volatile uint64_t sink;

_Noreturn static void die(const char *what, const struct pl_error *error)
{
    char text[1200];

    fprintf(stderr, "bench_records: %s: %s\n", what,
            error ? pl_error_text(error, text, sizeof(text)) : strerror(errno));
    exit(EXIT_FAILURE);
}

static void put_le(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static size_t put_tfrecord(unsigned char *at, size_t bytes)
{
    put_le(at, bytes, 8);
    put_le(at + 8, pl_checksum_mask(pl_checksum_crc32c(0, at, 8)), 4);
    put_le(at + 12 + bytes, pl_checksum_mask(pl_checksum_crc32c(0, at + 12, bytes)), 4);
    return bytes + 16;
}

static size_t put_recordio(unsigned char *at, size_t bytes)
{
    put_le(at, 0xced7230a, 4);
    put_le(at + 4, bytes, 4);
    memset(at + 8 + bytes, 0, -bytes & 3);
    return 8 + bytes + (-bytes & 3);
}

static size_t put_line(unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)('a' + at[i] % 26);
    }
    at[bytes] = '\n';
    return bytes + 1;
}

/* Fills `data` with as many records of `record_bytes` as fit into `room`; returns the bytes used. */
static size_t fill(unsigned char *data, size_t room, enum pl_record_format format, size_t record_bytes)
{
    size_t used = 0;
    uint32_t state = 1;

    for (size_t i = 0; i < room; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (unsigned char)(state >> 24);
    }
    while (used + record_bytes + 20 <= room) {
        unsigned char *at = data + used;

        used += format == PL_RECORD_TFRECORD   ? put_tfrecord(at, record_bytes)
                : format == PL_RECORD_RECORDIO ? put_recordio(at, record_bytes)
                                               : put_line(at, record_bytes);
    }
    return used;
}

static uint64_t read_all(struct pl_source *source, enum pl_record_format format)
{
    struct pl_record_options options = {.format = format};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record_reader *reader;
    struct pl_record record;
    enum pl_status status;
    uint64_t records = 0;

    if (pl_record_reader_open(source, &options, &reader, &error) != PL_OK) {
        die("open", &error);
    }
    while ((status = pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error)) == PL_OK) {
        sink += record.data[0];
        records++;
    }
    if (status != PL_END) {
        die("read", &error);
    }
    pl_record_reader_close(reader);
    return records;
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(pl_clock_now_ns() - begin_ns) / (double)PL_NS_PER_S;
}

/* CPU seconds of this process: steadier than wall time on a machine that others use too. */
static double cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void bench_memory(unsigned char *data, size_t room, unsigned rounds, enum pl_record_format format,
                         const char *name, size_t record_bytes)
{
    size_t bytes = fill(data, room, format, record_bytes);
    double rates[MOST_ROUNDS];
    uint64_t records = 0;

    for (unsigned round = 0; round < rounds; round++) {
        struct pl_error error = PL_ERROR_NONE;
        struct pl_source *source;
        double begin_s = cpu_seconds();

        if (pl_source_open_memory(name, data, bytes, &source, &error) != PL_OK) {
            die("open", &error);
        }
        records = read_all(source, format);
        rates[round] = (double)bytes / (cpu_seconds() - begin_s);
    }
    printf("{\"case\": \"memory\", \"format\": \"%s\", \"record_bytes\": %zu, \"records\": %llu, \"bytes\": %zu, "
           "\"gigabytes_per_cpu_s\": %.2f}\n",
           name, record_bytes, (unsigned long long)records, bytes, median(rates, rounds) / 1e9);
    fflush(stdout);
}

/* Binds this process to the first or second of the processors that it was started on. */
static void keep_to_processor(const cpu_set_t *allowed, unsigned which)
{
    cpu_set_t one;

    if (CPU_COUNT(allowed) < 2) {
        return;
    }
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, allowed) && which-- == 0) {
            CPU_SET(i, &one);
        }
    }
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
        die("sched_setaffinity", NULL);
    }
}

/* Starts a child that writes `data` into the FIFO `times` times, by write() or by vmsplice() of its pages (`lend`). */
static pid_t start_writer(const char *path, const cpu_set_t *processors, unsigned char *data, size_t bytes,
                          unsigned times, bool lend)
{
    pid_t child = fork();
    int fd;

    if (child != 0) {
        return child;
    }
    keep_to_processor(processors, 1);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
    for (unsigned i = 0; i < times; i++) {
        for (size_t done = 0; done < bytes;) {
            size_t now = bytes - done < RAW_READ_BYTES ? bytes - done : RAW_READ_BYTES;
            struct iovec part = {.iov_base = data + done, .iov_len = now};
            ssize_t written = lend ? vmsplice(fd, &part, 1, 0) : write(fd, data + done, now);

            if (written <= 0) {
                _exit(1);
            }
            done += (size_t)written;
        }
    }
    _exit(0);
}

static void read_raw(const char *path, unsigned char *buffer)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        die("open", NULL);
    }
    fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
    while (read(fd, buffer, RAW_READ_BYTES) > 0) {
        sink += buffer[0];
    }
    close(fd);
}

static double time_fifo(const char *path, const cpu_set_t *processors, unsigned char *data, size_t bytes,
                        unsigned times, bool lend, enum pl_record_format format, bool raw, unsigned char *buffer,
                        double *ret_cpu_s)
{
    double begin_s = cpu_seconds();
    int64_t begin_ns = pl_clock_now_ns();
    pid_t child = start_writer(path, processors, data, bytes, times, lend);
    int status;

    if (raw) {
        read_raw(path, buffer);
    } else {
        struct pl_error error = PL_ERROR_NONE;
        struct pl_source *source;

        if (pl_source_open_fifo(path, &source, &error) != PL_OK) {
            die("open", &error);
        }
        read_all(source, format);
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        die("the writer failed", NULL);
    }
    *ret_cpu_s = (cpu_seconds() - begin_s) / ((double)bytes * times / 1e9);
    return (double)bytes * times / seconds_since(begin_ns);
}

static void bench_fifo(unsigned char *data, size_t room, unsigned rounds, enum pl_record_format format,
                       const char *name, size_t record_bytes, bool lend)
{
    unsigned char *buffer = pl_memory_new_aligned(RAW_READ_BYTES, 1, 4096, NULL);
    size_t bytes = fill(data, room, format, record_bytes);
    double raw[MOST_ROUNDS], parsed[MOST_ROUNDS], raw_cpu[MOST_ROUNDS], parsed_cpu[MOST_ROUNDS];
    char path[] = "/tmp/bench-records-XXXXXX/fifo";
    unsigned times = 16;
    cpu_set_t processors;
    double raw_rate, parsed_rate;

    path[strlen(path) - 5] = '\0';
    if (!buffer || !mkdtemp(path)) {
        die("temporary directory", NULL);
    }
    path[strlen(path)] = '/';
    if (mkfifo(path, 0600) != 0) {
        die("mkfifo", NULL);
    }
    if (sched_getaffinity(0, sizeof(processors), &processors) != 0) {
        die("sched_getaffinity", NULL);
    }
    keep_to_processor(&processors, 0);
    for (unsigned round = 0; round < rounds; round++) {
        raw[round] = time_fifo(path, &processors, data, bytes, times, lend, format, true, buffer, &raw_cpu[round]);
        parsed[round] =
            time_fifo(path, &processors, data, bytes, times, lend, format, false, buffer, &parsed_cpu[round]);
    }
    sched_setaffinity(0, sizeof(processors), &processors);
    unlink(path);
    path[strlen(path) - 5] = '\0';
    rmdir(path);
    free(buffer);
    raw_rate = median(raw, rounds);
    parsed_rate = median(parsed, rounds);
    printf("{\"case\": \"fifo\", \"writer\": \"%s\", \"format\": \"%s\", \"record_bytes\": %zu, \"bytes\": %zu, "
           "\"raw_gigabytes_per_s\": %.2f, "
           "\"parsed_gigabytes_per_s\": %.2f, \"ratio\": %.3f, \"raw_cpu_s_per_gigabyte\": %.3f, "
           "\"parsed_cpu_s_per_gigabyte\": %.3f}\n",
           lend ? "vmsplice" : "write", name, record_bytes, bytes * times, raw_rate / 1e9, parsed_rate / 1e9,
           parsed_rate / raw_rate, median(raw_cpu, rounds), median(parsed_cpu, rounds));
    fflush(stdout);
}

enum { FILES = 20, PIXELS = 1024, PICTURE_BYTES = 3 * PIXELS, BATCH = 256, SHUFFLE = 2000 };

/* Writes pictures and labels as tf.Example messages, in TFRecord files below `directory`. */
static size_t write_pictures(const char *directory, unsigned char *data, size_t room)
{
    static const unsigned char before[] = "\x0a\xa3\x18\x0a\x90\x18\x0a\x05image\x12\x86\x18\x0a\x83\x18\x0a\x80\x18";
    static const unsigned char label[] = "\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x07";
    size_t head = sizeof(before) - 1, tail = sizeof(label) - 1, record_bytes = head + PICTURE_BYTES + tail;
    size_t pictures = room / FILES / (record_bytes + 16);

    for (unsigned file = 0; file < FILES; file++) {
        size_t used = 0;
        char path[200];
        FILE *to;

        fill(data, pictures * (record_bytes + 16), PL_RECORD_LINES, 1 << 20);
        for (size_t i = 0; i < pictures; i++) {
            unsigned char *at = data + used;

            memcpy(at + 12, before, head);
            memcpy(at + 12 + head + PICTURE_BYTES, label, tail);
            used += put_tfrecord(at, record_bytes);
        }
        snprintf(path, sizeof(path), "%s/%02u", directory, file);
        to = fopen(path, "we");
        if (!to || fwrite(data, 1, used, to) != used || fclose(to) != 0) {
            die(path, NULL);
        }
    }
    return pictures * FILES;
}

static void to_floats(const unsigned char *picture, float *to)
{
    for (size_t colour = 0; colour < 3; colour++) {
        for (size_t p = 0; p < PIXELS; p++) {
            to[p * 3 + colour] = (float)picture[colour * PIXELS + p] * 0.0157F - 1.99F;
        }
    }
}

/* Reads an epoch. Returns the wall seconds, and the CPU seconds. */
static double read_pictures(const char *directory, bool as_floats, unsigned threads, size_t pictures, double *ret_cpu_s)
{
    static const struct pl_field fields[] = {
        {.name = "image", .type = PL_UINT8, .dims = 3, .shape = {3, 32, 32}},
        {.name = "label", .type = PL_UINT8},
    };
    static float floats[BATCH * PICTURE_BYTES];
    const struct pl_dataset_options options = {.paths = &directory,
                                               .path_count = 1,
                                               .records = {.format = PL_RECORD_TFRECORD},
                                               .source = PL_FIELDS_EXAMPLE,
                                               .fields = fields,
                                               .field_count = 2,
                                               .batch_samples = BATCH,
                                               .shuffle_samples = as_floats ? SHUFFLE : 0,
                                               .decode_threads = threads};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_dataset *dataset;
    struct pl_batch batch;
    enum pl_status status;
    double begin_s = cpu_seconds();
    int64_t begin_ns = pl_clock_now_ns();
    size_t seen = 0;

    if (pl_dataset_open(&options, &dataset, &error) != PL_OK || pl_dataset_start(dataset, 0, &error) != PL_OK) {
        die(directory, &error);
    }
    while ((status = pl_dataset_next(dataset, PL_DEADLINE_NEVER, &batch, &error)) == PL_OK) {
        for (size_t i = 0; as_floats && i < batch.samples; i++) {
            to_floats((const unsigned char *)batch.fields[0].data + i * PICTURE_BYTES, floats + i * PICTURE_BYTES);
        }
        sink += ((const unsigned char *)batch.fields[0].data)[0] + (uint64_t)floats[0];
        seen += batch.samples;
        pl_batch_release(&batch);
    }
    if (status != PL_END || seen != pictures) {
        die("pictures", &error);
    }
    pl_dataset_close(dataset);
    *ret_cpu_s = cpu_seconds() - begin_s;
    return seconds_since(begin_ns);
}

static void bench_pictures(unsigned char *data, size_t room, unsigned rounds)
{
    static const unsigned threads[] = {1, 2, 4};
    char directory[] = "/tmp/bench-records-XXXXXX", path[sizeof(directory) + 8];
    double wall[6][MOST_ROUNDS], cpu[6][MOST_ROUNDS];
    size_t pictures;

    if (!mkdtemp(directory)) {
        die("temporary directory", NULL);
    }
    pictures = write_pictures(directory, data, room);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned k = 0; k < 6; k++) {
            wall[k][round] = read_pictures(directory, k & 1, threads[k / 2], pictures, &cpu[k][round]);
        }
    }
    for (unsigned k = 0; k < 6; k++) {
        printf("{\"case\": \"pictures\", \"as\": \"%s\", \"shuffle\": %d, \"decode_threads\": %u, \"pictures\": %zu, "
               "\"pictures_per_s\": %.0f, \"cpu_us_per_picture\": %.2f}\n",
               k & 1 ? "float32" : "uint8", k & 1 ? SHUFFLE : 0, threads[k / 2], pictures,
               (double)pictures / median(wall[k], rounds), median(cpu[k], rounds) * 1e6 / (double)pictures);
    }
    for (unsigned file = 0; file < FILES; file++) {
        snprintf(path, sizeof(path), "%s/%02u", directory, file);
        unlink(path);
    }
    rmdir(directory);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t room = (size_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 5;
    unsigned char *data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (data == MAP_FAILED || rounds == 0 || rounds > MOST_ROUNDS || room == 0) {
        fprintf(stderr, "usage: bench_records [MEGABYTES [ROUNDS]]\n");
        return EXIT_FAILURE;
    }
    signal(SIGPIPE, SIG_IGN);
    bench_pictures(data, room, rounds);
    bench_memory(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 1024);
    bench_memory(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 16384);
    bench_memory(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 131072);
    bench_memory(data, room, rounds, PL_RECORD_RECORDIO, "recordio", 1024);
    bench_memory(data, room, rounds, PL_RECORD_RECORDIO, "recordio", 16384);
    bench_memory(data, room, rounds, PL_RECORD_LINES, "lines", 128);
    bench_memory(data, room, rounds, PL_RECORD_CSV, "csv", 128);
    bench_fifo(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 16384, false);
    bench_fifo(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 3110, false);
    bench_fifo(data, room, rounds, PL_RECORD_RECORDIO, "recordio", 131072, false);
    bench_fifo(data, room, rounds, PL_RECORD_TFRECORD, "tfrecord", 16384, true);
    return EXIT_SUCCESS;
}
