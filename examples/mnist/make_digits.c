/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic digits in MNIST's format, for tests without data: strokes with random slant, size, position, thickness and
 * noise. They are easier than handwriting, so accuracies on them tell nothing about MNIST.
 *
 *   make_digits DIR TRAIN_COUNT TEST_COUNT SEED
 *
 * writes DIR/training/train-{images-idx3,labels-idx1}-ubyte and DIR/testing/t10k-{images-idx3,labels-idx1}-ubyte.
 */
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "examples/nn/nn.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 28, IMAGE_BYTES = SIDE * SIDE, MAX_COUNT = 1000000 };

/* Strokes of each digit on a grid of 10 by 10, x and y as letters a to k; a blank lifts the pen. */
static const char *const strokes[10] = {
    "fbdbbdbhdjfjhjjhjdhbfb",                      /* 0 */
    "cdfbfk",                                      /* 1 */
    "bdcbebhbjdjfbkjk",                            /* 2 */
    "bbjbfficjhhkdkbi",                            /* 3 */
    "hkhbbhkh",                                    /* 4 */
    "jbcbbfgfjhjjhkbk",                            /* 5 */
    "hbdebhbjdkhkjijghfbh",                        /* 6 */
    "bbjbek",                                      /* 7 */
    "ffcdcceebgbhcidghbicidff bjcgffjhjjhkckbjbi", /* 8 */
    "jeffbedbhbjejkhk",                            /* 9 */
};

struct random {
    uint64_t key;
    uint64_t next;
};

/* Returns a number from `low` to `high`. */
static double draw(struct random *random, double low, double high)
{
    return low + (high - low) * (double)(nn_random(random->key, random->next++) >> 11) * 0x1p-53;
}

static double distance_to(double x, double y, const double a[2], const double b[2])
{
    double dx = b[0] - a[0];
    double dy = b[1] - a[1];
    double length = dx * dx + dy * dy;
    double along = length > 0.0 ? ((x - a[0]) * dx + (y - a[1]) * dy) / length : 0.0;

    along = fmin(fmax(along, 0.0), 1.0);
    dx = x - a[0] - along * dx;
    dy = y - a[1] - along * dy;
    return sqrt(dx * dx + dy * dy); /* not hypot(), which would need a glibc later than 2.34 */
}

static void draw_digit(struct random *random, unsigned digit, unsigned char image[IMAGE_BYTES])
{
    double angle = draw(random, -0.25, 0.25);
    double slant = draw(random, -0.25, 0.25);
    double wide = draw(random, 1.2, 1.9);
    double high = draw(random, 1.6, 2.1);
    double at_x = SIDE / 2.0 + draw(random, -2.0, 2.0);
    double at_y = SIDE / 2.0 + draw(random, -2.0, 2.0);
    double thick = draw(random, 0.8, 1.7);
    double ink[IMAGE_BYTES] = {0.0};
    double last[2] = {0.0, 0.0};
    bool down = false;

    for (const char *at = strokes[digit]; *at;) {
        double x;
        double y;
        double here[2];

        if (*at == ' ') {
            down = false;
            at++;
            continue;
        }
        x = (at[0] - 'f' + draw(random, -0.4, 0.4)) * wide;
        y = (at[1] - 'f' + draw(random, -0.4, 0.4)) * high;
        at += 2;
        x += slant * y;
        here[0] = at_x + x * cos(angle) - y * sin(angle);
        here[1] = at_y + x * sin(angle) + y * cos(angle);
        for (int p = 0; down && p < IMAGE_BYTES; p++) {
            double reach = thick + 0.5 - distance_to(p % SIDE + 0.5, p / SIDE + 0.5, last, here);

            ink[p] = fmax(ink[p], fmin(fmax(reach, 0.0), 1.0));
        }
        last[0] = here[0];
        last[1] = here[1];
        down = true;
    }
    for (int p = 0; p < IMAGE_BYTES; p++) {
        image[p] =
            (unsigned char)(255.0 * fmin(fmax(ink[p] * draw(random, 0.8, 1.0) + draw(random, 0.0, 0.05), 0.0), 1.0));
    }
}

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(value >> (24 - 8 * i));
    }
}

static enum pl_status make_folder(const char *path, struct pl_error *reterr)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? PL_OK : pl_error_errno(reterr, "create directory '%s'", path);
}

static enum pl_status write_file(const char *path, const void *data, size_t bytes, struct pl_error *reterr)
{
    FILE *file = fopen(path, "w");
    bool good = file && fwrite(data, 1, bytes, file) == bytes;

    if (!good || fclose(file) != 0) {
        return pl_error_errno(reterr, "write '%s'", path);
    }
    return PL_OK;
}

static enum pl_status write_set(const char *directory, const char *folder, const char *prefix, uint32_t count,
                                uint64_t seed, struct pl_error *reterr)
{
    PL_AUTO_FREE unsigned char *images = pl_memory_new(16 + (size_t)count * IMAGE_BYTES, 1, reterr);
    PL_AUTO_FREE unsigned char *labels = pl_memory_new(8 + (size_t)count, 1, reterr);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (!images || !labels) {
        return PL_MEMORY;
    }
    put_u32(images, 0x00000803);
    put_u32(images + 4, count);
    put_u32(images + 8, SIDE);
    put_u32(images + 12, SIDE);
    put_u32(labels, 0x00000801);
    put_u32(labels + 4, count);
    for (uint32_t i = 0; i < count; i++) {
        struct random random = {.key = nn_random(seed, i)};
        unsigned digit = (unsigned)(nn_random(random.key, UINT64_MAX) % 10);

        labels[8 + i] = (unsigned char)digit;
        draw_digit(&random, digit, images + 16 + (size_t)i * IMAGE_BYTES);
    }
    pl_text_printf(&path, "%s/%s", directory, folder);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(make_folder(directory, reterr));
    PL_TRY(make_folder(pl_text_string(&path), reterr));
    pl_text_printf(&path, "/%s-images-idx3-ubyte", prefix);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(write_file(pl_text_string(&path), images, 16 + (size_t)count * IMAGE_BYTES, reterr));
    pl_text_clear(&path);
    pl_text_printf(&path, "%s/%s/%s-labels-idx1-ubyte", directory, folder, prefix);
    PL_TRY(pl_text_check(&path, reterr));
    return write_file(pl_text_string(&path), labels, 8 + (size_t)count, reterr);
}

static bool read_number(const char *text, uint64_t limit, uint64_t *ret_number)
{
    char *end;

    *ret_number = strtoull(text, &end, 10);
    return end != text && !*end && !strchr(text, '-') && *ret_number <= limit;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    uint64_t train_count;
    uint64_t test_count;
    uint64_t seed;
    enum pl_status status;

    pl_log_set_prefix("make_digits");
    if (argc != 5 || !read_number(argv[2], MAX_COUNT, &train_count) || !read_number(argv[3], MAX_COUNT, &test_count) ||
        !read_number(argv[4], UINT64_MAX, &seed)) {
        pl_log(PL_LOG_ERROR, "usage: make_digits DIR TRAIN_COUNT TEST_COUNT SEED");
        return 2;
    }
    status = write_set(argv[1], "training", "train", (uint32_t)train_count, nn_random(seed, 0), &error);
    if (status == PL_OK) {
        status = write_set(argv[1], "testing", "t10k", (uint32_t)test_count, nn_random(seed, 1), &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "no digits");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
