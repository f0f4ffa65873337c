/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and threads as /proc describes them, and which of them are training programs. */
#include "entrypoint/proc/proc.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 96, STAT_BYTES = 4096, STATUS_BYTES = 65536, WORDS_BYTES = 4 << 20 };

pid_t pl_proc_next(DIR *directory)
{
    const struct dirent *entry;

    while ((entry = readdir(directory))) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 0) {
            return pid;
        }
    }
    return 0;
}

enum pl_status pl_proc_parse_stat(const char *line, struct pl_proc_stat *ret_stat, struct pl_error *reterr)
{
    const char *open = strchr(line, '('), *close = strrchr(line, ')'); /* a name may contain parentheses itself */
    struct pl_proc_stat stat = {.state = 0};
    unsigned long long user, kernel, start;
    int parent, group;

    if (!open || !close || close < open ||
        sscanf(close + 1, " %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu %*s %*s %*s %*s %*s %*s %llu",
               &stat.state, &parent, &group, &user, &kernel, &start) != 6) {
        return pl_error_set(reterr, PL_CORRUPT, "expected a line as in /proc/PID/stat, found '%.100s'", line);
    }
    stat.parent = parent;
    stat.group = group;
    stat.cpu_ticks = user + kernel;
    stat.start_ticks = start;
    snprintf(stat.name, sizeof(stat.name), "%.*s", (int)(close - open - 1), open + 1);
    pl_proc_copy_text(stat.name, stat.name, sizeof(stat.name));
    *ret_stat = stat;
    return PL_OK;
}

enum pl_status pl_proc_read_stat(pid_t pid, pid_t tid, struct pl_proc_stat *ret_stat, struct pl_error *reterr)
{
    PL_AUTO_FREE char *line = NULL;
    char path[PATH_BYTES];

    if (tid == 0) {
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    } else {
        snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    }
    if (pl_file_read(path, STAT_BYTES, &line, NULL, NULL) != PL_OK) { /* also ESRCH: the process ended meanwhile */
        return pl_error_set(reterr, PL_NOT_FOUND, "process %d does not run here, or has ended", (int)pid);
    }
    return pl_proc_parse_stat(line, ret_stat, reterr);
}

void pl_proc_copy_text(const char *text, char *ret_copy, size_t copy_bytes)
{
    size_t length = strcspn(text, "\n");

    if (length >= copy_bytes) {
        length = pl_text_whole_bytes(text, copy_bytes - 1);
    }
    memmove(ret_copy, text, length);
    ret_copy[length] = '\0';
    pl_text_mask(ret_copy, length);
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

const char *pl_proc_next_word(const char *word, const char *end)
{
    word += strlen(word) + 1;
    return word < end ? word : NULL;
}

/* Get the path of the file that `pid` runs; "" if it cannot be read. */
static void read_file_path(pid_t pid, char *ret_path, size_t path_bytes)
{
    char link[PATH_BYTES];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    length = readlink(link, ret_path, path_bytes - 1);
    ret_path[length > 0 ? length : 0] = '\0';
}

void pl_proc_file_name(pid_t pid, char *ret_name, size_t name_bytes)
{
    char path[4096];
    char *deleted;

    read_file_path(pid, path, sizeof(path));
    deleted = strstr(path, " (deleted)"); /* the kernel appends this if the file was replaced */
    if (deleted) {
        *deleted = '\0';
    }
    pl_proc_copy_text(last_name(path), ret_name, name_bytes);
}

char *pl_proc_read(pid_t pid, const char *name, size_t most_bytes, size_t *ret_bytes)
{
    char path[PATH_BYTES], *text = NULL;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    *ret_bytes = 0;
    return pl_file_read(path, most_bytes, &text, ret_bytes, NULL) == PL_OK ? text : NULL;
}

char *pl_proc_variable(pid_t pid, const char *name)
{
    size_t bytes, length = strlen(name);
    PL_AUTO_FREE char *variables = pl_proc_read(pid, "environ", WORDS_BYTES, &bytes);

    for (const char *at = variables; at && bytes > 0; at = pl_proc_next_word(at, variables + bytes)) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return pl_memory_string(at + length + 1, NULL);
        }
    }
    return NULL;
}

bool pl_proc_catches(pid_t pid, int number)
{
    size_t bytes;
    PL_AUTO_FREE char *status = pl_proc_read(pid, "status", STATUS_BYTES, &bytes);

    return status && (pl_text_field_number(status, "SigCgt", 16, 0) >> (number - 1)) & 1;
}

