/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the job needs, compares the results with it, and prints both as one table. */
#include "base/json/json_write.h"
#include "base/memory.h"
#include "entrypoint/options.h"
#include "entrypoint/verbs.h"
#include "programs/check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

/* Shared memory that ranks, NCCL and data loaders need; Docker's 64 MiB are too few for two ranks. */
#define SHM_RANK_BYTES (64 * MIB)
#define SHM_LEAST_BYTES (128 * MIB)
#define DISK_LEAST_BYTES (256 * MIB)

/* Open files: a process's own, and connections to each rank of the job; process 1 has two to each host. */
enum { FILES_OWN = 256, FILES_LOCAL_RANK = 8, FILES_RANK = 2, FILES_HOST = 2 };

/* S3 refuses requests if the clock is wrong by 15 minutes; hosts of one cluster differ by less than a millisecond. */
enum { CLOCK_MOST_S = 10 };

/* A link is slow if its rate is less than the fastest one's divided by this. */
enum { SLOW_PART = 3 };

/* Limit for the rows that are shown: a larger table has only the rows that are missed or noted. */
enum { TABLE_ROWS = 120 };

/* Options that `paceline` passes besides the user's. */
#define JOB_OPTIONS(ROW)                                                                                               \
    ROW("--ranks", "N", NULL, PL_TO_NUMBER(ranks, 1, 65536))                                                           \
    ROW("--hosts", "NAMES", NULL, PL_TO(hosts))                                                                        \
    ROW("--listed-efa", NULL, NULL, PL_TO(listed_efa))
#define PL_OPTIONS_OF struct pl_check_needs
static const struct pl_option need_options[] = {PL_CHECK_OPTIONS(PL_OPTION) JOB_OPTIONS(PL_OPTION) PL_OPTIONS_END};

enum pl_status pl_check_read_needs(int argc, char **argv, struct pl_check_needs *ret_needs, struct pl_error *reterr)
{
    *ret_needs = (struct pl_check_needs){.ranks = 1, .transport = "any", .hosts = ""};
    PL_TRY(pl_verbs_read("check", need_options, argc, argv, ret_needs, reterr));
    return optind == argc ? PL_OK : pl_error_set(reterr, PL_INVALID, "expected options, found '%.100s'", argv[optind]);
}

/* Adds a row with what was found and what is needed. */
PL_PRINTF(5, 6)
static struct pl_check_row *add(struct pl_check_rows *rows, const char *what, const char *where, const char *needed,
                                const char *found, ...)
{
    static struct pl_check_row none; /* written if memory is short, never read */
    struct pl_check_row *row = &none;
    va_list args;

    if (pl_memory_grow(&rows->items, &rows->capacity, rows->count + 1, sizeof(*rows->items), NULL) != PL_OK) {
        rows->failed = true;
        return row;
    }
    row = &rows->items[rows->count++];
    *row = (struct pl_check_row){.what = what};
    snprintf(row->where, sizeof(row->where), "%.150s", where);
    snprintf(row->needed, sizeof(row->needed), "%s", needed);
    va_start(args, found);
    vsnprintf(row->found, sizeof(row->found), found, args);
    va_end(args);
    return row;
}

static const char *bytes_text(int64_t bytes, char *text, size_t room)
{
    if (bytes == CHECK_UNLIMITED) {
        snprintf(text, room, "unlimited");
    } else if (bytes < 0) {
        snprintf(text, room, "unknown");
    } else if (bytes >= GIB) {
        snprintf(text, room, "%.1f GiB", (double)bytes / (double)GIB);
    } else {
        snprintf(text, room, "%lld MiB", (long long)(bytes / MIB));
    }
    return text;
}

static const char *number_text(int64_t number, char *text, size_t room)
{
    if (number < 0) {
        snprintf(text, room, number == CHECK_UNLIMITED ? "unlimited" : "unknown");
    } else {
        snprintf(text, room, "%lld", (long long)number);
    }
    return text;
}

/* Adds a row for each line "FROM > TO": no message from FROM has arrived at TO. */
static void evaluate_silent(const struct pl_check_report *report, struct pl_check_rows *rows)
{
    const char *line = pl_text_string(report->silent);

    while (*line != '\0') {
        const size_t length = strcspn(line, "\n");
        struct pl_check_row *row;
        char where[160];

        snprintf(where, sizeof(where), "%.*s", (int)length, line);
        row = add(rows, "messages", where, "an answer",
                  "no message arrives: a port is closed, or the interface leads elsewhere");
        row->missed = true;
        line += length + (line[length] == '\n');
    }
}

