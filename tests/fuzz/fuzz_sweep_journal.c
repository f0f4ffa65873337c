/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a sweep's journal after the first, with correct checksums: accepted lines are accepted again, with the
 * same state. A refused line has a reason that names it.
 */
#include "base/checksum.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "programs/sweep/identity.h"
#include "programs/sweep/journal.h"
#include "tests/support/fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIALS = 3 };

static const char specification[] = "{\"metric\":\"m\",\"goal\":\"minimize\",\"space\":{\"a\":[1,2,3]},\"scheduler\":"
                                    "{\"asha\":{\"factor\":2}}}";

struct sweep {
    struct pl_scheduler *scheduler;
    struct pl_sweep_record records[TRIALS];
};

static enum pl_status replay(const struct pl_sweep_space *space, const char *path, struct sweep *sweep,
                             struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = pl_python_json_new_object();
    const struct pl_sweep_asked asked = {.identity = identity};
    struct pl_sweep_journal *journal = NULL;
    enum pl_status status;

    *sweep = (struct sweep){.scheduler = NULL};
    PL_BUG_IF(pl_scheduler_new(space, &sweep->scheduler, reterr) != PL_OK);
    status = pl_sweep_journal_open(path, space, &asked, sweep->scheduler, sweep->records, &journal, reterr);
    pl_sweep_journal_close(journal);
    return status;
}

static void sweep_done(struct sweep *sweep)
{
    for (size_t i = 0; i < TRIALS; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    pl_scheduler_free(sweep->scheduler);
}

static void compare(const struct sweep *first, const struct sweep *again)
{
    for (size_t i = 0; i < TRIALS; i++) {
        const struct pl_sweep_progress *one = pl_scheduler_progress(first->scheduler, i);
        const struct pl_sweep_progress *other = pl_scheduler_progress(again->scheduler, i);

        PL_BUG_IF(one->state == PL_SWEEP_RUNNING || one->state != other->state || one->runs != other->runs);
        PL_BUG_IF(one->step != other->step || one->has_value != other->has_value);
        PL_BUG_IF(one->has_value && one->best != other->best);
    }
}

/* Append a line with its checksum, in place of its last byte. */
static void append_line(struct pl_text *text, const char *line, size_t bytes, uint32_t *crc)
{
    bytes -= bytes > 0;
    *crc = pl_checksum_crc32c(*crc, line, bytes);
    pl_text_append_n(text, line, bytes);
    pl_text_printf(text, ", \"crc\": \"%08" PRIx32 "\"}\n", *crc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE, head = PL_TEXT_NONE;
    const char *at = (const char *)data, *end = at + bytes, *line_end;
    uint32_t crc = 0;
    PL_AUTO_CLOSE int fd = pl_fd_new_memory("journal", 0);
    struct pl_error error = PL_ERROR_NONE;
    struct sweep first, again;
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    PL_BUG_IF(pl_sweep_space_parse(specification, sizeof(specification) - 1, "S", &space, &error) != PL_OK);
    pl_text_printf(&head,
                   "{\"sweep\": 2, \"fresh\": null, \"asked\": {}, \"trials\": %d, \"digest\": \"%016" PRIx64 "\"}",
                   TRIALS, pl_sweep_identity_trials(space, TRIALS));
    append_line(&text, head.data, head.length, &crc);
    for (; at < end && (line_end = memchr(at, '\n', (size_t)(end - at))); at = line_end + 1) {
        append_line(&text, at, (size_t)(line_end - at), &crc);
    }
    pl_text_append_n(&text, at, (size_t)(end - at));
    PL_BUG_IF(pl_file_write_fd(fd, text.data, text.length, path, &error) != PL_OK);
    if (replay(space, path, &first, &error) == PL_OK) {
        PL_BUG_IF(replay(space, path, &again, &error) != PL_OK);
        compare(&first, &again);
        sweep_done(&again);
    } else {
        PL_BUG_IF(error.status != PL_INVALID && error.status != PL_LIMIT);
        PL_BUG_IF(strncmp(error.cause, path, strlen(path)) != 0 || error.cause[strlen(path)] != ',');
    }
    sweep_done(&first);
    return 0;
}
