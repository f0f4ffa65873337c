/* SPDX-License-Identifier: Apache-2.0 */
/** What ranks tell each other, and how an engine goes on. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_ROUNDS_H
#define PL_RUNTIME_NAMED_ROUNDS_H

#include "runtime/named/engine.h"

/** What this rank waits for, to a warning's text: the `append` of struct pl_about. `subject` is an engine. */
void pl_named_append_awaited(const void *subject, struct pl_text *text);

/**
 * Let two engines of one rank go on while the other waits, until one is freed. A thread in one of them may then be in
 * both.
 */
void pl_named_link(struct pl_named *named, struct pl_named *other);

/** `named` is alone again. */
void pl_named_rounds_unlink(struct pl_named *named);

/**
 * Advance once: end what has ended, and begin a round where one is needed. With `block` wait until something moved.
 * `need_round`: the caller waits for what only a round can change. A failure is also kept in named->failure. Where no
 * round may begin yet (struct pl_named_options' concurrent, a fence) and nothing is under way, `block` does not wait.
 */
enum pl_status pl_named_progress(struct pl_named *named, bool need_round, bool block, struct pl_error *reterr);

/** Whether operations of this rank are under way in `named`, and whether they need a round. */
bool pl_named_has_work(const struct pl_named *named, bool *ret_need_round);

/**
 * Advance the sibling engines that have work, without waiting, because a rank that this one waits for may first wait
 * for this one there. Their failures are reported by their own calls. False when none had any work.
 */
bool pl_named_progress_siblings(struct pl_named *named);

#endif
