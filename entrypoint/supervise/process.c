/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one file that starts processes: programs, with fork and exec, and processes that run a function of ours. Explains
 * why a program cannot start, ends trees of processes, and reads counters.
 * Blocks signals and reads them from a descriptor; keeps the earlier settings, to restore them for programs.
 */
#include "entrypoint/supervise/process.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_NAP_NS PL_NS_PER_MS

enum { MOST_ANSWER_BYTES = 1 << 20, COUNTERS_MAX_BYTES = 4096 };

/* The child sends this to its parent if exec failed. */
struct start_failure {
    int code; /* errno */
    enum { STEP_DIRECTORY, STEP_DESCRIPTORS, STEP_EXEC } step;
    /* the beginning of the file whose exec failed, as many bytes as Linux reads to find an interpreter. The child reads
     * it, because only the child is in the directory to which a relative name belongs. */
    char head[257];
};

static const char *environment_value(char *const *environment, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; environment[i]; i++) {
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=') {
            return environment[i] + length + 1;
        }
    }
    return NULL;
}

/* Only async-signal-safe calls from here on: this runs in the child of a fork. */
static void child_set_up(const struct pl_process_setup *setup, pid_t parent, struct start_failure *failure)
{
    const int wanted[3] = {setup->stdin_fd, setup->stdout_fd, setup->stderr_fd};

    if (setup->own_group) {
        setpgid(0, 0);
    }
    if (setup->foreground && isatty(STDIN_FILENO)) {
        tcsetpgrp(STDIN_FILENO, getpgrp()); /* SIGTTOU is still blocked, so this does not stop the process */
    }
    if (setup->death_signal != 0) {
        prctl(PR_SET_PDEATHSIG, (unsigned long)setup->death_signal, 0UL, 0UL, 0UL);
        if (getppid() != ((setup->namespaces & CLONE_NEWPID) != 0 ? 0 : parent)) {
            _exit(127); /* the parent has ended before that call */
        }
    }
    failure->step = STEP_DESCRIPTORS;
    for (int fd = 0; fd < 3; fd++) {
        if (wanted[fd] >= 0 && dup2(wanted[fd], fd) < 0) {
            failure->code = errno;
            return;
        }
    }
    failure->step = STEP_DIRECTORY;
    if (setup->cwd && chdir(setup->cwd) != 0) {
        failure->code = errno;
    }
}

/* Read the beginning of the file: the interpreter of an executable file may be the reason why Linux refuses it. Only
 * regular files are opened, because others may be forbidden, or block. */
static void child_look_at(const char *path, struct start_failure *failure)
{
    struct stat info;
    int fd;

    if ((failure->code != ENOENT && failure->code != EACCES && failure->code != ENOEXEC) || access(path, X_OK) != 0 ||
        stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, failure->head, sizeof(failure->head) - 1) < 0) {
        failure->head[0] = '\0';
    }
}

_Noreturn static void child_run(const struct pl_process_setup *setup, const char *path, pid_t parent, int report_fd)
{
    struct start_failure failure = {.code = 0};

    child_set_up(setup, parent, &failure);
    if (failure.code == 0 && setup->run) {
        close(report_fd);
        _exit(setup->run(setup->context));
    }
    if (failure.code == 0) {
        if (setup->signals) {
            pl_signals_restore_files(setup->signals);
        }
        if (setup->signals && !setup->keep_blocked) {
            pl_signals_restore(setup->signals);
        }
        execve(path, (char *const *)(uintptr_t)setup->argv, setup->environment);
        failure.code = errno;
        failure.step = STEP_EXEC;
        child_look_at(path, &failure);
    }
    while (write(report_fd, &failure, sizeof(failure)) < 0 && errno == EINTR) {
    }
    _exit(127);
}

/* If the interpreter that a script's first line names is missing, or a program's loader, Linux reports that the file
 * itself is missing: name the interpreter. */
