/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts as containers of podman or docker. */
#include "programs/local/local.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL "paceline-local"

enum {
    COMM_BYTES = 64,
    ASK_S = 60,         /* how long the engine may take to answer */
    GIVE_BACK_S = 1200, /* how long it may take to change the owners of millions of files */
};

/* ---- the engine ---- */

/* Runs the engine with `words`, which end with NULL, and waits for at most `most_s`. Its output and errors are written
 * to `text`, which may be NULL. PL_FAILED, with their first line, if it does not end with 0. */
static enum pl_status ask_for(struct pl_local *local, const char *const *words, int most_s, struct pl_text *text,
                              struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text what = PL_TEXT_NONE, own = PL_TEXT_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    enum pl_status status;

    text = text ? text : &own;
    pl_strv_add(&argv, local->engine);
    pl_strv_add_list(&argv, words);
    PL_TRY(pl_strv_check(&argv, reterr));
    PL_TRY(pl_text_set(&what, reterr, "'%s %s %s' ran", local->engine, words[0], words[1] ? words[1] : ""));
    pl_text_clear(text);
    status = pl_local_run_program(local, (const char *const *)argv.items, text, pl_local_stops_allowed(local),
                                  pl_deadline_after_ns(most_s * PL_NS_PER_S), what.data, reterr);
    if (status == PL_TIMEOUT) {
        return pl_error_set(reterr, PL_TIMEOUT,
                            "'%s %s %s' did not end within %d s and was killed: find out by '%s info' whether the "
                            "engine answers, and start it again",
                            local->engine, words[0], words[1] ? words[1] : "", most_s, local->engine);
    }
    return status != PL_FAILED ? status
                               : pl_error_set(reterr, PL_FAILED, "%s %s: %.*s", local->engine, words[0],
                                              (int)strcspn(pl_text_string(text), "\n"), pl_text_string(text));
}

static enum pl_status ask(struct pl_local *local, const char *const *words, struct pl_text *text,
                          struct pl_error *reterr)
{
    return ask_for(local, words, ASK_S, text, reterr);
}

static enum pl_status find_engine(struct pl_local *local, struct pl_error *reterr)
{
    static const char *const engines[] = {"podman", "docker"};
    const char *path = pl_environment_get(local->environment, "PATH");

    if (local->engine_name) {
        return pl_file_find_program(local->engine_name, path, &local->engine, reterr);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(engines); i++) {
        if (pl_file_find_program(engines[i], path, &local->engine, NULL) == PL_OK) {
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_NOT_FOUND,
                        "--image needs podman or docker, and neither is on the PATH: install one, or name it by "
                        "--engine PATH");
}

/* ---- what carries the label ---- */

/* Whether the `paceline local` with this process number runs. */
static bool is_alive(const char *number)
{
    const bool is_number = strlen(number) - 1 < 10 && strspn(number, "0123456789") == strlen(number);
    size_t bytes;
    PL_AUTO_FREE char *own = pl_proc_read(getpid(), "comm", COMM_BYTES, &bytes);
    PL_AUTO_FREE char *other = is_number ? pl_proc_read((pid_t)atoll(number), "comm", COMM_BYTES, &bytes) : NULL;

    return own && other && strcmp(own, other) == 0;
}

/* Makes the mark of this call. Callers in containers of their own may share the engine through its socket, and have
 * process numbers of their own: the PID namespace belongs to the mark. */
static enum pl_status make_mark(struct pl_local *local, struct pl_error *reterr)
{
    struct stat space;