int pl_check_evaluate_count_hosts(const char *hosts)
{
    int count = *hosts != '\0';

    for (; *hosts != '\0'; hosts++) {
        count += *hosts == ',';
    }
    return count;
}

/* Adds a row if the job has hosts on which no rank was: mpirun has put their ranks elsewhere. */
static void evaluate_hosts(const struct pl_check_report *report, struct pl_check_rows *rows)
{
    const int hosts = pl_check_evaluate_count_hosts(report->needs->hosts);
    struct pl_check_row *row;

    if (report->hosts_count < hosts && report->silent->length == 0) {
        row = add(rows, "hosts", "all ranks", "", "ranks on %d host%s", report->hosts_count,
                  report->hosts_count == 1 ? "" : "s");
        snprintf(row->needed, sizeof(row->needed), "ranks on all %d hosts: look at the job's options of mpirun", hosts);
        row->missed = true;
    }
}

static bool has_efa(const struct pl_check_report *report, int host)
{
    return report->hosts[host].efa[0] != '\0' || report->needs->listed_efa;
}

static void evaluate_transport(const struct pl_check_report *report, const struct pl_check_link *link,
                               const char *where, struct pl_check_rows *rows)
{
    const char *wanted = report->needs->transport;
    const bool efa = strcmp(link->transport, "efa") == 0, any = strcmp(wanted, "any") == 0;
    struct pl_check_row *row =
        add(rows, "transport", where, wanted, "%s", link->transport[0] != '\0' ? link->transport : "unknown");

    if (!any) {
        row->missed = strncmp(link->transport, wanted, strlen(wanted)) != 0;
    } else if (!efa && has_efa(report, link->from) && has_efa(report, link->to)) {
        snprintf(row->needed, sizeof(row->needed), "any; EFA is present but not used");
        row->noted = true;
    }
}

static void evaluate_speed(const struct pl_check_report *report, const struct pl_check_link *link, double fastest,
                           const char *where, struct pl_check_rows *rows)
{
    const double needed = report->needs->mbit, part = fastest / SLOW_PART;
    struct pl_check_row *row = add(rows, "speed", where, "", "%.0f Mbit/s", link->mbit);

    if (needed > 0 && (link->mbit < needed || needed >= part)) {
        snprintf(row->needed, sizeof(row->needed), "%.0f Mbit/s", needed);
        row->missed = link->mbit < needed;
    } else {
        snprintf(row->needed, sizeof(row->needed), "%.0f Mbit/s, a third of the fastest", part);
        row->missed = link->mbit < part;
    }
}

static double fastest_of(const struct pl_check_link *links, size_t count)
{
    double fastest = 0;

    for (size_t i = 0; i < count; i++) {
        fastest = links[i].mbit > fastest ? links[i].mbit : fastest;
    }
    return fastest;
}

bool pl_check_evaluate_is_slow(const struct pl_check_needs *needs, const struct pl_check_link *links, size_t count)
{
    const double part = fastest_of(links, count) / SLOW_PART;

    for (size_t i = 0; i < count; i++) {
        if (links[i].mbit >= 0 && (links[i].mbit < needs->mbit || links[i].mbit < part)) {
            return true;
        }
    }
    return false;
}

static void evaluate_links(const struct pl_check_report *report, struct pl_check_rows *rows)
{
    const double fastest = fastest_of(report->links, report->links_count);

    for (size_t i = 0; i < report->links_count; i++) {
        const struct pl_check_link *link = &report->links[i];
        char where[160];

        if (link->mbit < 0) {
            continue;
        }
        snprintf(where, sizeof(where), "%.70s > %.70s", report->hosts[link->from].name, report->hosts[link->to].name);
        evaluate_transport(report, link, where, rows);
        evaluate_speed(report, link, fastest, where, rows);
    }
}

static void evaluate_value(const char *what, uint64_t wrong, struct pl_check_rows *rows)
{
    struct pl_check_row *row =
        wrong == 0 ? add(rows, what, "all ranks", "right", "right")
                   : add(rows, what, "all ranks", "right", "%llu wrong values", (unsigned long long)wrong);

    row->missed = wrong > 0;
}

