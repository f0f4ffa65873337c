/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline server [--workers N] [--min-workers N] PROGRAM [ARGUMENTS...]
 *
 * The parameter server of one host, which mpirun starts once per host. It starts the host's workers, which are
 * processes of PROGRAM without MPI's variables in their environment, and serves them. It ends in the same way as the
 * first worker that fails, unless the job may continue with fewer workers. A worker that a stop has ended has not
 * failed.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "base/thread.h"
#include "collectives/bootstrap.h"
#include "entrypoint/options.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/verbs.h"
#include "runtime/server.h"
#include "runtime/server/message.h"
#include "runtime/server/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct children {
    int count;
    _Atomic pid_t *pids; /* [count], 0 for a worker that has ended */
    int ended_fd;        /* pipe by which the server learns which workers have ended */
    int min_workers;     /* number of workers without which the job ends; 0: all */
    bool is_stopped;     /* a stop has ended a worker */
};

enum { EXIT_NOT_STARTED = 126, EXIT_NO_PROGRAM = 127 }; /* the exit codes that shells use */

/* SIGTERM may have ended a worker before this process has run its own handler: longest wait for the handler. */
#define STOP_LAG_NS (200 * PL_NS_PER_MS)
/* Wait after a failure of the server: the workers learn of the failure, log it and end by themselves. */
#define FAILED_LAG_NS PL_NS_PER_S

/* Set by the signal handler only. */
static atomic_bool is_stopping;

static void on_stop(int number)
{
    (void)number;
    atomic_store(&is_stopping, true);
}

/* Handles signals meant for the program: they reach the whole process group, and this process must survive. */
static void on_other(int number)
{
    (void)number;
}

/*
 * Sets handlers, not SIG_IGN: the workers, which run another program, get the default action back, but ignored signals
 * would stay ignored.
 */
static enum pl_status handle_signals(struct pl_error *reterr)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, others[] = {SIGUSR1, SIGUSR2};
    const struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    const struct sigaction other = {.sa_handler = on_other, .sa_flags = SA_RESTART};
    int code = signal(SIGCHLD, SIG_DFL) == SIG_ERR ? -1 : 0;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(stops) && code == 0; i++) {
        code = sigaction(stops[i], &stop, NULL);
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(others) && code == 0; i++) {
        code = sigaction(others[i], &other, NULL);
    }
    return code == 0 ? PL_OK : pl_error_errno(reterr, "handle signals");
}

/* Raises the limit of descriptors, two per worker. The workers, started before, keep the original limit. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

#define PL_OPTIONS_OF struct children
static const struct pl_option table[] = {PL_SERVER_OPTIONS(PL_OPTION) PL_OPTIONS_THEN_PROGRAM};

/* Makes the path of the socket: in the run directory, else in /tmp. */
static enum pl_status name_socket(const struct pl_environment *environment, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/ps-%d", pl_environment_get_or(environment, "PACELINE_RUN_DIR", "/tmp"), (int)getpid());
    return pl_text_take(&path, ret_path, reterr);
}

/* Returns the place of the first worker, for FIFOs of its own: a rank's workers have numbers in a row. */
static struct pl_rundir_place place_of(const struct pl_environment *environment, int workers)
{
    const int rank = atoi(pl_environment_get_or(environment, "OMPI_COMM_WORLD_RANK", "0"));
    const int size = atoi(pl_environment_get_or(environment, "OMPI_COMM_WORLD_SIZE", "1"));

    return (struct pl_rundir_place){.rank = rank * workers, .size = size * workers, .local_size = workers};
}

/* Removes MPI's variables. A worker is not a rank: a program that it starts with MPI is a world by itself. */
static enum pl_status hide_mpi(struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "OPAL_"};
    PL_AUTO_ENVIRONMENT struct pl_environment *before = NULL;

    PL_TRY(pl_environment_new_copy(environment, &before, reterr));
    for (char *const *at = pl_environment_strings(before); *at; at++) {
        for (size_t i = 0; i < PL_ARRAY_ITEMS(prefixes); i++) {
            PL_AUTO_FREE char *name = NULL;

            if (strncmp(*at, prefixes[i], strlen(prefixes[i])) != 0) {
                continue;
            }
            name = pl_memory_string_n(*at, strcspn(*at, "="), reterr);
            PL_TRY(name ? PL_OK : PL_MEMORY);
            pl_environment_unset(environment, name);
        }
    }
    return PL_OK;
}

