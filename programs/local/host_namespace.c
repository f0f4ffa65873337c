/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the inside of a host in namespaces: its mounts, name and network; then becomes its program. */
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/proc/mounts.h"
#include "programs/local/channels.h"
#include "programs/local/host.h"
#include "programs/local/network.h"
#include "programs/local/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MACHINE "/run/machine" /* where a folder of the machine is seen while a new one covers it */

enum { FOLDER_MODE = 0755, FILE_MODE = 0644, SECRET_MODE = 0600 };

/* Makes `to` the same as `from`, which lies on the covered folder: a link is copied, all else is mounted. */
static enum pl_status show(const char *from, const char *to, struct pl_error *reterr)
{
    char link[PATH_MAX];
    struct stat info;
    ssize_t length;

    if (lstat(from, &info) != 0) {
        return pl_error_errno(reterr, "read '%s'", from);
    }
    if (S_ISLNK(info.st_mode)) {
        length = readlink(from, link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        return symlink(link, to) == 0 || errno == EEXIST ? PL_OK : pl_error_errno(reterr, "make the link '%s'", to);
    }
    if (S_ISDIR(info.st_mode)) {
        PL_TRY(pl_file_make_dirs(to, FOLDER_MODE, reterr));
    } else {
        PL_AUTO_CLOSE int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);

        if (fd < 0) {
            return pl_error_errno(reterr, "make '%s'", to);
        }
    }
    return pl_mounts_bind(from, to, reterr);
}

/* Shows in the new /tmp what lies at the absolute path on the machine's, unless it is shown already. */
static enum pl_status show_path(const char *path, size_t length, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text top = PL_TEXT_NONE, from = PL_TEXT_NONE;
    const char *name = path + sizeof("/tmp/") - 1;
    size_t bytes;
    struct stat info;

    if (length < sizeof("/tmp/") || strncmp(path, "/tmp/", sizeof("/tmp/") - 1) != 0) {
        return PL_OK;
    }
    bytes = strcspn(name, "/:");
    pl_text_printf(&top, "/tmp/%.*s", (int)bytes, name);
    pl_text_printf(&from, MACHINE "/%.*s", (int)bytes, name);
    PL_TRY(pl_text_check(&top, reterr));
    PL_TRY(pl_text_check(&from, reterr));
    return lstat(top.data, &info) == 0 || lstat(from.data, &info) != 0 ? PL_OK : show(from.data, top.data, reterr);
}

static enum pl_status show_list(const char *list, struct pl_error *reterr)
{
    while (list && *list != '\0') {
        const size_t length = strcspn(list, ":");

        PL_TRY(show_path(list, length, reterr));
        list += length + (list[length] == ':');
    }
    return PL_OK;
}

/* Libraries for communication keep files in /tmp under the names of host and process, which hosts of other jobs have
 * too: the host has a new /tmp, with those folders of the machine's that the job names. */
static enum pl_status cover_tmp(const struct pl_local *local, const char *const *argv, struct pl_error *reterr)
{
    static const char *const lists[] = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"};

    PL_TRY(pl_file_make_dirs(MACHINE, FOLDER_MODE, reterr));
    PL_TRY(pl_mounts_bind("/tmp", MACHINE, reterr));
    PL_TRY(pl_mounts_memory("/tmp", "mode=1777", reterr));
    PL_TRY(show_list(local->cwd, reterr));
    PL_TRY(show_list(local->folder, reterr));
    PL_TRY(show_list(local->paceline, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(lists); i++) {
        PL_TRY(show_list(pl_environment_get(local->environment, lists[i]), reterr));
    }
    for (size_t i = 0; argv[i]; i++) {
        PL_TRY(show_list(argv[i], reterr));
    }
    for (size_t i = 0; i < local->job->hyperparameter_count; i++) {
        PL_TRY(show_list(local->job->hyperparameters[i].value, reterr));
    }
    return PL_OK;
}

/* The data of a channel may lie in the machine's /tmp, which is covered by now. */
static enum pl_status bind_channel(const char *folder, const char *place, bool read_only, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE;

    if (strncmp(folder, "/tmp/", sizeof("/tmp/") - 1) == 0) {
        pl_text_printf(&from, MACHINE "/%s", folder + sizeof("/tmp/") - 1);
    } else {
        pl_text_append(&from, folder);
    }
    PL_TRY(pl_text_check(&from, reterr));
    PL_TRY(pl_file_make_dirs(place, FOLDER_MODE, reterr));
    PL_TRY(pl_mounts_bind(from.data, place, reterr));
    return read_only ? pl_mounts_make_read_only(place, reterr) : PL_OK;
}

static enum pl_status bind_channels(const struct pl_local *local, size_t index, struct pl_error *reterr)
{
    for (size_t i = 0; i < local->job->channel_count; i++) {
        const struct pl_local_channel *channel = &local->job->channels[i];
        PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;

        if (channel->mode == PL_LOCAL_PIPE || !pl_local_tree_has_channel(local, index, channel)) {
            continue;
        }
        pl_text_printf(&place, pl_local_channel_is_linked(channel) ? PL_LOCAL_SHARDED "/%s" : "/opt/ml/input/data/%s",
                       channel->name);
        PL_TRY(pl_text_check(&place, reterr));
        PL_TRY(bind_channel(local->sources[i], place.data, !pl_local_channel_is_fetched(channel), reterr));
    }
    return PL_OK;
}

/* Where /opt/ml is missing, a new /opt shows what the machine's holds, and has the mount point too. */
static enum pl_status make_mount_point(struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE, to = PL_TEXT_NONE;
    const struct dirent *entry;

    if (access("/opt/ml", F_OK) == 0) {
        return PL_OK;
    }
    PL_TRY(pl_file_make_dirs("/run/opt", FOLDER_MODE, reterr));
    PL_TRY(pl_mounts_bind("/opt", "/run/opt", reterr));
    PL_TRY(pl_mounts_memory("/opt", "mode=0755", reterr));
    directory = opendir("/run/opt");
    if (!directory) {
        return pl_error_errno(reterr, "read '/opt'");
    }
    while ((entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            pl_text_clear(&from);
            pl_text_clear(&to);
            pl_text_printf(&from, "/run/opt/%s", entry->d_name);
            pl_text_printf(&to, "/opt/%s", entry->d_name);
            PL_TRY(pl_text_check(&from, reterr));
            PL_TRY(pl_text_check(&to, reterr));
            PL_TRY(show(from.data, to.data, reterr));
        }
    }
    umount2("/run/opt", MNT_DETACH);
    return pl_file_make_dirs("/opt/ml", FOLDER_MODE, reterr);
}

static enum pl_status name_hosts(const struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append(&text, "127.0.0.1 localhost\n");
    for (size_t i = 0; i < local->job->hosts; i++) {
        const bool alone = local->job->hosts == 1;

        pl_text_printf(&text, "%s%zu %s\n", alone ? "127.0.0." : "10.78.0.", i + 1, local->hosts[i].name);
    }
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_file_write_atomic("/run/hosts", text.data, text.length, FILE_MODE, reterr));
    return pl_mounts_bind("/run/hosts", "/etc/hosts", reterr);
}

