/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of `paceline local`'s limits as JSON, for tests/integration/local_job.py. */
#include "base/json/json_write.h"
#include "programs/local/job/limits.h"

#include <stdio.h>

int main(void)
{
    PL_AUTO_TEXT struct pl_text json = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&json);
    struct pl_error error = PL_ERROR_NONE;

    pl_json_write_list(&writer, NULL);
    for (const struct pl_local_limit *row = pl_local_limits; row->path; row++) {
        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "path", row->path);
        pl_json_write_int64(&writer, "kind", (int64_t)row->kind);
        pl_json_write_int64(&writer, "least", row->least);
        pl_json_write_int64(&writer, "most", row->most);
        pl_json_write_text(&writer, "pattern", row->pattern ? row->pattern : "");
        pl_json_write_text(&writer, "words", row->words ? row->words : "");
        pl_json_write_bool(&writer, "required", row->required);
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    if (pl_json_write_end(&writer, &error) != PL_OK) {
        fprintf(stderr, "%s\n", error.cause);
        return 1;
    }
    puts(pl_text_string(&json));
    return 0;
}