static enum pl_status start_workers(struct children *children, char **argv, const char *socket_path,
                                    struct pl_environment *environment, struct pl_error *reterr)
{
    PL_AUTO_FREE char *trace = pl_memory_string(pl_environment_get_or(environment, "PACELINE_TRACE", ""), reterr);
    const char *run_dir = pl_environment_get(environment, PL_RUNDIR_VARIABLE);
    struct pl_rundir_place place = place_of(environment, children->count);
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    setup.argv = (const char *const *)argv;
    setup.death_signal = SIGKILL;
    PL_TRY(trace ? PL_OK : PL_MEMORY);
    PL_TRY(hide_mpi(environment, reterr));
    PL_TRY(pl_environment_set(environment, PL_SERVER_SOCKET_VARIABLE, socket_path, reterr));
    for (int w = 0; w < children->count; w++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        char number[16], numbers[64];
        pid_t pid;

        snprintf(number, sizeof(number), "%d", w);
        PL_TRY(pl_environment_set(environment, PL_SERVER_WORKER_VARIABLE, number, reterr));
        if (*trace) { /* each worker would write the trace of a rank 0 */
            PL_TRY(pl_text_set(&path, reterr, "%s.worker%d", trace, w));
            PL_TRY(pl_environment_set(environment, "PACELINE_TRACE", path.data, reterr));
        }
        PL_TRY(pl_rundir_take_fifos(run_dir, &place, environment, reterr));
        snprintf(numbers, sizeof(numbers), "%d %d %d %d", place.rank, place.size, place.local_rank, place.local_size);
        PL_TRY(pl_environment_set(environment, "PACELINE_PS_PLACE", numbers, reterr)); /* for Python's datasets */
        place.rank++;
        place.local_rank++;
        setup.environment = pl_environment_strings(environment);
        PL_TRY(pl_process_spawn(&setup, &pid, reterr));
        children->pids[w] = pid;
    }
    return PL_OK;
}

static void signal_workers(const struct children *children, int number)
{
    for (int w = 0; w < children->count; w++) {
        if (children->pids[w] > 0) {
            kill(children->pids[w], number);
        }
    }
}

