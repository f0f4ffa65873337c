/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a shell or a command in a host of a job that runs. */
#include "programs/local/shell.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"
#include "programs/local/state.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ENVIRONMENT_BYTES = 4 << 20, MOST_WORDS = 4096, EXIT_NOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* Enters those namespaces of the process that this one is not in; a child is in its PID namespace then. */
static enum pl_status enter(pid_t pid, struct pl_error *reterr)
{
    static const struct {
        const char *name;
        int flag;
    } all[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},  {"pid", CLONE_NEWPID},
               {"uts", CLONE_NEWUTS},   {"ipc", CLONE_NEWIPC}, {"net", CLONE_NEWNET}};
    PL_AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct stat own, other;
    char path[64];
    int flags = 0;

    if (fd < 0) {
        return pl_error_errno(reterr, "open the host's first process %ld", (long)pid);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(all); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", all[i].name);
        if (stat(path, &own) != 0) {
            return pl_error_errno(reterr, "read '%s'", path);
        }
        snprintf(path, sizeof(path), "/proc/%ld/ns/%s", (long)pid, all[i].name);
        if (stat(path, &other) != 0) {
            return pl_error_errno(reterr, "read '%s'", path);
        }
        flags |= own.st_ino != other.st_ino ? all[i].flag : 0;
    }
    return setns(fd, flags) == 0 ? PL_OK : pl_error_errno(reterr, "enter the namespaces of process %ld", (long)pid);
}

/* The environment with which the host's first process was started. */
static enum pl_status read_environment(pid_t pid, struct pl_environment **ret_environment, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    size_t bytes = 0;
    PL_AUTO_FREE char *data = pl_proc_read(pid, "environ", MOST_ENVIRONMENT_BYTES, &bytes);

    if (!data) {
        return pl_error_set(reterr, PL_SYSTEM, "the environment of process %ld cannot be read", (long)pid);
    }
    PL_TRY(pl_environment_new_empty(&environment, reterr));
    for (const char *word = data; word && word < data + bytes; word = pl_proc_next_word(word, data + bytes)) {
        PL_TRY(pl_environment_put(environment, word, reterr));
    }
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

/* In the host: takes the environment of the job's program: as the first process has saved it for jobs that have a run
 * directory, else that of the first program. `first` is the host's first process, as this host has it. */
static enum pl_status take_program(struct pl_environment **environment_at, pid_t first, const char *paceline,
                                   struct pl_error *reterr)
{
    PL_AUTO_FREE pid_t *programs = NULL;
    PL_AUTO_FREE char *run_dir = NULL;
    struct pl_environment *program = NULL;
    struct stat info;
    size_t count;

    if (stat(paceline, &info) != 0 || pl_proc_find_programs(&info, first, &programs, &count, NULL) != PL_OK ||
        count == 0) {
        return PL_OK; /* it has not started */
    }
    run_dir = pl_proc_variable(programs[0], PL_RUNDIR_VARIABLE);
    if (run_dir) {
        PL_TRY(pl_rundir_new_environment(run_dir, &program, reterr));
    } else {
        PL_TRY(read_environment(programs[0], &program, reterr));
    }
    pl_environment_free(*environment_at);
    *environment_at = program;
    return PL_OK;
}

/* `paceline` is found in the shell: its folder is the last one of the PATH. */
static enum pl_status add_path(struct pl_environment *environment, const char *paceline, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s:%.*s", pl_environment_get_or(environment, "PATH", "/usr/bin:/bin"),
                   (int)(strrchr(paceline, '/') - paceline), paceline);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_environment_set(environment, "PATH", path.data, reterr);
}

/* Becomes the command. Returns only an error. */
static enum pl_status become(struct pl_environment **environment_at, pid_t first, const char *paceline, const char *cwd,
                             const char *const *argv, struct pl_error *reterr)
{
    const char *shell[2] = {"/bin/sh", NULL}, *term = pl_environment_own("TERM");
    PL_AUTO_FREE char *path = NULL;

    PL_TRY(take_program(environment_at, first, paceline, reterr));
    PL_TRY(add_path(*environment_at, paceline, reterr));
    if (term && !pl_environment_get(*environment_at, "TERM")) {
        PL_TRY(pl_environment_set(*environment_at, "TERM", term, reterr));
    }
    if (!argv[0]) {
        shell[0] = pl_environment_get_or(*environment_at, "SHELL", shell[0]);
        argv = shell;
    }
    if (chdir(cwd) != 0 && chdir("/") != 0) {
        return pl_error_errno(reterr, "enter '%s'", cwd);
    }
    PL_TRY(pl_file_find_program(argv[0], pl_environment_get(*environment_at, "PATH"), &path, reterr));
    execve(path, (char *const *)(uintptr_t)argv, pl_environment_strings(*environment_at));
    return pl_error_errno(reterr, "run '%s'", path);
}

