/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline stacks` on all hosts of a job. The master's runs `paceline-stacks --local HOST` on each other host
 * (entrypoint/ssh/exec.h), whose output is the answer: texts that each end with a NUL, five for each program (rank,
 * process, key, report, place) and then one, which says what stood in the way, or nothing. A key is what
 * stacks/order.h compares; the report is text as it is printed.
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

/** Another host, which was asked. */
struct pl_hosts_host {
    const char *name;
    pid_t pid; /* ssh; 0: it was not started */
    int fd;    /* its output; -1: it has ended */
    struct pl_text answer;
};

struct pl_hosts {
    char *host_name;      /* this host's; NULL: it has none */
    struct pl_strv names; /* of the job's hosts, the master first */
    struct pl_hosts_host *hosts;
    size_t host_count;
    struct pl_order_program *programs; /* their texts are owned too */
    size_t count, capacity;
};

#define PL_HOSTS_NONE ((struct pl_hosts){.names = PL_STRV_NONE})

/**
 * Ask the other hosts of the job whose process 1 has `run_dir` on this host, which sets `host_name`. A job without a
 * link has no others; on a worker, which cannot reach them, a warning names the master.
 */
enum pl_status pl_hosts_start(struct pl_hosts *hosts, const char *run_dir, const struct pl_environment *environment,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Take the answers until all hosts have answered, or `deadline_ns`. What a host could not do is logged as a warning,
 * and so is which host has not answered.
 */
enum pl_status pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Add a program of this host, which its report calls `host` where that is not "". Errors: PL_MEMORY. */
enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Append the answer of this host: the programs that were added, and `problem`, "" for none. */
void pl_hosts_print(const struct pl_hosts *hosts, const char *problem, struct pl_text *text);

/** Append one sentence about the ordered programs, at least one: which one stands elsewhere than others, and where. */
void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text);

/** Those that have not answered are given up. */
void pl_hosts_close(struct pl_hosts *hosts);

#endif
