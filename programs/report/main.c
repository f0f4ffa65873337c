/* SPDX-License-Identifier: Apache-2.0 */
/* paceline report DIR: writes a page about the job whose files are in DIR. */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "programs/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MODE = 0644 };

static enum pl_status write_page(const char *folder, const char *output, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text html = PL_TEXT_NONE, path = PL_TEXT_NONE;
    PL_AUTO_FREE char *target = NULL;
    static struct pl_report report;
    struct stat attributes;
    enum pl_status status = pl_report_read(folder, &report, reterr);

    if (status == PL_OK) {
        pl_report_page(&report, &html);
        status = pl_text_check(&html, reterr);
    }
    pl_report_done(&report);
    PL_TRY(status);
    if (output && strcmp(output, "-") == 0) {
        return pl_file_write_fd(STDOUT_FILENO, html.data, html.length, "standard output", reterr);
    }
    PL_TRY(pl_text_set(&path, reterr, output ? "%s" : "%s/report.html", output ? output : folder));
    target = realpath(path.data, NULL); /* of a link; NULL: the file is not there yet */
    if (target && stat(target, &attributes) == 0 && !S_ISREG(attributes.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a regular file; - means standard output", path.data);
    }
    return pl_file_write_atomic(target ? target : path.data, html.data, html.length, FILE_MODE, reterr);
}

struct options {
    const char *output;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {PL_REPORT_OPTIONS(PL_OPTION) PL_OPTIONS_END};

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    struct options options = {.output = NULL};
    enum pl_status status;

    pl_log_open("paceline report");
    status = pl_verbs_read("report", table, argc, argv, &options, &error);
    if (status == PL_OK && optind + 1 != argc) {
        status = pl_error_set(&error, PL_INVALID, "expected one folder of a job");
    }
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    if (write_page(argv[optind], options.output, &error) != PL_OK) {
        pl_log_error(&error, "cannot write the report");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
