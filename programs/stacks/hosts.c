/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the other hosts where their programs stand, and answering. */
#include "programs/stacks/hosts.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/ssh/rundir.h"
#include "programs/stacks/report.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pl_status pl_hosts_open(struct pl_hosts *hosts, const char *run_dir, struct pl_error *reterr)
{
    PL_TRY(pl_rundir_connect(run_dir, &hosts->link, reterr));
    return PL_LINK_SEND(&hosts->link, PL_FRAME_HELLO, reterr, "stacks", "");
}

/* Cut at the end of a line. */
static void cut(char *text, size_t most_bytes)
{
    if (strlen(text) > most_bytes) {
        text[most_bytes] = '\0';
        text[strcspn(text, "\n") < most_bytes ? (size_t)(strrchr(text, '\n') - text) : 0] = '\0';
    }
}

/* Add a program with copies of the texts. */
static enum pl_status add(struct pl_hosts *hosts, const struct pl_order_program *program, struct pl_error *reterr)
{
    PL_AUTO_FREE char *host = pl_memory_string(program->host, reterr);
    PL_AUTO_FREE char *key = pl_memory_string(program->key, reterr);
    PL_AUTO_FREE char *report = pl_memory_string(program->report, reterr);
    PL_AUTO_FREE char *place = pl_memory_string(program->place, reterr);

    PL_TRY(host != NULL && key != NULL && report != NULL && place != NULL ? PL_OK : PL_MEMORY);
    PL_TRY(pl_memory_grow(&hosts->programs, &hosts->capacity, hosts->count + 1, sizeof(*hosts->programs), reterr));
    cut(key, PL_HOSTS_MOST_KEY_BYTES);
    cut(report, PL_HOSTS_MOST_REPORT_BYTES);
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

/* The names that LOOKING has, one a line. */
static enum pl_status take_hosts(struct pl_hosts *hosts, const char *names, struct pl_error *reterr)
{
    size_t count = 0;

    for (const char *at = names; *at != '\0'; at++) {
        count += *at == '\n';
    }
    hosts->hosts = pl_memory_new(count + 1, sizeof(*hosts->hosts), reterr);
    PL_TRY(hosts->hosts != NULL ? PL_OK : PL_MEMORY);
    for (const char *at = names; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        hosts->hosts[hosts->host_count].name = pl_memory_string_n(at, strcspn(at, "\n"), reterr);
        PL_TRY(hosts->hosts[hosts->host_count].name != NULL ? PL_OK : PL_MEMORY);
        hosts->host_count++;
    }
    return PL_OK;
}

static enum pl_status take_program(struct pl_hosts *hosts, const struct pl_frame *frame, struct pl_error *reterr)
{
    int64_t rank, pid;

    PL_TRY(pl_link_frame_number(frame, 1, -1, INT32_MAX, &rank, reterr));
    PL_TRY(pl_link_frame_number(frame, 2, 1, INT32_MAX, &pid, reterr));
    /* Somebody else may ask at the same time, and everybody gets all answers. */
    for (size_t i = 0; i < hosts->count; i++) {
        if (hosts->programs[i].pid == (pid_t)pid && strcmp(hosts->programs[i].host, frame->fields[0]) == 0) {
            return PL_OK;
        }
    }
    return add(hosts,
               &(struct pl_order_program){.host = (char *)(uintptr_t)frame->fields[0],
                                          .rank = (int)rank,
                                          .pid = (pid_t)pid,
                                          .key = (char *)(uintptr_t)frame->fields[3],
                                          .report = (char *)(uintptr_t)frame->fields[4],
                                          .place = (char *)(uintptr_t)frame->fields[5]},
               reterr);
}

static void take_end(struct pl_hosts *hosts, const struct pl_frame *frame)
{
    for (size_t i = 0; i < hosts->host_count; i++) {
        if (strcmp(hosts->hosts[i].name, frame->fields[0]) == 0 && !hosts->hosts[i].answered) {
            hosts->hosts[i].answered = true;
            if (frame->fields[1][0] != '\0') {
                pl_log(PL_LOG_WARNING, "host %s: %s", frame->fields[0], frame->fields[1]);
            }
        }
    }
}

static enum pl_status take_frame(struct pl_hosts *hosts, const struct pl_frame *frame, struct pl_error *reterr)
{
    if (frame->type == PL_FRAME_LOOKING && frame->count >= 3 && hosts->host_name == NULL) {
        hosts->note = pl_memory_string(frame->fields[2], reterr);
        hosts->host_name = pl_memory_string(frame->fields[0], reterr);
        PL_TRY(hosts->note != NULL && hosts->host_name != NULL ? PL_OK : PL_MEMORY);
        return take_hosts(hosts, frame->fields[1], reterr);
    }
    if (frame->type == PL_FRAME_STANDS && frame->count >= 6) {
        return take_program(hosts, frame, reterr);
    }
    if (frame->type == PL_FRAME_LOOKED && frame->count >= 2) {
        take_end(hosts, frame);
    }
    return PL_OK;
}

static bool are_known(const struct pl_hosts *hosts)
{
    return hosts->host_name != NULL;
}

static bool have_answered(const struct pl_hosts *hosts)
{
    for (size_t i = 0; i < hosts->host_count; i++) {
        if (!hosts->hosts[i].answered) {
            return false;
        }
    }
    return true;
}

/* Take frames until `is_enough`; PL_TIMEOUT at `deadline_ns`. */
static enum pl_status take_frames(struct pl_hosts *hosts, bool (*is_enough)(const struct pl_hosts *hosts),
                                  int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_frame frame;

    while (!is_enough(hosts)) {
        enum pl_status status = pl_link_await(&hosts->link, deadline_ns, &frame, reterr);

        if (status == PL_TIMEOUT) {
            return pl_error_set(reterr, PL_TIMEOUT, "process 1 does not answer");
        }
        if (status == PL_PEER) {
            return pl_error_set(reterr, PL_PEER, "process 1 closed the connection");
        }
        PL_TRY(status);
        PL_TRY(take_frame(hosts, &frame, reterr));
    }
    return PL_OK;
}

enum pl_status pl_hosts_ask(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(PL_LINK_SEND(&hosts->link, PL_FRAME_LOOK, reterr, ""));
    return take_frames(hosts, are_known, deadline_ns, reterr);
}

enum pl_status pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr)
{
    enum pl_status status = take_frames(hosts, have_answered, deadline_ns, reterr);

