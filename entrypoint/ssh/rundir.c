/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: its socket, the host's saved variables, and its removal. */
#include "entrypoint/ssh/rundir.h"

#include "base/environment.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define IN_RUN "/run/paceline."
#define IN_TMP "/tmp/paceline."

enum { ENVIRONMENT_MAX_BYTES = 64 * 1024 * 1024, LISTEN_BACKLOG = 512 };

bool pl_rundir_is_one(const char *path)
{
    return pl_text_begins_with(path, IN_RUN) || pl_text_begins_with(path, IN_TMP);
}

static enum pl_status socket_address(const char *path, struct sockaddr_un *address, struct pl_error *reterr)
{
    int length = snprintf(address->sun_path, sizeof(address->sun_path), "%s/control", path);

    address->sun_family = AF_UNIX;
    if (length < 0 || (size_t)length >= sizeof(address->sun_path)) {
        return pl_error_set(reterr, PL_LIMIT, "the run directory's name '%.200s' is too long for a socket", path);
    }
    return PL_OK;
}

enum pl_status pl_rundir_open(struct pl_rundir *rundir, struct pl_error *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(rundir->path, sizeof(rundir->path), IN_RUN "XXXXXX");
    if (!mkdtemp(rundir->path)) {
        snprintf(rundir->path, sizeof(rundir->path), IN_TMP "XXXXXX");
        if (!mkdtemp(rundir->path)) {
            rundir->path[0] = '\0';
            return pl_error_errno(reterr, "make a private directory in /run or /tmp");
        }
    }
    PL_TRY(socket_address(rundir->path, &address, reterr));
    rundir->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (rundir->listen_fd < 0 || bind(rundir->listen_fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(rundir->listen_fd, LISTEN_BACKLOG) != 0) {
        return pl_error_errno(reterr, "listen on '%s'", address.sun_path);
    }
    return PL_OK;
}

void pl_rundir_open_memory(struct pl_rundir *rundir)
{
    snprintf(rundir->memory, sizeof(rundir->memory), "/dev/shm/paceline.XXXXXX");
    if (!mkdtemp(rundir->memory)) {
        rundir->memory[0] = '\0';
    }
}

enum pl_status pl_rundir_write(const struct pl_rundir *rundir, const char *name, const void *data, size_t bytes,
                               struct pl_error *reterr)
{
    char path[PL_RUNDIR_PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", rundir->path, name);
    return pl_file_write_atomic(path, data, bytes, 0600, reterr);
}

/* Whether the NAME=value describes the host and must not be taken from another host. */
static bool is_of_host(const char *text)
{
    static const char *const names[] = {"CURRENT_HOST", "PACELINE_HOST_NAME", "PACELINE_MASTER_ADDR", "NODE_RANK",
                                        PL_RUNDIR_FIFOS_VARIABLE};
    size_t length = strcspn(text, "=");

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (text[length] == '=' && strlen(names[i]) == length && strncmp(text, names[i], length) == 0) {
            return true;
        }
    }
    if (text[length] == '=' && strncmp(text, "OMPI_MCA_", 9) == 0 &&
        pl_text_ends_with_n(text, length, PL_RUNDIR_MEMORY_END)) {
        return true;
    }
    return strncmp(text, "SM_", 3) == 0 && text[length] == '=';
}

enum pl_status pl_rundir_save_environment(const struct pl_rundir *rundir, const struct pl_environment *environment,
                                          struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    for (char *const *at = pl_environment_strings(environment); *at; at++) {
        if (is_of_host(*at)) {
            pl_text_append_n(&text, *at, strlen(*at) + 1);
        }
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_rundir_write(rundir, "environment", text.data ? text.data : "", text.length, reterr);
}

/* Remove variables that describe another host: those of the master, if mpirun exported them. */
static enum pl_status remove_host_variables(struct pl_environment *environment, struct pl_error *reterr)
{
    const char *text;
    size_t at = 0;

    while ((text = pl_environment_strings(environment)[at])) {
        PL_AUTO_FREE char *name = NULL;

        if (!is_of_host(text)) {
            at++;
            continue;
        }
        name = pl_memory_string_n(text, strcspn(text, "="), reterr);
        PL_TRY(name ? PL_OK : PL_MEMORY);
        pl_environment_unset(environment, name);
    }
    return PL_OK;
}

/* Add each NAME=value of a file, which end with NUL. Other text is ignored. */
static enum pl_status add_variables(const char *file, struct pl_environment *environment, struct pl_error *reterr)
{
    PL_AUTO_FREE char *data = NULL;
    size_t bytes;

    PL_TRY(pl_file_read(file, ENVIRONMENT_MAX_BYTES, &data, &bytes, reterr));
    for (const char *at = data; at < data + bytes; at += strlen(at) + 1) {
        if (*at != '=' && strchr(at, '=')) {
            PL_TRY(pl_environment_put(environment, at, reterr));
        }
    }
    return PL_OK;
}

enum pl_status pl_rundir_load_environment(const char *path, struct pl_environment *environment, struct pl_error *reterr)
{
    char file[PL_RUNDIR_PATH_BYTES + 64];

    snprintf(file, sizeof(file), "%s/environment", path);
    PL_TRY(remove_host_variables(environment, reterr));
    return add_variables(file, environment, reterr);
}

enum pl_status pl_rundir_connect(const char *path, struct pl_link *link, struct pl_error *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    PL_AUTO_CLOSE int fd = -1;
    enum pl_status status;

    PL_TRY(socket_address(path, &address, reterr));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        return pl_error_errno(reterr, "connect to this host's process 1 at '%s'", address.sun_path);
    }
    if (!pl_fd_peer_is_same_user(fd)) {
        return pl_error_set(reterr, PL_SYSTEM, "'%s' belongs to another user: expected this host's process 1",
                            address.sun_path);
    }
    status = pl_link_open(link, fd, reterr);
    if (status == PL_OK) {
        fd = -1; /* the link owns it now */
    }
    return status;
}

/* Makes the channel's first FIFO below `folder`, and names it in the channel's variable. */
static enum pl_status take_channel(const char *folder, const char *name, struct pl_environment *environment,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, variable = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s_0", folder, name));
    if (mkfifo(path.data, 0600) != 0 && errno != EEXIST) {
        return pl_error_errno(reterr, "make FIFO '%s'", path.data);
    }
    pl_text_append(&variable, "SM_CHANNEL_");
    for (const char *at = name; *at; at++) {
        pl_text_append_char(&variable, *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at);
    }
    PL_TRY(pl_text_check(&variable, reterr));
    PL_TRY(pl_text_set(&path, reterr, "%s/%s", folder, name));
    return pl_environment_set(environment, variable.data, path.data, reterr);
}

enum pl_status pl_rundir_take_fifos(const char *path, const struct pl_rundir_place *place,
                                    struct pl_environment *environment, struct pl_error *reterr)
{
    const char *variable = pl_environment_get(environment, PL_RUNDIR_FIFOS_VARIABLE);
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE, link = PL_TEXT_NONE;
    PL_AUTO_FREE char *names = NULL;
    char target[64], *rest = NULL;

    if (!variable) {
        return PL_OK;
    }
    if (!path || place->local_size < 2 || place->local_rank < 0 || place->rank < 0 || place->size < 2) {
        pl_environment_unset(environment, PL_RUNDIR_FIFOS_VARIABLE);
        return PL_OK;
    }
    names = pl_memory_string(variable, reterr);
    PL_TRY(names ? PL_OK : PL_MEMORY);
    PL_TRY(pl_text_set(&folder, reterr, "%s/" PL_RUNDIR_FIFOS "/%d", path, place->local_rank));
    PL_TRY(pl_file_make_dirs(folder.data, 0700, reterr));
    for (const char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        PL_TRY(take_channel(folder.data, name, environment, reterr));
    }
    PL_TRY(pl_text_set(&link, reterr, "%s.place", folder.data));
    snprintf(target, sizeof(target), "%d/%d/%d", place->rank, place->size, place->local_size);
    unlink(link.data);
    return symlink(target, link.data) == 0 ? PL_OK : pl_error_errno(reterr, "make the link '%s'", link.data);
}

void pl_rundir_leave_fifos(const char *path, int local_rank)
{
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;

    if (pl_text_set(&folder, NULL, "%s/" PL_RUNDIR_FIFOS "/%d", path, local_rank) == PL_OK) {
        pl_file_remove_tree(folder.data);
    }
}

void pl_rundir_close(struct pl_rundir *rundir)
{
    char *const paths[] = {rundir->path, rundir->memory};

    pl_file_close_at(&rundir->listen_fd);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(paths); i++) {
        if (paths[i][0] != '\0') {
            pl_file_remove_tree(paths[i]);
            paths[i][0] = '\0';
        }
    }
}
