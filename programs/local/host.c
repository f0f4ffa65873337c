/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kind of the hosts, and starts them. */
#include "programs/local/host.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/mounts.h"
#include "entrypoint/ssh/sshd.h"
#include "entrypoint/supervise/process.h"
#include "programs/local/host_container.h"
#include "programs/local/network.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_SETTING_BYTES = 64, EXIT_UNREPORTED = 3, START_MS = 60000 };

static int namespaces_of(const struct pl_local *local)
{
    return CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | (local->job->hosts > 1 ? CLONE_NEWNET : 0);
}

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
        code = pl_mounts_try(namespaces_of(local) | (geteuid() == 0 ? 0 : CLONE_NEWUSER));
    }
    if (code != 0 && (local->kind == PL_LOCAL_NAMESPACES || hosts > 1)) {
        return pl_error_set(
            reterr, PL_UNSUPPORTED,
            "this machine refuses namespaces: %s. Without them there are containers, --image IMAGE, or one "
            "plain host, --hosts 1",
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

/* The variables that SageMaker sets, and the job's own. */
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
    for (size_t i = 0; i < local->job->environment_count; i++) {
        PL_TRY(
            pl_environment_set(environment, local->job->environment[i].name, local->job->environment[i].value, reterr));
    }
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

/* Starts a host's first process beside this one: of a plain host, or the client of a container engine. */
static enum pl_status spawn(const struct pl_local *local, struct pl_local_host *host, const char *const *argv,
                            char *const *environment, const char *cwd, int output_fd, int null_fd,
                            struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    setup.argv = argv;
    setup.environment = environment;
    setup.cwd = cwd;
    setup.signals = &local->signals;
    setup.stdin_fd = null_fd;
    setup.stdout_fd = setup.stderr_fd = output_fd;
    setup.own_group = true;
    setup.death_signal = SIGTERM; /* it ends its ranks or its container, which SIGKILL would leave */
    return pl_process_spawn(&setup, &host->pid, reterr);
}

static enum pl_status start_plain(const struct pl_local *local, struct pl_local_host *host, const char *const *argv,
                                  char *const *environment, int output_fd, int null_fd, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text code = PL_TEXT_NONE;

    PL_TRY(pl_local_path(local, &code, reterr, "%s/code", host->name));
    return spawn(local, host, argv, environment, local->has_code ? code.data : host->tree, output_fd, null_fd, reterr);
}

/* The engine's client passes SIGTERM on. Its environment has the job's variables. */
static enum pl_status start_container(const struct pl_local *local, size_t index, const char *const *argv,
                                      const struct pl_environment *environment, int output_fd, int null_fd,
                                      struct pl_error *reterr)
{
    PL_AUTO_CONTAINER_WORDS char **words = NULL;

    PL_TRY(pl_local_container_words(local, index, argv, environment, &words, reterr));
    return spawn(local, &local->hosts[index], (const char *const *)words, pl_environment_strings(environment), NULL,
                 output_fd, null_fd, reterr);
}

/* Runs in the new process, which has namespaces of its own. */
_Noreturn static void become(const struct pl_local *local, size_t index, const char *const *argv,
                             char *const *environment, const int *fds, int go_fd, int report_fd)
{
    struct pl_error error = PL_ERROR_NONE;
    char go;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (read(go_fd, &go, 1) != 1 || dup2(fds[0], STDIN_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0 ||
        dup2(fds[1], STDERR_FILENO) < 0) {
        _exit(EXIT_FAILURE); /* this program ended before the host was plugged in */
    }
    pl_local_host_become(local, index, argv, environment, &error);
    _exit(pl_file_write_fd(report_fd, &error, sizeof(error), "the report", NULL) == PL_OK ? EXIT_FAILURE
                                                                                          : EXIT_UNREPORTED);
}

static enum pl_status start_namespaces(struct pl_local *local, size_t index, const char *const *argv,
                                       char *const *environment, int output_fd, int null_fd, struct pl_error *reterr)
{
    struct pl_local_host *host = &local->hosts[index];
    const int fds[] = {null_fd, output_fd};
    PL_AUTO_CLOSE int go_read = -1, go_write = -1, report_read = -1, report_write = -1;
    struct pl_error error;
    int pipes[2];
    ssize_t bytes;

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    go_read = pipes[0];
    go_write = pipes[1];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    report_read = pipes[0];
    report_write = pipes[1];
    host->pid = (pid_t)syscall(SYS_clone, (unsigned long)(namespaces_of(local) | SIGCHLD), NULL, NULL, NULL, NULL);
    if (host->pid == 0) {
        pl_file_close_at(&go_write);
        pl_file_close_at(&report_read);
        become(local, index, argv, environment, fds, go_read, report_write);
    }
    if (host->pid < 0) {
        host->pid = 0;
        return pl_error_errno(reterr, "make the namespaces of %s", host->name);
    }
    pl_file_close_at(&report_write);
    if (local->job->hosts > 1) {
        PL_TRY(pl_local_network_plug(local->network_fd, (unsigned)index + 1, host->pid, reterr));
    }
    PL_TRY(pl_file_write_fd(go_write, "", 1, "the start of a host", reterr));
    /* The end of this pipe is the start of the program, which closes it. */
    if (poll(&(struct pollfd){.fd = report_read, .events = POLLIN}, 1, START_MS) == 0) {
        return pl_error_set(reterr, PL_TIMEOUT, "%s did not have its mounts within %d s: does a file system hang?",
                            host->name, START_MS / 1000);
    }
    do {
        bytes = read(report_read, &error, sizeof(error));
    } while (bytes < 0 && errno == EINTR);
    if (bytes == 0) {
        return PL_OK;
    }
    if (bytes == (ssize_t)sizeof(error) && reterr) {
        *reterr = error;
    }
    pl_error_context(reterr, "starting %s", host->name);
    return PL_SYSTEM;
}

enum pl_status pl_local_host_start(struct pl_local *local, size_t index, const char *const *argv,
                                   struct pl_error *reterr)
{
    struct pl_local_host *host = &local->hosts[index];
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), output_fd = -1;
    int pipes[2];

    PL_TRY(make_environment(local, host, &environment, reterr));
    if (null_fd < 0 || pipe2(pipes, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make the pipe of a host's output");
    }
    host->output_fd = pipes[0];
    output_fd = pipes[1];
    PL_TRY(pl_file_set_nonblock(host->output_fd, true, reterr));
    if (local->kind == PL_LOCAL_PLAIN) {
        PL_TRY(start_plain(local, host, argv, pl_environment_strings(environment), output_fd, null_fd, reterr));
    } else if (local->kind == PL_LOCAL_CONTAINERS) {
        PL_TRY(start_container(local, index, argv, environment, output_fd, null_fd, reterr));
    } else {
        PL_TRY(start_namespaces(local, index, argv, pl_environment_strings(environment), output_fd, null_fd, reterr));
    }
    host->started = true;
    host->killed = host->lost = false;
    host->code = 0;
    return PL_OK;
}
