/* SPDX-License-Identifier: Apache-2.0 */
/* paceline trace [--summary] RING...: prints the rings that ranks left (see runtime/trace.h) as one JSON trace, or says
 * which rank held up the others. */
#include "runtime/trace.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "entrypoint/verbs.h"
#include "programs/report/summary.h"
#include "runtime/trace_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static const struct option table[] = {
        {"help", no_argument, NULL, 'h'}, {"summary", no_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    bool summary = false;
    int option;

    pl_log_open("paceline trace");
    while ((status = pl_options_next(argc, argv, "h", table, &option, &error)) == PL_OK && option == 's') {
        summary = true;
    }
    if (status == PL_INVALID) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    if (status == PL_OK || optind == argc) {
        pl_verbs_print_help("trace", status == PL_OK ? stdout : stderr);
        return status == PL_OK ? EXIT_SUCCESS : PL_EXIT_USAGE;
    }
    status = (summary ? pl_trace_summarise : pl_trace_merge)((const char *const *)(argv + optind),
                                                             (size_t)(argc - optind), &text, &error);
    if (status != PL_OK ||
        pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "standard output", &error) != PL_OK) {
        pl_log_error(&error, "reading the rings");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
