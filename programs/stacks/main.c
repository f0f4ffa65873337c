/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `paceline stacks`: shows what the training programs of the job are doing.
 *
 * First it samples the CPU time of this host's programs, then looks at one after the other, then orders and prints what
 * it found here and what came from other hosts. Three options are not for users. With --local HOST it answers another
 * host (hosts.h). A supervisor that watches for hangs uses --log HOST: output goes to standard error, with a last line
 * about the first program. It also uses --below PID with its own number, so that no other job of its host is shown.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/options.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/verbs.h"
#include "programs/stacks/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_NS (200 * PL_NS_PER_MS)
#define WHOLE_NS (30 * PL_NS_PER_S)
#define LOCAL_NS (25 * PL_NS_PER_S)      /* time for all programs of a host that another host asks */
#define ANSWER_NS (30 * PL_NS_PER_S)     /* wait for other hosts after this host's programs were examined */
#define LEAST_SHARE_NS (2 * PL_NS_PER_S) /* least time for one program, if there is that much time left */

/* The sample of one program, kept until it is printed. */
struct sampled {
    pid_t pid;
    struct pl_proc_stat stat;
    int64_t at_ns;
    double cpu_s, cpu_percent;
    char state; /* 0 if it has ended */
    struct pl_stacks_program *program;
};

struct samples {
    struct sampled *items;
    size_t count;
};

static void samples_done(struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++) {
        pl_collect_free(samples->items[i].program);
    }
    free(samples->items);
}

/* Finds the front binary, which the job's process 1 and the shims run. */
static enum pl_status find_paceline(struct stat *ret_file, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;

    PL_TRY(pl_companion_find_paceline(&path, reterr));
    return stat(path, ret_file) == 0 ? PL_OK : pl_error_errno(reterr, "find '%s'", path);
}

static enum pl_status add_process(struct samples *samples, pid_t pid, struct pl_error *reterr)
{
    struct sampled *item = &samples->items[samples->count];

    *item = (struct sampled){.pid = pid, .at_ns = pl_clock_now_ns()};
    PL_TRY(pl_proc_read_stat(pid, 0, &item->stat, reterr));
    samples->count++;
    return PL_OK;
}

static enum pl_status find_programs(struct samples *samples, pid_t supervisor, struct pl_error *reterr)
{
    PL_AUTO_FREE pid_t *pids = NULL;
    struct stat paceline;
    size_t count;

    PL_TRY(find_paceline(&paceline, reterr));
    PL_TRY(pl_proc_find_programs(&paceline, supervisor, &pids, &count, reterr));
    PL_TRY(pl_memory_alloc(&samples->items, count + 1, sizeof(*samples->items), reterr));
    for (size_t i = 0; i < count; i++) {
        add_process(samples, pids[i], NULL); /* a process that has ended meanwhile is skipped */
    }
    if (samples->count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "no training program runs on this host: expected one below paceline, as `paceline train` "
                            "starts it; `paceline stacks PID` looks at any process");
    }
    return PL_OK;
}

static enum pl_status parse_pid(const char *word, pid_t *ret_pid, struct pl_error *reterr)
{
    char *end = NULL;
    long pid;

    errno = 0;
    pid = strtol(word, &end, 10);
    if (errno != 0 || *word < '0' || *word > '9' || *end != '\0' || pid < 1 || pid > INT32_MAX) {
        return pl_error_set(reterr, PL_INVALID, "expected the numbers of processes, found '%s'; --help tells more",
                            word);
    }
    *ret_pid = (pid_t)pid;
    return PL_OK;
}

static enum pl_status take_words(struct samples *samples, char **words, size_t count, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    pid_t pid = 0;

    PL_TRY(pl_memory_alloc(&samples->items, count + 1, sizeof(*samples->items), reterr));
    for (size_t i = 0; i < count; i++) {
        PL_TRY(parse_pid(words[i], &pid, reterr));
    }
    for (size_t i = 0; i < count; i++) {
        PL_TRY(parse_pid(words[i], &pid, reterr));
        if (add_process(samples, pid, &error) != PL_OK && count > 1) { /* the caller reports the last error */
            pl_log(PL_LOG_WARNING, "%s", error.cause);
        }
    }
    if (samples->count == 0) {
        return count > 1 ? pl_error_set(reterr, PL_NOT_FOUND, "none of these processes runs on this host")
                         : pl_error_set(reterr, PL_NOT_FOUND, "%s", error.cause);
    }
    return PL_OK;
}

