/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-unpack [--max-bytes N] [--unfinished NAME] [--fetched] SOURCE DEST
 * paceline-unpack --look SOURCE
 *
 * DEST holds an empty file NAME until all of SOURCE is unpacked. With --fetched, SOURCE is an archive that was fetched
 * only for this, and it is removed afterwards. --look writes nothing: it exits with 0 if SOURCE can be what its name
 * says.
 *
 * It is a separate program, so that a process that does nothing else reads an archive from outside, and process 1
 * survives any end of that process.
 */
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "programs/unpack/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Unpacks the source. The file `unfinished` exists until everything is there, so that a later process sees if this one
 * was interrupted.
 */
static enum pl_status unpack_whole(const char *source, const char *dest, const char *unfinished, bool is_archive,
                                   const struct pl_unpack_limits *limits, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int dest_fd = -1;
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(pl_file_make_dirs(dest, 0755, reterr));
    dest_fd = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dest_fd < 0) {
        return pl_error_errno(reterr, "open '%s'", dest);
    }
    if (unfinished) {
        fd = openat(dest_fd, unfinished, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0) {
            return pl_error_errno(reterr, "create '%s/%s'", dest, unfinished);
        }
    }
    PL_TRY(pl_unpack_source(source, is_archive, dest_fd, limits, reterr));
    return !unfinished || unlinkat(dest_fd, unfinished, 0) == 0
               ? PL_OK
               : pl_error_errno(reterr, "remove '%s/%s'", dest, unfinished);
}

struct options {
    struct pl_unpack_limits limits;
    const char *unfinished;
    bool is_look, fetched;
};

#define PL_OPTIONS_OF struct options
static const struct pl_option table[] = {
    {.name = "--look", PL_TO(is_look)},
    {.name = "--fetched", PL_TO(fetched)},
    {.name = "--unfinished", .value = "NAME", PL_TO(unfinished)},
    {.name = "--max-bytes", .value = "N", PL_TO_NUMBER(limits.max_bytes, 0, INT64_MAX)},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    struct options options = {.limits = {.max_bytes = INT64_C(1) << 34, .max_entries = 1000000}};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    const char *source;

    pl_log_open("paceline-unpack");
    status = pl_options_read(table, argc, argv, &options, &error);
    if (status != PL_OK || argc - optind != (options.is_look ? 1 : 2)) {
        pl_log(PL_LOG_ERROR, "%s",
               status == PL_INVALID
                   ? error.cause
                   : "usage: paceline-unpack [--max-bytes N] [--unfinished NAME] [--fetched] SOURCE DEST");
        return PL_EXIT_USAGE;
    }
    source = argv[optind];
    status = options.is_look
                 ? pl_unpack_look(source, &error)
                 : unpack_whole(source, argv[optind + 1], options.unfinished, options.fetched, &options.limits, &error);
    if (options.fetched && unlink(source) != 0) {
        pl_log(PL_LOG_WARNING, "cannot remove %s: %s", source, strerror(errno));
    }
    if (status != PL_OK) { /* the failure file begins with the last line of the log */
        pl_log_error(&error, "%s", source);
    }
    return status == PL_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