static enum pl_status raise_exec_failure(const char *path, const struct start_failure *failure, enum pl_status status,
                                         struct pl_error *reterr)
{
    if (strncmp(failure->head, "#!", 2) == 0) {
        const char *name = failure->head + 2 + strspn(failure->head + 2, " \t");
        size_t length = strcspn(name, " \t\r\n");
        bool has_cr = name[length] == '\r';

        return pl_error_raise(reterr, status, PL_DOMAIN_ERRNO, failure->code,
                              "cannot start '%.200s': its interpreter '%.*s%s' cannot be started%s", path, (int)length,
                              name, has_cr ? "\\r" : "",
                              has_cr ? ": the script's lines end in CR LF, save it with LF alone" : "");
    }
    if (failure->code == EACCES && failure->head[0] == '\0') {
        return pl_error_raise(
            reterr, status, PL_DOMAIN_ERRNO, failure->code,
            "cannot start '%.200s': this user may not execute it: run `chmod +x` on it, or start it as `sh %.200s`",
            path, path);
    }
    if (failure->code == ENOENT && failure->head[0] != '\0') {
        return pl_error_raise(reterr, status, PL_DOMAIN_ERRNO, failure->code,
                              "cannot start '%.200s': the file exists, but its dynamic loader does not: build it for "
                              "this image's C library",
                              path);
    }
    if (failure->code == ENOEXEC) {
        return pl_error_raise(
            reterr, status, PL_DOMAIN_ERRNO, failure->code,
            "cannot start '%.200s': neither a program for this machine nor a script with a '#!' line%s", path,
            strncmp(failure->head, "\xEF\xBB\xBF", 3) == 0 ? ": it begins with a byte order mark, save it without one"
                                                           : "");
    }
    return pl_error_raise(reterr, status, PL_DOMAIN_ERRNO, failure->code, "cannot start '%.200s'", path);
}

static enum pl_status raise_start_failure(const struct pl_process_setup *setup, const char *path,
                                          const struct start_failure *failure, struct pl_error *reterr)
{
    enum pl_status status = failure->code == ENOENT || failure->code == ENOTDIR ? PL_NOT_FOUND : PL_SYSTEM;

    switch (failure->step) {
    case STEP_DIRECTORY:
        return pl_error_raise(reterr, status, PL_DOMAIN_ERRNO, failure->code, "cannot enter the working directory '%s'",
                              setup->cwd);
    case STEP_DESCRIPTORS:
        return pl_error_raise(reterr, status, PL_DOMAIN_ERRNO, failure->code,
                              "cannot set up the descriptors of '%.200s'", path);
    case STEP_EXEC:
        break;
    }
    return raise_exec_failure(path, failure, status, reterr);
}

enum pl_status pl_process_spawn(const struct pl_process_setup *setup, pid_t *ret_pid, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_CLOSE int read_fd = -1;
    PL_AUTO_CLOSE int report_fd = -1;
    const pid_t parent = getpid();
    struct start_failure failure;
    int pair[2];
    ssize_t bytes;
    pid_t pid;

    if (!setup->run) {
        PL_TRY(pl_file_find_program(setup->argv[0], environment_value(setup->environment, "PATH"), &path, reterr));
    }
    if (pipe2(pair, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    read_fd = pair[0];
    report_fd = pair[1];
    pid = setup->namespaces == 0 ? fork()
                                 : (pid_t)syscall(SYS_clone, (unsigned long)setup->namespaces | (unsigned long)SIGCHLD,
                                                  NULL, NULL, NULL, NULL);
    if (pid < 0) {
        return pl_error_errno(reterr, "fork for '%.200s'", setup->argv[0]);
    }
    if (pid == 0) {
        child_run(setup, path, parent, report_fd);
    }
    if (setup->own_group) {
        setpgid(pid, pid); /* the child does the same, because either may be first */
    }
    pl_file_close_at(&report_fd);
    do {
        /* returns at once if exec succeeds, because exec closes the other end */
        bytes = read(read_fd, &failure, sizeof(failure));
    } while (bytes < 0 && errno == EINTR);
    if (bytes == (ssize_t)sizeof(failure)) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        return raise_start_failure(setup, path ? path : setup->argv[0], &failure, reterr);
    }
    *ret_pid = pid;
    return PL_OK;
}

enum pl_status pl_process_start(int namespaces, int (*run)(void *context), void *context, pid_t *ret_pid,
                                struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    setup.argv = (const char *const[]){"a process", NULL};
    setup.run = run;
    setup.context = context;
    setup.namespaces = namespaces;
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, ret_pid, reterr);
}

void pl_process_adopt_orphans(void)
{
    if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL) != 0) {
        pl_log(PL_LOG_WARNING,
               "processes that leave the job may remain after it: the system refuses PR_SET_CHILD_SUBREAPER (%s)",
               strerror(errno));
    }
}

