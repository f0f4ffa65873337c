/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reads from /proc facts about processes, threads and the network, and finds the training programs.
 *
 * Source  proc(5), ptrace(2) on who may read what; RFC 4022, tcpPassiveOpens.
 * Test    tests/unit/entrypoint/proc/test_proc.c, ../supervise/test_apart.c
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
    uint64_t cpu_ticks; /* time in user and kernel mode */
    uint64_t start_ticks;
};

/** A process as one look at /proc has found it. */
struct pl_proc_entry {
    pid_t pid;
    struct pl_proc_stat stat;
    struct pl_proc_entry *parent; /* NULL: it is not in the list */
    unsigned is;                  /* bits that the caller sets; 0 at first */
};

/**
 * List the processes of this container, or, if `top` is not 0, the processes below `top`, lowest PID first. Errors:
 * PL_SYSTEM, PL_NOT_FOUND: no /proc is mounted.
 *
 * Ownership  the caller frees `*ret_list`.
 */
enum pl_status pl_proc_list(pid_t top, struct pl_proc_entry **ret_list, size_t *ret_count,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a process of a list is below `ancestor`, which need not be in it. */
bool pl_proc_is_below(const struct pl_proc_entry *process, pid_t ancestor);

/** Parse the line of /proc/PID/stat. PL_CORRUPT if it has another form. */
enum pl_status pl_proc_parse_stat(const char *line, struct pl_proc_stat *ret_stat,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Read /proc/PID/stat of the process `pid`; if `tid` is not 0, of that thread alone. PL_NOT_FOUND if it has ended. */
enum pl_status pl_proc_read_stat(pid_t pid, pid_t tid, struct pl_proc_stat *ret_stat,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Read the whole file /proc/PID/`name`. Returns NULL if it cannot be read. Ownership: the caller frees it. */
char *pl_proc_read(pid_t pid, const char *name, size_t most_bytes, size_t *ret_bytes);

/** Returns the word after `word` in a text whose words end with NUL, or NULL after the last. */
const char *pl_proc_next_word(const char *word, const char *end);

/** Returns the value that the variable `name` had when `pid` started, or NULL. Ownership: the caller frees it. */
char *pl_proc_variable(pid_t pid, const char *name);

/** Whether the process `pid` has a handler for the signal `number`; false if /proc does not say. */
bool pl_proc_catches(pid_t pid, int number);

/** Whether `pid` waits for the signal `number` by sigwait() or a signalfd; false if /proc does not say. */
bool pl_proc_awaits(pid_t pid, int number);

/**
 * Get the name, without folders, by which `pid` was started; for a Python program, the name of its script or module. ""
 * if it cannot be read.
 */
void pl_proc_command_name(pid_t pid, char *ret_name, size_t name_bytes);

/**
 * Copy `text` up to its first newline. Control characters and invalid UTF-8 become '?'. Text that does not fit is cut.
 */
void pl_proc_copy_text(const char *text, char *ret_copy, size_t copy_bytes);

/** Get the name, without folders, of the file that `pid` runs; "" if it cannot be read. */
void pl_proc_file_name(pid_t pid, char *ret_name, size_t name_bytes);

/**
 * Whether the process `pid` runs a shell. A script's own name is the process's name, so the name of the file that it
 * runs counts; if that cannot be read, `name`, which is from /proc/PID/stat.
 */
bool pl_proc_is_shell(pid_t pid, const char *name);

/**
 * Find the training programs of this host, lowest PID first: the children of processes that run the file `paceline`,
 * except Paceline's own programs, mpirun, ssh and the like. If ranks have a shim of their own (`paceline rank`), only
 * processes below these shims count, because the shims start the ranks' programs. If `supervisor` is not 0, only
 * processes below it count: the trial of a sweep is one of several jobs on its host.
 *
 * Ownership  the caller frees `*ret_pids`.
 */
enum pl_status pl_proc_find_programs(const struct stat *paceline, pid_t supervisor, pid_t **ret_pids, size_t *ret_count,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Get a number that changes when the programs of this host do something. It is made from the list of processes and from
 * the bytes that they have read and written so far: files, pipes, and sockets by read(2) and write(2). It counts the
 * processes below this one, except Paceline's own programs, mpirun, ssh and the like, and processes below sshd.
 */
enum pl_status pl_proc_activity(const struct stat *paceline, uint64_t *ret_number,
                                struct pl_error *reterr) PL_MUST_CHECK;

struct pl_proc_of_rank {
    pid_t pid;
    pid_t shim; /* the `paceline rank` above it */
};

/**
 * List the processes of this host's ranks that have a shim of their own.
 *
 * Ownership  the caller frees `*ret_list`.
 */
enum pl_status pl_proc_list_ranks(const struct stat *paceline, struct pl_proc_of_rank **ret_list, size_t *ret_count,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Get the bytes that all processes of this host's network namespace have sent and received by IP so far; 0 if /proc
 * does not say.
 */
uint64_t pl_proc_network_bytes(void);

/**
 * Get the number of TCP connections that were accepted in this network namespace so far, including those within this
 * host. PL_UNSUPPORTED if /proc does not say.
 */
enum pl_status pl_proc_accepted(uint64_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
