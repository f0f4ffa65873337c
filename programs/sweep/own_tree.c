/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a trial an /opt/ml of its own, by mounts that no other process sees. */
#include "programs/sweep/own_tree.h"

#include "base/file.h"
#include "base/memory.h"
#include "programs/sweep/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The arguments after --in: paths, then "--" and the program. */
enum { WORD_BASE, WORD_ROOT, WORD_TREE, WORD_MODEL, WORD_CHECKPOINTS, WORD_OUTPUT_DATA, WORDS };

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
        const uint64_t attributes[4] = {1 /* MOUNT_ATTR_RDONLY */, 0, 0,
                                        0}; /* set, clear, propagation, user namespace */

        if (syscall(SYS_mount_setattr, AT_FDCWD, path, 0x8000 /* AT_RECURSIVE */, attributes, sizeof(attributes)) ==
            0) {
            return PL_OK;
        }
    }
#endif
    return remount_read_only(path, reterr);
}

static enum pl_status mount_all(char **words, struct pl_error *reterr)
{
    const struct {
        int source; /* an index of `words` */
        const char *source_tail;
        int target;
        const char *target_tail;
    } list[] = {{WORD_TREE, "/output", WORD_BASE, "/output"},
                {WORD_OUTPUT_DATA, "", WORD_BASE, "/output/data"},
                {WORD_TREE, "/input/config", WORD_BASE, "/input/config"},
                {WORD_MODEL, "", WORD_BASE, "/model"},
                {WORD_CHECKPOINTS, "", WORD_BASE, "/checkpoints"},
                {WORD_CHECKPOINTS, "", WORD_ROOT, ""}};
    const size_t base_bytes = strlen(words[WORD_BASE]);
    const bool root_is_below = strncmp(words[WORD_ROOT], words[WORD_BASE], base_bytes) == 0 &&
                               strncmp(words[WORD_ROOT] + base_bytes, "/checkpoints", 12) == 0 &&
                               strchr("/", words[WORD_ROOT][base_bytes + 12]);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    int fds[PL_ARRAY_ITEMS(list)];

    /* open all sources first: a mount can hide the source of another one */
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        pl_text_clear(&path);
        pl_text_printf(&path, "%s%s", words[list[i].source], list[i].source_tail);
        PL_TRY(pl_text_check(&path, reterr));
        fds[i] = open(pl_text_string(&path), O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fds[i] < 0) {
            return pl_error_errno(reterr, "open '%s'", pl_text_string(&path));
        }
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        char source[32];

        if (root_is_below && list[i].source == WORD_CHECKPOINTS && list[i].target == WORD_BASE) {
            continue; /* this mount would be the same as the other one, or would hide it */
        }
        pl_text_clear(&path);
        pl_text_printf(&path, "%s%s", words[list[i].target], list[i].target_tail);
        PL_TRY(pl_text_check(&path, reterr));
        snprintf(source, sizeof(source), "/proc/self/fd/%d", fds[i]);
        PL_TRY(bind_to(source, pl_text_string(&path), reterr));
    }
    pl_text_clear(&path);
    pl_text_printf(&path, "%s/input/data", words[WORD_BASE]);
    PL_TRY(pl_text_check(&path, reterr));
    return make_read_only(pl_text_string(&path), reterr);
}

enum pl_status pl_own_tree_run(size_t count, char **words, struct pl_error *reterr)
{
    if (count < WORDS + 2 || strcmp(words[WORDS], "--") != 0) {
        return pl_error_set(reterr, PL_INVALID, "expected the paths of a trial, -- and a program");
    }
    PL_TRY(enter_mounts(reterr));
    PL_TRY(mount_all(words, reterr));
    execv(words[WORDS + 1], words + WORDS + 1);
    return pl_error_errno(reterr, "execv '%s'", words[WORDS + 1]);
}

