/* SPDX-License-Identifier: Apache-2.0 */
/* The secret from which the hosts of a job derive their ssh keys. */
#include "programs/local/secret.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

enum { SECRET_MODE = 0600 };

enum pl_status pl_local_secret_make(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (local->job->hosts == 1) {
        return PL_OK;
    }
    if (getrandom(local->secret, sizeof(local->secret), 0) != (ssize_t)sizeof(local->secret)) {
        return pl_error_errno(reterr, "make a secret");
    }
    if (local->kind != PL_LOCAL_CONTAINERS) {
        return PL_OK;
    }
    PL_TRY(pl_local_path(local, &path, reterr, "secret"));
    return pl_file_write_atomic(path.data, local->secret, sizeof(local->secret), SECRET_MODE, reterr);
}

enum pl_status pl_local_secret_show(const struct pl_local *local, struct pl_error *reterr)
{
    return local->job->hosts == 1
               ? PL_OK
               : pl_file_write_atomic(PL_LOCAL_SECRET_PATH, local->secret, sizeof(local->secret), SECRET_MODE, reterr);
}

/* The lock of a call that runs cannot be had. */
static void remove_one(const char *folder, const char *name)
{
    PL_AUTO_TEXT struct pl_text lock = PL_TEXT_NONE, secret = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    pl_text_printf(&lock, "%s/%s/lock", folder, name);
    pl_text_printf(&secret, "%s/%s/secret", folder, name);
    if (pl_text_check(&lock, NULL) != PL_OK || pl_text_check(&secret, NULL) != PL_OK ||
        access(secret.data, F_OK) != 0) {
        return;
    }
    fd = open(lock.data, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(secret.data) == 0) {
        pl_log(PL_LOG_INFO, "removed '%s', which an earlier call left", secret.data);
    }
}

void pl_local_secret_remove_left(const char *folder)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(folder);
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] != '.') {
            remove_one(folder, entry->d_name);
        }
    }
}
