/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, threads and the network as /proc describes them, and which processes are training programs. */
#include "entrypoint/proc/proc.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = 96, STAT_BYTES = 4096, STATUS_BYTES = 65536, WORDS_BYTES = 4 << 20, COUNTERS_BYTES = 65536 };

/* Returns the next process or thread that the directory lists; 0 after the last one. */
static pid_t next_number(DIR *directory)
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
    int parent;

    if (!open || !close || close < open ||
        sscanf(close + 1, " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu %*s %*s %*s %*s %*s %*s %llu",
               &stat.state, &parent, &user, &kernel, &start) != 5) {
        return pl_error_set(reterr, PL_CORRUPT, "expected a line as in /proc/PID/stat, found '%.100s'", line);
    }
    stat.parent = parent;
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
    pl_proc_copy_text(basename(path), ret_name, name_bytes);
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

/* Whether the set of signals `field` in the file /proc/PID/`name` has the signal `number`. */
static bool has_signal(pid_t pid, const char *name, const char *field, int number)
{
    size_t bytes;
    PL_AUTO_FREE char *text = pl_proc_read(pid, name, STATUS_BYTES, &bytes);

    return text && (pl_text_field_number(text, field, 16, 0) >> (number - 1)) & 1;
}

bool pl_proc_catches(pid_t pid, int number)
{
    return has_signal(pid, "status", "SigCgt", number);
}

/* Whether the thread waits in sigwait() or the like for the signal: whether the system call's set has it. */
static bool is_in_sigwait(pid_t pid, pid_t tid, int number)
{
    char name[PATH_BYTES];
    size_t bytes;
    PL_AUTO_FREE char *call = NULL;
    PL_AUTO_CLOSE int memory_fd = -1;
    unsigned long long set_at;
    uint64_t set;
    long call_number;

    snprintf(name, sizeof(name), "task/%d/syscall", (int)tid);
    call = pl_proc_read(pid, name, STAT_BYTES, &bytes);
    if (!call || sscanf(call, "%ld %llx", &call_number, &set_at) != 2 || call_number != SYS_rt_sigtimedwait) {
        return false;
    }
    snprintf(name, sizeof(name), "/proc/%d/mem", (int)pid);
    memory_fd = open(name, O_RDONLY | O_CLOEXEC);
    return memory_fd >= 0 && pread(memory_fd, &set, sizeof(set), (off_t)set_at) == (ssize_t)sizeof(set) &&
           (set >> (number - 1)) & 1;
}

static bool has_thread_in_sigwait(pid_t pid, int number)
{
    char path[PATH_BYTES];
    PL_AUTO_DIRECTORY DIR *threads = NULL;
    pid_t tid;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads && (tid = next_number(threads)) > 0) {
        if (is_in_sigwait(pid, tid, number)) {
            return true;
        }
    }
    return false;
}

static bool has_signalfd(pid_t pid, int number)
{
    char path[PATH_BYTES], name[PATH_BYTES];
    PL_AUTO_DIRECTORY DIR *files = NULL;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
    files = opendir(path);
    while (files && (entry = readdir(files))) {
        snprintf(name, sizeof(name), "fdinfo/%.20s", entry->d_name);
        if (has_signal(pid, name, "sigmask", number)) {
            return true;
        }
    }
    return false;
}

bool pl_proc_awaits(pid_t pid, int number)
{
    /* This is the first thread's mask, without the signals that it waits for. If it has the signal, others may wait. */
    if (!has_signal(pid, "status", "SigBlk", number)) {
        return is_in_sigwait(pid, pid, number);
    }
    return has_thread_in_sigwait(pid, number) || has_signalfd(pid, number);
}

void pl_proc_command_name(pid_t pid, char *ret_name, size_t name_bytes)
{
    size_t bytes;
    PL_AUTO_FREE char *words = pl_proc_read(pid, "cmdline", WORDS_BYTES, &bytes);
    const char *word = words ? words : "";

    if (pl_text_begins_with(basename(word), "python")) {
        do {
            word = pl_proc_next_word(word, words + bytes);
        } while (word && word[0] == '-');
    }
    pl_proc_copy_text(word ? basename(word) : "", ret_name, name_bytes);
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

static int by_pid(const void *left, const void *right)
{
    const struct pl_proc_entry *a = left, *b = right;

    return (a->pid > b->pid) - (a->pid < b->pid);
}

static void set_parents(struct pl_proc_entry *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct pl_proc_entry key = {.pid = list[i].stat.parent};
        struct pl_proc_entry *found = bsearch(&key, list, count, sizeof(key), by_pid);

        /* a process number that is reused during the look could make a cycle */
        list[i].parent = found && found->stat.start_ticks <= list[i].stat.start_ticks ? found : NULL;
    }
}