bool pl_proc_is_shell(pid_t pid, const char *name)
{
    static const char *const names[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "busybox"};
    char file[64];

    pl_proc_file_name(pid, file, sizeof(file));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strcmp(file[0] != '\0' ? file : name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A process that may be a training program, or stand between one and the supervisor. */
struct candidate {
    pid_t pid, parent;
    bool is_paceline, is_rank_shim, is_sshd, is_own, is_zombie;
};

/* The version of Open MPI decides which of these mpirun is a link to. */
static bool is_launcher(const char *name)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "orted", "prterun",
                                        "prted",  "prte",    "sshd",    "ssh",   "sshd-session"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return starts_with(name, "mpirun.") || starts_with(name, "paceline-");
}

/* `paceline rank`, or the name under which torchrun starts it (entrypoint/rank.c). */
static bool is_rank_shim(pid_t pid)
{
    size_t bytes;
    PL_AUTO_FREE char *words = pl_proc_read(pid, "cmdline", WORDS_BYTES, &bytes);
    const char *second = words ? pl_proc_next_word(words, words + bytes) : NULL;

    return words && (strcmp(last_name(words), "paceline-python") == 0 || (second && strcmp(second, "rank") == 0));
}

static bool look_at(pid_t pid, const struct stat *paceline, struct candidate *ret_candidate)
{
    struct pl_proc_stat stat_line;
    char path[PATH_BYTES], name[64];
    struct stat file;

    if (pl_proc_read_stat(pid, 0, &stat_line, NULL) != PL_OK) {
        return false;
    }
    *ret_candidate = (struct candidate){.pid = pid, .parent = stat_line.parent, .is_zombie = stat_line.state == 'Z'};
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    if (stat(path, &file) != 0) { /* a zombie, a kernel thread, or a process of another user */
        return true;
    }
    pl_proc_file_name(pid, name, sizeof(name));
    ret_candidate->is_paceline = file.st_dev == paceline->st_dev && file.st_ino == paceline->st_ino;
    ret_candidate->is_sshd = starts_with(name, "sshd");
    ret_candidate->is_own = ret_candidate->is_paceline || is_launcher(name);
    ret_candidate->is_rank_shim = ret_candidate->is_paceline && is_rank_shim(pid);
    return true;
}

static enum pl_status list_processes(const struct stat *paceline, struct candidate **ret_list, size_t *ret_count,
                                     struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir("/proc");
    PL_AUTO_FREE struct candidate *list = NULL;
    size_t count = 0, capacity = 0;
    pid_t pid;

    if (!directory) {
        return pl_error_errno(reterr, "list '/proc'");
    }
    while ((pid = pl_proc_next(directory)) > 0) {
        PL_TRY(pl_memory_grow(&list, &capacity, count + 1, sizeof(*list), reterr));
        count += look_at(pid, paceline, &list[count]);
    }
    *ret_list = PL_TAKE(list);
    *ret_count = count;
    return PL_OK;
}

static const struct candidate *find_process(const struct candidate *list, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].pid == pid) {
            return &list[i];
        }
    }
    return NULL;
}

/* Processes below sshd do not belong to the job: they are relays, which are a shell for a moment. */
static bool is_below(const struct candidate *list, size_t count, const struct candidate *process, pid_t ancestor)
{
    for (size_t depth = 0; process && !process->is_sshd && depth < count; depth++) {
        if (process->parent == ancestor) {
            return true;
        }
        process = find_process(list, count, process->parent);
    }
    return false;
}

static int by_number(const void *left, const void *right)
{
    const pid_t *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

enum pl_status pl_proc_find_programs(const struct stat *paceline, pid_t supervisor, pid_t **ret_pids, size_t *ret_count,
                                     struct pl_error *reterr)
{
    PL_AUTO_FREE struct candidate *list = NULL;
    PL_AUTO_FREE pid_t *pids = NULL;
    size_t list_count = 0, count = 0;

    PL_TRY(list_processes(paceline, &list, &list_count, reterr));
    pids = pl_memory_new(list_count + 1, sizeof(*pids), reterr);
    PL_TRY(pids ? PL_OK : PL_MEMORY);
    for (int below_ranks = 1; below_ranks >= 0 && count == 0; below_ranks--) {
        for (size_t i = 0; i < list_count; i++) {
            const struct candidate *parent = find_process(list, list_count, list[i].parent);

            if (!list[i].is_own && parent && (below_ranks ? parent->is_rank_shim : parent->is_paceline) &&
                (supervisor == 0 || is_below(list, list_count, &list[i], supervisor))) {
                pids[count++] = list[i].pid;
            }
        }
    }
    qsort(pids, count, sizeof(*pids), by_number);
    *ret_pids = PL_TAKE(pids);
    *ret_count = count;
    return PL_OK;
}

static uint64_t io_bytes(pid_t pid)
{
    size_t bytes;
    PL_AUTO_FREE char *text = pl_proc_read(pid, "io", STAT_BYTES, &bytes);

    return !text ? 0 : pl_text_field_number(text, "rchar", 10, 0) + pl_text_field_number(text, "wchar", 10, 0);
}

enum pl_status pl_proc_activity(const struct stat *paceline, uint64_t *ret_number, struct pl_error *reterr)
{
    PL_AUTO_FREE struct candidate *list = NULL;
    size_t count = 0;

    PL_TRY(list_processes(paceline, &list, &count, reterr));
    *ret_number = 0;
    for (size_t i = 0; i < count; i++) {
        if (!list[i].is_own && !list[i].is_zombie && is_below(list, count, &list[i], getpid())) {
            *ret_number += io_bytes(list[i].pid) + ((uint64_t)list[i].pid << 44);
        }
    }
    return PL_OK;
}

enum pl_status pl_proc_list_ranks(const struct stat *paceline, struct pl_proc_of_rank **ret_list, size_t *ret_count,
                                  struct pl_error *reterr)
{
    PL_AUTO_FREE struct candidate *list = NULL;
    struct pl_proc_of_rank *ranks;
    size_t list_count = 0, count = 0;

    PL_TRY(list_processes(paceline, &list, &list_count, reterr));
    ranks = pl_memory_new(list_count + 1, sizeof(*ranks), reterr);
    PL_TRY(ranks ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < list_count; i++) {
        const struct candidate *above = &list[i];

        for (size_t depth = 0; above && !above->is_rank_shim && depth < list_count; depth++) {
            above = find_process(list, list_count, above->parent);
        }
        if (above && above->is_rank_shim && above != &list[i]) {
            ranks[count++] = (struct pl_proc_of_rank){.pid = list[i].pid, .shim = above->pid};
        }
    }
    *ret_list = ranks;
    *ret_count = count;
    return PL_OK;
}