static void evaluate_network(const struct pl_check_report *report, const struct pl_check_host *host,
                             struct pl_check_rows *rows)
{
    const bool wanted = strcmp(report->needs->transport, "efa") == 0;
    struct pl_check_row *row;

    if (host->wanted[0] != '\0') {
        row = add(rows, "interface", host->name, "",
                  host->interface_exists ? "%s" : "%s does not exist here; another one is used", host->wanted);
        snprintf(row->needed, sizeof(row->needed), "%s, by resourceconfig.json", host->wanted);
        row->noted = !host->interface_exists;
    }
    if (host->efa[0] == '\0' && !wanted && !report->needs->listed_efa) {
        return;
    }
    row = add(rows, "EFA", host->name, wanted ? "an adapter" : "", "%s%s", host->efa[0] != '\0' ? host->efa : "none",
              host->efa[0] != '\0' && !host->efa_usable ? ", no /dev/infiniband/uverbs* here" : "");
    row->missed = wanted && (host->efa[0] == '\0' || !host->efa_usable);
    row->noted = !row->missed && (host->efa[0] == '\0' || !host->efa_usable);
}

/* Adds a row with a size and its free bytes. `least` 0: the job needs no size. */
static void evaluate_room(const char *what, const struct pl_check_host *host, int64_t bytes, int64_t free_bytes,
                          int64_t least, struct pl_check_rows *rows)
{
    char whole[32], unused[32];
    struct pl_check_row *row = add(rows, what, host->name, "", "%s, %s free", bytes_text(bytes, whole, sizeof(whole)),
                                   bytes_text(free_bytes, unused, sizeof(unused)));

    if (least > 0) {
        bytes_text(least, row->needed, sizeof(row->needed));
        row->missed = bytes >= 0 && bytes < least;
    }
}

static void evaluate_limit(const char *what, const struct pl_check_host *host, int64_t found, int64_t least,
                           struct pl_check_rows *rows)
{
    char text[32];
    struct pl_check_row *row = add(rows, what, host->name, "", "%s", number_text(found, text, sizeof(text)));

    if (least != 0) {
        number_text(least, row->needed, sizeof(row->needed));
        row->missed = found >= 0 && (least == CHECK_UNLIMITED || found < least);
    }
}

static void evaluate_clock(const struct pl_check_host *host, struct pl_check_rows *rows)
{
    struct pl_check_row *row = add(rows, "clock", host->name, "", "%+.4f s", host->clock_s);

    snprintf(row->needed, sizeof(row->needed), "within %d s of the first host's", CLOCK_MOST_S);
    row->missed = host->clock_s > CLOCK_MOST_S || host->clock_s < -CLOCK_MOST_S;
}

static void evaluate_host(const struct pl_check_report *report, const struct pl_check_host *host,
                          struct pl_check_rows *rows)
{
    const struct pl_check_needs *needs = report->needs;
    const int64_t ranks = needs->ranks, all = ranks * report->hosts_count;
    const int64_t shm = ranks * SHM_RANK_BYTES > SHM_LEAST_BYTES ? ranks * SHM_RANK_BYTES : SHM_LEAST_BYTES;
    const int64_t files =
        FILES_OWN + FILES_LOCAL_RANK * ranks + FILES_RANK * all + FILES_HOST * (int64_t)report->hosts_count;
    const bool efa = strcmp(needs->transport, "efa") == 0;
    char text[32], least[32];
    struct pl_check_row *row;

    evaluate_network(report, host, rows);
    if (report->values.known && report->hosts_count > 1) {
        evaluate_clock(host, rows);
    }
    evaluate_room("memory", host, host->memory_bytes, host->memory_free_bytes, 0, rows);
    evaluate_room("shared memory", host, host->shm_bytes, host->shm_free_bytes,
                  needs->shm_bytes > 0 ? needs->shm_bytes : shm, rows);
    evaluate_limit("open files", host, host->files, needs->files > 0 ? needs->files : files, rows);
    evaluate_limit("processes", host, host->processes, 0, rows);
    row = add(rows, "locked memory", host->name, efa ? "unlimited, for EFA" : "", "%s",
              bytes_text(host->locked_bytes, text, sizeof(text)));
    row->missed = efa && host->locked_bytes >= 0;
    row = add(rows, "disk", host->name, bytes_text(DISK_LEAST_BYTES, least, sizeof(least)), "%s",
              bytes_text(host->disk_bytes, text, sizeof(text)));
    row->missed = host->disk_bytes >= 0 && host->disk_bytes < DISK_LEAST_BYTES;
}

