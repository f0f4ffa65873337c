/* SPDX-License-Identifier: Apache-2.0 */
/** Negotiation rounds, and the progress of an engine. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_ROUNDS_H
#define PL_RUNTIME_NAMED_ROUNDS_H

#include "runtime/named/engine.h"

/** Appends to a warning what this rank waits for: the `append` of struct pl_about. `subject` is an engine. */
void pl_named_append_awaited(const void *subject, struct pl_text *text);

/**
 * Advance once: end what has ended, or begin a round where one is needed and may begin (paced rounds that agree on
 * nothing, a fence). With `block` wait until something moved, unless nothing is under way, or something in device
 * memory. A failure is also kept in named->failure.
 */
enum pl_status pl_named_progress(struct pl_named *named, bool block, struct pl_error *reterr);

/** Whether `named` has operations of this rank in flight. */
bool pl_named_has_work(const struct pl_named *named);

/** Whether this rank waits for what only a round can change. */
bool pl_named_needs_round(const struct pl_named *named);

#endif