/* Keys of a terminal are for the command, whose end this process waits for. */
static enum pl_status await(pid_t child, int *ret_code, struct pl_error *reterr)
{
    int status, code;
    bool is_signal;

    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return pl_error_errno(reterr, "wait for the command");
        }
    }
    code = pl_process_status_code(status, &is_signal);
    *ret_code = is_signal ? 128 + code : code;
    return PL_OK;
}

static enum pl_status run_beside(const struct pl_local_state *state, pid_t pid, const char *const *argv, int *ret_code,
                                 struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *paceline = NULL;
    struct pl_proc_stat info;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    char text[1200], cwd[64];
    pid_t child;

    /* The number may be another process's by now. */
    if (pl_proc_read_stat(pid, 0, &info, NULL) != PL_OK || info.parent != state->local) {
        return pl_error_set(reterr, PL_NOT_FOUND, "the host has ended");
    }
    PL_TRY(read_environment(pid, &environment, reterr));
    PL_TRY(pl_companion_find_paceline(&paceline, reterr));
    snprintf(cwd, sizeof(cwd), "/proc/%ld/cwd", (long)pid);
    if (state->kind == PL_LOCAL_NAMESPACES) {
        PL_TRY(enter(pid, reterr));
        snprintf(cwd, sizeof(cwd), "/opt/ml/code");
    }
    child = fork();
    if (child < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0);
        status = become(&environment, state->kind == PL_LOCAL_NAMESPACES ? 1 : pid, paceline, cwd, argv, &error);
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
        _exit(status == PL_NOT_FOUND ? EXIT_NOT_FOUND : EXIT_NOT_RUN);
    }
    return await(child, ret_code, reterr);
}

/* Becomes the engine's client. Returns only an error. */
static enum pl_status exec_in_container(const struct pl_local_state *state, const char *container,
                                        const char *const *argv, struct pl_error *reterr)
{
    PL_AUTO_FREE const char **words = pl_memory_new(MOST_WORDS, sizeof(*words), reterr);
    size_t count = 0;

    PL_TRY(words ? PL_OK : PL_MEMORY);
    words[count++] = state->engine;
    words[count++] = "exec";
    words[count++] = "--interactive";
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        words[count++] = "--tty";
    }
    words[count++] = container;
    if (!argv[0]) {
        words[count++] = "/bin/sh";
    }
    for (size_t i = 0; argv[i] && count + 1 < MOST_WORDS; i++) {
        words[count++] = argv[i];
    }
    execv(state->engine, (char *const *)(uintptr_t)words);
    return pl_error_errno(reterr, "run '%s'", state->engine);
}

enum pl_status pl_local_shell(int argc, char **argv, int *ret_code, struct pl_error *reterr)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'},
                                          {"folder", required_argument, NULL, 'f'},
                                          {"name", required_argument, NULL, 'n'},
                                          {NULL, 0, NULL, 0}};
    static struct pl_local_state state;
    const char *folder = "paceline-local", *name = NULL;
    const char *const *command;
    enum pl_status status;
    char where[64];
    int option;

    while ((status = pl_options_next(argc, argv, "+h", table, &option, reterr)) == PL_OK) {
        if (option == 'h') {
            pl_verbs_print_help("local", stdout);
            return PL_OK;
        }
        *(option == 'f' ? &folder : &name) = optarg;
    }
    if (status != PL_END) {
        return status;
    }
    if (optind >= argc) {
        return pl_error_set(reterr, PL_INVALID,
                            "shell needs a HOST such as algo-1, and a command where one is to be run");
    }
    command = (const char *const *)(uintptr_t)(argv + optind + 1);
    PL_TRY(pl_local_state_find(folder, name, &state, reterr));
    PL_TRY(pl_local_state_host(&state, argv[optind], where, reterr));
    return state.kind == PL_LOCAL_CONTAINERS
               ? exec_in_container(&state, where, command, reterr)
               : run_beside(&state, (pid_t)strtol(where, NULL, 10), command, ret_code, reterr);
}
