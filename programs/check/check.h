/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paceline-check: finds out what a job's hosts and the links between them offer, and compares that with what the job
 * needs. Each file has one part: check_host.c reads this host, main_mpi.c and check_links_mpi.c measure between ranks,
 * check_evaluate.c reads the needs, compares with them and prints the table.
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

/** Data of one host. Ranks send it to each other as it is, so it must not hold pointers. */
struct pl_check_host {
    char name[256];
    char wanted[16]; /* interface that resourceconfig.json names */
    bool interface_exists;
    char efa[32];         /* name of its first adapter, "" if there is none */
    bool efa_usable;      /* whether this container has the adapter's device file */
    int64_t memory_bytes; /* memory of the machine, or the container's limit if that is less */
    int64_t memory_free_bytes;
    int64_t shm_bytes; /* size of /dev/shm, and free bytes in it */
    int64_t shm_free_bytes;
    int64_t files;        /* limit on open files */
    int64_t locked_bytes; /* limit on locked memory */
    int64_t processes;    /* limit on processes and threads */
    int64_t disk_bytes;   /* free bytes where the model is written */
    double clock_s;       /* difference to the first host's clock; positive if ahead */
};

/** Measured link from one host to another, by the hosts' numbers. */
struct pl_check_link {
    int from, to;
    double mbit; /* received Mbit/s, the sum over all ranks of the two hosts that sent; below 0 if not measured */
    char transport[24]; /* "efa", "tcp eth0": the interface whose counter rose; "" if none rose enough */
};

/** Results of the sums and copies that all ranks have checked. */
struct pl_check_values {
    bool known;               /* whether they were run */
    uint64_t wrong_allreduce; /* wrong elements over all ranks, of Paceline's and of MPI's result */
    uint64_t wrong_broadcast;
};

/** Needs of the job. */
struct pl_check_needs {
    int ranks;             /* ranks of the job on each host */
    bool listed_efa;       /* the job's instance type is known to have adapters */
    const char *transport; /* transport between hosts: "efa", "tcp" or "any" */
    double mbit;           /* least rate of each link; 0: any */
    int64_t shm_bytes;     /* 0: computed from the ranks per host */
    int64_t files;         /* 0: computed from the ranks of the job */
    const char *hosts;     /* names of the job's hosts, separated by commas, for hosts that do not answer */
    bool json;             /* whether the result is printed as JSON */
};

/** All results, which rank 0 evaluates. */
struct pl_check_report {
    const struct pl_check_needs *needs;
    const struct pl_check_host *hosts;
    int hosts_count;
    const struct pl_check_link *links;
    size_t links_count;
    struct pl_check_values values;
    const struct pl_text *silent; /* lines "FROM > TO": hosts between which no message arrived */
};

/** A line of the table. */
struct pl_check_row {
    const char *what;
    char where[160], found[160], needed[160];
    bool missed, noted; /* noted: the need is met, but the user should know of the finding */
};

struct pl_check_rows {
    struct pl_check_row *items;
    size_t count, capacity;
    bool failed; /* out of memory */
};

/**
 * Read the state of this machine, below `root` ("" for it), and this process's limits. `model` is the model's
 * directory.
 */
void pl_check_host_read(const char *root, const char *model, const char *interface, struct pl_check_host *ret_host);

/** Bytes sent so far, by EFA and by each other interface. */
struct pl_check_counters {
    uint64_t efa_bytes;
    int count;
    struct {
        char name[16];
        uint64_t sent_bytes;
    } interfaces[32];
};
void pl_check_host_count(const char *root, struct pl_check_counters *ret_counters);

/** Find what sent `bytes` between two counts: "efa", "tcp NAME", or "" if no counter rose by half of them. */
void pl_check_host_transport(const struct pl_check_counters *before, const struct pl_check_counters *after,
                             uint64_t bytes, char *ret_name, size_t room);

/** Returns how many names the comma-separated list `hosts` has. */
int pl_check_evaluate_count_hosts(const char *hosts);

/** Whether a link is slower than needed. */
bool pl_check_evaluate_is_slow(const struct pl_check_needs *needs, const struct pl_check_link *links, size_t count);

/** Make the rows of the table, in its order. Free them with pl_check_rows_done(). */
void pl_check_evaluate(const struct pl_check_report *report, struct pl_check_rows *ret_rows);
void pl_check_rows_done(struct pl_check_rows *rows);

/** Append the table to `table`, and to `reasons` a line for each need that is missed. Returns the number of these. */
size_t pl_check_print(const struct pl_check_rows *rows, struct pl_text *table, struct pl_text *reasons);

/** Append all rows as one JSON object, whose members docs/command-line.md explains, and a newline. */
enum pl_status pl_check_print_json(const struct pl_check_rows *rows, int hosts, double seconds, struct pl_text *text,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Read the options of the command line. PL_END if --help was printed. */
enum pl_status pl_check_read_needs(int argc, char **argv, struct pl_check_needs *ret_needs,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/* ---- the ranks: main_mpi.c and check_links_mpi.c ---- */

struct pl_check_ranks {
    struct pl_check_needs needs;
    int rank, size;
    struct pl_check_host *by_rank; /* [size] */
    int *leaders;                  /* [hosts]: first rank of each host */
    int *host_of;                  /* [size]: index in leaders */
    int hosts, local_rank;
    bool uniform; /* all hosts have equally many ranks */
    struct pl_check_values values;
    struct pl_check_link *links; /* on rank 0 only */
    size_t links_count;
    struct pl_text silent;
};

/** End this rank with the reason; that ends the job. */
_Noreturn void pl_check_fail(const char *what);

/** Allocate zeroed memory; ends the rank if there is none. */
void *pl_check_allocate(size_t count, size_t bytes);

/** Wait until the request, an MPI_Request, has ended or the deadline has passed; true if it has ended. */
bool pl_check_wait_until(void *request, int64_t deadline_ns);

/** Measure all links between hosts, for rank 0. Collective. */
void pl_check_links_measure(struct pl_check_ranks *check);

#endif
