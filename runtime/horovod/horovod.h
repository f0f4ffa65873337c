/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The C functions that Horovod's own Python code calls by ctypes, in the module of a framework. Names, parameters and
 * values are Horovod's. The result -1 means "not initialised", unless a function's comment says otherwise.
 * libpaceline-horovod.so exports them; it has one state per process (state.h).
 *
 * Threads  any.
 * Source   horovod/common/basics.py of Horovod 0.28.1.
 * Test     tests/integration/horovod.py
 */
#ifndef PL_RUNTIME_HOROVOD_HOROVOD_H
#define PL_RUNTIME_HOROVOD_HOROVOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Errors that the functions about process sets return instead of a number. */
enum {
    HOROVOD_ERROR_INIT = -1,
    HOROVOD_ERROR_DYNAMIC = -2, /* HOROVOD_DYNAMIC_PROCESS_SETS is not set */
    HOROVOD_ERROR_UNKNOWN_SET = -3,
    HOROVOD_ERROR_FOREIGN_SET = -4, /* this rank is not a member */
    HOROVOD_ERROR_SHUTDOWN = -5,
    HOROVOD_ERROR_EXISTING_SET = -6,
    HOROVOD_ERROR_OTHER = -7, /* not in Horovod: horovod_paceline_error() returns the text */
};

/** Horovod's numbers of the operations. */
enum {
    HOROVOD_AVERAGE = 0,
    HOROVOD_SUM = 1,
    HOROVOD_ADASUM = 2,
    HOROVOD_MIN = 3,
    HOROVOD_MAX = 4,
    HOROVOD_PRODUCT = 5,
};

/**
 * Returns the error of this thread's last call that returned HOROVOD_ERROR_OTHER. The next call returns NULL. Not in
 * Horovod.
 */
const char *horovod_paceline_error(void);

/**
 * Compares the `checksum` of this rank's weights with those of the other ranks of `set`, which pass the same `name`. No
 * rank waits. When all have called, rank 0 of the set warns of ranks that differ; the warning contains `cure`. No
 * effect if the setting check_weights is off, or if a rank does not call. Not in Horovod.
 */
void horovod_paceline_compare_weights(const char *name, int set, uint64_t checksum, const char *cure);

/**
 * Returns whether this rank stores committed states in memory that outlives the ranks of a job that may be started
 * again (runtime/kept.h). True only on rank 0. Not in Horovod.
 */
bool horovod_paceline_keeps(void);

/** Stores `data` of commit number `commit` in that memory. A failure is logged and ends the storing. Not in Horovod. */
void horovod_paceline_keep(uint64_t commit, const void *data, size_t bytes);

/**
 * Returns the stored data of the last commit, perhaps of an earlier attempt, or NULL. Valid until the next commit. Not
 * in Horovod.
 */
const void *horovod_paceline_kept(uint64_t *ret_commit, size_t *ret_bytes);

/**
 * Joins the job and adds `set_count` process sets. The ranks of all sets are in `set_ranks`, one set after the other;
 * set_sizes[0], set_sizes[1] and so on are their numbers of ranks. A set that exists already is not added again.
 * `ranks` [rank_count] are ranks of MPI_COMM_WORLD in their new order, including the caller; with rank_count 0 all
 * ranks join. Returns false after an error, which is logged. A second call does nothing, but after a shutdown it joins
 * again. Collective.
 */
bool horovod_init(const int *ranks, int rank_count, const int *set_ranks, const int *set_sizes, int set_count);

/**
 * Like horovod_init(), with MPI communicators: the first of `communicators` [count] has all ranks, and the others
 * become process sets.
 */
bool horovod_init_multi_comm(const void *communicators, int count, const int *set_ranks, const int *set_sizes,
                             int set_count);

/** Leaves the job. Operations that other ranks wait for fail there. Does nothing if this process has not joined. */
void horovod_shutdown(void);

int horovod_is_initialized(void);
int horovod_rank(void);
int horovod_size(void);
int horovod_local_rank(void);
int horovod_local_size(void);
int horovod_cross_rank(void);
int horovod_cross_size(void);
int horovod_is_homogeneous(void);

/**
 * Starts the timeline in rank 0's file, see pl_timeline_start(); returns 0 on the other ranks. HOROVOD_ERROR_OTHER: the
 * file cannot be created.
 */
int horovod_start_timeline(const char *path, bool mark_cycles);
int horovod_stop_timeline(void);

int horovod_mpi_threads_supported(void);
/* type, name, value: features that are built in, and Horovod's numbers of the operations */
#define PL_HOROVOD_ANSWERS(X)                                                                                          \
    X(bool, mpi_enabled, true)                                                                                         \
    X(bool, mpi_built, true)                                                                                           \
    X(bool, gloo_enabled, false)                                                                                       \
    X(bool, gloo_built, false)                                                                                         \
    X(int, nccl_built, 0)                                                                                              \
    X(bool, ddl_built, false)                                                                                          \
    X(bool, ccl_built, false)                                                                                          \
    X(bool, cuda_built, pl_device_is_built())                                                                          \
    X(bool, rocm_built, false)                                                                                         \
    X(int, reduce_op_average, HOROVOD_AVERAGE)                                                                         \
    X(int, reduce_op_sum, HOROVOD_SUM)                                                                                 \
    X(int, reduce_op_adasum, HOROVOD_ADASUM)                                                                           \
    X(int, reduce_op_min, HOROVOD_MIN)                                                                                 \
    X(int, reduce_op_max, HOROVOD_MAX)                                                                                 \
    X(int, reduce_op_product, HOROVOD_PRODUCT)
#define PL_HOROVOD_DECLARE(type, name, value) type horovod_##name(void);
PL_HOROVOD_ANSWERS(PL_HOROVOD_DECLARE)

/** Add or remove a set. Return its number, or an error. Collective over all ranks. */
int horovod_add_process_set(const int *ranks, int count);
int horovod_remove_process_set(int set);

int horovod_process_set_rank(int set);
int horovod_process_set_size(int set);
/** Returns 1 if this rank is a member, 0 if not, or an error. */
int horovod_process_set_included(int set);
/**
 * Returns how many sets there are. The second function stores their numbers in `ret_sets`, which has room for as many
 * as the first has returned in this thread.
 */
int horovod_number_of_process_sets(void);
void horovod_process_set_ids(int *ret_sets);
/** Stores the ranks of a set, as many as this thread's last call for a set's size returned. Returns 0, or an error. */
int horovod_process_set_ranks(int set, int *ret_ranks);
/** Returns the number of the set of `communicator`, an MPI_Comm passed at init, or HOROVOD_ERROR_UNKNOWN_SET. */
int horovod_comm_process_set(const void *communicator);

#endif
