/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/idx_pairs.c. */
#include "base/clock.h"
#include "s3io/channel.h"
#include "s3io/idx.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/idx_arrays.h"

#include <pthread.h>

static void check_pairs(const struct pl_idx_pairs *pairs, size_t copies)
{
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES];

    idx_images(images);
    idx_labels(labels);
    ck_assert_uint_eq(pairs->count, ITEMS * copies);
    ck_assert_uint_eq(pairs->images.item_bytes, SIDE * SIDE);
    ck_assert_uint_eq(pairs->images.shape[0], ITEMS * copies);
    for (size_t copy = 0; copy < copies; copy++) {
        ck_assert_mem_eq(pairs->images.data + copy * (IMAGES_BYTES - 16), images + 16, IMAGES_BYTES - 16);
        ck_assert_mem_eq(pairs->labels.data + copy * ITEMS, labels + 8, ITEMS);
    }
}

TEST(pairs_come_from_a_directory_in_key_order)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES], packed[8192];
    struct pl_idx_pairs pairs;

    idx_images(images);
    idx_labels(labels);
    scratch_write(&scratch, "a-images.gz", packed, drip_gzip(images, sizeof(images), packed, sizeof(packed)));
    scratch_write(&scratch, "a-labels", labels, sizeof(labels));
    scratch_write(&scratch, "b-images", images, sizeof(images));
    scratch_write(&scratch, "b-labels.gz", packed, drip_gzip(labels, sizeof(labels), packed, sizeof(packed)));
    scratch_write(&scratch, ".hidden", "x", 1);
    ck_ok(pl_idx_pairs_load, &channel, 0, PL_DEADLINE_NEVER, &pairs);
    check_pairs(&pairs, 2);
    pl_idx_pairs_done(&pairs);

    scratch_write(&scratch, "c-images", images, sizeof(images));
    ck_fails(PL_INVALID, "", pl_idx_pairs_load, &channel, 0, PL_DEADLINE_NEVER, &pairs);
    labels[7]--;
    scratch_write(&scratch, "c-labels", labels, sizeof(labels) - 1);
    ck_fails(PL_INVALID, "50 images but 49 labels", pl_idx_pairs_load, &channel, 0, PL_DEADLINE_NEVER, &pairs);
}

struct feed {
    char path[PATH_MAX];
    unsigned char data[8192];
    size_t bytes;
};

static void *feed(void *argument)
{
    const struct feed *what = argument;
    int fd = open(what->path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, what->data, what->bytes), (ssize_t)what->bytes);
    close(fd);
    return NULL;
}

TEST(pairs_come_from_the_fifo_of_the_epoch)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&scratch, "training", path)};

    for (unsigned epoch = 0; epoch < 4; epoch++) {
        char name[32];
        struct feed what;
        struct pl_idx_pairs pairs;
        pthread_t thread;

        snprintf(name, sizeof(name), "training_%u", epoch);
        scratch_path(&scratch, name, what.path);
        what.bytes = idx_stream(epoch, what.data, sizeof(what.data));
        ck_assert_int_eq(mkfifo(what.path, 0600), 0);
        ck_assert_int_eq(pthread_create(&thread, NULL, feed, &what), 0);
        ck_ok(pl_idx_pairs_load, &channel, epoch, pl_deadline_after_ns(100 * PL_NS_PER_S), &pairs);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        check_pairs(&pairs, 1);
        pl_idx_pairs_done(&pairs);
    }
}

UNIT_MAIN("s3io/idx_pairs")
