/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Delivers a signal to a program, which may be a tree of processes: all processes below this one, which adopts their
 * orphans. Some of them must not get the signal while another process handles it. docs/stopping.md has the rules.
 *
 * - A process that handles the signal (by a handler, sigwait() or a signalfd) gets the signal. Its descendants do not:
 *   they work for this process, as loader workers do, and it ends them itself.
 * - A wrapper such as `timeout` counts as a process without a handler. So does a worker of torch's DataLoader below a
 *   process without a handler, because the worker's handler only ends the worker.
 * - A shell with a trap gets the signal, and its children get it by these rules, because a shell runs a trap only after
 *   its child has ended. The same holds for Paceline's parameter server, which waits for its workers.
 * - A process without a handler waits while a descendant or a sibling has a handler. If a shell ended, its program
 *   would end too; if a pipe's reader ended, the program's output would be lost. When none of them is left, the waiting
 *   process and all its descendants get the signal: soon after the process starts something else, or after two seconds
 *   if it has not ended by itself.
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
 * Does pl_delivery_begin() if a process below this one handles the signal, and returns whether one does. If none does,
 * or if /proc cannot be read, no process gets the signal.
 */
bool pl_delivery_begin_if_caught(struct pl_delivery *delivery, int number);

/** Call this every 100 ms or so while `waiting` or `handling` is not 0. */
void pl_delivery_go_on(struct pl_delivery *delivery);

/** Forget the processes that wait, and free the memory. */
void pl_delivery_done(struct pl_delivery *delivery);

#endif
