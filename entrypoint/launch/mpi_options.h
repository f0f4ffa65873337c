/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mpirun's words: the host list and the number of processes, the options' names in Open MPI 4 and 5, and the options
 * that the user adds.
 *
 * Test  tests/unit/entrypoint/test_jobs.c, tests/unit/entrypoint/launch/test_options.c, tests/integration/groups.sh
 */
#ifndef PL_ENTRYPOINT_LAUNCH_MPI_OPTIONS_H
#define PL_ENTRYPOINT_LAUNCH_MPI_OPTIONS_H

#include "entrypoint/launch/plan.h"

/**
 * Get the major version of the mpirun that the job would use, 4 or 5: from PACELINE_MPI_VERSION, else from the daemon
 * next to mpirun (orted or prted), else 4. Starts nothing. Errors: PL_INVALID for another PACELINE_MPI_VERSION.
 */
enum pl_status pl_mpi_options_major(const struct pl_job *job, int *ret_major, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Add the options that follow the host list in each of the toolkit's mpirun commands, with their names in version
 * `major`. Options that Open MPI 5 would refuse are left out: an option that the user gives too, in `custom`, and the
 * loopback interface for its daemons.
 */
void pl_mpi_options_add_fixed(int major, const char *interface, const struct pl_strv *custom, struct pl_strv *words);

/**
 * Remove the fixed option that prints the map of the job, or the one that tags each line with its rank. If the user
 * gave the same option, which comes later, the user's stays.
 */
void pl_mpi_options_remove_map(struct pl_strv *argv);
void pl_mpi_options_remove_tags(struct pl_strv *argv);

struct pl_mpi_options_custom {
    const char *nccl_debug; /* a level of NCCL's log */
    bool oversubscribe;     /* some option allows more processes than slots */
    long processes;         /* the number after the last -np, -n or -c; -1 if there is none */
    struct pl_strv words;   /* as the user gave them, without --NCCL_DEBUG; the caller sets its pool */
};

/**
 * Split sagemaker_mpi_custom_mpi_options like a shell, and take --NCCL_DEBUG=LEVEL (or --NCCL_DEBUG LEVEL, or a prefix
 * of the name) out. Errors: PL_INVALID for quotes that are not closed, a --NCCL_DEBUG without its level, and a last -x
 * without its variable.
 */
enum pl_status pl_mpi_options_split(const char *text, struct pl_mpi_options_custom *custom,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** pl_mpi_options_split() for options that are separate words already. Messages call the options `what`. */
enum pl_status pl_mpi_options_sort(const struct pl_strv *all, const char *what, struct pl_mpi_options_custom *custom,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Remove the options that say how many ranks there are and where they run. */
void pl_mpi_options_remove_mapping(struct pl_mpi_options_custom *custom);

/**
 * mpirun takes a word that is exactly ":" as the border between two programs, even among a program's arguments. From
 * `first` on, put a backslash in front of such words, and in front of words that are backslashes and a last ":".
 * pl_mpi_options_unguard() returns the original word.
 */
void pl_mpi_options_guard(struct pl_strv *words, size_t first);
const char *pl_mpi_options_unguard(const char *word);

/**
 * Begin plan->argv with mpirun, its hosts and its number of processes. If only a host itself knows how many processes
 * it runs, the plan assumes this host's number of devices. `oversubscribe` allows more processes than there is room
 * for; otherwise this is PL_INVALID, unless the number of a host is not known yet.
 */
enum pl_status pl_mpi_hosts_add(const struct pl_job *job, bool oversubscribe, struct pl_launch_plan *plan,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Whether a host of the plan must still report how many processes it gets. */
bool pl_mpi_hosts_wait(const struct pl_launch_plan *plan);

/**
 * All hosts have reported their numbers, which are in plan->slots: put them into plan->argv. Errors as
 * pl_mpi_hosts_add().
 */
enum pl_status pl_mpi_hosts_apply(const struct pl_job *job, struct pl_launch_plan *plan,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