/* Takes the second look at CPU time and state. */
static void finish_sample(struct sampled *item)
{
    double ticks_per_s = (double)sysconf(_SC_CLK_TCK);
    int64_t now_ns = pl_clock_now_ns();
    struct pl_proc_stat stat;

    if (pl_proc_read_stat(item->pid, 0, &stat, NULL) != PL_OK || stat.start_ticks != item->stat.start_ticks) {
        return;
    }
    item->state = stat.state;
    item->cpu_s = (double)stat.cpu_ticks / ticks_per_s;
    item->cpu_percent = 100 * (double)(stat.cpu_ticks - item->stat.cpu_ticks) / ticks_per_s /
                        ((double)(now_ns - item->at_ns) / (double)PL_NS_PER_S);
}

static void say_ended(struct pl_stacks_program *program, int64_t deadline_ns)
{
    (void)deadline_ns;
    snprintf(program->problem, sizeof(program->problem), "it has ended meanwhile");
}

static enum pl_status collect(struct samples *samples, int64_t deadline_ns, struct pl_error *reterr)
{
    pl_clock_nap(SAMPLE_NS, deadline_ns); /* the interval over which CPU use is measured */
    for (size_t i = 0; i < samples->count; i++) {
        finish_sample(&samples->items[i]);
    }
    for (size_t i = 0; i < samples->count; i++) {
        struct sampled *item = &samples->items[i];
        int64_t left_ns = deadline_ns - pl_clock_now_ns();
        int64_t share_ns = left_ns / (int64_t)(samples->count - i);

        share_ns = share_ns < LEAST_SHARE_NS ? LEAST_SHARE_NS : share_ns;
        share_ns = share_ns < left_ns ? share_ns : left_ns;
        PL_TRY(pl_collect_program(item->pid, item->state == 0 ? say_ended : pl_collect_describe,
                                  pl_deadline_after_ns(share_ns > 0 ? share_ns : 0), &item->program, reterr));
        item->program->state = item->state;
        item->program->cpu_s = item->cpu_s;
        item->program->cpu_percent = item->cpu_percent;
    }
    return PL_OK;
}

/* Examines the programs that were found, and adds them to those of the other hosts. */
static enum pl_status look(struct samples *samples, const char *host, int64_t deadline_ns, struct pl_hosts *hosts,
                           struct pl_error *reterr)
{
    PL_TRY(collect(samples, deadline_ns, reterr));
    for (size_t i = 0; i < samples->count; i++) {
        PL_TRY(pl_hosts_add(hosts, host, samples->items[i].program, reterr));
    }
    return PL_OK;
}

