/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the control link, from another host or from any client with the key. */
#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/exit_report.h"
#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
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