    if (stat("/proc/self/ns/pid", &space) != 0) {
        return pl_error_errno(reterr, "read '/proc/self/ns/pid'");
    }
    snprintf(local->mark, sizeof(local->mark), "%ld-%lu", (long)getpid(), (unsigned long)space.st_ino);
    return PL_OK;
}

/* Whether the `paceline local` with this mark may run: it does, or is in another PID namespace. */
static bool may_run(const char *mark, const char *own_mark)
{
    const size_t digits = strcspn(mark, "-");
    const char *own_space = strchr(own_mark, '-');
    PL_AUTO_FREE char *number = pl_memory_string_n(mark, digits, NULL);

    return !number || (mark[digits] == '-' && strcmp(mark + digits, own_space) != 0) || is_alive(number);
}

/* Removes one container or network if the call that made it has ended. */
static void remove_left(struct pl_local *local, const char *kind, const char *name)
{
    const bool is_network = strcmp(kind, "network") == 0;
    const char *const what[] = {
        kind,       "inspect",
        "--format", is_network ? "{{index .Labels \"" LABEL "\"}}" : "{{index .Config.Labels \"" LABEL "\"}}",
        name,       NULL};
    const char *const remove_container[] = {"rm", "--force", name, NULL};
    const char *const remove_network[] = {"network", "rm", name, NULL};
    PL_AUTO_TEXT struct pl_text owner = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (ask(local, what, &owner, &error) != PL_OK) {
        return; /* another call has removed it meanwhile */
    }
    if (owner.data) {
        owner.data[strcspn(owner.data, "\n")] = '\0';
    }
    if (may_run(pl_text_string(&owner), local->mark)) {
        return;
    }
    if (ask(local, is_network ? remove_network : remove_container, NULL, &error) == PL_OK) {
        pl_log(PL_LOG_INFO, "removed the %s %s, which an earlier call left", kind, name);
    } else {
        pl_log_error(&error, "cannot remove the %s %s, which an earlier call left", kind, name);
    }
}

static enum pl_status remove_all_left(struct pl_local *local, struct pl_error *reterr)
{
    static const char *const kinds[] = {"container", "network"}; /* networks are removed after their containers */
    static const char *const lists[2][7] = {
        {"ps", "--all", "--filter", "label=" LABEL, "--format", "{{.Names}}", NULL},
        {"network", "ls", "--filter", "label=" LABEL, "--format", "{{.Name}}", NULL}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(kinds); i++) {
        PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

        PL_TRY(ask(local, lists[i], &names, reterr));
        for (char *rest = NULL, *name = names.data ? strtok_r(names.data, "\n", &rest) : NULL; name;
             name = strtok_r(NULL, "\n", &rest)) {
            remove_left(local, kinds[i], name);
        }
    }
    return PL_OK;
}

enum pl_status pl_local_containers_prepare(struct pl_local *local, struct pl_error *reterr)
{
    const char *const look[] = {"image", "inspect", "--format", "{{.Id}}", local->job->image, NULL};
    PL_AUTO_TEXT struct pl_text label = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(make_mark(local, reterr));
    snprintf(local->container_network, sizeof(local->container_network), LABEL "-%s", local->mark);
    for (size_t i = 0; i < local->job->hosts; i++) {
        snprintf(local->hosts[i].container, sizeof(local->hosts[i].container), LABEL "-%s-algo-%zu", local->mark,
                 i + 1);
    }
    PL_TRY(find_engine(local, reterr));
    PL_TRY(remove_all_left(local, reterr));
    status = ask(local, look, NULL, &error);
    if (status == PL_FAILED) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "there is no image '%s' here: build it, or fetch it by '%s pull %s' (%s)",
                            local->job->image, local->engine, local->job->image, error.cause);
    }
    if (status != PL_OK) {
        return pl_error_set(reterr, status, "%s", error.cause);
    }
    if (local->job->hosts == 1) {
        return PL_OK;
    }
    PL_TRY(pl_text_set(&label, reterr, LABEL "=%s", local->mark));
    return ask(local, (const char *const[]){"network", "create", "--label", label.data, local->container_network, NULL},
               NULL, reterr);
}

void pl_local_container_kill(const struct pl_local *local, size_t index)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const char *name = local->hosts[index].container;
    pid_t pid;

    if (pl_local_spawn(local, (const char *const[]){local->engine, "kill", name, NULL},
                       pl_environment_strings(local->environment), NULL, null_fd, null_fd, &pid, &error) != PL_OK) {
        pl_log_error(&error, "cannot kill the container %s", name);
    }
}

enum pl_status pl_local_container_lose(struct pl_local *local, size_t index, struct pl_error *reterr)
{
    const char *name = local->hosts[index].container;

    if (local->job->hosts > 1) {
        PL_TRY(ask(local,
                   (const char *const[]){"network", "disconnect", "--force", local->container_network, name, NULL},
                   NULL, reterr));
    }
    return ask(local, (const char *const[]){"kill", name, NULL}, NULL, reterr);
}

void pl_local_containers_remove(struct pl_local *local)
{
    struct pl_error error = PL_ERROR_NONE;

    for (size_t i = 0; i < local->job->hosts; i++) {
        /* --rm has removed most containers. One that is still there belongs to a client that was killed. */
        if (local->hosts[i].started) {
            (void)!ask(local, (const char *const[]){"rm", "--force", local->hosts[i].container, NULL}, NULL, NULL);
        }
    }
    if (local->job->hosts > 1 &&
        ask(local, (const char *const[]){"network", "rm", local->container_network, NULL}, NULL, &error) != PL_OK) {
        pl_log_error(&error, "cannot remove the network %s", local->container_network);
    }
}