void pl_check_evaluate(const struct pl_check_report *report, struct pl_check_rows *ret_rows)
{
    *ret_rows = (struct pl_check_rows){.items = NULL};
    evaluate_silent(report, ret_rows);
    evaluate_hosts(report, ret_rows);
    evaluate_links(report, ret_rows);
    if (report->values.known) {
        evaluate_value("allreduce", report->values.wrong_allreduce, ret_rows);
        evaluate_value("broadcast", report->values.wrong_broadcast, ret_rows);
    }
    for (int i = 0; i < report->hosts_count; i++) {
        if (report->hosts[i].name[0] != '\0') {
            evaluate_host(report, &report->hosts[i], ret_rows);
        }
    }
}

void pl_check_rows_done(struct pl_check_rows *rows)
{
    free(rows->items);
    *rows = (struct pl_check_rows){.items = NULL};
}

static size_t larger(size_t width, const char *text)
{
    return strlen(text) > width ? strlen(text) : width;
}

static void print_row(const struct pl_check_row *row, int where, int found, struct pl_text *table)
{
    pl_text_printf(table, "%-13s  %-*s  %-*s  %-6s  %s", row->what, where, row->where, found, row->found,
                   row->missed  ? "MISSED"
                   : row->noted ? "note"
                                : "ok",
                   row->needed);
    while (table->length > 0 && table->data[table->length - 1] == ' ') {
        table->data[--table->length] = '\0';
    }
    pl_text_append_char(table, '\n');
}

size_t pl_check_print(const struct pl_check_rows *rows, struct pl_text *table, struct pl_text *reasons)
{
    const struct pl_check_row head = {.what = "check", .where = "host or link", .found = "found", .needed = "needed"};
    size_t where = strlen(head.where), found = strlen(head.found), missed = 0, left_out = 0;

    for (size_t i = 0; i < rows->count; i++) {
        where = larger(where, rows->items[i].where);
        found = larger(found, rows->items[i].found);
    }
    pl_text_printf(table, "%-13s  %-*s  %-*s  %-6s  %s\n", head.what, (int)where, head.where, (int)found, head.found,
                   "", head.needed);
    for (size_t i = 0; i < rows->count; i++) {
        const struct pl_check_row *row = &rows->items[i];

        if (rows->count > TABLE_ROWS && !row->missed && !row->noted) {
            left_out++;
            continue;
        }
        print_row(row, (int)where, (int)found, table);
        if (row->missed) {
            pl_text_printf(reasons, "check: %s of %s: %s; needed: %s\n", row->what, row->where, row->found,
                           row->needed);
            missed++;
        }
    }
    if (left_out > 0) {
        pl_text_printf(table, "(%zu lines that are in order are not shown)\n", left_out);
    }
    return missed;
}

enum pl_status pl_check_print_json(const struct pl_check_rows *rows, int hosts, double seconds, struct pl_text *text,
                                   struct pl_error *reterr)
{
    struct pl_json_writer writer = PL_JSON_WRITER(text);
    bool missed = false;

    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "version", 1);
    pl_json_write_int64(&writer, "hosts", hosts);
    pl_json_write_double(&writer, "seconds", seconds);
    pl_json_write_list(&writer, "checks");
    for (size_t i = 0; i < rows->count; i++) {
        const struct pl_check_row *row = &rows->items[i];

        missed = missed || row->missed;
        pl_json_write_object(&writer, NULL);
        pl_json_write_text(&writer, "check", row->what);
        pl_json_write_text(&writer, "where", row->where);
        pl_json_write_text(&writer, "found", row->found);
        pl_json_write_text(&writer, "needed", row->needed);
        pl_json_write_text(&writer, "result", row->missed ? "missed" : row->noted ? "note" : "ok");
        pl_json_write_close(&writer);
    }
    pl_json_write_close(&writer);
    pl_json_write_bool(&writer, "passed", !missed);
    pl_json_write_close(&writer);
    PL_TRY(pl_json_write_end(&writer, reterr));
    pl_text_append_char(text, '\n');
    return pl_text_check(text, reterr);
}
