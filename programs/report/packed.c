/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks the files of a job's packed output that a report needs. */
#include "programs/report/report.h"

#include "base/file.h"
#include "base/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK_BYTES = 64 * 1024, FILE_MODE = 0600 };

static void free_archive(struct archive **archive)
{
    archive_read_free(*archive);
}

static enum pl_status raise_archive(struct archive *in, const char *path, struct pl_error *reterr)
{
    const char *words = archive_error_string(in);

    return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_ARCHIVE, archive_errno(in), "cannot read '%s': %s", path,
                          words ? words : "libarchive gives no reason");
}

static bool is_wanted(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);

    return name && archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
           (strcmp(name, "metrics.jsonl") == 0 || strcmp(name, "trials.jsonl") == 0 ||
            pl_text_ends_with(name, ".ring"));
}

static enum pl_status take_file(struct archive *in, struct archive_entry *entry, const char *path, const char *folder,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text file = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(pl_text_set(&file, reterr, "%s/%s", folder, archive_entry_pathname(entry)));
    for (char *at = file.data + strlen(folder) + 1; (at = strchr(at, '/'));) {
        *at = '-';
    }
    fd = open(file.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0) {
        return pl_error_errno(reterr, "create '%s'", file.data);
    }
    return archive_read_data_into_fd(in, fd) == ARCHIVE_OK ? PL_OK : raise_archive(in, path, reterr);
}

enum pl_status pl_packed_take(const char *path, const char *folder, struct pl_error *reterr)
{
    __attribute__((cleanup(free_archive))) struct archive *in = archive_read_new();
    struct archive_entry *entry;
    int code;

    if (!in) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for an archive");
    }
    if (archive_read_support_filter_gzip(in) != ARCHIVE_OK || archive_read_support_format_tar(in) != ARCHIVE_OK ||
        archive_read_open_filename(in, path, BLOCK_BYTES) != ARCHIVE_OK) {
        return raise_archive(in, path, reterr);
    }
    while ((code = archive_read_next_header(in, &entry)) == ARCHIVE_OK) {
        if (is_wanted(entry)) {
            PL_TRY(take_file(in, entry, path, folder, reterr));
        }
    }
    return code == ARCHIVE_EOF ? PL_OK : raise_archive(in, path, reterr);
}
