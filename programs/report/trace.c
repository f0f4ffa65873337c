/* SPDX-License-Identifier: Apache-2.0 */
/* paceline trace [--summary] RING...: prints the rings that ranks left (see runtime/trace.h) as one JSON trace, or says
 * which rank held up the others. */
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "programs/report/summary.h"
#include "runtime/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct options {
    bool summary;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_TRACE_OPTIONS(PL_OPTION) PL_OPTIONS_END};

int main(int argc, char **argv)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    struct options options = {.summary = false};

    pl_log_open("paceline trace");
    status = pl_verbs_read("trace", table, argc, argv, &options, &error);
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    status = (options.summary ? pl_trace_summarise : pl_trace_merge)((const char *const *)(argv + optind),
                                                                     (size_t)(argc - optind), &text, &error);
    if (status != PL_OK ||
        pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "standard output", &error) != PL_OK) {
        pl_log_error(&error, "cannot read the rings");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
