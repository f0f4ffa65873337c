/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the other hosts what their programs are doing, and answers other hosts that ask. */
#include "programs/stacks/hosts.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/supervise/process.h"
#include "programs/stacks/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROGRAM_FIELDS = 5, PATH_BYTES = 4096 };

static enum pl_status start_ssh(struct pl_hosts_host *host, const struct pl_strv *argv,
                                const struct pl_environment *environment, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    PL_AUTO_CLOSE int write_fd = -1;
    int fds[2];

    if (null_fd < 0 || pipe2(fds, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "open a pipe to host %s", host->name);
    }
    host->fd = fds[0];
    setup.stdout_fd = write_fd = fds[1];
    setup.stdin_fd = null_fd;
    setup.argv = (const char *const *)argv->items;
    setup.environment = pl_environment_strings(environment);
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &host->pid, reterr);
}

/* All hosts have the same program, at the same path. */
static enum pl_status ask(struct pl_hosts *hosts, const struct pl_sshd *sshd, const char *run_dir,
                          const struct pl_environment *environment, struct pl_error *reterr)
{
    char self[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0) {
        return pl_error_errno(reterr, "read '/proc/self/exe'");
    }
    self[length] = '\0';
    hosts->hosts = pl_memory_new(hosts->names.count, sizeof(*hosts->hosts), reterr);
    PL_TRY(hosts->hosts ? PL_OK : PL_MEMORY);
    for (size_t i = 1; i < hosts->names.count; i++) {
        struct pl_hosts_host *host = &hosts->hosts[hosts->host_count++];
        PL_AUTO_STRV struct pl_strv program = PL_STRV_NONE, argv = PL_STRV_NONE;

        *host = (struct pl_hosts_host){.name = hosts->names.items[i], .fd = -1, .answer = PL_TEXT_NONE};
        pl_strv_add(&program, self, "--local", host->name);
        PL_TRY(pl_strv_check(&program, reterr));
        PL_TRY(pl_exec_words(sshd, run_dir, host->name, PL_EXEC_STDIO, &program, &argv, reterr));
        PL_TRY(start_ssh(host, &argv, environment, reterr));
    }
    return PL_OK;
}

enum pl_status pl_hosts_start(struct pl_hosts *hosts, const char *run_dir, const struct pl_environment *environment,
                              struct pl_error *reterr)
{
    __attribute__((cleanup(pl_sshd_close))) struct pl_sshd sshd = PL_SSHD_NONE;
    PL_AUTO_FREE char *current_host = NULL;
    enum pl_status status = pl_sshd_load_hosts(run_dir, &sshd, &current_host, &hosts->names, reterr);

    if (status == PL_NOT_FOUND) {
        return PL_OK;
    }
    PL_TRY(status);
    free(hosts->host_name);
    hosts->host_name = PL_TAKE(current_host);
    if (strcmp(hosts->names.items[0], hosts->host_name) == 0) {
        return ask(hosts, &sshd, run_dir, environment, reterr);
    }
    pl_log(PL_LOG_WARNING, "only this host's programs are shown; the master host %s shows all", hosts->names.items[0]);
    return PL_OK;
}

/* Adds a program with copies of its texts. */
static enum pl_status add(struct pl_hosts *hosts, const struct pl_order_program *program, struct pl_error *reterr)
{
    PL_AUTO_FREE char *host = pl_memory_string(program->host, reterr);
    PL_AUTO_FREE char *key = pl_memory_string(program->key, reterr);
    PL_AUTO_FREE char *report = pl_memory_string(program->report, reterr);
    PL_AUTO_FREE char *place = pl_memory_string(program->place, reterr);

    PL_TRY(host && key && report && place ? PL_OK : PL_MEMORY);
    PL_TRY(pl_memory_grow(&hosts->programs, &hosts->capacity, hosts->count + 1, sizeof(*hosts->programs), reterr));
    hosts->programs[hosts->count++] = (struct pl_order_program){.host = PL_TAKE(host),
                                                                .rank = program->rank,
                                                                .pid = program->pid,
                                                                .key = PL_TAKE(key),
                                                                .report = PL_TAKE(report),
                                                                .place = PL_TAKE(place)};
    return PL_OK;
}

enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text report = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;

    pl_order_key(program, &key);
    pl_report_program(program, host, &report);
    pl_report_place(program, &place);
    PL_TRY(pl_text_check(&key, reterr));
    PL_TRY(pl_text_check(&report, reterr));
    PL_TRY(pl_text_check(&place, reterr));
    return add(hosts,
               &(struct pl_order_program){.host = (char *)(uintptr_t)host,
                                          .rank = program->rank,
                                          .pid = program->pid,
                                          .key = key.data,
                                          .report = report.data,
                                          .place = place.data},
               reterr);
}

void pl_hosts_print(const struct pl_hosts *hosts, const char *problem, struct pl_text *text)
{
    for (size_t i = 0; i < hosts->count; i++) {
        const struct pl_order_program *program = &hosts->programs[i];

        pl_text_printf(text, "%d%c%d%c", program->rank, '\0', (int)program->pid, '\0');
        pl_text_append_n(text, program->key, strlen(program->key) + 1);
        pl_text_append_n(text, program->report, strlen(program->report) + 1);
        pl_text_append_n(text, program->place, strlen(program->place) + 1);
    }
    pl_text_append_n(text, problem, strlen(problem) + 1);
}

enum pl_status pl_hosts_print_json(const struct pl_hosts *hosts, struct pl_text *text, struct pl_error *reterr)
{
    struct pl_json_writer writer = PL_JSON_WRITER(text);

    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "version", 1);
    pl_json_write_list(&writer, "programs");
    for (size_t i = 0; i < hosts->count; i++) {
        const struct pl_order_program *program = &hosts->programs[i];

        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "host", program->host);
        if (program->rank >= 0) {
            pl_json_write_int64(&writer, "rank", program->rank);
        } else {
            pl_json_write_null(&writer, "rank");
        }
        pl_json_write_int64(&writer, "process", program->pid);
        pl_json_write_text(&writer, "place", program->place);
        pl_json_write_text(&writer, "report", program->report);
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    pl_json_write_close(&writer);
    PL_TRY(pl_json_write_end(&writer, reterr));
    pl_text_append_char(text, '\n');
    return pl_text_check(text, reterr);
}

static bool read_number(const char *text, long least, int *ret_number)
{
    char *end = NULL;
    const long number = strtol(text, &end, 10);

    *ret_number = (int)number;
    return end != text && *end == '\0' && number >= least && number <= INT32_MAX;
}

/* Adds the programs in the answer of `host`. Errors: PL_CORRUPT if it is not an answer, or only a part of one. */
static enum pl_status take_answer(struct pl_hosts *hosts, const struct pl_hosts_host *host, struct pl_error *reterr)
{
    const char *at = host->answer.data, *end = at + host->answer.length, *fields[PROGRAM_FIELDS];
    size_t count = 0;
    int rank, pid;

    PL_TRY(pl_text_check(&host->answer, reterr));
    while (at < end && memchr(at, '\0', (size_t)(end - at))) {
        fields[count++] = at;
        at += strlen(at) + 1;
        if (count < PROGRAM_FIELDS) {
            continue;
        }
        if (!read_number(fields[0], -1, &rank) || !read_number(fields[1], 1, &pid)) {
            return pl_error_set(reterr, PL_CORRUPT, "expected a rank and a process, found '%.20s' and '%.20s'",
                                fields[0], fields[1]);
        }
        PL_TRY(add(hosts,
                   &(struct pl_order_program){.host = (char *)(uintptr_t)host->name,
                                              .rank = rank,
                                              .pid = (pid_t)pid,
                                              .key = (char *)(uintptr_t)fields[2],
                                              .report = (char *)(uintptr_t)fields[3],
                                              .place = (char *)(uintptr_t)fields[4]},
                   reterr));
        count = 0;
    }
    if (at != end || count != 1) {
        return pl_error_set(reterr, PL_CORRUPT, "its answer is incomplete");
    }
    if (fields[0][0] != '\0') {
        pl_log(PL_LOG_WARNING, "host %s: %s", host->name, fields[0]);
    }
    return PL_OK;
}

static void read_some(struct pl_hosts_host *host)
{
    char bytes[16384];
    const ssize_t count = read(host->fd, bytes, sizeof(bytes));

    if (count > 0) {
        pl_text_append_n(&host->answer, bytes, (size_t)count);
    } else if (count == 0 || errno != EINTR) {
        pl_file_close_at(&host->fd);
    }
}

