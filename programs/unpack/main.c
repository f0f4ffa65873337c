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
        return pl_error_errno(reterr, "opening '%s'", dest);
    }
    if (unfinished) {
        fd = openat(dest_fd, unfinished, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0) {
            return pl_error_errno(reterr, "creating '%s/%s'", dest, unfinished);
        }
    }
    PL_TRY(pl_unpack_source(source, is_archive, dest_fd, limits, reterr));
    return !unfinished || unlinkat(dest_fd, unfinished, 0) == 0
               ? PL_OK
               : pl_error_errno(reterr, "removing '%s/%s'", dest, unfinished);
}

int main(int argc, char **argv)
{
    const char *unfinished = NULL;
    struct pl_unpack_limits limits = {.max_bytes = INT64_C(1) << 34, .max_entries = 1000000};
    struct pl_error error = PL_ERROR_NONE;
    bool fetched = false;
    enum pl_status status;
    int at = 1;

    pl_log_open("paceline-unpack");
    if (argc == 3 && strcmp(argv[1], "--look") == 0) {
        status = pl_unpack_look(argv[2], &error);
        if (status != PL_OK) {
            pl_log_error(&error, "%s", argv[2]);
        }
        return status == PL_OK ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--fetched") == 0) {
            fetched = true;
        } else if (strcmp(argv[at], "--unfinished") == 0 && at + 1 < argc) {
            unfinished = argv[++at];
        } else if (strcmp(argv[at], "--max-bytes") == 0 && at + 1 < argc) {
            char *end = NULL;

            errno = 0;
            limits.max_bytes = strtoll(argv[++at], &end, 10);
            if (errno != 0 || *end != '\0' || end == argv[at] || limits.max_bytes < 0) {
                pl_log(PL_LOG_ERROR, "--max-bytes: expected a number of bytes, found '%s'", argv[at]);
                return PL_EXIT_USAGE;
            }
        } else {
            break;
        }
    }
    if (argc - at != 2) {
        pl_log(PL_LOG_ERROR, "usage: paceline-unpack [--max-bytes N] [--unfinished NAME] [--fetched] SOURCE DEST");
        return PL_EXIT_USAGE;
    }
    status = unpack_whole(argv[at], argv[at + 1], unfinished, fetched, &limits, &error);
    if (fetched && unlink(argv[at]) != 0) {
        pl_log(PL_LOG_WARNING, "removing %s: %s", argv[at], strerror(errno));
    }
    if (status != PL_OK) { /* the failure file begins with the last line of the log */
        pl_log_error(&error, "%s", argv[at]);
    }
    return status == PL_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
