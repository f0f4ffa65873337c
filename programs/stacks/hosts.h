/* SPDX-License-Identifier: Apache-2.0 */
/**
 * `paceline stacks` on all hosts of a job. Process 1 of the master passes the request on over its links; on each
 * worker process 1 starts `paceline stacks --send`, whose frames it passes back:
 *
 *     asker ── LOOK ──► process 1 ── LOOK ──► process 1 of a worker
 *           ◄─ LOOKING ─┘                       └─ starts `paceline stacks --send`
 *           ◄─ STANDS, LOOKED ◄── ... ◄─────────┘ STANDS for each program, then LOOKED
 *
 * A key is what stacks/order.h compares; the report is text as it is printed.
 *
 * Test  tests/unit/programs/stacks/test_hosts.c
 */
#ifndef PL_PROGRAMS_STACKS_HOSTS_H
#define PL_PROGRAMS_STACKS_HOSTS_H

#include "base/status.h"
#include "entrypoint/ssh/link.h"
#include "programs/stacks/order.h"
#include "programs/stacks/stacks.h"

/* Longer texts are cut, so that a program fits into a frame. */
enum { PL_HOSTS_MOST_REPORT_BYTES = 64 * 1024, PL_HOSTS_MOST_KEY_BYTES = 48 * 1024 };

/** A host that was asked. */
struct pl_hosts_host {
    char *name;
    bool answered;
};

struct pl_hosts {
    struct pl_link link; /* to process 1 of this host; closed where there is none */
    char *host_name;     /* this host's; NULL: process 1 has not answered */
    char *note;          /* why no more hosts were asked */
    struct pl_hosts_host *hosts;
    size_t host_count;
    struct pl_order_program *programs; /* their texts are owned too */
    size_t count, capacity;
};

#define PL_HOSTS_NONE ((struct pl_hosts){.link = PL_LINK_NONE})

/** Connect to the process 1 that listens in `run_dir`. Errors: PL_SYSTEM. */
enum pl_status pl_hosts_open(struct pl_hosts *hosts, const char *run_dir, struct pl_error *reterr) PL_MUST_CHECK;

/** Ask, and wait until `deadline_ns` for the word of which hosts will answer; then `host_name` is this one's. */
enum pl_status pl_hosts_ask(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Take the answers until all hosts have answered, or `deadline_ns`. What a host could not do is logged as a warning,
 * and so is which host has not answered.
 */
enum pl_status pl_hosts_await(struct pl_hosts *hosts, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/** Add a program of this host, which its report calls `host` where that is not "". Errors: PL_MEMORY. */
enum pl_status pl_hosts_add(struct pl_hosts *hosts, const char *host, const struct pl_stacks_program *program,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Send the programs that were added, those of one host, then that this was all, with `text`. */
enum pl_status pl_hosts_send(struct pl_hosts *hosts, const char *host, const char *text, int64_t deadline_ns,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Send that this was all of `host`, with `text`, until `deadline_ns`. */
enum pl_status pl_hosts_end(struct pl_hosts *hosts, const char *host, const char *text, int64_t deadline_ns,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Append one sentence about the ordered programs: which one stands elsewhere than the others, and where. */
void pl_hosts_describe(const struct pl_hosts *hosts, struct pl_text *text);

void pl_hosts_close(struct pl_hosts *hosts);

#endif
