/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kind of the hosts, and starts them. */
#include "programs/local/local.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/mounts.h"
#include "entrypoint/ssh/sshd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SETTING_BYTES = 64 };

static bool setting_is(const char *path, const char *value)
{
    PL_AUTO_FREE char *data = NULL;

    return pl_file_read(path, MOST_SETTING_BYTES, &data, NULL, NULL) == PL_OK &&
           strncmp(data, value, strlen(value)) == 0;
}

static const char *why_not(int code, char text[static 160])
{
    if (geteuid() != 0 && setting_is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")) {
        return "kernel.apparmor_restrict_unprivileged_userns is 1";
    }
    if (geteuid() != 0 && setting_is("/proc/sys/kernel/unprivileged_userns_clone", "0")) {
        return "kernel.unprivileged_userns_clone is 0";
    }
    if (setting_is("/proc/sys/user/max_user_namespaces", "0\n")) {
        return "user.max_user_namespaces is 0";
    }
    snprintf(text, 160, "%s; a container's seccomp filter or missing capabilities may be why", strerror(code));
    return text;
}

enum pl_status pl_local_hosts_choose(struct pl_local *local, struct pl_error *reterr)
{
    const size_t hosts = local->job->hosts;
    char text[160];
    int code = 0;

    if (local->kind == PL_LOCAL_CONTAINERS) {
        return pl_local_containers_prepare(local, reterr);
    }
    if (local->kind == PL_LOCAL_PLAIN && hosts > 1) {
        return pl_error_set(reterr, PL_INVALID, "--kind plain has one host, found %zu hosts", hosts);
    }
    if (local->kind != PL_LOCAL_PLAIN) {
        code = pl_local_namespaces_try(local);
    }
    if (code != 0 && (local->kind == PL_LOCAL_NAMESPACES || hosts > 1)) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "this machine refuses namespaces: %s. Use containers (--image IMAGE) or one plain host "
                            "(--hosts 1) instead",
                            why_not(code, text));
    }
    if (code != 0) {
        pl_log(PL_LOG_INFO, "this machine refuses namespaces: %s", why_not(code, text));
    }
    local->kind = code != 0 || local->kind == PL_LOCAL_PLAIN ? PL_LOCAL_PLAIN : PL_LOCAL_NAMESPACES;
    if (local->kind == PL_LOCAL_PLAIN) {
        return PL_OK;
    }
    if (hosts > 1 && pl_sshd_check_user(reterr) != PL_OK) {
        pl_error_context(reterr, "hosts in namespaces (--image IMAGE makes containers, with the image's own user)");
        return PL_INVALID;
    }
    if (geteuid() != 0) {
        PL_TRY(pl_mounts_enter_users(reterr));
    }
    return PL_OK;
}

const char *pl_local_hosts_describe(const struct pl_local *local, char text[static 64])
{
    if (local->kind == PL_LOCAL_PLAIN) {
        return "a plain host";
    }
    if (local->kind == PL_LOCAL_CONTAINERS) {
        snprintf(text, 64, "%zu container%s of %.40s", local->job->hosts, local->job->hosts == 1 ? "" : "s",
                 strrchr(local->engine, '/') ? strrchr(local->engine, '/') + 1 : local->engine);
        return text;
    }
    snprintf(text, 64, "%zu host%s in namespaces%s", local->job->hosts, local->job->hosts == 1 ? "" : "s",
             geteuid() == 0 ? "" : " of this user");
    return text;
}

/* Makes the environment: the variables that SageMaker sets, and the job's own. */
static enum pl_status make_environment(const struct pl_local *local, const struct pl_local_host *host,
                                       struct pl_environment **ret_environment, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *region = pl_environment_get_or(local->environment, "AWS_REGION", "us-east-1");

    PL_TRY(pl_environment_new_copy(local->environment, &environment, reterr));
    pl_environment_unset(environment, "TMPDIR");
    pl_environment_unset(environment, "SAGEMAKER_BASE_DIR");
    PL_TRY(pl_environment_set(environment, "TRAINING_JOB_NAME", local->job->name, reterr));
    pl_text_printf(&text, "arn:aws:sagemaker:%s:000000000000:training-job/", region);
    for (const char *at = local->job->name; *at != '\0'; at++) {
        pl_text_append_char(&text, (char)tolower((unsigned char)*at));
    }
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_environment_set(environment, "TRAINING_JOB_ARN", text.data, reterr));
    PL_TRY(pl_environment_set(environment, "AWS_REGION", region, reterr));
    if (local->kind == PL_LOCAL_PLAIN) {
        PL_TRY(pl_environment_set(environment, "SAGEMAKER_BASE_DIR", host->tree, reterr));
    } else if (local->kind == PL_LOCAL_NAMESPACES) {
        PL_TRY(pl_environment_set(environment, "HOSTNAME", host->name, reterr));
    }
    if (local->job->hosts > 1) {
        PL_TRY(pl_environment_set(environment, "PACELINE_SSH_SECRET", PL_LOCAL_SECRET_PATH, reterr));
    }
    for (size_t i = 0; i < local->job->environment.count; i++) {
        PL_TRY(pl_environment_set(environment, local->job->environment.items[i].name,
                                  local->job->environment.items[i].value, reterr));
    }
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

static enum pl_status start_plain(const struct pl_local *local, struct pl_local_host *host, const char *const *argv,
                                  char *const *environment, int output_fd, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text code = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &code, reterr, "%s/code", host->name));
    return pl_local_spawn(local, argv, environment, local->has_code ? code.data : host->tree, output_fd, output_fd,
                          &host->pid, reterr);
}

static enum pl_status start_container(const struct pl_local *local, size_t index, const char *const *argv,
                                      const struct pl_environment *environment, int output_fd, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    PL_TRY(pl_local_container_words(local, index, argv, environment, &words, reterr));
    return pl_local_spawn(local, (const char *const *)words.items, pl_environment_strings(environment), NULL, output_fd,
                          output_fd, &local->hosts[index].pid, reterr);
}

enum pl_status pl_local_host_start(struct pl_local *local, size_t index, const char *const *argv,
                                   struct pl_error *reterr)
{
    struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_CLOSE int output_fd = -1;
    char *const *strings;
    int pipes[2];

    PL_TRY(make_environment(local, host, &environment, reterr));
    strings = pl_environment_strings(environment);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make the pipe of a host's output");
    }
    host->output_fd = pipes[0];
    output_fd = pipes[1];
    PL_TRY(pl_file_set_nonblock(host->output_fd, true, reterr));
    PL_TRY(local->kind == PL_LOCAL_PLAIN ? start_plain(local, host, argv, strings, output_fd, reterr)
           : local->kind == PL_LOCAL_CONTAINERS
               ? start_container(local, index, argv, environment, output_fd, reterr)
               : pl_local_namespaces_start(local, index, argv, strings, output_fd, reterr));
    host->started = true;
    host->killed = host->lost = false;
    host->code = 0;
    return PL_OK;
}
