/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input of a parameter server: if the first byte is 'm', a worker's message; 'l', a worker's layout; 'k', another
 * server's message about rows; 'h', the head of a file of rows.
 */
#include "runtime/server/row_store.h"
#include "runtime/server/state.h"
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
            PL_BUG_IF(message.kind == PL_SERVER_ROWS && (message.rows.what >= PL_SERVER_ROWS_END ||
                                                         strlen(message.rows.path) >= sizeof(message.rows.path)));
            PL_BUG_IF(message.kind == PL_SERVER_ROWS_DONE &&
                      strlen(message.loaded.passed) >= sizeof(message.loaded.passed));
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
        for (uint64_t t = 0; t < layout.head->tables; t++) {
            PL_BUG_IF(layout.tables[t].columns > PL_SERVER_MOST_COLUMNS || !layout.tables[t].name[0]);
        }
        PL_BUG_IF(pl_server_layout_compare(&layout, "one", &layout, "the same", NULL) != PL_OK);
        pl_server_layout_done(&layout);
    }
}

/* The receiver is server 0 of two, with two workers and two tables each. No worker waits for an answer. */
static void read_packet(const uint8_t *data, size_t bytes)
{
    static const struct pl_server_serve_options options = {.workers = 2};
    static const struct pl_server_layout_head head = {.tables = 2};
    static const struct pl_table tables[] = {{.name = "a", .columns = 64}, {.name = "b", .columns = 3}};
    static struct pl_server_state server = {
        .options = &options, .hosts = 2, .total = 4, .layout = {.head = &head, .tables = tables}};
    struct pl_server_packet packet = {.kind = PL_SERVER_PACKET_ROWS};

    if (!server.rows && pl_server_rows_open(&server, NULL) != PL_OK) {
        return;
    }
    memcpy(&packet, data, bytes < sizeof(packet) ? bytes : sizeof(packet));
    packet.kind = packet.kind % 2 == 0 ? PL_SERVER_PACKET_ROWS_DONE : PL_SERVER_PACKET_ROWS;
    if (pl_server_rows_may_send(&server, 1, &packet)) {
        PL_BUG_IF(packet.kind == PL_SERVER_PACKET_ROWS_DONE); /* no worker has asked for rows */
        PL_BUG_IF(packet.data_bytes > PL_SERVER_ROWS_BYTES || packet.piece > 1 || packet.worker < 2);
        PL_BUG_IF(strlen(packet.rows.path) >= sizeof(packet.rows.path));
    }
}

static void read_file_head(const uint8_t *data, size_t bytes)
{
    struct pl_row_file_head head = {.version = 0};

    memcpy(&head, data, bytes < sizeof(head) ? bytes : sizeof(head));
    if (pl_row_file_check(&head, NULL) == PL_OK) {
        PL_BUG_IF(head.part >= head.parts || head.table.columns == 0 || strlen(head.table.name) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] == 'm') {
        read_message(data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'l') {
        read_layout(data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'k') {
        read_packet(data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'h') {
        read_file_head(data + 1, bytes - 1);
    }
    return 0;
}