/* Whether a stop ended the worker. A worker may get the stop before this process, and end. */
static bool is_ended_by_stop(int status)
{
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
    int64_t deadline_ns = pl_deadline_after_ns(STOP_LAG_NS);

    if (number != SIGTERM && number != SIGINT && number != SIGHUP && number != SIGQUIT) {
        return false;
    }
    while (!atomic_load(&is_stopping) && !pl_deadline_passed(deadline_ns)) {
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
    return atomic_load(&is_stopping);
}

/* Returns the worker's status as the server must know it. Does not return if its failure ends the job. */
static int check_end(struct children *children, int worker, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    if (is_ended_by_stop(status)) {
        children->is_stopped = true;
        return 0;
    }
    pl_log(children->min_workers > 0 ? PL_LOG_WARNING : PL_LOG_ERROR,
           WIFSIGNALED(status) ? "worker %d of this host was killed by signal %d"
                               : "worker %d of this host exited with code %d",
           worker, WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (children->min_workers > 0) {
        return status;
    }
    signal_workers(children, SIGTERM);
    if (WIFSIGNALED(status)) {
        pl_process_end_by_signal(WTERMSIG(status));
    }
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void *await_workers(void *argument)
{
    struct children *children = argument;

    for (int left = children->count; left > 0;) {
        struct pl_server_ended ended = {.worker = 0};
        int status, worker = 0;
        pid_t pid = waitpid(-1, &status, 0);

        if (pid < 0 && errno == EINTR) {
            continue;
        }
        PL_BUG_IF(pid < 0);
        while (worker < children->count && children->pids[worker] != pid) {
            worker++;
        }
        if (worker < children->count) { /* otherwise it is a helper process of a library */
            children->pids[worker] = 0;
            left--;
            ended.worker = worker;
            ended.status = check_end(children, worker, status);
            PL_BUG_IF(write(children->ended_fd, &ended, sizeof(ended)) != sizeof(ended));
        }
    }
    return NULL;
}

/*
 * Makes Open MPI send pieces at once. Before a message above its limits it first waits for the receiver's consent,
 * which over TCP costs half of the link's rate. Limits that the job has set stay.
 */
static enum pl_status send_pieces_at_once(struct pl_error *reterr)
{
    static const char *const limits[] = {"OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(limits); i++) {
        if (!pl_environment_get_or(environment, limits[i], NULL)) {
            PL_TRY(pl_environment_export(limits[i], "8388608", reterr));
        }
    }
    return PL_OK;
}

/* Logs the counts in one line at the end, for people. */
static void say_counts(const struct pl_server_serve_counts *counts, int host, int64_t elapsed_ns)
{
    const double seconds = (double)elapsed_ns / (double)PL_NS_PER_S;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    uint64_t all = 0;

    pl_text_printf(&text,
                   "host %d: %" PRIu64 " pushes and %" PRIu64 " pulls (%.1f and %.1f a second), %" PRIu64 " updates, "
                   "%.1f MB of gradients and %.1f MB of values sent",
                   host, counts->pushes, counts->pulls, (double)counts->pushes / seconds,
                   (double)counts->pulls / seconds, counts->updates, (double)counts->gradient_bytes / 1e6,
                   (double)counts->value_bytes / 1e6);
    for (int a = 0; a < PL_SERVER_AGES; a++) {
        all += counts->ages[a];
    }
    if (all > 0) {
        pl_text_append(&text, "; updates of others to a piece before a push:");
    }
    for (int a = 0; a < PL_SERVER_AGES; a++) {
        if (counts->ages[a] > 0) {
            pl_text_printf(&text, " %d%s %.1f %%", a == 0 ? 0 : 1 << (a - 1), a > 1 ? "+" : "",
                           100.0 * (double)counts->ages[a] / (double)all);
        }
    }
    pl_log(PL_LOG_DEBUG, "%s", pl_text_string(&text));
}

static enum pl_status serve(struct children *children, const char *socket_path, int ended_fd, struct pl_error *reterr)
{
    struct pl_server_serve_counts counts = {0};
    const int64_t began_ns = pl_clock_now_ns();
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_server_serve_options options = {.socket_path = socket_path,
                                              .workers = children->count,
                                              .ended_fd = ended_fd,
                                              .min_workers = children->min_workers,
                                              .stopping = &is_stopping,
                                              .counts = &counts};
    pthread_t waiter;
    enum pl_status status;

    PL_TRY(send_pieces_at_once(reterr));
    PL_TRY(pl_thread_start(&waiter, await_workers, children, "the wait for the workers", reterr));
    PL_TRY(pl_bootstrap_under_mpi() ? pl_bootstrap_new_mpi(NULL, &bootstrap, reterr)
                                    : pl_bootstrap_new_self(&bootstrap, reterr));
    options.bootstrap = bootstrap;
    status = pl_server_serve(&options, reterr);
    say_counts(&counts, bootstrap->rank, pl_clock_now_ns() - began_ns);
    if (status == PL_OK) {
        pthread_join(waiter, NULL); /* workers may still save; only a stop of the job ends this wait */
        status = pl_bootstrap_leave(bootstrap, PL_DEADLINE_NEVER, reterr);
    }
    if (status == PL_OK) {
        pl_bootstrap_free(bootstrap);
    }
    return status;
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *socket_path = NULL;
    struct children children = {.count = 1};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    int ended[2];

    pl_log_open("paceline server");
    status = pl_verbs_read("server", table, argc, argv, &children, &error);
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    children.pids = pl_memory_new((size_t)children.count, sizeof(*children.pids), &error);
    if (!children.pids || pl_environment_new(&environment, &error) != PL_OK ||
        name_socket(environment, &socket_path, &error) != PL_OK || pipe2(ended, O_CLOEXEC) != 0 ||
        handle_signals(&error) != PL_OK ||
        start_workers(&children, argv + optind, socket_path, environment, &error) != PL_OK) {
        pl_log_error(&error, "cannot start the workers");
        signal_workers(&children, SIGKILL);
        return error.status == PL_NOT_FOUND                    ? EXIT_NO_PROGRAM
               : error.code == EACCES || error.code == ENOEXEC ? EXIT_NOT_STARTED
                                                               : EXIT_FAILURE;
    }
    children.ended_fd = ended[1];
    raise_descriptors();
    if (serve(&children, socket_path, ended[0], &error) != PL_OK) {
        pl_log_error(&error, "cannot serve the workers");
        pl_clock_nap(FAILED_LAG_NS, PL_DEADLINE_NEVER);
        signal_workers(&children, SIGTERM);
        _exit(EXIT_FAILURE); /* other threads may be inside MPI */
    }
    free(children.pids);
    return children.is_stopped ? 128 + SIGTERM : EXIT_SUCCESS;
}