static enum pl_status read_answers(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pollfd *waits = pl_memory_new(hosts->host_count + 1, sizeof(*waits), reterr);
    size_t open_count;

    PL_TRY(waits ? PL_OK : PL_MEMORY);
    do {
        open_count = 0;
        for (size_t i = 0; i < hosts->host_count; i++) {
            waits[i] = (struct pollfd){.fd = hosts->hosts[i].fd, .events = POLLIN};
            open_count += waits[i].fd >= 0;
        }
        if (open_count > 0 && poll(waits, hosts->host_count, pl_deadline_poll_ms(deadline_ns)) < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "wait for the other hosts");
        }
        for (size_t i = 0; i < hosts->host_count; i++) {
            if (waits[i].revents != 0) {
                read_some(&hosts->hosts[i]);
            }
        }
    } while (open_count > 0 && !pl_deadline_passed(deadline_ns));
    return PL_OK;
}

enum pl_status pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(read_answers(hosts, deadline_ns, reterr));
    for (size_t i = 0; i < hosts->host_count; i++) {
        const struct pl_hosts_host *host = &hosts->hosts[i];
        struct pl_error error = PL_ERROR_NONE;

        if (host->fd >= 0 || host->answer.length == 0) {
            pl_log(PL_LOG_WARNING, "host %s has not answered", host->name);
        } else if (take_answer(hosts, host, &error) != PL_OK) {
            pl_log(PL_LOG_WARNING, "host %s: %s", host->name, error.cause);
        }
    }
    return PL_OK;
}

/* Returns the place that most programs have, the first one left out. */
static const char *other_place(const struct pl_hosts *hosts)
{
    const char *found = "";
    size_t most = 0;

    for (size_t i = 1; i < hosts->count; i++) {
        size_t count = 0;

        for (size_t j = 1; j < hosts->count; j++) {
            count += strcmp(hosts->programs[i].place, hosts->programs[j].place) == 0;
        }
        if (count > most) {
            most = count;
            found = hosts->programs[i].place;
        }
    }
    return found;
}

void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text)
{
    const struct pl_order_program *first = hosts->programs;
    const bool is_elsewhere = hosts->count > 1 && strcmp(first->key, hosts->programs[1].key) != 0;
    size_t on_host = 0;

    for (size_t i = 0; i < hosts->count; i++) {
        on_host += strcmp(hosts->programs[i].host, first->host) == 0;
    }
    if (first->rank >= 0) {
        pl_text_printf(text, "rank %d", first->rank);
    } else if (on_host > 1) { /* the host also runs a parameter server */
        pl_text_printf(text, "process %d", (int)first->pid);
    } else {
        pl_text_append(text, "the program");
    }
    if (hosts->host_name) {
        pl_text_printf(text, " on host %s", first->host[0] != '\0' ? first->host : hosts->host_name);
    }
    if (is_elsewhere) {
        pl_text_append(text, " does something else than the others");
    } else {
        pl_text_append(text, hosts->count > 1 ? " stands where others do" : " stands still");
    }
    pl_text_printf(text, ": %s", first->place);
    if (is_elsewhere) {
        pl_text_printf(text, "; %s: %s", hosts->count > 2 ? "most others" : "the other", other_place(hosts));
    }
}

void pl_hosts_close(struct pl_hosts *hosts)
{
    for (size_t i = 0; i < hosts->host_count; i++) {
        struct pl_hosts_host *host = &hosts->hosts[i];

        if (host->pid > 0) {
            kill(host->pid, SIGKILL);
            waitpid(host->pid, NULL, 0);
        }
        pl_file_close_at(&host->fd);
        pl_text_done(&host->answer);
    }
    for (size_t i = 0; i < hosts->count; i++) {
        free(hosts->programs[i].host);
        free(hosts->programs[i].key);
        free(hosts->programs[i].report);
        free(hosts->programs[i].place);
    }
    pl_strv_done(&hosts->names);
    free(hosts->hosts);
    free(hosts->programs);
    free(hosts->host_name);
    *hosts = PL_HOSTS_NONE;
}
