/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch takes from others: frames of the control link, the command that a master sends, options of mpirun. */
#include "base/memory.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/supervise/exit_report.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Frames of the control link, from another host or from any client with the key. */
static int fuzz_frames(const uint8_t *data, size_t bytes)
{
    const char *at = (const char *)data;
    struct pl_frame frame;
    size_t used;

    while (pl_link_frame_decode(at, bytes, &frame, &used, NULL) == PL_OK && used > 0) {
        PL_AUTO_TEXT struct pl_text again = PL_TEXT_NONE;
        PL_AUTO_TEXT struct pl_text report = PL_TEXT_NONE;
        struct pl_exit_report exit_report;
        int64_t number;

        PL_BUG_IF(used > bytes);
        /* A decoded frame must encode to the same bytes. */
        PL_BUG_IF(pl_link_frame_encode(&again, frame.type, frame.fields, frame.count, NULL) != PL_OK);
        PL_BUG_IF(again.length != used || memcmp(again.data, at, used) != 0);
        for (size_t i = 0; i <= frame.count; i++) {
            PL_BUG_IF(pl_link_frame_number(&frame, i, 1, 64, &number, NULL) == PL_OK && (number < 1 || number > 64));
        }
        if (pl_exit_report_receive(&frame, &exit_report, NULL) == PL_OK) {
            pl_exit_report_print(&exit_report, 0, 1024, &report);
        }
        at += used;
        bytes -= used;
    }
    return 0;
}

static bool is_daemon(const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *name = slash ? slash + 1 : word;

    return strcmp(name, "orted") == 0 || strcmp(name, "prted") == 0;
}

/* The launch command that a master sends: the splitter accepts only orted or prted, whatever the command is. */
static int fuzz_command(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;

    if (!text) {
        return 0;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (pl_command_split_daemon(text, &command, NULL) == PL_OK) {
        PL_BUG_IF(command.count == 0 || !is_daemon(command.items[0]) || command.items[command.count]);
        for (size_t i = 0; i < command.count; i++) {
            PL_BUG_IF(strcmp(command.items[i], "--daemonize") == 0);
        }
    }
    free(text);
    return 0;
}

/* Splitting never reads beyond its text, and words that are quoted for a shell split into the same words again. */
static int fuzz_options(const uint8_t *data, size_t bytes)
{
    PL_AUTO_FREE char *text = pl_memory_string_n((const char *)data, bytes, NULL);
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    PL_AUTO_STRV struct pl_strv again = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text quoted = PL_TEXT_NONE;
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    struct pl_mpi_options_custom custom = {.words = {.pool = &pool}};
    struct pl_error error = PL_ERROR_NONE;

    if (text && pl_strv_split(text, "options", &words, &error) == PL_OK) {
        for (size_t i = 0; i < words.count; i++) {
            pl_text_append_quoted(&quoted, words.items[i]);
            pl_text_append_char(&quoted, ' ');
        }
        PL_BUG_IF(pl_strv_split(pl_text_string(&quoted), "quoted", &again, &error) != PL_OK ||
                  again.count != words.count);
        for (size_t i = 0; i < words.count; i++) {
            PL_BUG_IF(strcmp(words.items[i], again.items[i]) != 0);
        }
        if (pl_mpi_options_split(text, &custom, &error) == PL_OK) {
            PL_BUG_IF(custom.words.count > words.count);
        }
    }
    return 0;
}

FUZZ_TARGETS({"frames", fuzz_frames}, {"command", fuzz_command}, {"options", fuzz_options})