static bool is_kept(pid_t pid, const pid_t *keep, size_t keep_count)
{
    for (size_t i = 0; i < keep_count; i++) {
        if (keep[i] == pid) {
            return true;
        }
    }
    return false;
}

/* Whether `pid` reads from a pipe that is not the input of this process. */
static bool reads_own_pipe(pid_t pid)
{
    struct stat input, own_input;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)pid);
    return stat(path, &input) == 0 && S_ISFIFO(input.st_mode) &&
           (fstat(STDIN_FILENO, &own_input) != 0 || input.st_dev != own_input.st_dev ||
            input.st_ino != own_input.st_ino);
}

static bool is_spared(pid_t pid, enum pl_process_spare spare)
{
    struct pl_proc_stat stat = {.name = ""};

    switch (spare) {
    case PL_PROCESS_SPARE_READERS_AND_SHELLS:
        return reads_own_pipe(pid) ||
               (pl_proc_read_stat(pid, 0, &stat, NULL) == PL_OK && pl_proc_is_shell(pid, stat.name));
    case PL_PROCESS_SPARE_READERS:
        return reads_own_pipe(pid);
    case PL_PROCESS_SPARE_NOBODY:
        break;
    }
    return false;
}

/* List the children of this process: those of its only thread, or, if the kernel lacks CONFIG_PROC_CHILDREN, from a
 * look at all processes. Ownership: the caller frees `*ret_pids`. */
static enum pl_status list_children(pid_t **ret_pids, size_t *ret_count)
{
    FILE *file = fopen("/proc/thread-self/children", "re");
    PL_AUTO_FREE struct pl_proc_entry *below = NULL;
    size_t capacity = 0, count = 0;
    enum pl_status status = PL_OK;

    for (pid_t pid; file && status == PL_OK && fscanf(file, "%d", &pid) == 1;) {
        status = pl_memory_grow(ret_pids, &capacity, *ret_count + 1, sizeof(**ret_pids), NULL);
        if (status == PL_OK) {
            (*ret_pids)[(*ret_count)++] = pid;
        }
    }
    if (file) {
        fclose(file);
        return status;
    }
    PL_TRY(pl_proc_list(getpid(), &below, &count, NULL));
    PL_TRY(pl_memory_alloc(ret_pids, count + 1, sizeof(**ret_pids), NULL));
    for (size_t i = 0; i < count; i++) {
        if (!below[i].parent) {
            (*ret_pids)[(*ret_count)++] = below[i].pid;
        }
    }
    return PL_OK;
}

size_t pl_process_kill_children(const pid_t *keep, size_t keep_count, enum pl_process_spare spare)
{
    PL_AUTO_FREE pid_t *pids = NULL;
    size_t count = 0, found = 0;

    if (list_children(&pids, &count) != PL_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_kept(pids[i], keep, keep_count) && !is_spared(pids[i], spare)) {
            kill(pids[i], SIGKILL);
            found++;
        }
    }
    return found;
}

void pl_process_close_range(int first_fd, int last_fd)
{
    long highest;

#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first_fd, (unsigned)last_fd, 0U) == 0) {
        return;
    }
#endif
    /* The kernel is too old for close_range(), or a seccomp profile forbids it. */
    highest = sysconf(_SC_OPEN_MAX);
    for (int fd = first_fd; fd <= last_fd && fd < (highest > 0 && highest < 65536 ? highest : 65536); fd++) {
        close(fd);
    }
}

/* Waits for the end, or kills at the deadline. */
static enum pl_status await(const struct pl_process_setup *setup, pid_t pid, int64_t deadline_ns,
                            struct pl_error *reterr)
{
    bool is_signal;
    int status = 0;
    pid_t ended;

    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        if (pl_deadline_passed(deadline_ns)) {
            kill(setup->own_group ? -pid : pid, SIGKILL); /* do not wait: the process may hang in the kernel */
            return pl_error_set(reterr, PL_TIMEOUT, "'%s' did not end in time and was killed", setup->argv[0]);
        }
        pl_clock_nap(RUN_NAP_NS, deadline_ns);
    }
    return ended == pid && pl_process_status_code(status, &is_signal) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_FAILED, "'%s' failed", setup->argv[0]);
}

enum pl_status pl_process_run(const struct pl_process_setup *setup, int64_t deadline_ns, struct pl_text *answer,
                              struct pl_error *reterr)
{
    PL_AUTO_CLOSE int answer_fd = -1;
    PL_AUTO_FREE char *text = NULL;
    struct pl_process_setup own = *setup;
    enum pl_status status;
    ssize_t bytes;
    pid_t pid;