static int find_foreign(const char *path, const struct stat *info, int type, struct FTW *place)
{
    return path && type >= 0 && place && info->st_uid != geteuid();
}

enum pl_status pl_local_containers_give_back(struct pl_local *local, struct pl_error *reterr)
{
    /* The lock's file is this user's: it tells how the container sees this user, who is root there for podman. */
    static const char words[] = "cd /run/paceline-local && chown -R \"$(stat -c %u:%g " PL_LOCAL_LOCK ")\" .";
    PL_AUTO_TEXT struct pl_text mount = PL_TEXT_NONE;

    if (geteuid() == 0 || nftw(local->folder, find_foreign, 16, FTW_PHYS) == 0) {
        return PL_OK;
    }
    PL_TRY(pl_text_set(&mount, reterr, "type=bind,source=%s,target=/run/paceline-local", local->folder));
    return ask_for(local,
                   (const char *const[]){"run", "--rm", "--user=0", "--entrypoint=sh", "--mount", mount.data,
                                         local->job->image, "-c", words, NULL},
                   GIVE_BACK_S, NULL, reterr);
}

/* ---- the command line of a host ---- */

/* Adds a mount. Commas separate its parts, so a path with a comma must be a quoted field, as in CSV. */
static enum pl_status add_mount(void *words, const char *from, const char *to, bool read_only, struct pl_error *reterr)
{
    if (strpbrk(from, ",\"\n")) {
        return pl_error_set(reterr, PL_INVALID, "'%s' has a comma or a quote, which a container's mount cannot have",
                            from);
    }
    pl_strv_add(words, "--mount");
    pl_strv_printf(words, "type=bind,source=%s,target=%s%s", from, to, read_only ? ",readonly" : "");
    return pl_strv_check(words, reterr);
}

static bool is_given(const struct pl_local_job *job, const char *name)
{
    for (size_t i = 0; i < job->environment.count; i++) {
        if (strcmp(job->environment.items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds variables that the job names, or that this machine lacks or has with another value; and this machine's AWS_* and
 * PACELINE_*, such as keys for S3. Values stay out of the command line, where every user could read them: the client
 * finds them in its own environment. */
static enum pl_status add_variables(struct pl_strv *words, const struct pl_local *local,
                                    const struct pl_environment *environment, struct pl_error *reterr)
{
    for (char *const *at = pl_environment_strings(environment); *at; at++) {
        const size_t length = strcspn(*at, "=");
        PL_AUTO_FREE char *name = pl_memory_string_n(*at, length, reterr);
        const char *here;

        PL_TRY(name ? PL_OK : PL_MEMORY);
        here = pl_environment_get(local->environment, name);
        if (strncmp(name, "AWS_", 4) == 0 || strncmp(name, "PACELINE_", 9) == 0 || !here ||
            is_given(local->job, name) || ((*at)[length] == '=' && strcmp(here, *at + length + 1) != 0)) {
            pl_strv_add(words, "--env", name);
        }
    }
    return pl_strv_check(words, reterr);
}

enum pl_status pl_local_container_words(const struct pl_local *local, size_t index, const char *const *argv,
                                        const struct pl_environment *environment, struct pl_strv *words,
                                        struct pl_error *reterr)
{
    const struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_TEXT struct pl_text secret = PL_TEXT_NONE;

    pl_strv_add(words, local->engine, "run", "--rm");
    pl_strv_printf(words, "--name=%s", host->container);
    pl_strv_printf(words, "--hostname=%s", host->name);
    pl_strv_printf(words, "--label=" LABEL "=%s", local->mark);
    pl_strv_add(words, "--shm-size=1g"); /* engines give 64 MiB, too little for Open MPI */
    PL_TRY(pl_local_channels_show(local, index, add_mount, words, reterr));
    if (local->job->hosts > 1) {
        pl_strv_printf(words, "--network=%s", local->container_network);
        pl_strv_printf(words, "--network-alias=%s", host->name);
        PL_TRY(pl_local_path(local, &secret, reterr, "secret"));
        PL_TRY(add_mount(words, secret.data, PL_LOCAL_SECRET_PATH, true, reterr));
    }
    if (local->has_code) {
        pl_strv_add(words, "--workdir=/opt/ml/code");
    }
    PL_TRY(add_variables(words, local, environment, reterr));
    if (local->job->entrypoint.count > 0) {
        pl_strv_printf(words, "--entrypoint=%s", argv[0]);
    }
    pl_strv_add_all(words, &local->engine_options);
    pl_strv_add(words, local->job->image);
    pl_strv_add_list(words, argv + 1);
    return pl_strv_check(words, reterr);
}
