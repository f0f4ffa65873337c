/* SPDX-License-Identifier: Apache-2.0 */
/* Every feature that a walk finds lies inside the message and is found again by its name. */
#include "s3io/record/record_formats.h"
#include "tests/support/fuzz.h"

#include <string.h>

enum { ROOM = 64 };

static void read_values(const struct pl_example_feature *feature)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_view views[ROOM];
    int64_t integers[ROOM];
    float floats[ROOM];
    size_t count = 0;

    PL_BUG_IF(pl_example_bytes_list(feature, views, ROOM, &count, &error) == PL_OK && count > ROOM);
    PL_BUG_IF(pl_example_int64(feature, integers, ROOM, &count, &error) == PL_OK && count > ROOM);
    PL_BUG_IF(pl_example_float32(feature, floats, ROOM, &count, &error) == PL_OK && count > ROOM);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_example_walk walk = {.started = false};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_example_feature feature, again;
    enum pl_status status;
    size_t features = 0;
    char name[32] = "";

    while ((status = pl_example_next(&walk, data, bytes, &feature, &error)) == PL_OK) {
        PL_BUG_IF(feature.name.data &&
                  (feature.name.data < data || feature.name.data + feature.name.bytes > data + bytes));
        PL_BUG_IF(feature.list.data &&
                  (feature.list.data < data || feature.list.data + feature.list.bytes > data + bytes));
        if (features++ == 0 && feature.name.bytes > 0 && feature.name.bytes < sizeof(name)) {
            memcpy(name, feature.name.data, feature.name.bytes);
        }
        read_values(&feature);
    }
    PL_BUG_IF(status != PL_END && status != PL_CORRUPT);
    PL_BUG_IF(status == PL_END && name[0] && !memchr(name, 0, strlen(name)) && features == 1 &&
              pl_example_find(data, bytes, name, &again, &error) == PL_CORRUPT);
    return 0;
}
