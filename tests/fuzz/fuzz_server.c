/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker hands to its parameter server: a message where the first byte is 'm', a layout where it is 'l'. */
#include "runtime/server/layout.h"
#include "runtime/server/message.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void read_message(const uint8_t *data, size_t bytes)
{
    struct pl_server_message message = {.kind = 0};

    memcpy(&message, data, bytes < sizeof(message) ? bytes : sizeof(message));
    for (int from_worker = 0; from_worker < 2; from_worker++) {
        if (pl_server_message_check(&message, bytes, from_worker != 0, NULL) == PL_OK) {
            PL_BUG_IF(bytes != sizeof(message) || message.number < 0);
            PL_BUG_IF(message.kind == PL_SERVER_REFUSED && strnlen(message.text, sizeof(message.text)) == bytes);
            PL_BUG_IF(message.kind == PL_SERVER_TOTAL && message.count > PL_SERVER_MOST_VALUES);
        }
    }
}

static void read_layout(const uint8_t *data, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    struct pl_server_layout layout;
    uint64_t elems = 0;

    if (!copy) {
        return;
    }
    memcpy(copy, data, bytes);
    if (pl_server_layout_read(copy, bytes, &layout, NULL) == PL_OK) {
        for (uint64_t p = 0; p < layout.head->pieces; p++) {
            PL_BUG_IF(layout.pieces[p].count_elems > layout.longest_elems);
            elems += layout.pieces[p].count_elems;
        }
        PL_BUG_IF(elems != layout.head->elems);
        PL_BUG_IF(pl_server_layout_compare(&layout, "one", &layout, "the same", NULL) != PL_OK);
        pl_server_layout_done(&layout);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] == 'm') {
        read_message(data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'l') {
        read_layout(data + 1, bytes - 1);
    }
    return 0;
}
