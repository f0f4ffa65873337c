/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What /proc says about processes and threads, and which processes are training programs.
 *
 * Source  proc(5), ptrace(2) on who may read what.
 * Test    tests/unit/entrypoint/proc/test_proc.c
 */
#ifndef PL_ENTRYPOINT_PROC_PROC_H
#define PL_ENTRYPOINT_PROC_PROC_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct pl_proc_stat {
    char name[32];
    char state;
    pid_t parent;
    uint64_t cpu_ticks; /* in user and kernel mode */
    uint64_t start_ticks;
};

/** Take apart the line of /proc/PID/stat. PL_CORRUPT if it is none. */
enum pl_status pl_proc_parse_stat(const char *line, struct pl_proc_stat *ret_stat,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Read it of the process `pid`; with `tid` not 0 of that thread alone. PL_NOT_FOUND where it has ended. */
enum pl_status pl_proc_read_stat(pid_t pid, pid_t tid, struct pl_proc_stat *ret_stat,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The whole file /proc/PID/`name`; NULL where it cannot be read. Ownership: the caller frees it. */
char *pl_proc_read(pid_t pid, const char *name, size_t most_bytes, size_t *ret_bytes);

/** The word after the one at `word` in a text in which NULs separate the words; NULL after the last. */
const char *pl_proc_next_word(const char *word, const char *end);

/** The value of the variable `name` at the start of `pid`, or NULL. Ownership: the caller frees it. */
char *pl_proc_variable(pid_t pid, const char *name);

/** Whether the process `pid` has a handler for the signal `number`; false where /proc does not say. */
bool pl_proc_catches(pid_t pid, int number);

/** Copy `text`, up to its first newline, control characters and broken UTF-8 as '?'; what does not fit is cut. */
void pl_proc_copy_text(const char *text, char *ret_copy, size_t copy_bytes);

/** The last name of the file that `pid` runs, "" where that cannot be read. */
void pl_proc_file_name(pid_t pid, char *ret_name, size_t name_bytes);

/**
 * The training programs of this host, from the lowest number: the children of processes that run the file `paceline`,
 * unless they are Paceline's own, mpirun or ssh or the like. Where ranks have a shim of their own (`paceline rank`),
 * those below such shims only: the others have started them. With `supervisor` not 0 only processes below it count: a
 * trial of a sweep is a job beside others on its host.
 *
 * Ownership  the caller frees `*ret_pids`.
 */
enum pl_status pl_proc_find_programs(const struct stat *paceline, pid_t supervisor, pid_t **ret_pids, size_t *ret_count,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A number that changes when the programs of this host do something: the bytes that they and all that they have started
 * have read and written so far, to files, pipes and by read(2) and write(2) to sockets, and which processes these are.
 * Counted are the processes below this one, but for Paceline's own, mpirun and ssh and the like, and what sshd runs.
 */
enum pl_status pl_proc_activity(const struct stat *paceline, uint64_t *ret_number,
                                struct pl_error *reterr) PL_MUST_CHECK;

struct pl_proc_of_rank {
    pid_t pid;
    pid_t shim; /* `paceline rank`, which is above it */
};

/**
 * The processes of this host's ranks that have a shim of their own.
 *
 * Ownership  the caller frees `*ret_list`.
 */
enum pl_status pl_proc_list_ranks(const struct stat *paceline, struct pl_proc_of_rank **ret_list, size_t *ret_count,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
