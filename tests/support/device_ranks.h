/* SPDX-License-Identifier: Apache-2.0 */
/** Functions of ranks with devices for the tests of several backends. See ranks.h. */
#ifndef PL_TESTS_SUPPORT_DEVICE_RANKS_H
#define PL_TESTS_SUPPORT_DEVICE_RANKS_H

#include "base/clock.h"
#include "base/text.h"
#include "collectives/arena.h"
#include "tests/scenarios/conformance.h"
#include "tests/support/device.h"
#include "tests/support/ranks.h"

/** `argument`: a struct conformance, which does not change. */
static inline void device_ranks_conform(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct conformance conformance = *(const struct conformance *)argument;

    conformance_run(world, &conformance);
    RANKS_NEED(!conformance.failure[0], "%s", conformance.failure);
}

/** `argument`: a text that the world's description must contain. */
static inline void device_ranks_say(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_world_describe(world, &text);
    RANKS_NEED(strstr(pl_text_string(&text), argument), "'%s' is not in:\n%s", (const char *)argument,
               pl_text_string(&text));
}

/** A fault of rank 1 in the third of five calls, and its expected result. */
struct device_fault {
    const char *order; /* order for the fake driver, for the device of rank 1; NULL: the fault comes by itself */
    const char *text;  /* text in rank 1's error */
    enum pl_status of_rank_1;
    unsigned flags;
    int64_t deadline_ns; /* deadline of that call on rank 1; 0, and on all other calls: a minute */
    bool arena;
    bool shared; /* all ranks share the device: any rank may be the first to notice */
};

/** Give the order to this rank's device. */
static inline void device_ranks_order(struct pl_world *world, const char *order)
{
    char text[64];

    if (order) {
        snprintf(text, sizeof(text), "%s=%d", order, pl_device_info(pl_world_device(world))->ordinal);
        device_order(text);
    }
}

/** Check the result of a fault on this rank: the error names this rank's host and device, and comes in time. */
static inline void device_ranks_check(struct pl_world *world, const struct device_fault *fault, enum pl_status status,
                                      const struct pl_error *told, int64_t begin_ns, char failure[RANKS_TEXT_BYTES])
{
    double took_s = (double)(pl_clock_now_ns() - begin_ns) / 1e9;
    bool first = fault->shared || pl_world_rank(world) == 1;
    char place[64];

    snprintf(place, sizeof(place), "rank %d on host ", pl_world_rank(world));
    RANKS_NEED(status != PL_OK, "the fault was not noticed");
    RANKS_NEED(strstr(told->cause, fault->text), "'%s' is not in the error: %s: %s (%s)", fault->text,
               pl_status_name(status), told->cause, told->context);
    if (!first) {
        char given_up[PL_ERROR_CAUSE_BYTES];

        RANKS_NEED(strstr(told->cause, ranks_given_up(world, 1, "", given_up)) == told->cause &&
                       strstr(told->cause, "device ") && strstr(told->cause, "GPU-"),
                   "the error does not name rank 1: %s (%s)", told->cause, told->context);
        RANKS_NEED(told->domain == PL_DOMAIN_RANK && told->code == 1, "domain %d, code %d", (int)told->domain,
                   (int)told->code);
    }
    /* A rank that has not answered rank 1 before its deadline shares its wait. */
    RANKS_NEED(fault->shared || status == (first ? fault->of_rank_1 : PL_PEER) ||
                   (status == PL_TIMEOUT && fault->of_rank_1 == PL_TIMEOUT),
               "%s: %s", pl_status_name(status), told->cause);
    RANKS_NEED(strstr(told->context, place) && strstr(told->context, "GPU-"),
               "the error does not name the place: %s (%s)", told->cause, told->context);
    RANKS_NEED(took_s < 50.0, "it took %g s", took_s); /* the others' deadlines are later */
}

/** `argument`: a struct device_fault. */
static inline void device_ranks_suffer(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { COUNT = 1003 };
    const struct device_fault *fault = argument;
    struct pl_device *device = pl_world_device(world);
    int64_t begin_ns = pl_clock_now_ns();
    struct pl_collective c = {
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .count = COUNT, .memory = PL_MEMORY_DEVICE, .flags = fault->flags};
    struct pl_error told = PL_ERROR_NONE;
    struct pl_span span = {.data = NULL};
    enum pl_status status = PL_OK;
    void *memory = NULL;

    if (fault->arena) {
        RANKS_OK(pl_arena_alloc(world, COUNT * sizeof(float), PL_MEMORY_DEVICE, &span, &error));
    } else {
        RANKS_OK(pl_device_alloc(device, COUNT * sizeof(float), &memory, &error));
    }
    c.send = c.recv = fault->arena ? span.data : memory;
    c.scaled = true; /* scaling needs a kernel in every backend that works on the device */
    c.prescale = 1.0;
    c.postscale = 0.5;
    for (int i = 1; i <= 5 && status == PL_OK; i++) {
        c.deadline_ns = pl_deadline_after_ns(60 * PL_NS_PER_S);
        if (i == 3 && pl_world_rank(world) == 1) {
            device_ranks_order(world, fault->order);
            c.deadline_ns = fault->deadline_ns ? pl_deadline_after_ns(fault->deadline_ns) : c.deadline_ns;
        }
        status = pl_collective_run(world, &c, &told);
    }
    if (memory) {
        pl_device_release(device, memory);
    }
    device_ranks_check(world, fault, status, &told, begin_ns, failure);
}

#endif
