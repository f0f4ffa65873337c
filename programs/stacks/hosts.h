/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline stacks` on all hosts of a job, and the order of their programs. On the master it runs `paceline-stacks
 * --local HOST` on each other host (entrypoint/ssh/relay.h), whose output is the answer: the JSON of `paceline stacks
 * --json`, with a `key` for each program, and a `problem` that tells what failed, or is empty.
 *
 * Test  tests/unit/programs/stacks/test_hosts.c, tests/unit/programs/stacks/test_order.c, tests/integration/hangs.sh
 */
#ifndef PL_PROGRAMS_STACKS_HOSTS_H
#define PL_PROGRAMS_STACKS_HOSTS_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"
#include "programs/stacks/stacks.h"

/** A program of this host or of another host. */
struct pl_hosts_program {
    const char *host; /* not owned */
    int rank;         /* -1 if it has no rank */
    pid_t pid;
    struct pl_text key; /* programs are ordered by this text; its last line has no newline */
    struct pl_text report, place;
};

/** Another host, which was asked for its programs. */
struct pl_hosts_host {
    const char *name;
    pid_t pid;     /* process of ssh; 0 if it was not started or has ended */
    int answer_fd; /* memory file that ssh writes to */
};

struct pl_hosts {
    char *host_name;      /* name of this host; NULL if it has none */
    struct pl_strv names; /* names of the job's hosts, the master first */
    struct pl_hosts_host *hosts;
    size_t host_count;
    struct pl_hosts_program *programs;
    size_t count, capacity;
};

#define PL_HOSTS_NONE ((struct pl_hosts){.names = PL_STRV_NONE})

/**
 * Asks the other hosts of the job; `run_dir` is the run directory of its process 1 on this host. Sets `host_name`. A
 * job without a link has no other hosts. A worker cannot reach other hosts: a warning then names the master.
 */
enum pl_status pl_hosts_start(struct pl_hosts *hosts, const char *run_dir, const struct pl_environment *environment,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Takes the answers until all hosts have answered, or until `deadline_ns`. Logs a warning for each failure that a host
 * reports, and for each host that has not answered.
 */
void pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns);

/**
 * Adds a program of this host. Its report names the host as `host`, unless that is ""; this text must exist as long as
 * `hosts`. Errors: PL_MEMORY.
 */
enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the programs as one JSON object, whose members docs/command-line.md explains, and a newline. For people
 * `problem` is NULL; the answer to another host contains it, and the programs' keys.
 */
enum pl_status pl_hosts_print_json(const struct pl_hosts *hosts, const char *problem, struct pl_text *text,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends one sentence about the ordered programs, of which there is at least one: which program differs from the
 * others, and what it is doing.
 */
void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text);

/** Frees everything and gives up waiting for hosts that have not answered. */
void pl_hosts_close(struct pl_hosts *hosts);

/* ---- order.c: the program that differs from the others comes first ---- */

/** Appends the key of `program`. */
void pl_order_key(const struct pl_stacks_program *program, struct pl_text *key);

/**
 * Sorts the `count` programs.
 *
 * Cost    count^2 comparisons of two keys, line by line.
 * Errors  PL_MEMORY.
 */
enum pl_status pl_order_programs(struct pl_hosts_program *programs, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
