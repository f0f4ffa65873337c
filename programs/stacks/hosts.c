/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the other hosts what their programs are doing, and answers other hosts that ask. */
#include "programs/stacks/hosts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAP_NS (5 * PL_NS_PER_MS) /* time between two looks whether a host has answered */

static enum pl_status start_ssh(struct pl_hosts_host *host, const struct pl_strv *argv,
                                const struct pl_environment *environment, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    host->answer_fd = pl_fd_new_memory("paceline-answer", 0);
    if (null_fd < 0 || host->answer_fd < 0) {
        return pl_error_errno(reterr, "make a file for the answer of host %s", host->name);
    }
    setup.stdout_fd = host->answer_fd;
    setup.stdin_fd = null_fd;
    setup.argv = (const char *const *)argv->items;
    setup.environment = pl_environment_strings(environment);
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &host->pid, reterr);
}

/* Asks the other hosts by this program's path: all hosts have it there. */
static enum pl_status ask(struct pl_hosts *hosts, const struct pl_sshd *sshd, const char *run_dir,
                          const struct pl_environment *environment, struct pl_error *reterr)
{
    PL_AUTO_FREE char *self = realpath("/proc/self/exe", NULL);

    PL_TRY(self ? PL_OK : pl_error_errno(reterr, "read '/proc/self/exe'"));
    PL_TRY(pl_memory_alloc(&hosts->hosts, hosts->names.count, sizeof(*hosts->hosts), reterr));
    for (size_t i = 1; i < hosts->names.count; i++) {
        struct pl_hosts_host *host = &hosts->hosts[hosts->host_count++];
        PL_AUTO_STRV struct pl_strv program = PL_STRV_NONE, argv = PL_STRV_NONE;

        *host = (struct pl_hosts_host){.name = hosts->names.items[i], .answer_fd = -1};
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

/* Appends a program without texts. Returns NULL if memory is out. */
static struct pl_hosts_program *new_program(struct pl_hosts *hosts, const char *host, struct pl_error *reterr)
{
    struct pl_hosts_program *program;

    if (pl_memory_grow(&hosts->programs, &hosts->capacity, hosts->count + 1, sizeof(*program), reterr) != PL_OK) {
        return NULL;
    }
    program = &hosts->programs[hosts->count++];
    *program = (struct pl_hosts_program){.host = host, .rank = -1};
    return program;
}

static enum pl_status check_texts(const struct pl_hosts_program *program, struct pl_error *reterr)
{
    PL_TRY(pl_text_check(&program->key, reterr));
    PL_TRY(pl_text_check(&program->report, reterr));
    return pl_text_check(&program->place, reterr);
}

enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr)
{
    struct pl_hosts_program *added = new_program(hosts, host, reterr);

    PL_TRY(added ? PL_OK : PL_MEMORY);
    added->rank = program->rank;
    added->pid = program->pid;
    pl_order_key(program, &added->key);
    pl_report_program(program, host, &added->report);
    pl_report_place(program, &added->place);
    PL_TRY(check_texts(added, reterr));
    pl_text_mask(added->key.data, added->key.length); /* a collector that was killed may leave half a text */
    pl_text_mask(added->report.data, added->report.length);
    pl_text_mask(added->place.data, added->place.length);
    return PL_OK;
}

enum pl_status pl_hosts_print_json(const struct pl_hosts *hosts, const char *problem, struct pl_text *text,
                                   struct pl_error *reterr)
{
    struct pl_json_writer writer = PL_JSON_WRITER(text);

    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "version", 1);
    if (problem) {
        pl_json_write_text(&writer, "problem", problem);
    }
    pl_json_write_list(&writer, "programs");
    for (size_t i = 0; i < hosts->count; i++) {
        const struct pl_hosts_program *program = &hosts->programs[i];

        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "host", program->host);
        if (program->rank >= 0) {
            pl_json_write_int64(&writer, "rank", program->rank);
        } else {
            pl_json_write_null(&writer, "rank");
        }
        pl_json_write_int64(&writer, "process", program->pid);
        if (problem) {
            pl_json_write_text(&writer, "key", pl_text_string(&program->key));
        }
        pl_json_write_text(&writer, "place", pl_text_string(&program->place));
        pl_json_write_text(&writer, "report", pl_text_string(&program->report));
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    pl_json_write_close(&writer);
    PL_TRY(pl_json_write_end(&writer, reterr));
    pl_text_append_char(text, '\n');
    return pl_text_check(text, reterr);
}

/* Adds a program from the answer of `host`. */
static enum pl_status take_program(struct pl_hosts *hosts, const char *host, struct pl_json_value value,
                                   struct pl_error *reterr)
{
    const struct pl_json_value rank_value = pl_json_member(value, "rank");
    const char *key, *report, *place;
    struct pl_hosts_program *program;
    int64_t rank = -1, pid;

