/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts as containers of podman or docker. */
#include "programs/local/host_container.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"
#include "programs/local/channels.h"
#include "programs/local/run.h"
#include "programs/local/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL "paceline-local"

enum {
    MOST_OUTPUT_BYTES = 64 << 10,
    MOST_WORDS = 1024,
    COMM_BYTES = 64,
    ASK_S = 60,         /* how long the engine may take for an answer */
    GIVE_BACK_S = 1200, /* and for the owners of millions of files */
};

/* ---- the engine ---- */

/* Runs the engine with `words`, which end with NULL, and waits for at most `most_s`. Its output and errors come into
 * `text`. PL_FAILED, with its first line, if it does not end with 0. */
static enum pl_status ask_for(struct pl_local *local, const char *const *words, int most_s, struct pl_text *text,
                              struct pl_error *reterr)
{
    const char *argv[16] = {local->engine};
    PL_AUTO_CLOSE int output_fd = memfd_create("output", MFD_CLOEXEC);
    PL_AUTO_TEXT struct pl_text what = PL_TEXT_NONE;
    PL_AUTO_FREE char *output = pl_memory_new(MOST_OUTPUT_BYTES, 1, reterr);
    enum pl_status status;
    size_t count = 1;
    ssize_t bytes;

    PL_TRY(output ? PL_OK : PL_MEMORY);
    for (; words[count - 1]; count++) {
        PL_BUG_IF(count + 1 >= PL_ARRAY_ITEMS(argv));
        argv[count] = words[count - 1];
    }
    if (output_fd < 0) {
        return pl_error_errno(reterr, "make the file for the output of '%s'", local->engine);
    }
    pl_text_printf(&what, "'%s %s %s' ran", local->engine, words[0], words[1] ? words[1] : "");
    PL_TRY(pl_text_check(&what, reterr));
    status = pl_local_run_program(local, argv, output_fd, pl_local_stops_allowed(local),
                                  pl_deadline_after_ns(most_s * PL_NS_PER_S), what.data, reterr);
    bytes = pread(output_fd, output, MOST_OUTPUT_BYTES, 0); /* the rest of too much is dropped */
    pl_text_append_n(text, output, bytes > 0 ? (size_t)bytes : 0);
    PL_TRY(pl_text_check(text, reterr));
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
    char path[64], own[COMM_BYTES] = "";
    PL_AUTO_FREE char *comm = NULL;

    if (strlen(number) > 10 || strspn(number, "0123456789") != strlen(number) ||
        pl_file_read("/proc/self/comm", COMM_BYTES, &comm, NULL, NULL) != PL_OK) {
        return false;
    }
    snprintf(own, sizeof(own), "%s", comm);
    snprintf(path, sizeof(path), "/proc/%s/comm", number);
    pl_memory_free_at(&comm);
    comm = NULL;
    return pl_file_read(path, COMM_BYTES, &comm, NULL, NULL) == PL_OK && strcmp(comm, own) == 0;
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
    PL_AUTO_TEXT struct pl_text owner = PL_TEXT_NONE, said = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (ask(local, what, &owner, &error) != PL_OK) {
        return; /* another call has removed it meanwhile */
    }
    owner.data[strcspn(owner.data, "\n")] = '\0';
    if (is_alive(owner.data)) {
        return;
    }
    if (ask(local, is_network ? remove_network : remove_container, &said, &error) == PL_OK) {
        pl_log(PL_LOG_INFO, "removed the %s %s, which an earlier call left", kind, name);
    } else {
        pl_log_error(&error, "removing the %s %s, which an earlier call left", kind, name);
    }
}

static enum pl_status remove_all_left(struct pl_local *local, struct pl_error *reterr)
{
    static const char *const kinds[] = {"container", "network"}; /* a network goes after its containers */
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

static void network_name(char text[static 64])
{
    snprintf(text, 64, LABEL "-%ld", (long)getpid());
}

void pl_local_container_name(size_t index, char text[static 64])
{
    snprintf(text, 64, LABEL "-%ld-algo-%zu", (long)getpid(), index + 1);
}

enum pl_status pl_local_containers_prepare(struct pl_local *local, struct pl_error *reterr)
{
    const char *const look[] = {"image", "inspect", "--format", "{{.Id}}", local->job->image, NULL};
    PL_AUTO_TEXT struct pl_text said = PL_TEXT_NONE, label = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    char network[64];

    PL_TRY(find_engine(local, reterr));
    PL_TRY(remove_all_left(local, reterr));
    status = ask(local, look, &said, &error);
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
    network_name(network);
    pl_text_printf(&label, LABEL "=%ld", (long)getpid());
    PL_TRY(pl_text_check(&label, reterr));
    pl_text_clear(&said);
    return ask(local, (const char *const[]){"network", "create", "--label", label.data, network, NULL}, &said, reterr);
}

void pl_local_container_kill(const struct pl_local *local, size_t index)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    char name[64];
    const char *const argv[] = {local->engine, "kill", name, NULL};
    pid_t pid;

