/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `paceline stacks`: where the training programs of this host stand.
 *
 * First the CPU time of all is sampled, then one after the other is looked at, then what was found is ordered and
 * printed.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "entrypoint/stacks/collect.h"
#include "entrypoint/stacks/order.h"
#include "entrypoint/stacks/proc.h"
#include "entrypoint/stacks/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_NS (200 * PL_NS_PER_MS)
#define WHOLE_NS (30 * PL_NS_PER_S)
#define LEAST_SHARE_NS (2 * PL_NS_PER_S) /* of the time for one program, where there is that much */

static const char usage[] =
    "usage: paceline stacks [PID...]\n"
    "Print where each training program of this host stands, or each process PID: its state, its CPU time, and of each\n"
    "thread the state, the kernel function that it waits in, and its native stack. Of a job's ranks the one that "
    "stands\n"
    "elsewhere than the others comes first. Each thread is stopped for some milliseconds; a system call that the "
    "kernel\n"
    "does not restart, such as epoll_wait, returns EINTR to it then. It takes at most 30 s.\n"
    "\n"
    "The exit status is 0 when something was printed, and 1 when there is nothing to print.\n"
    "Names of C++ functions are as the linker has them: paceline stacks | c++filt\n";

/* One program, until it is printed. */
struct sampled {
    pid_t pid;
    struct pl_proc_stat stat;
    int64_t at_ns;
    double cpu_s, cpu_percent;
    char state; /* 0: it has ended */
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

/* The front binary, which the job's process 1 and the shims run: from the directory of this program. */
static enum pl_status find_paceline(struct stat *ret_file, struct pl_error *reterr)
{
    static const char *const places[] = {"../../bin/paceline", "../../entrypoint/paceline", "paceline"};
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0) {
        return pl_error_errno(reterr, "read '/proc/self/exe'");
    }
    self[length] = '\0';
    *(strrchr(self, '/') + 1) = '\0';
    for (size_t i = 0; i < PL_ARRAY_ITEMS(places); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_printf(&path, "%s%s", self, places[i]);
        PL_TRY(pl_text_check(&path, reterr));
        if (stat(pl_text_string(&path), ret_file) == 0) {
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_NOT_FOUND, "expected paceline in ../../bin, seen from %s, found none", self);
}

static enum pl_status add_process(struct samples *samples, pid_t pid, struct pl_error *reterr)
{
    struct sampled *item = &samples->items[samples->count];

    *item = (struct sampled){.pid = pid, .at_ns = pl_clock_now_ns()};
    PL_TRY(pl_proc_read_stat(pid, 0, &item->stat, reterr));
    samples->count++;
    return PL_OK;
}

static enum pl_status find_programs(struct samples *samples, struct pl_error *reterr)
{
    PL_AUTO_FREE pid_t *pids = NULL;
    struct stat paceline;
    size_t count;

    PL_TRY(find_paceline(&paceline, reterr));
    PL_TRY(pl_proc_find_programs(&paceline, &pids, &count, reterr));
    samples->items = pl_memory_new(count + 1, sizeof(*samples->items), reterr);
    PL_TRY(samples->items != NULL ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < count; i++) {
        (void)add_process(samples, pids[i], NULL); /* one that has ended since is none */
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

    samples->items = pl_memory_new(count + 1, sizeof(*samples->items), reterr);
    PL_TRY(samples->items != NULL ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < count; i++) {
        PL_TRY(parse_pid(words[i], &pid, reterr));
    }
    for (size_t i = 0; i < count; i++) {
        PL_TRY(parse_pid(words[i], &pid, reterr));
        if (add_process(samples, pid, &error) != PL_OK && count > 1) { /* the last report is the caller's */
            pl_log(PL_LOG_WARNING, "%s", error.cause);
        }
    }
    if (samples->count == 0) {
        return count > 1 ? pl_error_set(reterr, PL_NOT_FOUND, "none of these processes runs here")
                         : pl_error_set(reterr, PL_NOT_FOUND, "%s", error.cause);
    }
    return PL_OK;
}

/* The second look at CPU time and state. */
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
    pl_clock_nap(SAMPLE_NS, deadline_ns); /* what CPU use is measured over */
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

static enum pl_status print(const struct samples *samples, struct pl_error *reterr)
{
    PL_AUTO_FREE const struct pl_stacks_program **programs =
        pl_memory_new(samples->count, sizeof(const struct pl_stacks_program *), reterr);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(programs != NULL ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < samples->count; i++) {
        programs[i] = samples->items[i].program;
    }
    PL_TRY(pl_order_programs(programs, samples->count, reterr));
    for (size_t i = 0; i < samples->count; i++) {
        pl_text_append(&text, i > 0 ? "\n" : "");
        pl_report_program(programs[i], &text);
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_file_write_fd(STDOUT_FILENO, pl_text_string(&text), text.length, "standard output", reterr);
}

static enum pl_status run(struct samples *samples, char **words, size_t count, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(WHOLE_NS);

    PL_TRY(count > 0 ? take_words(samples, words, count, reterr) : find_programs(samples, reterr));
    PL_TRY(collect(samples, deadline_ns, reterr));
    return print(samples, reterr);
}

int main(int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    __attribute__((cleanup(samples_done))) struct samples samples = {.items = NULL};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    char text[1200];
    int option;

    pl_log_set_prefix("paceline stacks");
    while ((status = pl_options_next(argc, argv, "h", table, &option, &error)) == PL_OK) {
        (void)fputs(usage, stdout); /* the only option */
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (status == PL_END) {
        status = run(&samples, argv + optind, (size_t)(argc - optind), &error);
    }
    if (status != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", pl_error_text(&error, text, sizeof(text)));
    }
    return status == PL_OK ? EXIT_SUCCESS : status == PL_INVALID ? PL_EXIT_USAGE : EXIT_FAILURE;
}