bool pl_proc_is_below(const struct pl_proc_entry *process, pid_t ancestor)
{
    while (process && process->stat.parent != ancestor) {
        process = process->parent;
    }
    return process;
}

/* Keep the processes that are below `top`. Returns how many. */
static size_t keep_below(struct pl_proc_entry *list, size_t count, pid_t top)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        list[i].is = pl_proc_is_below(&list[i], top);
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].is != 0) {
            list[kept] = list[i];
            list[kept++].is = 0;
        }
    }
    set_parents(list, kept);
    return kept;
}

enum pl_status pl_proc_list(pid_t top, struct pl_proc_entry **ret_list, size_t *ret_count, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir("/proc");
    PL_AUTO_FREE struct pl_proc_entry *list = NULL;
    size_t count = 0, capacity = 0;
    pid_t pid;

    if (!directory) {
        return pl_error_errno(reterr, "list '/proc'");
    }
    while ((pid = next_number(directory)) > 0) {
        PL_TRY(pl_memory_grow(&list, &capacity, count + 1, sizeof(*list), reterr));
        list[count] = (struct pl_proc_entry){.pid = pid};
        count += pl_proc_read_stat(pid, 0, &list[count].stat, NULL) == PL_OK;
    }
    if (count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "/proc lists no process: it is not mounted");
    }
    qsort(list, count, sizeof(*list), by_pid);
    set_parents(list, count);
    *ret_count = top == 0 ? count : keep_below(list, count, top);
    *ret_list = PL_TAKE(list);
    return PL_OK;
}

/* Bits that say what a process is. OWN: a program that is never a training program. */
enum { PACELINE = 1, RANK_SHIM = 2, SSHD = 4, OWN = 8, ENDED = 16 };

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
    return pl_text_begins_with(name, "mpirun.") || pl_text_begins_with(name, "paceline-");
}

/* `paceline rank`, or the name under which torchrun starts it (entrypoint/rank.c). */
static bool is_rank_shim(pid_t pid)
{
    size_t bytes;
    PL_AUTO_FREE char *words = pl_proc_read(pid, "cmdline", WORDS_BYTES, &bytes);
    const char *second = words ? pl_proc_next_word(words, words + bytes) : NULL;

    return words && (strcmp(basename(words), "paceline-python") == 0 || (second && strcmp(second, "rank") == 0));
}

static void look_at(struct pl_proc_entry *process, const struct stat *paceline)
{
    char path[PATH_BYTES], name[64];
    struct stat file;

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)process->pid);
    if (stat(path, &file) != 0) { /* the process is a zombie, has ended since it was listed, or is another user's */
        process->is = errno == ENOENT || errno == ESRCH ? ENDED : 0;
        return;
    }
    pl_proc_file_name(process->pid, name, sizeof(name));
    if (file.st_dev == paceline->st_dev && file.st_ino == paceline->st_ino) {
        process->is = PACELINE | OWN | (is_rank_shim(process->pid) ? RANK_SHIM : 0);
    }
    process->is |= (pl_text_begins_with(name, "sshd") ? SSHD : 0) | (is_launcher(name) ? OWN : 0);
}

static enum pl_status list_processes(const struct stat *paceline, struct pl_proc_entry **ret_list, size_t *ret_count,
                                     struct pl_error *reterr)
{
    PL_TRY(pl_proc_list(0, ret_list, ret_count, reterr));
    for (size_t i = 0; i < *ret_count; i++) {
        look_at(&(*ret_list)[i], paceline);
    }
    return PL_OK;
}

/* Processes below sshd do not belong to the job: they are relays, which are a shell for a moment. */
static bool belongs_to(const struct pl_proc_entry *process, pid_t supervisor)
{
    for (; process && !(process->is & SSHD); process = process->parent) {
        if (process->stat.parent == supervisor) {
            return true;
        }
    }
    return false;
}

