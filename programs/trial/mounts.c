/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a trial an /opt/ml of its own, by mounts that no other process sees. */
#include "programs/trial/mounts.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static enum pl_status write_id_map(const char *path, unsigned id, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    char line[64];
    const int bytes = snprintf(line, sizeof(line), "%u %u 1", id, id);

    return fd >= 0 && write(fd, line, (size_t)bytes) == bytes ? PL_OK : pl_error_errno(reterr, "write '%s'", path);
}

/* Enters a user namespace of its own, in which the process may mount. Some systems do not let every user make one. */
static enum pl_status enter_users(struct pl_error *reterr)
{
    const unsigned user = geteuid(), group = getegid();
    int fd;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        return pl_error_errno(reterr, "unshare");
    }
    fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) { /* the kernel refuses the group's map without this */
        if (write(fd, "deny", 4) != 4) {
            close(fd);
            return pl_error_errno(reterr, "write '/proc/self/setgroups'");
        }
        close(fd);
    }
    PL_TRY(write_id_map("/proc/self/uid_map", user, reterr));
    return write_id_map("/proc/self/gid_map", group, reterr);
}

static enum pl_status enter_mounts(struct pl_error *reterr)
{
    if (unshare(CLONE_NEWNS) != 0) {
        PL_TRY(enter_users(reterr));
    }
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 ? PL_OK : pl_error_errno(reterr, "mount '/' as slave");
}

/* Binds the folder with all mounts below it: without privileges none of them may be left out. */
static enum pl_status bind_to(const char *source, const char *target, struct pl_error *reterr)
{
    return mount(source, target, NULL, MS_BIND | MS_REC, NULL) == 0
               ? PL_OK
               : pl_error_errno(reterr, "mount '%s' at '%s'", source, target);
}

/* Names the flags that the mount has again: otherwise an unprivileged remount is refused. */
static enum pl_status remount_read_only(const char *path, struct pl_error *reterr)
{
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    struct statvfs info;

    if (statvfs(path, &info) == 0) {
        flags |= (info.f_flag & ST_NOSUID ? MS_NOSUID : 0) | (info.f_flag & ST_NODEV ? MS_NODEV : 0) |
                 (info.f_flag & ST_NOEXEC ? MS_NOEXEC : 0) | (info.f_flag & ST_NOATIME ? MS_NOATIME : 0) |
                 (info.f_flag & ST_NODIRATIME ? MS_NODIRATIME : 0) | (info.f_flag & ST_RELATIME ? MS_RELATIME : 0);
    }
    return mount(NULL, path, NULL, flags, NULL) == 0 ? PL_OK : pl_error_errno(reterr, "mount '%s' read-only", path);
}

/* Makes a folder read-only with the mounts below it, for example channels. Before Linux 5.12 those mounts stay
 * writable. */
static enum pl_status make_read_only(const char *path, struct pl_error *reterr)
{
    if (access(path, F_OK) != 0) {
        return PL_OK;
    }
    PL_TRY(bind_to(path, path, reterr));
#ifdef SYS_mount_setattr
    {
        /* what to set, clear, the propagation and the user namespace: C libraries before 2.36 have neither the call
         * nor its names */
        const uint64_t attributes[4] = {1 /* MOUNT_ATTR_RDONLY */, 0, 0, 0};

        if (syscall(SYS_mount_setattr, AT_FDCWD, path, 0x8000 /* AT_RECURSIVE */, attributes, sizeof(attributes)) ==
            0) {
            return PL_OK;
        }
    }
#endif
    return remount_read_only(path, reterr);
}

enum pl_status pl_trial_mounts_enter(const struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(enter_mounts(reterr));
    return bind_to(job->paths.base, job->paths.base, reterr);
}

enum pl_status pl_trial_mounts_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, root = PL_TEXT_NONE, below = PL_TEXT_NONE;
    int fds[6];

    pl_job_checkpoints(job, &root);
    pl_text_printf(&below, "%s/checkpoints", job->paths.base);
    PL_TRY(pl_text_check(&root, reterr));
    PL_TRY(pl_text_check(&below, reterr));
    {
        const bool root_is_below = strncmp(root.data, below.data, below.length) == 0 &&
                                   strchr("/", root.data[below.length]); /* so one mount would hide the other */
        const struct {
            const char *source, *source_tail, *target, *target_tail;
        } list[] = {{folder->base, "/output", job->paths.base, "/output"},
                    {folder->output_data, "", job->paths.base, "/output/data"},
                    {folder->base, "/input/config", job->paths.base, "/input/config"},
                    {folder->model, "", job->paths.base, "/model"},
                    {folder->checkpoints, "", root.data, ""},
                    {folder->checkpoints, "", below.data, ""}};
        const size_t count = PL_ARRAY_ITEMS(list) - root_is_below;

        /* open all sources first: a mount can hide the source of another one */
        for (size_t i = 0; i < count; i++) {
            pl_text_clear(&path);
            pl_text_printf(&path, "%s%s", list[i].source, list[i].source_tail);
            PL_TRY(pl_text_check(&path, reterr));
            fds[i] = open(pl_text_string(&path), O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (fds[i] < 0) {
                return pl_error_errno(reterr, "open '%s'", pl_text_string(&path));
            }
        }
        for (size_t i = 0; i < count; i++) {
            char source[32];

            pl_text_clear(&path);
            pl_text_printf(&path, "%s%s", list[i].target, list[i].target_tail);
            PL_TRY(pl_text_check(&path, reterr));
            snprintf(source, sizeof(source), "/proc/self/fd/%d", fds[i]);
            PL_TRY(bind_to(source, pl_text_string(&path), reterr));
        }
    }
    return make_read_only(job->paths.input_data, reterr);
}

static struct timespec changed_at(const struct pl_job *job, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info = {.st_mtim = {.tv_sec = 0}};

    pl_text_printf(&path, "%s/%s", job->paths.base, name);
    if (pl_text_check(&path, NULL) == PL_OK && stat(pl_text_string(&path), &info) != 0) {
        info.st_mtim = (struct timespec){.tv_sec = 0};
    }
    return info.st_mtim;
}

static const char *const shared_names[] = {"model", "checkpoints"};

void pl_trial_shared_note(const struct pl_job *job, struct pl_trial_shared *ret_shared)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_names); i++) {
        ret_shared->times[i] = changed_at(job, shared_names[i]);
    }
}

enum pl_status pl_trial_shared_check(const struct pl_job *job, const struct pl_trial_shared *shared,
                                     struct pl_error *reterr)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(shared_names); i++) {
        const struct timespec now = changed_at(job, shared_names[i]);

        if (now.tv_sec != shared->times[i].tv_sec || now.tv_nsec != shared->times[i].tv_nsec) {
            return pl_error_set(reterr, PL_INVALID,
                                "a program has changed '%.300s/%s', which all trials of this host share because the "
                                "system allows no mounts: expected it to use the folder in the variable %s",
                                job->paths.base, shared_names[i], i == 0 ? "SM_MODEL_DIR" : "PACELINE_CHECKPOINT_DIR");
        }
    }
    return PL_OK;
}