static enum pl_status print(struct pl_hosts *hosts, int fd, bool json, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(pl_order_programs(hosts->programs, hosts->count, reterr));
    if (json) {
        PL_TRY(pl_hosts_print_json(hosts, NULL, &text, reterr));
        return pl_file_write_fd(fd, pl_text_string(&text), text.length, "the report", reterr);
    }
    for (size_t i = 0; i < hosts->count; i++) {
        pl_text_append(&text, i > 0 ? "\n" : "");
        pl_text_append(&text, pl_text_string(&hosts->programs[i].report));
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_file_write_fd(fd, pl_text_string(&text), text.length, "the report", reterr);
}

/*
 * Returns the run directory of this host's process 1, from this process's environment if process 1 has started it, else
 * from the environment of a program of the job.
 */
static char *find_run_dir(const struct samples *samples, const struct pl_environment *environment)
{
    const char *own = pl_environment_get_or(environment, PL_RUNDIR_VARIABLE, NULL);

    if (own || samples->count == 0) {
        return own ? pl_memory_string(own, NULL) : NULL;
    }
    return pl_proc_variable(samples->items[0].pid, PL_RUNDIR_VARIABLE);
}

/* Answers another host, which has asked for this host's programs. */
static enum pl_status answer(const char *host, struct samples *samples, struct pl_hosts *hosts, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    enum pl_status status = find_programs(samples, 0, &error);

    if (status == PL_OK) {
        status = look(samples, host, pl_deadline_after_ns(LOCAL_NS), hosts, &error);
    }
    PL_TRY(pl_hosts_print_json(hosts, status == PL_OK ? "" : error.cause, &text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, text.data, text.length, "the answer", reterr);
}

/* The values of the options. */
struct task {
    const char *local_host, *log_host; /* NULL if the option was not given */
    pid_t supervisor;                  /* 0 for all jobs of this host */
    bool json;
};

/* Asks the other hosts, examines this host's programs meanwhile, and prints all. */
static enum pl_status print_all_hosts(const struct task *task, const struct pl_environment *environment,
                                      struct samples *samples, struct pl_hosts *hosts, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE, ask_error = PL_ERROR_NONE;
    enum pl_status found = find_programs(samples, task->supervisor, &error);
    PL_AUTO_FREE char *run_dir = find_run_dir(samples, environment);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (task->log_host) {
        hosts->host_name = pl_memory_string(task->log_host, reterr);
        PL_TRY(hosts->host_name ? PL_OK : PL_MEMORY);
    }
    if (run_dir && pl_hosts_start(hosts, run_dir, environment, &ask_error) != PL_OK) {
        pl_log_error(&ask_error, "cannot ask the other hosts"); /* the programs of this host are still printed */
    }
    if (found != PL_OK && hosts->host_count == 0) {
        return pl_error_set(reterr, found, "%s", error.cause);
    }
    if (found == PL_OK) {
        PL_TRY(look(samples, hosts->host_count > 0 ? hosts->host_name : "", pl_deadline_after_ns(WHOLE_NS), hosts,
                    reterr));
    }
    pl_hosts_await(hosts, pl_deadline_after_ns(ANSWER_NS));
    PL_TRY(print(hosts, task->log_host ? STDERR_FILENO : STDOUT_FILENO, task->json, reterr));
    if (hosts->count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "no host has a training program");
    }
    if (task->log_host) {
        pl_hosts_describe(hosts, &text);
        pl_text_append_char(&text, '\n');
        PL_TRY(pl_text_check(&text, reterr));
        return pl_file_write_fd(STDERR_FILENO, pl_text_string(&text), text.length, "what the first program is doing",
                                reterr);
    }
    return PL_OK;
}

static enum pl_status run(const struct task *task, char **words, size_t count, struct pl_error *reterr)
{
    __attribute__((cleanup(samples_done))) struct samples samples = {.items = NULL};
    __attribute__((cleanup(pl_hosts_close))) struct pl_hosts hosts = PL_HOSTS_NONE;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    PL_TRY(pl_environment_new(&environment, reterr));
    if (count > 0) {
        PL_TRY(take_words(&samples, words, count, reterr));
        PL_TRY(look(&samples, "", pl_deadline_after_ns(WHOLE_NS), &hosts, reterr));
        return print(&hosts, STDOUT_FILENO, task->json, reterr);
    }
    return task->local_host ? answer(task->local_host, &samples, &hosts, reterr)
                            : print_all_hosts(task, environment, &samples, &hosts, reterr);
}

#define PL_OPTIONS_OF struct task
#define OWN_OPTIONS(ROW)                                                                                               \
    ROW("--local", "HOST", NULL, PL_TO(local_host))                                                                    \
    ROW("--log", "HOST", NULL, PL_TO(log_host))                                                                        \
    ROW("--below", "PID", NULL, PL_TO_NUMBER(supervisor, 1, INT32_MAX))
static const struct pl_option table[] = {PL_STACKS_OPTIONS(PL_OPTION) OWN_OPTIONS(PL_OPTION) PL_OPTIONS_END};

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    struct task task = {.local_host = NULL};
    enum pl_status status;
    char text[1200];

    pl_log_open("paceline stacks");
    status = pl_verbs_read("stacks", table, argc, argv, &task, &error);
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    status = run(&task, argv + optind, (size_t)(argc - optind), &error);
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? PL_EXIT_USAGE : EXIT_FAILURE;
}