/* The code of the job is the caller's folder, and its checkpoints are those of all hosts and runs of this name. */
static enum pl_status bind_job(const struct pl_local *local, size_t index, struct pl_error *reterr)
{
    const char *checkpoints = local->job->checkpoint_path;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_mounts_bind(local->hosts[index].tree, "/opt/ml", reterr));
    PL_TRY(pl_file_make_dirs("/opt/ml/code", FOLDER_MODE, reterr));
    if (local->has_code) {
        PL_TRY(pl_mounts_bind(local->cwd, "/opt/ml/code", reterr));
    }
    PL_TRY(bind_channels(local, index, reterr));
    if (!checkpoints) {
        return PL_OK;
    }
    PL_TRY(pl_local_path(local, &path, reterr, "checkpoints"));
    PL_TRY(pl_file_make_dirs(checkpoints, FOLDER_MODE, reterr));
    return pl_mounts_bind(path.data, checkpoints, reterr);
}

static enum pl_status make_mounts(const struct pl_local *local, size_t index, const char *const *argv,
                                  struct pl_error *reterr)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return pl_error_errno(reterr, "make this host's mounts its own");
    }
    PL_TRY(pl_mounts_memory("/run", "mode=0755", reterr));
    if (local->job->hosts > 1) {
        PL_TRY(pl_file_write_atomic(PL_LOCAL_SECRET_PATH, local->secret, sizeof(local->secret), SECRET_MODE, reterr));
    }
    PL_TRY(pl_mounts_memory("/dev/shm", "mode=1777", reterr));
    PL_TRY(cover_tmp(local, argv, reterr));
    PL_TRY(make_mount_point(reterr));
    PL_TRY(bind_job(local, index, reterr));
    PL_TRY(name_hosts(local, reterr));
    umount2(MACHINE, MNT_DETACH);
    rmdir(MACHINE);
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0
               ? PL_OK
               : pl_error_errno(reterr, "mount a /proc of this host's own");
}

static void free_port_22(void)
{
    const int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, "22", 2) != 2) { /* without it sshd says which port it cannot have */
            errno = 0;
        }
        close(fd);
    }
}

enum pl_status pl_local_host_become(const struct pl_local *local, size_t index, const char *const *argv,
                                    char *const *environment, struct pl_error *reterr)
{
    const struct pl_local_host *host = &local->hosts[index];

    if (sethostname(host->name, strlen(host->name)) != 0) {
        return pl_error_errno(reterr, "set the host name");
    }
    if (local->job->hosts > 1) {
        PL_TRY(pl_local_network_set_up((unsigned)index + 1, reterr));
        free_port_22();
    }
    PL_TRY(make_mounts(local, index, argv, reterr));
    if (chdir("/opt/ml/code") != 0) {
        return pl_error_errno(reterr, "enter '/opt/ml/code'");
    }
    pl_signals_restore_files(&local->signals);
    pl_signals_restore(&local->signals);
    execve(argv[0], (char *const *)(uintptr_t)argv, environment);
    return pl_error_errno(reterr, "start '%s'", argv[0]);
}
