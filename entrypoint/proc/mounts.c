/* SPDX-License-Identifier: Apache-2.0 */
/* Enters user namespaces, and makes mounts in the namespaces of this process. */
#include "entrypoint/proc/mounts.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RECURSIVE = 0x8000, READ_ONLY = 1 }; /* from linux/mount.h, which conflicts with sys/mount.h */

static enum pl_status write_text(const char *path, const char *text, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 ? pl_error_errno(reterr, "open '%s'", path) : pl_file_write_fd(fd, text, strlen(text), path, reterr);
}

enum pl_status pl_mounts_enter_users(struct pl_error *reterr)
{
    const unsigned long user = geteuid(), group = getegid();
    char map[64];

    if (unshare(CLONE_NEWUSER) != 0) {
        return pl_error_errno(reterr, "make a user namespace");
    }
    PL_TRY(write_text("/proc/self/setgroups", "deny", reterr)); /* the kernel refuses the group's map without this */
    snprintf(map, sizeof(map), "%lu %lu 1", user, user);
    PL_TRY(write_text("/proc/self/uid_map", map, reterr));
    snprintf(map, sizeof(map), "%lu %lu 1", group, group);
    return write_text("/proc/self/gid_map", map, reterr);
}

enum pl_status pl_mounts_bind(const char *from, const char *to, struct pl_error *reterr)
{
    return mount(from, to, NULL, MS_BIND | MS_REC, NULL) == 0 ? PL_OK
                                                              : pl_error_errno(reterr, "mount '%s' on '%s'", from, to);
}

enum pl_status pl_mounts_make_read_only(const char *path, struct pl_error *reterr)
{
    const uint64_t attributes[4] = {READ_ONLY}; /* set, clear, propagation, user namespace */
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    struct statvfs info;

#ifdef SYS_mount_setattr
    if (syscall(SYS_mount_setattr, AT_FDCWD, path, RECURSIVE, attributes, sizeof(attributes)) == 0) {
        return PL_OK;
    }
#endif
    if (statvfs(path, &info) != 0) {
        return pl_error_errno(reterr, "read the mount of '%s'", path);
    }
    /* without privileges the flags that the mount has must stay */
    flags |= (info.f_flag & ST_NOSUID ? MS_NOSUID : 0UL) | (info.f_flag & ST_NODEV ? MS_NODEV : 0UL) |
             (info.f_flag & ST_NOEXEC ? MS_NOEXEC : 0UL) | (info.f_flag & ST_NOATIME ? MS_NOATIME : 0UL) |
             (info.f_flag & ST_NODIRATIME ? MS_NODIRATIME : 0UL) | (info.f_flag & ST_RELATIME ? MS_RELATIME : 0UL);
    return mount(NULL, path, NULL, flags, NULL) == 0 ? PL_OK : pl_error_errno(reterr, "make '%s' read-only", path);
}

enum pl_status pl_mounts_memory(const char *path, const char *mode, struct pl_error *reterr)
{
    return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, mode) == 0
               ? PL_OK
               : pl_error_errno(reterr, "mount a new file system on '%s'", path);
}
