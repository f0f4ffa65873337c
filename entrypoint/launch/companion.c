/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the programs and libraries of libexec, relative to the front binary. */
#include "entrypoint/launch/companion.h"

#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Relative to the directory of the binary: where they are installed, then the directory itself. */
static const char *const places[] = {"../libexec/paceline/", ""};

enum pl_status pl_companion_find(const char *self_path, const char *name, char **ret_path, struct pl_error *reterr)
{
    const char *slash = strrchr(self_path, '/');
    size_t length = slash ? (size_t)(slash - self_path) : 0;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(places); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_append_n(&path, self_path, length);
        pl_text_printf(&path, "/%s%s", places[i], name);
        PL_TRY(pl_text_check(&path, reterr));
        if (access(pl_text_string(&path), R_OK) == 0) {
            *ret_path = realpath(pl_text_string(&path), NULL); /* the real path: users read it in messages */
            return *ret_path ? PL_OK : pl_error_errno(reterr, "find '%s'", pl_text_string(&path));
        }
    }
    return pl_error_set(reterr, PL_NOT_FOUND,
                        "expected %s next to %s or in ../libexec/paceline, and found it in neither", name, self_path);
}

enum pl_status pl_companion_find_paceline(char **ret_path, struct pl_error *reterr)
{
    static const char *const fronts[] = {"../../bin/paceline", "../entrypoint/paceline", "paceline"};
    char self[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0) {
        return pl_error_errno(reterr, "read '/proc/self/exe'");
    }
    self[length] = '\0';
    *(strrchr(self, '/') + 1) = '\0';
    for (size_t i = 0; i < PL_ARRAY_ITEMS(fronts); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        PL_TRY(pl_text_set(&path, reterr, "%s%s", self, fronts[i]));
        if (access(pl_text_string(&path), X_OK) == 0) {
            *ret_path = realpath(pl_text_string(&path), NULL);
            return *ret_path ? PL_OK : pl_error_errno(reterr, "find '%s'", pl_text_string(&path));
        }
    }
    return pl_error_set(reterr, PL_NOT_FOUND, "found no paceline program in ../../bin relative to %s", self);
}
