/* SPDX-License-Identifier: Apache-2.0 */
/** Two small IDX arrays, pictures and their labels, for tests that read them. */
#ifndef PL_TESTS_UNIT_S3IO_IDX_ARRAYS_H
#define PL_TESTS_UNIT_S3IO_IDX_ARRAYS_H

#include "tests/unit/s3io/drip.h"

#include <string.h>

enum { ITEMS = 50, SIDE = 6, IMAGES_BYTES = 16 + ITEMS * SIDE * SIDE, LABELS_BYTES = 8 + ITEMS };

static inline void idx_images(unsigned char *data)
{
    static const unsigned char head[16] = {0, 0, 8, 3, 0, 0, 0, ITEMS, 0, 0, 0, SIDE, 0, 0, 0, SIDE};

    memcpy(data, head, sizeof(head));
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) {
        data[16 + i] = (unsigned char)(i * 31 + i / 7);
    }
}

static inline void idx_labels(unsigned char *data)
{
    static const unsigned char head[8] = {0, 0, 8, 1, 0, 0, 0, ITEMS};

    memcpy(data, head, sizeof(head));
    for (int i = 0; i < ITEMS; i++) {
        data[8 + i] = (unsigned char)(i % 10);
    }
}

/* Makes one of the four mixes of plain and gzip images and labels. */
static inline size_t idx_stream(unsigned mix, unsigned char *out, size_t room)
{
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES];
    size_t used;

    idx_images(images);
    idx_labels(labels);
    if (mix & 1) {
        used = drip_gzip(images, sizeof(images), out, room);
    } else {
        memcpy(out, images, sizeof(images));
        used = sizeof(images);
    }
    if (mix & 2) {
        return used + drip_gzip(labels, sizeof(labels), out + used, room - used);
    }
    memcpy(out + used, labels, sizeof(labels));
    return used + sizeof(labels);
}

#endif