    if (pl_json_kind(rank_value) != PL_JSON_NULL) {
        PL_TRY(pl_json_int64(rank_value, 0, INT32_MAX, &rank, reterr));
    }
    PL_TRY(pl_json_int64(pl_json_member(value, "process"), 1, INT32_MAX, &pid, reterr));
    PL_TRY(pl_json_text(pl_json_member(value, "key"), &key, reterr));
    PL_TRY(pl_json_text(pl_json_member(value, "report"), &report, reterr));
    PL_TRY(pl_json_text(pl_json_member(value, "place"), &place, reterr));
    program = new_program(hosts, host, reterr);
    PL_TRY(program ? PL_OK : PL_MEMORY);
    program->rank = (int)rank;
    program->pid = (pid_t)pid;
    pl_text_append(&program->key, key);
    pl_text_append(&program->report, report);
    pl_text_append(&program->place, place);
    return check_texts(program, reterr);
}

/* Adds the programs in the answer of `host`. Errors: PL_INVALID if it is not an answer, or only a part of one. */
static enum pl_status take_answer(struct pl_hosts *hosts, const struct pl_hosts_host *host, struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    PL_AUTO_FREE char *answer = NULL;
    struct pl_json_value root;
    const char *problem;
    char path[64];
    size_t bytes;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", host->answer_fd);
    PL_TRY(pl_file_read(path, PL_JSON_MAX_BYTES, &answer, &bytes, reterr));
    if (bytes == 0) {
        pl_log(PL_LOG_WARNING, "host %s has not answered", host->name);
        return PL_OK;
    }
    PL_TRY(pl_json_parse(answer, bytes, "its answer", &document, reterr));
    root = pl_json_root(document);
    for (struct pl_json_value item = pl_json_first(pl_json_member(root, "programs")); pl_json_exists(item);
         item = pl_json_next(item)) {
        PL_TRY(take_program(hosts, host->name, item, reterr));
    }
    PL_TRY(pl_json_text(pl_json_member(root, "problem"), &problem, reterr));
    if (problem[0] != '\0') {
        pl_log(PL_LOG_WARNING, "host %s: %s", host->name, problem);
    }
    return PL_OK;
}

/* Whether the host's ssh ends before the deadline. */
static bool await_end(struct pl_hosts_host *host, int64_t deadline_ns)
{
    while (waitpid(host->pid, NULL, WNOHANG) == 0) {
        if (pl_deadline_passed(deadline_ns)) {
            return false;
        }
        pl_clock_nap(NAP_NS, deadline_ns);
    }
    host->pid = 0;
    return true;
}

void pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns)
{
    for (size_t i = 0; i < hosts->host_count; i++) {
        struct pl_hosts_host *host = &hosts->hosts[i];
        struct pl_error error = PL_ERROR_NONE;

        if (host->pid == 0 || !await_end(host, deadline_ns)) {
            pl_log(PL_LOG_WARNING, "host %s has not answered", host->name);
        } else if (take_answer(hosts, host, &error) != PL_OK) {
            pl_log(PL_LOG_WARNING, "host %s: %s", host->name, error.cause);
        }
    }
}

static bool is_equal(const struct pl_text *left, const struct pl_text *right)
{
    return strcmp(pl_text_string(left), pl_text_string(right)) == 0;
}

/* Returns the place that most of the programs after the first have. */
static const char *other_place(const struct pl_hosts *hosts)
{
    const char *found = "";
    size_t most = 0;

    for (size_t i = 1; i < hosts->count; i++) {
        size_t count = 0;

        for (size_t j = 1; j < hosts->count; j++) {
            count += is_equal(&hosts->programs[i].place, &hosts->programs[j].place);
        }
        if (count > most) {
            most = count;
            found = pl_text_string(&hosts->programs[i].place);
        }
    }
    return found;
}

void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text)
{
    const struct pl_hosts_program *first = hosts->programs;
    const bool is_elsewhere = hosts->count > 1 && !is_equal(&first->key, &hosts->programs[1].key);
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
    pl_text_printf(text, ": %s", pl_text_string(&first->place));
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
        pl_file_close_at(&host->answer_fd);
    }
    for (size_t i = 0; i < hosts->count; i++) {
        pl_text_done(&hosts->programs[i].key);
        pl_text_done(&hosts->programs[i].report);
        pl_text_done(&hosts->programs[i].place);
    }
    pl_strv_done(&hosts->names);
    free(hosts->hosts);
    free(hosts->programs);
    free(hosts->host_name);
    *hosts = PL_HOSTS_NONE;
}
