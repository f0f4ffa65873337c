/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Delivers a signal to a program, which may be a tree of processes: the program's process group, without the processes
 * that must not get the signal while another one handles it.
 *
 * - A process with a handler gets the signal, and its descendants do not: they work for it (loader workers), and it
 *   ends them itself.
 * - A shell with a trap gets it, and so do its children by these rules, because a shell runs a trap only after its
 *   child has ended. The same holds for Paceline's parameter server, which waits for its workers.
 * - A process without a handler waits while a descendant or a sibling has one: a shell that ends would take the program
 *   with it, and a pipe's reader the program's output. When no such process is left, it gets the signal, with all its
 *   descendants, as soon as it runs something else, or after two seconds if it has not ended by itself.
 * - Every other process gets it.
 *
 * A worker of torch's DataLoader has a handler, but only to die of the signal: below a process without a handler it
 * counts as one without.
 *
 * Source  proc(5); torch/csrc/DataLoader.cpp.
 * Test    tests/unit/entrypoint/proc/test_delivery.c
 */
#ifndef PL_ENTRYPOINT_PROC_DELIVERY_H
#define PL_ENTRYPOINT_PROC_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Zero-initialise: nobody waits. */
struct pl_delivery {
    pid_t group;
    int number;
    size_t waiting; /* processes that are to get the signal later */
    struct pl_delivery_known *known;
    size_t known_count, known_capacity;
};

/** Whether a process of the group `group` handles the signal `number`; false if /proc does not say. */
bool pl_delivery_catches(pid_t group, int number);

/**
 * Deliver the signal `number` to the processes of the group `group`, which is the caller's own child and thus cannot
 * become another one. If /proc cannot be read, the whole group gets it. What an earlier signal has left is forgotten.
 */
void pl_delivery_begin(struct pl_delivery *delivery, pid_t group, int number);

/** Call this every 100 ms or so while `waiting` is not 0. Returns whether a process has got the signal. */
bool pl_delivery_go_on(struct pl_delivery *delivery);

/** Forget who waits, and free the memory. */
void pl_delivery_done(struct pl_delivery *delivery);

#endif