enum pl_status pl_own_tree_words(const struct pl_job *job, const struct pl_trial_folder *folder, const char *self,
                                 struct pl_strv *argv, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text root = PL_TEXT_NONE;

    pl_trial_folder_root(job, &root);
    PL_TRY(pl_text_check(&root, reterr));
    return pl_strv_add_list(argv,
                            (const char *const[]){self, "--in", job->paths.base, pl_text_string(&root), folder->base,
                                                  folder->model, folder->checkpoints, folder->output_data, "--", NULL},
                            reterr);
}

/* Tries a mount of the job's directory over itself, in a child that then ends. */
enum pl_status pl_own_tree_probe(const struct pl_job *job, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    pid_t pid = fork();
    int status = 0;

    if (pid < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (pid == 0) {
        const bool ok = enter_mounts(&error) == PL_OK && bind_to(job->paths.base, job->paths.base, &error) == PL_OK;

        _exit(ok ? 0 : error.code > 0 && error.code < 255 ? (int)error.code : 255);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_SYSTEM, "%s",
                              WIFEXITED(status) && WEXITSTATUS(status) < 255 ? strerror(WEXITSTATUS(status))
                                                                             : "the system refuses a mount");
}

/* Adds an entry to the mark of its folder. The sweep's own entries in the directory of all trials' checkpoints do not
 * count. */
static enum pl_status add_to_mark(void *context, const struct pl_sweep_tree_entry *entry, struct pl_error *reterr)
{
    uint64_t *mark = context, hash = 1;
    const bool is_file = !S_ISDIR(entry->info.st_mode);
    const uint64_t parts[] = {entry->info.st_ino, entry->info.st_mode, is_file ? (uint64_t)entry->info.st_size : 0,
                              is_file ? (uint64_t)entry->info.st_mtim.tv_sec : 0,
                              is_file ? (uint64_t)entry->info.st_mtim.tv_nsec : 0};

    (void)reterr;
    if (strncmp(entry->path, "trial-", 6) == 0 || strncmp(entry->path, "sweep.", 6) == 0) {
        return PL_END;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(parts); i++) {
        hash = (hash ^ parts[i]) * UINT64_C(0x9E3779B97F4A7C15);
    }
    *mark += hash; /* a sum does not depend on the order of entries */
    return PL_OK;
}

static enum pl_status shared_folder(const struct pl_job *job, int index, struct pl_text *text, struct pl_error *reterr)
{
    if (index == 1) {
        pl_trial_folder_root(job, text);
    } else {
        pl_text_printf(text, "%s/%s", job->paths.base, index == 0 ? "model" : "checkpoints");
    }
    return pl_text_check(text, reterr);
}

void pl_shared_mark(const struct pl_job *job, struct pl_shared_marks *ret_marks)
{
    for (int i = 0; i < PL_SHARED_FOLDERS; i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        uint64_t mark = 0;

        if (shared_folder(job, i, &path, NULL) != PL_OK ||
            pl_sweep_tree_walk(pl_text_string(&path), add_to_mark, &mark, NULL) != PL_OK) {
            mark = 0; /* a folder that cannot be read counts as unchanged */
        }
        ret_marks->marks[i] = mark;
    }
}

enum pl_status pl_shared_check(const struct pl_job *job, const struct pl_shared_marks *marks, int trial,
                               struct pl_error *reterr)
{
    struct pl_shared_marks now;

    pl_shared_mark(job, &now);
    for (int i = 0; i < PL_SHARED_FOLDERS; i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        if (now.marks[i] != marks->marks[i]) {
            PL_TRY(shared_folder(job, i, &path, reterr));
            return pl_error_set(
                reterr, PL_INVALID,
                "while trial %d ran, a program has changed '%.300s', which all trials of this host share because the "
                "system allows no mounts: expected it to use the folder in the variable %s",
                trial, pl_text_string(&path), i == 0 ? "SM_MODEL_DIR" : "PACELINE_CHECKPOINT_DIR");
        }
    }
    return PL_OK;
}
