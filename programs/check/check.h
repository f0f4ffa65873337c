/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paceline-check: what a job's hosts and the links between them offer, and whether that is what the job needs. Each
 * file has one part: check_host.c looks at this host, check_reach.c at the way back to mpirun, main_mpi.c and
 * check_links_mpi.c measure between ranks, pl_check_evaluate.c compares with the needs and prints the table,
 * check_options.c reads them.
 *
 * Test  tests/unit/programs/check/test_check.c, tests/integration/check.sh
 */
#ifndef PL_PROGRAMS_CHECK_CHECK_H
#define PL_PROGRAMS_CHECK_CHECK_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHECK_UNLIMITED = -1, CHECK_UNKNOWN = -2 };

/** What a host says of itself; sent between ranks as it is, so it holds no pointers. */
struct pl_check_host {
    char name[256];
    char wanted[16]; /* the interface that resourceconfig.json names */
    bool interface_exists;
    char efa[32];         /* its first adapter, "" without one */
    bool efa_usable;      /* this container has the device file for it */
    int64_t memory_bytes; /* of the machine, or the container's limit where that is less */
    int64_t memory_free_bytes;
    int64_t shm_bytes; /* of /dev/shm, and what is free in it */
    int64_t shm_free_bytes;
    int64_t files; /* limits of a process: open files, locked memory, processes and threads */
    int64_t locked_bytes;
    int64_t processes;
    int64_t disk_bytes; /* free where the model goes */
    double clock_s;     /* ahead of the first host's clock */
};

/** What was measured from one host to another, by their numbers. */
struct pl_check_link {
    int from, to;
    double mbit;        /* received in Mbit/s, over all ranks of the two hosts that sent; < 0: not measured */
    char transport[24]; /* "efa", "tcp eth0": what the bytes were counted by; "" where no counter rose */
};

/** The sums and copies that were checked on all ranks. */
struct pl_check_values {
    bool known;               /* they were run */
    uint64_t wrong_allreduce; /* elements, over all ranks, by Paceline and by MPI */
    uint64_t wrong_broadcast;
};

/** What the job needs. */
struct pl_check_needs {
    int ranks;             /* of the job on each host */
    bool listed_efa;       /* the job's instance type is known to have adapters */
    const char *transport; /* between hosts: "efa", "tcp" or "any" */
    double mbit;           /* of each link, 0: whatever it is */
    int64_t shm_bytes;     /* 0: by the ranks of a host */
    int64_t files;         /* 0: by the ranks of the job */
    const char *hosts;     /* the job's, with commas between them: names for those that do not answer */
};

/** All that is known; rank 0 evaluates it. */
struct pl_check_report {
    const struct pl_check_needs *needs;
    const struct pl_check_host *hosts;
    int hosts_count;
    const struct pl_check_link *links;
    size_t links_count;
    struct pl_check_values values;
    const struct pl_text *silent; /* a sentence a line: who did not answer whom */
};

/** A line of the table. */
struct pl_check_row {
    const char *what;
    char where[160], found[160], needed[160];
    bool missed, noted; /* noted: nothing is missed, but worth a look */
};

struct pl_check_rows {
    struct pl_check_row *items;
    size_t count, capacity;
    bool failed; /* out of memory */
};

/** Look at this machine, below `root` ("" for it), and at this process's limits. `model` is where the model goes. */
void pl_check_host_read(const char *root, const char *model, const char *interface, struct pl_check_host *ret_host);

/** The interface other than by EFA that has sent most since an earlier call, and how much. */
struct pl_check_counters {
    uint64_t efa_bytes;
    int count;
    struct {
        char name[16];
        uint64_t sent_bytes;
    } interfaces[32];
};
void pl_check_host_count(const char *root, struct pl_check_counters *ret_counters);

/** By what `bytes` were sent between two counts: "efa", "tcp NAME", "" where nothing has counted half of them. */
void pl_check_host_transport(const struct pl_check_counters *before, const struct pl_check_counters *after,
                             uint64_t bytes, char *ret_name, size_t room);

/** Whether a link is slower than it is to be. */
bool pl_check_evaluate_is_slow(const struct pl_check_needs *needs, const struct pl_check_link *links, size_t count);

/** Evaluate: the table's rows in its order. Free with pl_check_rows_done(). */
void pl_check_evaluate(const struct pl_check_report *report, struct pl_check_rows *ret_rows);
void pl_check_rows_done(struct pl_check_rows *rows);

/** Append the table, and in `reasons` a sentence a line for each need that is missed. Returns how many are. */
size_t pl_check_print(const struct pl_check_rows *rows, struct pl_text *table, struct pl_text *reasons);

/**
 * Read the options of the command line. PL_END where --help was printed. With `*ret_daemon` > 0 this is the wrapper of
 * mpirun's daemon, whose words begin there.
 */
enum pl_status pl_check_options_read(int argc, char **argv, struct pl_check_needs *ret_needs, const char **ret_master,
                                     int *ret_daemon, struct pl_error *reterr) PL_MUST_CHECK;

/** Where mpirun listens, in the words of its daemon: addresses and a port. */
struct pl_check_contact {
    char addresses[8][64];
    int count;
    char port[8];
};

/** Find it among the `count` words; false where they have none. */
bool pl_check_reach_find(char *const *words, int count, struct pl_check_contact *ret_contact);

/**
 * Whether a connection to one of the addresses comes about within `deadline_ns`.
 *
 * Errors  PL_PEER, naming this host, `master`, the addresses, and whether another address of it answers.
 */
enum pl_status pl_check_reach_try(const struct pl_check_contact *contact, const char *master, const char *interface,
                                  int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

#endif
