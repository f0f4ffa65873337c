/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever an archive contains, no file appears outside the destination, and the limits hold. */
#include "base/fd.h"
#include "base/memory.h"
#include "programs/unpack/unpack.h"
#include "tests/support/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 20, MAX_ENTRIES = 64 };

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)type;
    (void)where;
    PL_BUG_IF(S_ISLNK(info->st_mode) || !(S_ISREG(info->st_mode) || S_ISDIR(info->st_mode)));
    return remove(path);
}

/* The destination is the only entry of a directory, and must still be the only one afterwards. */
static void check_alone(const char *base)
{
    DIR *dir = opendir(base);
    const struct dirent *entry;

    PL_BUG_IF(!dir);
    while ((entry = readdir(dir))) {
        PL_BUG_IF(entry->d_name[0] != '.' && strcmp(entry->d_name, "dest") != 0);
    }
    closedir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct pl_unpack_limits limits = {.max_bytes = MAX_BYTES, .max_entries = MAX_ENTRIES};
    char base[64];
    char dest[128], path[64];
    struct pl_error error = PL_ERROR_NONE;
    int fd, archive_fd;

    /* In memory if that is possible, because thousands of runs are mostly calls of the file system. */
    snprintf(base, sizeof(base), "%s/paceline-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    PL_BUG_IF(!mkdtemp(base));
    snprintf(dest, sizeof(dest), "%s/dest", base);
    PL_BUG_IF(mkdir(dest, 0755) != 0);
    fd = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    PL_BUG_IF(fd < 0);
    archive_fd = pl_fd_new_memory("archive", 0);
    PL_BUG_IF(archive_fd < 0 || write(archive_fd, data, bytes) != (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", archive_fd);
    if (pl_unpack_source(path, true, fd, &limits, &error) != PL_OK) {
        PL_BUG_IF(error.cause[0] == '\0');
    }
    close(archive_fd);
    close(fd);
    check_alone(base);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