    if (answer) {
        answer_fd = pl_fd_new_memory("paceline-answer", 0);
        PL_TRY(pl_memory_alloc(&text, MOST_ANSWER_BYTES, 1, reterr));
        if (answer_fd < 0) {
            return pl_error_errno(reterr, "make a memory file");
        }
        own.stdout_fd = own.stdout_fd == PL_PROCESS_ANSWER ? answer_fd : own.stdout_fd;
        own.stderr_fd = own.stderr_fd == PL_PROCESS_ANSWER ? answer_fd : own.stderr_fd;
    }
    PL_TRY(pl_process_spawn(&own, &pid, reterr));
    status = await(&own, pid, deadline_ns, reterr);
    bytes = answer ? pread(answer_fd, text, MOST_ANSWER_BYTES, 0) : 0;
    if (bytes > 0) {
        pl_text_append_n(answer, text, (size_t)bytes);
        PL_TRY(pl_text_check(answer, reterr));
    }
    return status;
}

int pl_process_status_code(int wait_status, bool *ret_signalled)
{
    *ret_signalled = WIFSIGNALED(wait_status);
    return *ret_signalled ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* Returns the number after `name`, which includes the blank after it, from the first of the two files that can be
 * read. */
static int64_t count_of(const char *file_v2, const char *file_v1, const char *name)
{
    PL_AUTO_FREE char *text = NULL;
    const char *found;

    if (pl_file_read(file_v2, COUNTERS_MAX_BYTES, &text, NULL, NULL) != PL_OK &&
        pl_file_read(file_v1, COUNTERS_MAX_BYTES, &text, NULL, NULL) != PL_OK) {
        return 0;
    }
    found = strstr(text, name);
    return found ? strtoll(found + strlen(name), NULL, 10) : 0;
}

int64_t pl_process_memory_kills(void)
{
    return count_of("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ");
}

int64_t pl_process_refused_forks(void)
{
    return count_of("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events", "max ");
}

enum pl_status pl_signals_open(struct pl_signals *signals, struct pl_error *reterr)
{
    const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t watched;

    sigfillset(&watched);
    for (size_t i = 0; i < sizeof(own_faults) / sizeof(own_faults[0]); i++) {
        sigdelset(&watched, own_faults[i]);
    }
    /* Blocks SIGTTOU too: a background process group that writes to the terminal would be stopped; with the signal
     * blocked, it just writes. */
    if (sigprocmask(SIG_BLOCK, &watched, &signals->former_mask) != 0) {
        return pl_error_errno(reterr, "block signals");
    }
    sigaction(SIGPIPE, &ignore, &signals->former_pipe);
    sigaction(SIGCHLD, &standard, NULL);
    signals->fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0) {
        enum pl_status status = pl_error_errno(reterr, "open a signal descriptor");

        pl_signals_restore(signals);
        return status;
    }
    return PL_OK;
}

int pl_signals_next(const struct pl_signals *signals)
{
    struct signalfd_siginfo info;
    ssize_t bytes;

    do {
        bytes = read(signals->fd, &info, sizeof(info));
    } while (bytes < 0 && errno == EINTR);
    return bytes == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

bool pl_signals_raise_files(struct pl_signals *signals, size_t count)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) {
        return true;
    }
    if (signals->former_files.rlim_max == 0) {
        signals->former_files = limit;
    }
    limit.rlim_cur = limit.rlim_max < count ? limit.rlim_max : count;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

void pl_signals_restore_files(const struct pl_signals *signals)
{
    if (signals->former_files.rlim_max != 0) {
        setrlimit(RLIMIT_NOFILE, &signals->former_files);
    }
}

void pl_signals_restore(const struct pl_signals *signals)
{
    sigaction(SIGPIPE, &signals->former_pipe, NULL);
    sigprocmask(SIG_SETMASK, &signals->former_mask, NULL);
}

const char *pl_signals_name(int number, char text[static 16])
{
    const char *name = sigabbrev_np(number);

    if (name) {
        snprintf(text, 16, "SIG%s", name);
    } else {
        snprintf(text, 16, "signal %d", number);
    }
    return text;
}

void pl_process_end_by_signal(int number)
{
    const struct rlimit no_core = {0, 0};
    sigset_t only;

    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
}
