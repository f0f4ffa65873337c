/* SPDX-License-Identifier: Apache-2.0 */
/** Negotiation rounds, and the progress of an engine. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_ROUNDS_H
#define PL_RUNTIME_NAMED_ROUNDS_H

#include "runtime/named/engine.h"

/** Appends to a warning what this rank waits for: the `append` of struct pl_about. `subject` is an engine. */
void pl_named_append_awaited(const void *subject, struct pl_text *text);

/**
 * Links two engines of one rank: each makes progress while the other waits, until one is freed. A thread that is in one
 * of them may then be in both.
 */
void pl_named_link(struct pl_named *named, struct pl_named *other);

/** Removes `named` from its linked engines. */
void pl_named_rounds_unlink(struct pl_named *named);

/**
 * Advance once: end what has ended, and begin a round where one is needed. With `block` wait until something moved.
 * `need_round`: the caller waits for what only a round can change. A failure is also kept in named->failure. Where no
 * round may begin yet (struct pl_named_options' concurrent, a fence) and nothing is under way, `block` does not wait.
 */
enum pl_status pl_named_progress(struct pl_named *named, bool need_round, bool block, struct pl_error *reterr);

/** Whether `named` has operations of this rank in flight, and whether they need a round. */
bool pl_named_has_work(const struct pl_named *named, bool *ret_need_round);

/**
 * Advances the sibling engines that have work, without waiting, because a rank that this one waits for may itself wait
 * for this rank there. Their failures are reported by their own calls. Returns false if no sibling had work.
 */
bool pl_named_progress_siblings(struct pl_named *named);

#endif