    pl_local_container_name(index, name);
    setup.argv = argv;
    setup.environment = pl_environment_strings(local->environment);
    setup.signals = &local->signals;
    setup.stdin_fd = setup.stdout_fd = setup.stderr_fd = null_fd;
    setup.own_group = true;
    if (pl_process_spawn(&setup, &pid, &error) != PL_OK) {
        pl_log_error(&error, "killing the container %s", name);
    }
}

enum pl_status pl_local_container_lose(struct pl_local *local, size_t index, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text said = PL_TEXT_NONE;
    char name[64], network[64];

    pl_local_container_name(index, name);
    network_name(network);
    if (local->job->hosts > 1) {
        PL_TRY(
            ask(local, (const char *const[]){"network", "disconnect", "--force", network, name, NULL}, &said, reterr));
    }
    return ask(local, (const char *const[]){"kill", name, NULL}, &said, reterr);
}

void pl_local_containers_remove(struct pl_local *local)
{
    PL_AUTO_TEXT struct pl_text said = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    char name[64];

    for (size_t i = 0; i < local->job->hosts; i++) {
        pl_local_container_name(i, name);
        /* Most have gone by --rm; what is still there belongs to a client that was killed. */
        if (local->hosts[i].started) {
            (void)!ask(local, (const char *const[]){"rm", "--force", name, NULL}, &said, NULL);
        }
    }
    network_name(name);
    if (local->job->hosts > 1 &&
        ask(local, (const char *const[]){"network", "rm", name, NULL}, &said, &error) != PL_OK) {
        pl_log_error(&error, "removing the network %s", name);
    }
}

static int find_foreign(const char *path, const struct stat *info, int type, struct FTW *place)
{
    return path && type >= 0 && place && info->st_uid != geteuid();
}

enum pl_status pl_local_containers_give_back(struct pl_local *local, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text mount = PL_TEXT_NONE, owner = PL_TEXT_NONE, said = PL_TEXT_NONE;

    if (geteuid() == 0 || nftw(local->folder, find_foreign, 16, FTW_PHYS) == 0) {
        return PL_OK;
    }
    pl_text_printf(&mount, "type=bind,source=%s,target=/run/paceline-local", local->folder);
    pl_text_printf(&owner, "%lu:%lu", (unsigned long)geteuid(), (unsigned long)getegid());
    PL_TRY(pl_text_check(&mount, reterr));
    PL_TRY(pl_text_check(&owner, reterr));
    PL_TRY(ask_for(local,
                   (const char *const[]){"run", "--rm", "--user=0", "--entrypoint=chown", "--mount", mount.data,
                                         local->job->image, "-R", owner.data, "/run/paceline-local", NULL},
                   GIVE_BACK_S, &said, reterr));
    return PL_OK;
}

/* ---- the command line of a host ---- */

struct words {
    char **list;
    size_t count;
};

PL_PRINTF(3, 4)
static enum pl_status add(struct words *words, struct pl_error *reterr, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    if (words->count + 1 >= MOST_WORDS) {
        return pl_error_set(reterr, PL_LIMIT, "a container's command line has more than %d words", MOST_WORDS);
    }
    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    PL_TRY(pl_text_take(&text, &words->list[words->count], reterr));
    words->count++;
    return PL_OK;
}

void pl_local_container_words_free(char ***words_at)
{
    for (size_t i = 0; *words_at && (*words_at)[i]; i++) {
        free((*words_at)[i]);
    }
    free(*words_at);
    *words_at = NULL;
}

/* A mount's parts are separated by commas, which paths may have only in quotes of a CSV field. */
static enum pl_status add_mount(struct words *words, const char *from, const char *to, bool read_only,
                                struct pl_error *reterr)
{
    if (strpbrk(from, ",\"\n")) {
        return pl_error_set(reterr, PL_INVALID, "'%s' has a comma or a quote, which a container's mount cannot have",
                            from);
    }
    PL_TRY(add(words, reterr, "--mount"));
    return add(words, reterr, "type=bind,source=%s,target=%s%s", from, to, read_only ? ",readonly" : "");
}