enum pl_status pl_proc_find_programs(const struct stat *paceline, pid_t supervisor, pid_t **ret_pids, size_t *ret_count,
                                     struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_proc_entry *list = NULL;
    PL_AUTO_FREE pid_t *pids = NULL;
    size_t list_count = 0, count = 0;

    PL_TRY(list_processes(paceline, &list, &list_count, reterr));
    PL_TRY(pl_memory_alloc(&pids, list_count + 1, sizeof(*pids), reterr));
    for (int below_ranks = 1; below_ranks >= 0 && count == 0; below_ranks--) {
        for (size_t i = 0; i < list_count; i++) {
            if (!(list[i].is & OWN) && list[i].parent && (list[i].parent->is & (below_ranks ? RANK_SHIM : PACELINE)) &&
                (supervisor == 0 || belongs_to(&list[i], supervisor))) {
                pids[count++] = list[i].pid;
            }
        }
    }
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
    PL_AUTO_FREE struct pl_proc_entry *list = NULL;
    size_t count = 0;

    PL_TRY(list_processes(paceline, &list, &count, reterr));
    *ret_number = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(list[i].is & (OWN | ENDED)) && belongs_to(&list[i], getpid())) {
            *ret_number += io_bytes(list[i].pid) + ((uint64_t)list[i].pid << 44);
        }
    }
    return PL_OK;
}

enum pl_status pl_proc_list_ranks(const struct stat *paceline, struct pl_proc_of_rank **ret_list, size_t *ret_count,
                                  struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_proc_entry *list = NULL;
    struct pl_proc_of_rank *ranks;
    size_t list_count = 0, count = 0;

    PL_TRY(list_processes(paceline, &list, &list_count, reterr));
    PL_TRY(pl_memory_alloc(&ranks, list_count + 1, sizeof(*ranks), reterr));
    for (size_t i = 0; i < list_count; i++) {
        const struct pl_proc_entry *above = &list[i];

        while (above && !(above->is & RANK_SHIM)) {
            above = above->parent;
        }
        if (above && above != &list[i]) {
            ranks[count++] = (struct pl_proc_of_rank){.pid = list[i].pid, .shim = above->pid};
        }
    }
    *ret_list = ranks;
    *ret_count = count;
    return PL_OK;
}

/* Add up the numbers of group `group` ("Tcp") in a file of counters. `names` lists the counters and ends with NULL.
 * Returns false if one of them is missing. */
static bool sum_counters(const char *text, const char *group, const char *const *names, uint64_t *ret_sum)
{
    const size_t group_bytes = strlen(group);
    const char *keys = NULL, *values = NULL;
    size_t found = 0, wanted = 0;

    while (text && !values) { /* a group has two lines with as many words: the names, then the numbers */
        if (strncmp(text, group, group_bytes) == 0 && text[group_bytes] == ':') {
            *(!keys ? &keys : &values) = text + group_bytes + 1;
        }
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    *ret_sum = 0;
    while (values && *keys == ' ' && *values == ' ') {
        size_t length = strcspn(++keys, " \n");

        for (wanted = 0; names[wanted]; wanted++) {
            if (strlen(names[wanted]) == length && strncmp(keys, names[wanted], length) == 0) {
                *ret_sum += strtoull(values, NULL, 10);
                found++;
            }
        }
        keys += length;
        values++;
        values += strcspn(values, " \n");
    }
    return found > 0 && found == wanted;
}

static enum pl_status read_sum(const char *path, const char *group, const char *const *names, uint64_t *ret_sum,
                               struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;

    PL_TRY(pl_file_read(path, COUNTERS_BYTES, &text, NULL, reterr));
    return sum_counters(text, group, names, ret_sum)
               ? PL_OK
               : pl_error_set(reterr, PL_UNSUPPORTED, "%s has no %s of %s", path, names[0], group);
}

uint64_t pl_proc_network_bytes(void)
{
    static const char *const names[] = {"InOctets", "OutOctets", NULL};
    uint64_t sum;

    return read_sum("/proc/self/net/netstat", "IpExt", names, &sum, NULL) == PL_OK ? sum : 0;
}

enum pl_status pl_proc_accepted(uint64_t *ret_count, struct pl_error *reterr)
{
    static const char *const names[] = {"PassiveOpens", NULL};

    return read_sum("/proc/self/net/snmp", "Tcp", names, ret_count, reterr);
}
