/* SPDX-License-Identifier: Apache-2.0 */
/* Prints sets of CPUs as text. */
#include "base/cpus.h"

#include "base/text.h"

#include <string.h>

enum { SETS_SHOWN = 8 };

/*
 * Appends `number` to a list of ascending numbers whose last number is `*last`. `*open`: `*last` ends a range whose end
 * is not written yet.
 */
static void add_number(struct pl_text *text, int number, int *last, bool *open)
{
    if (*last >= 0 && number == *last + 1) {
        *open = true;
    } else {
        if (*open) {
            pl_text_printf(text, "-%d", *last);
        }
        pl_text_printf(text, "%s%d", *last >= 0 ? "," : "", number);
        *open = false;
    }
    *last = number;
}

void pl_cpus_print(const struct pl_cpus *cpus, struct pl_text *text)
{
    int last = -1;
    bool open = false;

    for (int cpu = 0; cpu < PL_CPUS_MOST; cpu++) {
        if (CPU_ISSET_S((size_t)cpu, sizeof(*cpus), cpus->sets)) {
            add_number(text, cpu, &last, &open);
        }
    }
    if (open) {
        pl_text_printf(text, "-%d", last);
    } else if (last < 0) {
        pl_text_append(text, "none");
    }
}

void pl_cpus_print_own(struct pl_text *text)
{
    struct pl_cpus cpus;

    memset(&cpus, 0, sizeof(cpus));
    if (sched_getaffinity(0, sizeof(cpus), cpus.sets) == 0) {
        pl_cpus_print(&cpus, text);
    } else {
        pl_text_append(text, "unknown");
    }
}

static bool is_first_of_its_set(const struct pl_cpus_of *ranks, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (strcmp(ranks[i].cpus, ranks[at].cpus) == 0) {
            return false;
        }
    }
    return true;
}

/* Describes all ranks with the same set as ranks[first], the first of them. */
static void describe_set(const struct pl_cpus_of *ranks, size_t count, size_t first, struct pl_text *text)
{
    const char *cpus = ranks[first].cpus;
    const bool one_cpu = cpus[strspn(cpus, "0123456789")] == '\0';
    size_t members = 0;
    int last = -1;
    bool open = false;

    for (size_t i = first; i < count; i++) {
        members += strcmp(ranks[i].cpus, cpus) == 0;
    }
    pl_text_append(text, members == 1 ? "rank " : "ranks ");
    for (size_t i = first; i < count; i++) {
        if (strcmp(ranks[i].cpus, cpus) == 0) {
            add_number(text, ranks[i].rank, &last, &open);
        }
    }
    if (open) {
        pl_text_printf(text, "-%d", last);
    }
    pl_text_printf(text, " %s %s", one_cpu ? "bound to CPU" : members == 1 ? "runs on CPUs" : "run on CPUs", cpus);
}

void pl_cpus_describe(const struct pl_cpus_of *ranks, size_t count, struct pl_text *text)
{
    size_t sets = 0;

    for (size_t i = 0; i < count; i++) {
        if (is_first_of_its_set(ranks, i) && sets++ < SETS_SHOWN) {
            pl_text_append(text, sets == 1 ? "" : "; ");
            describe_set(ranks, count, i, text);
        }
    }
    if (sets > SETS_SHOWN) {
        pl_text_printf(text, "; and %zu more sets of CPUs", sets - SETS_SHOWN);
    }
}
