/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline stacks` on all hosts of a job. On the master it runs `paceline-stacks --local HOST` on each other host
 * (entrypoint/ssh/relay.h), whose output is the answer. An answer is a sequence of texts that each end with a NUL: five
 * for each program (rank, process, key, report, place), then one that tells what failed, or is empty. stacks/order.h
 * compares keys; a report is printed as it is.
 *
 * Test  tests/unit/programs/stacks/test_hosts.c, tests/integration/hangs.sh
 */
#ifndef PL_PROGRAMS_STACKS_HOSTS_H
#define PL_PROGRAMS_STACKS_HOSTS_H

#include "base/environment.h"
#include "base/status.h"
#include "base/text.h"
#include "entrypoint/job/strv.h"
#include "programs/stacks/order.h"
#include "programs/stacks/stacks.h"

/** Another host, which was asked for its programs. */
struct pl_hosts_host {
    const char *name;
    pid_t pid; /* process of ssh; 0 if it was not started */
    int fd;    /* output of ssh; -1 once it has ended */
    struct pl_text answer;
};

struct pl_hosts {
    char *host_name;      /* name of this host; NULL if it has none */
    struct pl_strv names; /* names of the job's hosts, the master first */
    struct pl_hosts_host *hosts;
    size_t host_count;
    struct pl_order_program *programs; /* programs, whose texts are owned too */
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
enum pl_status pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Adds a program of this host; its report names the host as `host`, unless that is "". Errors: PL_MEMORY. */
enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Appends the answer of this host: the programs that were added, and `problem`, which is "" if there is none. */
void pl_hosts_print(const struct pl_hosts *hosts, const char *problem, struct pl_text *text);

/** Appends the programs as one JSON object, whose members docs/command-line.md explains, and a newline. */
enum pl_status pl_hosts_print_json(const struct pl_hosts *hosts, struct pl_text *text,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends one sentence about the ordered programs, of which there is at least one: which program differs from the
 * others, and what it is doing.
 */
void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text);

/** Frees everything and gives up waiting for hosts that have not answered. */
void pl_hosts_close(struct pl_hosts *hosts);

#endif