static enum pl_status add_mounts(struct words *words, const struct pl_local *local, size_t index,
                                 struct pl_error *reterr)
{
    const char *checkpoints = local->job->checkpoint_path;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(add_mount(words, local->hosts[index].tree, "/opt/ml", false, reterr));
    if (local->has_code) {
        PL_TRY(add_mount(words, local->cwd, "/opt/ml/code", false, reterr));
    }
    for (size_t i = 0; i < local->job->channel_count; i++) {
        const struct pl_local_channel *channel = &local->job->channels[i];

        if (channel->mode != PL_LOCAL_PIPE && pl_local_tree_has_channel(local, index, channel)) {
            pl_text_clear(&path);
            pl_text_printf(&path,
                           pl_local_channel_is_linked(channel) ? PL_LOCAL_SHARDED "/%s" : "/opt/ml/input/data/%s",
                           channel->name);
            PL_TRY(pl_text_check(&path, reterr));
            PL_TRY(add_mount(words, local->sources[i], path.data, !pl_local_channel_is_fetched(channel), reterr));
        }
    }
    if (local->job->hosts > 1) {
        PL_TRY(pl_local_path(local, &path, reterr, "secret"));
        PL_TRY(add_mount(words, path.data, PL_LOCAL_SECRET_PATH, true, reterr));
    }
    if (checkpoints) {
        PL_TRY(pl_local_path(local, &path, reterr, "checkpoints"));
        PL_TRY(add_mount(words, path.data, checkpoints, false, reterr));
    }
    return PL_OK;
}

/* Variables that the job has and this machine has not, or has with another value; and this machine's AWS_* and
 * PACELINE_*, such as keys for S3. Values stay out of the command line, where every user could read them: the client
 * finds them in its own environment. */
static enum pl_status add_variables(struct words *words, const struct pl_local *local,
                                    const struct pl_environment *environment, struct pl_error *reterr)
{
    for (char *const *at = pl_environment_strings(environment); *at; at++) {
        const size_t length = strcspn(*at, "=");
        PL_AUTO_FREE char *name = pl_memory_string_n(*at, length, reterr);
        const char *here;

        PL_TRY(name ? PL_OK : PL_MEMORY);
        here = pl_environment_get(local->environment, name);
        if (strncmp(name, "AWS_", 4) == 0 || strncmp(name, "PACELINE_", 9) == 0 || !here ||
            ((*at)[length] == '=' && strcmp(here, *at + length + 1) != 0)) {
            PL_TRY(add(words, reterr, "--env"));
            PL_TRY(add(words, reterr, "%s", name));
        }
    }
    return PL_OK;
}

static enum pl_status add_all(struct words *words, const struct pl_local *local, size_t index, const char *const *argv,
                              const struct pl_environment *environment, struct pl_error *reterr)
{
    const bool has_entry = local->job->entrypoint_words > 0;
    char name[64];

    pl_local_container_name(index, name);
    PL_TRY(add(words, reterr, "%s", local->engine));
    PL_TRY(add(words, reterr, "run"));
    PL_TRY(add(words, reterr, "--rm"));
    PL_TRY(add(words, reterr, "--name=%s", name));
    PL_TRY(add(words, reterr, "--hostname=%s", local->hosts[index].name));
    PL_TRY(add(words, reterr, "--label=" LABEL "=%ld", (long)getpid()));
    PL_TRY(add(words, reterr, "--shm-size=1g")); /* engines give 64 MiB, too little for Open MPI */
    if (local->job->hosts > 1) {
        network_name(name);
        PL_TRY(add(words, reterr, "--network=%s", name));
        PL_TRY(add(words, reterr, "--network-alias=%s", local->hosts[index].name));
    }
    PL_TRY(add_mounts(words, local, index, reterr));
    if (local->has_code) {
        PL_TRY(add(words, reterr, "--workdir=/opt/ml/code"));
    }
    PL_TRY(add_variables(words, local, environment, reterr));
    if (has_entry) {
        PL_TRY(add(words, reterr, "--entrypoint=%s", argv[0]));
    }
    for (size_t i = 0; i < local->engine_option_count; i++) {
        PL_TRY(add(words, reterr, "%s", local->engine_options[i]));
    }
    PL_TRY(add(words, reterr, "%s", local->job->image));
    for (size_t i = 1; argv[i]; i++) {
        PL_TRY(add(words, reterr, "%s", argv[i]));
    }
    return PL_OK;
}

enum pl_status pl_local_container_words(const struct pl_local *local, size_t index, const char *const *argv,
                                        const struct pl_environment *environment, char ***ret_words,
                                        struct pl_error *reterr)
{
    PL_AUTO_CONTAINER_WORDS char **list = pl_memory_new(MOST_WORDS, sizeof(*list), reterr);
    struct words words = {.list = list};

    PL_TRY(list ? PL_OK : PL_MEMORY);
    PL_TRY(add_all(&words, local, index, argv, environment, reterr));
    *ret_words = PL_TAKE(list);
    return PL_OK;
}
