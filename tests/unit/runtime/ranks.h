/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Ranks as threads whose bodies assert with Check itself: what fails ends the process, which is the test's own where
 * Check forks.
 */
#ifndef PL_TESTS_UNIT_RUNTIME_RANKS_H
#define PL_TESTS_UNIT_RUNTIME_RANKS_H

#include "base/knob.h"
#include "collectives/world_private.h"
#include "runtime/plan.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <unistd.h>

static inline void ranks_free_plan(struct pl_plan **plan)
{
    pl_plan_free(*plan);
}

/** A plan that goes with its variable. */
#define AUTO_PLAN __attribute__((cleanup(ranks_free_plan)))

typedef void ranks_body(struct pl_world *world, void *context);

struct ranks_call {
    ranks_body *body;
    void *context;
};

static inline void ranks_call_body(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct ranks_call *call = argument;

    call->body(world, call->context);
}

static inline void ranks_run_with(int size, const struct pl_world_options *options, ranks_body *body, void *context)
{
    struct ranks_call call = {.body = body, .context = context};

    ck_assert_ranks(size, options, ranks_call_body, &call);
}

static inline void ranks_run(int size, ranks_body *body, void *context)
{
    struct pl_knobs knobs = ranks_knobs(PL_KNOB_TIMEOUT_S, "50");

    ranks_run_with(size, &(struct pl_world_options){.knobs = &knobs}, body, context);
}

/** ranks_run() whose stderr goes to `text`. */
static inline void ranks_run_logged(int size, ranks_body *body, void *context, char *text, size_t text_bytes)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);

    ck_assert(log && before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    ranks_run(size, body, context);
    ck_assert(dup2(before, STDERR_FILENO) >= 0 && close(before) == 0);
    rewind(log);
    text[fread(text, 1, text_bytes - 1, log)] = '\0';
    fclose(log);
}

#endif
