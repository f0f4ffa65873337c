/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a manifest that lies on this machine. */
#include "programs/local/manifest.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_copy.h"

#include <sys/stat.h>

enum { MOST_BYTES = 256 << 20 };

/* Checks that the folder has the file, and that the name does not lead out of the folder. */
static enum pl_status check(const char *manifest, const char *folder, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info;

    if (pl_s3_local_path(folder, name, &path, reterr) != PL_OK) {
        pl_error_context(reterr, "the manifest '%s'", manifest);
        return PL_INVALID;
    }
    return stat(path.data, &info) == 0 && S_ISREG(info.st_mode)
               ? PL_OK
               : pl_error_set(reterr, PL_NOT_FOUND, "the manifest '%s' names '%s', and '%s' has no such file", manifest,
                              name, folder);
}

enum pl_status pl_local_manifest_read(const char *path, const char *folder, struct pl_local_files *files,
                                      struct pl_error *reterr)
{
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, MOST_BYTES, &text, &bytes, reterr));
    PL_TRY(pl_manifest_parse(text, bytes, path, &manifest, reterr));
    pl_manifest_sort(&manifest);
    for (size_t i = 0; i < manifest.count; i++) {
        PL_TRY(check(path, folder, manifest.keys[i], reterr));
        PL_TRY(pl_local_files_add(files, manifest.keys[i], reterr));
    }
    return PL_OK;
}
