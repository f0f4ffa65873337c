/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts of a job run, as the file of its lock has it. */
#include "programs/local/state.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "programs/local/host_container.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MOST_STATE_BYTES = 32 << 10 };

static const char *const kinds[] = {
    [PL_LOCAL_PLAIN] = "plain", [PL_LOCAL_NAMESPACES] = "namespaces", [PL_LOCAL_CONTAINERS] = "containers"};

void pl_local_state_write(const struct pl_local *local)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char where[64];

    pl_text_printf(&text, "%s %ld %s\n", kinds[local->kind], (long)getpid(), local->engine ? local->engine : "-");
    for (size_t i = 0; i < local->job->hosts; i++) {
        if (local->hosts[i].pid > 0) {
            snprintf(where, sizeof(where), "%ld", (long)local->hosts[i].pid);
            if (local->kind == PL_LOCAL_CONTAINERS) {
                pl_local_container_name(i, where);
            }
            pl_text_printf(&text, "%s %s\n", local->hosts[i].name, where);
        }
    }
    if (text.failed || ftruncate(local->lock_fd, 0) != 0 ||
        pwrite(local->lock_fd, text.data, text.length, 0) != (ssize_t)text.length) {
        pl_log(PL_LOG_WARNING, "'%s/lock' cannot be written: `paceline local shell` does not find the hosts",
               local->folder);
    }
}

static enum pl_status lock_path(const char *folder, const char *name, struct pl_text *path, struct pl_error *reterr)
{
    pl_text_clear(path);
    pl_text_printf(path, "%s/%s/lock", folder, name);
    return pl_text_check(path, reterr);
}

/* The lock of a job that runs cannot be had. */
static bool runs(const char *folder, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = lock_path(folder, name, &path, NULL) == PL_OK ? open(path.data, O_RDONLY | O_CLOEXEC) : -1;

    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static enum pl_status find_only(const char *folder, char *name, size_t name_bytes, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(folder);
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
    const struct dirent *entry;
    size_t count = 0;

    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < name_bytes && runs(folder, entry->d_name)) {
            pl_text_printf(&names, "%s%s", count++ > 0 ? ", " : "", entry->d_name);
            snprintf(name, name_bytes, "%s", entry->d_name);
        }
    }
    if (count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "no job of `paceline local` runs in the folder '%s': --folder DIR names another", folder);
    }
    return count == 1 ? PL_OK
                      : pl_error_set(reterr, PL_INVALID, "%zu jobs run in the folder '%s', name one by --name: %s",
                                     count, folder, pl_text_string(&names));
}

static enum pl_status parse(const char *data, const char *path, struct pl_local_state *state, struct pl_error *reterr)
{
    const size_t first = strcspn(data, "\n");
    char kind[16], engine[PATH_MAX];
    long local;

    if (data[first] != '\n' || first >= sizeof(engine) || sscanf(data, "%15s %ld %[^\n]", kind, &local, engine) != 3 ||
        strlen(data + first) >= sizeof(state->hosts)) {
        return pl_error_set(reterr, PL_NOT_FOUND, "'%s' names no hosts: the job has not started them yet", path);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(kinds); i++) {
        if (kinds[i] && strcmp(kinds[i], kind) == 0) {
            state->kind = (enum pl_local_kind)i;
        }
    }
    state->local = (pid_t)local;
    snprintf(state->engine, sizeof(state->engine), "%s", engine);
    snprintf(state->hosts, sizeof(state->hosts), "%s", data + first + 1);
    return PL_OK;
}

enum pl_status pl_local_state_find(const char *folder, const char *name, struct pl_local_state *ret_state,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *data = NULL;

    *ret_state = (struct pl_local_state){.kind = PL_LOCAL_AUTO};
    if (!name) {
        PL_TRY(find_only(folder, ret_state->name, sizeof(ret_state->name), reterr));
    } else if (strlen(name) >= sizeof(ret_state->name) || !runs(folder, name)) {
        return pl_error_set(reterr, PL_NOT_FOUND, "no job with the name '%s' runs in the folder '%s'", name, folder);
    } else {
        snprintf(ret_state->name, sizeof(ret_state->name), "%s", name);
    }
    PL_TRY(lock_path(folder, ret_state->name, &path, reterr));
    PL_TRY(pl_file_read(path.data, MOST_STATE_BYTES, &data, NULL, reterr));
    return parse(data, path.data, ret_state, reterr);
}

enum pl_status pl_local_state_host(const struct pl_local_state *state, const char *host, char where[static 64],
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
    char name[16], place[64];
    int used;

    for (const char *at = state->hosts; sscanf(at, "%15s %63s%n", name, place, &used) == 2; at += used) {
        if (strcmp(name, host) == 0) {
            snprintf(where, 64, "%s", place);
            return PL_OK;
        }
        pl_text_printf(&names, "%s%s", names.length > 0 ? ", " : "", name);
    }
    return pl_error_set(reterr, PL_NOT_FOUND, "the job '%s' has no host '%s' that runs; these run: %s", state->name,
                        host, names.length > 0 ? pl_text_string(&names) : "none");
}
