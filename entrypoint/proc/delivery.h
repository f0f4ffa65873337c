/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Delivers a signal to a program, which may be a tree of processes: to the processes below this one, which adopts their
 * orphans. Some of them must not get the signal while another process handles it. docs/stopping.md has the rules.
 *
 * - A process that handles the signal, by a handler, sigwait() or a signalfd, gets it, and its descendants do not: they
 *   work for it (loader workers), and it ends them itself.
 * - A wrapper such as `timeout` counts as a process without a handler, and so does a worker of torch's DataLoader below
 *   a process without a handler: its handler does nothing but let it die.
 * - A shell with a trap gets it, and so do its children by these rules, because a shell runs a trap only after its
 *   child has ended. The same holds for Paceline's parameter server, which waits for its workers.
 * - A process without a handler waits while a descendant or a sibling has one: if a shell ended, its program would end
 *   too, and if a pipe's reader ended, the program's output would be lost. When no such process is left, the waiting
 *   process gets the signal, with all its descendants, as soon as it runs something else, or after two seconds if it
 *   has not ended by itself.
 * - Every other process gets it.
 *
 * Source  proc(5); torch/csrc/DataLoader.cpp; timeout.c of coreutils, su-common.c and script.c of util-linux.
 * Test    tests/unit/entrypoint/proc/test_delivery.c, tests/integration/stops.py, tests/integration/stop_trees.py
 */
#ifndef PL_ENTRYPOINT_PROC_DELIVERY_H
#define PL_ENTRYPOINT_PROC_DELIVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Zero-initialise: then no process waits. */
struct pl_delivery {
    int number;
    size_t waiting;  /* processes that are to get the signal later */
    size_t handling; /* processes that handled the signal when they got it, and still run */
    struct pl_delivery_known *known;
    size_t known_count, known_capacity;
};

/**
 * Deliver the signal `number` to the processes below this one, of which `program` leads the first group. If /proc
 * cannot be read, that group gets it. SIGCONT goes to all. Processes that still wait for an earlier signal do not get
 * that one any more.
 */
void pl_delivery_begin(struct pl_delivery *delivery, pid_t program, int number);

/**
 * pl_delivery_begin(), if a process below this one handles the signal; returns whether one does. If none does, or if
 * /proc does not say, no process gets the signal.
 */
bool pl_delivery_begin_if_caught(struct pl_delivery *delivery, int number);

/** Call this every 100 ms or so while `waiting` or `handling` is not 0. */
void pl_delivery_go_on(struct pl_delivery *delivery);

/** Forget the processes that wait, and free the memory. */
void pl_delivery_done(struct pl_delivery *delivery);

#endif