    if (hosts->note != NULL && hosts->note[0] != '\0') {
        pl_log(PL_LOG_WARNING, "%s", hosts->note);
    }
    for (size_t i = 0; i < hosts->host_count; i++) {
        if (!hosts->hosts[i].answered) {
            pl_log(PL_LOG_WARNING, "host %s has not answered", hosts->hosts[i].name);
        }
    }
    return status == PL_TIMEOUT ? PL_OK : status;
}

enum pl_status pl_hosts_send(struct pl_hosts *hosts, const char *host, const char *text, int64_t deadline_ns,
                             struct pl_error *reterr)
{
    for (size_t i = 0; i < hosts->count; i++) {
        const struct pl_order_program *program = &hosts->programs[i];
        char rank[16], pid[16];

        snprintf(rank, sizeof(rank), "%d", program->rank);
        snprintf(pid, sizeof(pid), "%d", (int)program->pid);
        PL_TRY(PL_LINK_SEND(&hosts->link, PL_FRAME_STANDS, reterr, host, rank, pid, program->key, program->report,
                            program->place));
    }
    return pl_hosts_end(hosts, host, text, deadline_ns, reterr);
}

enum pl_status pl_hosts_end(struct pl_hosts *hosts, const char *host, const char *text, int64_t deadline_ns,
                            struct pl_error *reterr)
{
    PL_TRY(PL_LINK_SEND(&hosts->link, PL_FRAME_LOOKED, reterr, host, text));
    pl_link_drain(&hosts->link, deadline_ns);
    return PL_OK;
}

void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text)
{
    const struct pl_order_program *first = hosts->programs;
    size_t on_host = 0;

    if (hosts->count == 0) {
        return;
    }
    for (size_t i = 0; i < hosts->count; i++) {
        on_host += strcmp(hosts->programs[i].host, first->host) == 0;
    }
    if (first->rank >= 0) {
        pl_text_printf(text, "rank %d", first->rank);
    } else if (on_host > 1) { /* a parameter server is there too */
        pl_text_printf(text, "process %d", (int)first->pid);
    } else {
        pl_text_append(text, "the program");
    }
    if (hosts->host_name != NULL) {
        pl_text_printf(text, " on host %s", first->host[0] != '\0' ? first->host : hosts->host_name);
    }
    if (hosts->count > 1 && strcmp(first->key, hosts->programs[1].key) != 0) {
        pl_text_append(text, " stands elsewhere than the others");
    } else {
        pl_text_append(text, hosts->count > 1 ? " stands where others do" : " stands still");
    }
    pl_text_printf(text, ": %s", first->place);
}

void pl_hosts_close(struct pl_hosts *hosts)
{
    pl_link_close(&hosts->link);
    for (size_t i = 0; i < hosts->host_count; i++) {
        free(hosts->hosts[i].name);
    }
    for (size_t i = 0; i < hosts->count; i++) {
        free(hosts->programs[i].host);
        free(hosts->programs[i].key);
        free(hosts->programs[i].report);
        free(hosts->programs[i].place);
    }
    free(hosts->hosts);
    free(hosts->programs);
    free(hosts->note);
    free(hosts->host_name);
    *hosts = PL_HOSTS_NONE;
}
