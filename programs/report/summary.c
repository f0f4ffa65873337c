/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the rings, corrects the hosts' clocks, adds up who waited for whom, and words the result. */
#include "programs/report/summary.h"

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/trace_ring.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No rank or host is named below these shares of the time: ranks are never exactly equal. */
#define LEAST_WAITING_SHARE 0.05 /* share of the time of all ranks that is spent waiting */
#define CULPRIT_SHARE 0.6        /* share of the waiting above which one rank or host is named; more if there are few */
#define ONCE_SHARE 0.8           /* share of a rank's waiting above which a single collective is named */
#define LEAST_LATE_NS (20 * PL_NS_PER_US)
#define LEAST_LATE_PART 50 /* a rank is late if it is late by this part of a usual step */
#define SAID_CLOCK_NS PL_NS_PER_MS

enum span_kind { SPAN_DATA, SPAN_SAVE, SPAN_KINDS };

static const char *const span_names[SPAN_KINDS] = {"data", "save"};

_Static_assert(PL_TRACE_HOST_BYTES + 1 == PL_RING_HOST_NAME_BYTES, "the names of the rings");

struct spans {
    const struct pl_ring_record **items; /* records in the order of their ends */
    size_t count;
};

struct rank {
    struct pl_ring ring;
    const char *path;
    struct pl_trace_rank told;           /* the shares for the caller, set at the end */
    uint64_t first, last;                /* sequence numbers of its collectives; 0: none */
    const struct pl_ring_record **steps; /* the collectives that all ranks have */
    struct spans spans[SPAN_KINDS];
    int64_t own_ns, waiting_ns, moving_ns, span_ns[SPAN_KINDS]; /* sums over the steps */
    int64_t cost_ns, most_ns; /* how long others waited for it: in all, and at most at once */
    uint64_t most_sequence;
};

struct summary {
    struct rank *ranks; /* ranks by number */
    size_t count;
    int size, hosts;
    uint64_t first; /* sequence number of steps[0] */
    size_t steps;
    int64_t total_ns, cost_ns;
    struct pl_text *text;
};

static void free_ranks(struct summary *summary)
{
    for (size_t i = 0; summary->ranks && i < summary->count; i++) {
        free(summary->ranks[i].ring.records);
        free(summary->ranks[i].steps);
        for (int kind = 0; kind < SPAN_KINDS; kind++) {
            free(summary->ranks[i].spans[kind].items);
        }
    }
    free(summary->ranks);
}

static int by_rank(const void *a, const void *b)
{
    const struct rank *left = a, *right = b;

    return left->ring.head.rank < right->ring.head.rank ? -1 : left->ring.head.rank > right->ring.head.rank;
}

static int by_value(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? -1 : left > right;
}

/* Returns the median of values, whose order changes; the lower one of two. */
static int64_t median(int64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return count ? values[(count - 1) / 2] : 0;
}

static bool needs_all_ranks(uint16_t kind)
{
    return kind == PL_ALLREDUCE || kind == PL_REDUCE_SCATTER || kind == PL_ALLGATHER || kind == PL_ALLTOALL ||
           kind == PL_BARRIER;
}

/* Whether the record is a collective of the world of all ranks. */
static bool is_step(const struct pl_ring_record *record)
{
    return record->kind != PL_RING_PROGRAM && record->part == 0;
}

/* Whether the name has only letters of host names: the rings may come from anybody. */
static bool is_name(const char name[PL_RING_HOST_NAME_BYTES])
{
    const size_t length = strnlen(name, PL_RING_HOST_NAME_BYTES);

    return length > 0 && length < PL_RING_HOST_NAME_BYTES &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._") == length;
}

/* Whether the names tell hosts apart. Hosts of a test may have one name: then numbers tell them apart. */
static bool names_tell_hosts_apart(const struct summary *summary)
{
    for (size_t i = 0; i < summary->count; i++) {
        const struct pl_ring_head *head = &summary->ranks[i].ring.head;

        if (!is_name(head->host_name)) {
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            const struct pl_ring_head *other = &summary->ranks[j].ring.head;

            if ((strcmp(head->host_name, other->host_name) == 0) != (head->host == other->host)) {
                return false;
            }
        }
    }
    return true;
}

static enum pl_status read_rings(struct summary *summary, const char *const *paths, struct pl_error *reterr)
{
    bool has_names;

    for (size_t i = 0; i < summary->count; i++) {
        struct rank *rank = &summary->ranks[i];

        rank->path = paths[i];
        PL_TRY(pl_ring_read(paths[i], &rank->ring, reterr));
        for (uint64_t at = rank->ring.first; at < rank->ring.head.written; at++) {
            const struct pl_ring_record *record = &rank->ring.records[at % rank->ring.head.records];

            if (is_step(record)) {
                rank->last = record->collective.sequence;
                rank->first = rank->first ? rank->first : rank->last;
            }
        }
    }
    qsort(summary->ranks, summary->count, sizeof(*summary->ranks), by_rank);
    summary->size = summary->ranks[0].ring.head.size;
    for (size_t i = 0; i < summary->count; i++) {
        const struct pl_ring_head *head = &summary->ranks[i].ring.head;

        if (i > 0 && head->rank == summary->ranks[i - 1].ring.head.rank) {
            return pl_error_set(reterr, PL_INVALID, "'%s' and '%s' are both of rank %d: expected the rings of one job",
                                summary->ranks[i - 1].path, summary->ranks[i].path, head->rank);
        }
        if (head->size != summary->size) {
            return pl_error_set(reterr, PL_INVALID, "'%s' is of a job with %d ranks and '%s' of one with %d",
                                summary->ranks[0].path, summary->size, summary->ranks[i].path, head->size);
        }
        summary->hosts = head->host >= summary->hosts ? head->host + 1 : summary->hosts;
    }
    has_names = names_tell_hosts_apart(summary);
    for (size_t i = 0; i < summary->count; i++) {
        const struct pl_ring_head *head = &summary->ranks[i].ring.head;
        struct pl_trace_rank *told = &summary->ranks[i].told;

        told->rank = head->rank;
        if (has_names) {
            memcpy(told->host, head->host_name, sizeof(told->host));
        } else {
            snprintf(told->host, sizeof(told->host), "host %d", head->host);
        }
    }
    return PL_OK;
}

static const char *host_name(const struct summary *summary, int host)
{
    size_t i = 0;

    while (i + 1 < summary->count && summary->ranks[i].ring.head.host != host) {
        i++;
    }
    return summary->ranks[i].told.host;
}

static int64_t start_ns_of(const struct rank *rank, const struct pl_ring_record *record)
{
    return pl_ring_wall_ns(&rank->ring.head, record->start_ns);
}

static int64_t end_ns_of(const struct rank *rank, const struct pl_ring_record *record)
{
    return pl_ring_wall_ns(&rank->ring.head, record->end_ns);
}

/* Sorts the records of a rank: steps that all ranks have, and the spans that explain a step. */
static enum pl_status sort_records(const struct summary *summary, struct rank *rank, struct pl_error *reterr)
{
    PL_TRY(pl_memory_alloc(&rank->steps, summary->steps + 1, sizeof(*rank->steps), reterr));
    for (int kind = 0; kind < SPAN_KINDS; kind++) {
        struct spans *spans = &rank->spans[kind];

        PL_TRY(pl_memory_alloc(&spans->items, rank->ring.head.records, sizeof(*spans->items), reterr));
    }
    for (uint64_t at = rank->ring.first; at < rank->ring.head.written; at++) {
        const struct pl_ring_record *record = &rank->ring.records[at % rank->ring.head.records];

        if (is_step(record) && record->collective.sequence - summary->first < summary->steps) {
            rank->steps[record->collective.sequence - summary->first] = record;
        }
        for (int kind = 0; record->kind == PL_RING_PROGRAM && kind < SPAN_KINDS; kind++) {
            if (strncmp(record->span_name, span_names[kind], PL_TRACE_NAME_BYTES) == 0) {
                rank->spans[kind].items[rank->spans[kind].count++] = record;
            }
        }
    }
    return PL_OK;
}

/* Finds the steps that all rings have. */
static enum pl_status find_steps(struct summary *summary, struct pl_error *reterr)
{
    uint64_t last = UINT64_MAX;

    for (size_t i = 0; i < summary->count; i++) {
        const struct rank *rank = &summary->ranks[i];

        summary->first = rank->first > summary->first ? rank->first : summary->first;
        last = rank->last < last ? rank->last : last;
    }
    summary->steps = summary->first > 0 && last >= summary->first ? (size_t)(last - summary->first + 1) : 0;
    for (size_t i = 0; i < summary->count; i++) {
        PL_TRY(sort_records(summary, &summary->ranks[i], reterr));
    }
    /* A ring that was written during the read may lack a record: the steps after it count. */
    for (size_t k = summary->steps; k > 0; k--) {
        for (size_t i = 0; i < summary->count; i++) {
            if (!summary->ranks[i].steps[k - 1]) {
                for (size_t each = 0; each < summary->count; each++) {
                    struct rank *rank = &summary->ranks[each];

                    memmove(rank->steps, rank->steps + k, (summary->steps - k) * sizeof(*rank->steps));
                }
                summary->first += k;
                summary->steps -= k;
                return PL_OK;
            }
        }
    }
    return PL_OK;
}

/* Returns the median end of a step on the ranks of a host. `values` has room for all ranks. */
static int64_t end_on(const struct summary *summary, int host, size_t k, int64_t *values)
{
    size_t count = 0;

    for (size_t i = 0; i < summary->count; i++) {
        const struct rank *rank = &summary->ranks[i];

        if (rank->ring.head.host == host) {
            values[count++] = end_ns_of(rank, rank->steps[k]);
        }
    }
    return median(values, count);
}

/* Puts the other hosts on the clock of the first rank's host. */
static enum pl_status correct_clocks(struct summary *summary, struct pl_error *reterr)
{
    PL_AUTO_FREE int64_t *values = pl_memory_new(summary->count, sizeof(*values), reterr);
    PL_AUTO_FREE int64_t *offsets = pl_memory_new(summary->steps, sizeof(*offsets), reterr);
    const int reference = summary->ranks[0].ring.head.host;

    if (!values || !offsets) {
        return PL_MEMORY;
    }
    for (int host = 0; host < summary->hosts; host++) {
        size_t count = 0;
        int64_t offset_ns;

        for (size_t k = 0; host != reference && k < summary->steps; k++) {
            if (needs_all_ranks(summary->ranks[0].steps[k]->kind)) {
                offsets[count++] = end_on(summary, host, k, values) - end_on(summary, reference, k, values);
            }
        }
        offset_ns = median(offsets, count);
        for (size_t i = 0; offset_ns != 0 && i < summary->count; i++) {
            if (summary->ranks[i].ring.head.host == host) {
                summary->ranks[i].ring.head.realtime_minus_monotonic_ns -= offset_ns;
            }
        }
        if (llabs(offset_ns) >= SAID_CLOCK_NS) {
            pl_text_printf(summary->text, "The clock of %s is %.3f s %s that of %s; this is corrected here.\n",
                           host_name(summary, host), (double)llabs(offset_ns) / PL_NS_PER_S,
                           offset_ns > 0 ? "ahead of" : "behind", host_name(summary, reference));
        }
    }
    return PL_OK;
}

/* Returns the time of the spans between two times. `*at` is the first span that may be there; it moves on. */
static int64_t spans_between(const struct rank *rank, enum span_kind kind, size_t *at, int64_t start_ns, int64_t end_ns)
{
    const struct spans *spans = &rank->spans[kind];
    int64_t sum_ns = 0;

    while (*at < spans->count && end_ns_of(rank, spans->items[*at]) <= start_ns) {
        (*at)++;
    }
    for (size_t i = *at; i < spans->count && start_ns_of(rank, spans->items[i]) < end_ns; i++) {
        const int64_t from_ns = start_ns_of(rank, spans->items[i]), to_ns = end_ns_of(rank, spans->items[i]);
        const int64_t part_ns = (to_ns < end_ns ? to_ns : end_ns) - (from_ns > start_ns ? from_ns : start_ns);

        sum_ns += part_ns > 0 ? part_ns : 0;
    }
    return sum_ns;
}

/* Adds up each rank's time between the steps and in them. The first step only begins the time. */
static void add_times(struct summary *summary)
{
    for (size_t i = 0; i < summary->count; i++) {
        struct rank *rank = &summary->ranks[i];
        size_t at[SPAN_KINDS] = {0};

        for (size_t k = 1; k < summary->steps; k++) {
            const int64_t before_ns = end_ns_of(rank, rank->steps[k - 1]);
            const int64_t start_ns = start_ns_of(rank, rank->steps[k]);

            rank->own_ns += start_ns > before_ns ? start_ns - before_ns : 0;
            for (int kind = 0; kind < SPAN_KINDS; kind++) {
                rank->span_ns[kind] += spans_between(rank, kind, &at[kind], before_ns, start_ns);
            }
        }
    }
}

/* Finds the rank that began step `k` last, and adds how much later than usual. `starts` has room for all ranks. */
static void add_step(struct summary *summary, size_t k, int64_t usual_ns, int64_t *starts)
{
    size_t last = 0, count = 0;
    int64_t last_ns = INT64_MIN, cost_ns;

    for (size_t i = 0; i < summary->count; i++) {
        const int64_t start_ns = start_ns_of(&summary->ranks[i], summary->ranks[i].steps[k]);

        if (start_ns > last_ns) {
            last = i;
            last_ns = start_ns;
        }
    }
    for (size_t i = 0; i < summary->count; i++) {
        struct rank *rank = &summary->ranks[i];
        const int64_t start_ns = start_ns_of(rank, rank->steps[k]), end_ns = end_ns_of(rank, rank->steps[k]);

        rank->waiting_ns += last_ns - start_ns;
        rank->moving_ns += end_ns > last_ns ? end_ns - last_ns : 0;
        if (i != last) {
            starts[count++] = start_ns;
        }
    }
    cost_ns = count ? last_ns - median(starts, count) : 0;
    summary->cost_ns += cost_ns;
    summary->ranks[last].cost_ns += cost_ns;
    if (cost_ns >= LEAST_LATE_NS && cost_ns >= usual_ns / LEAST_LATE_PART) {
        summary->ranks[last].told.late++;
    }
    if (cost_ns > summary->ranks[last].most_ns) {
        summary->ranks[last].most_ns = cost_ns;
        summary->ranks[last].most_sequence = summary->first + k;
    }
}

static enum pl_status add_steps(struct summary *summary, struct pl_error *reterr)
{
    PL_AUTO_FREE int64_t *starts = pl_memory_new(summary->count, sizeof(*starts), reterr);
    PL_AUTO_FREE int64_t *times = pl_memory_new(summary->steps, sizeof(*times), reterr);
    const struct rank *first = &summary->ranks[0];
    int64_t usual_ns;

    if (!starts || !times) {
        return PL_MEMORY;
    }
    for (size_t k = 1; k < summary->steps; k++) {
        times[k - 1] = end_ns_of(first, first->steps[k]) - end_ns_of(first, first->steps[k - 1]);
    }
    usual_ns = median(times, summary->steps - 1);
    summary->total_ns = end_ns_of(first, first->steps[summary->steps - 1]) - end_ns_of(first, first->steps[0]);
    for (size_t k = 1; k < summary->steps; k++) {
        if (needs_all_ranks(first->steps[k]->kind)) {
            add_step(summary, k, usual_ns, starts);
        }
    }
    return PL_OK;
}

/* Returns the median over all ranks except `without` of the sum that is `at` bytes into struct rank. */
static int64_t median_of(const struct summary *summary, const struct rank *without, size_t at, int64_t *values)
{
    size_t count = 0;

    for (size_t i = 0; i < summary->count; i++) {
        if (&summary->ranks[i] != without) {
            memcpy(&values[count++], (const char *)&summary->ranks[i] + at, sizeof(*values));
        }
    }
    return median(values, count);
}

static double percent(int64_t part_ns, int64_t of_ns)
{
    return of_ns > 0 ? 100.0 * (double)part_ns / (double)of_ns : 0;
}

/* Says why a rank is late: by its spans, or by the time that it takes between collectives. */
static void say_why(const struct summary *summary, const struct rank *rank, int64_t *values)
{
    static const char *const words[SPAN_KINDS] = {"it waits for data", "it saves"};
    const int64_t others_ns = median_of(summary, rank, offsetof(struct rank, own_ns), values);
    const int64_t more_ns = rank->own_ns - others_ns;

    for (int kind = 0; kind < SPAN_KINDS; kind++) {
        const size_t at = offsetof(struct rank, span_ns) + (size_t)kind * sizeof(int64_t);
        const int64_t span_ns = rank->span_ns[kind] - median_of(summary, rank, at, values);

        if (span_ns > 0 && 2 * span_ns >= more_ns) {
            pl_text_printf(summary->text, "%s, %.1f %% of the time more than the others.\n", words[kind],
                           percent(span_ns, summary->total_ns));
            return;
        }
    }
    if (others_ns > 0) {
        pl_text_printf(summary->text, "it computes %.1f times as long as the others.\n",
                       (double)rank->own_ns / (double)others_ns);
    } else {
        pl_text_append(summary->text, "it computes longer than the others.\n");
    }
}

static const struct rank *most_waited_for(const struct summary *summary)
{
    const struct rank *most = &summary->ranks[0];

    for (size_t i = 1; i < summary->count; i++) {
        most = summary->ranks[i].cost_ns > most->cost_ns ? &summary->ranks[i] : most;
    }
    return most;
}

/*
 * Whether one of `count` ranks or hosts has so much of the waiting that it is named: CULPRIT_SHARE, and at least half
 * way from an equal share to all of it, since one of two has more than half by chance.
 */
static bool is_culprit(const struct summary *summary, int64_t cost_ns, size_t count)
{
    const double half_way = (1.0 + 1.0 / (double)count) / 2;

    return (double)cost_ns >= (half_way > CULPRIT_SHARE ? half_way : CULPRIT_SHARE) * (double)summary->cost_ns;
}

/* Returns the host whose ranks were waited for, if that is one host with several ranks; else -1. */
static int host_waited_for(const struct summary *summary)
{
    for (int host = 0; host < summary->hosts && summary->hosts > 1; host++) {
        int64_t cost_ns = 0;
        int ranks = 0;

        for (size_t i = 0; i < summary->count; i++) {
            if (summary->ranks[i].ring.head.host == host) {
                cost_ns += summary->ranks[i].cost_ns;
                ranks++;
            }
        }
        if (ranks > 1 && is_culprit(summary, cost_ns, (size_t)summary->hosts)) {
            return host;
        }
    }
    return -1;
}

/* Appends "NUMBER (KIND NAME)". */
static void append_collective(struct pl_text *text, uint64_t sequence, uint32_t kind,
                              const char raw_name[PL_RING_COLLECTIVE_NAME_BYTES])
{
    char name[PL_RING_COLLECTIVE_NAME_BYTES + 1] = "";

    memcpy(name, raw_name, pl_text_whole_bytes(raw_name, strnlen(raw_name, PL_RING_COLLECTIVE_NAME_BYTES)));
    pl_text_mask_broken(name, strlen(name));
    pl_text_printf(text, "%" PRIu64 " (%s%s%s)", sequence,
                   kind < PL_KIND_COUNT ? pl_kind_text((enum pl_kind)kind) : "collective", *name ? " " : "", name);
}

static void say_once(const struct summary *summary, const struct rank *rank)
{
    const struct pl_ring_record *step = rank->steps[rank->most_sequence - summary->first];

    pl_text_printf(summary->text, "Rank %d (%s) was late once: the others waited %.3f s for it in collective ",
                   rank->ring.head.rank, rank->told.host, (double)rank->most_ns / PL_NS_PER_S);
    append_collective(summary->text, rank->most_sequence, step->kind, step->collective.name);
    pl_text_append(summary->text, ".\n");
}

static enum pl_status say_who(const struct summary *summary, struct pl_error *reterr)
{
    PL_AUTO_FREE int64_t *values = NULL;
    const struct rank *rank = most_waited_for(summary);
    const double share = percent(summary->cost_ns, summary->total_ns);
    int host;

    PL_TRY(pl_memory_alloc(&values, summary->count, sizeof(*values), reterr));
    if (share < 100 * LEAST_WAITING_SHARE) {
        pl_text_printf(summary->text,
                       "No rank held up the others: they waited %.1f %% of the time for the last rank.\n", share);
    } else if (is_culprit(summary, rank->cost_ns, summary->count)) {
        if ((double)rank->most_ns >= ONCE_SHARE * (double)rank->cost_ns) {
            say_once(summary, rank);
            return PL_OK;
        }
        pl_text_printf(summary->text,
                       "Rank %d (%s) was waited for in %" PRIu64 " of %zu collectives, %.0f %% of the time: ",
                       rank->ring.head.rank, rank->told.host, rank->told.late, summary->steps - 1,
                       percent(rank->cost_ns, summary->total_ns));
        say_why(summary, rank, values);
    } else if ((host = host_waited_for(summary)) >= 0) {
        pl_text_printf(summary->text, "The ranks of %s were late in turn: the others waited %.0f %% of the time.\n",
                       host_name(summary, host), share);
    } else {
        pl_text_printf(summary->text, "The ranks were late in turn, no one rank: they waited %.0f %% of the time.\n",
                       share);
    }
    return PL_OK;
}

static void fill_shares(struct rank *rank, int64_t all_ns)
{
    const int64_t spans_ns = rank->span_ns[SPAN_DATA] + rank->span_ns[SPAN_SAVE];
    double *shares = rank->told.shares;

    shares[PL_TRACE_COMPUTES] = percent(rank->own_ns > spans_ns ? rank->own_ns - spans_ns : 0, all_ns);
    shares[PL_TRACE_DATA] = percent(rank->span_ns[SPAN_DATA], all_ns);
    shares[PL_TRACE_SAVES] = percent(rank->span_ns[SPAN_SAVE], all_ns);
    shares[PL_TRACE_WAITS] = percent(rank->waiting_ns, all_ns);
    shares[PL_TRACE_MOVES] = percent(rank->moving_ns, all_ns);
}

/* Appends the ranks whose newest collective is `sequence`, or with `others` all other ranks. Returns how many. */
static int append_ranks(const struct summary *summary, uint64_t sequence, bool others, struct pl_text *text)
{
    int count = 0;

    for (size_t i = 0; i < summary->count; i++) {
        if ((summary->ranks[i].ring.head.posted_sequence == sequence) != others) {
            pl_text_printf(text, "%s%d", count ? ", " : "", summary->ranks[i].ring.head.rank);
            count++;
        }
    }
    return count;
}

/* Says which ranks are in a collective that has not ended, and which have not reached it. */
static void say_unfinished(const struct summary *summary)
{
    PL_AUTO_TEXT struct pl_text in = PL_TEXT_NONE, missing = PL_TEXT_NONE;
    const struct rank *newest = &summary->ranks[0];
    bool unfinished = false;
    uint64_t sequence;

    for (size_t i = 0; i < summary->count; i++) {
        const struct rank *rank = &summary->ranks[i];

        unfinished = unfinished || rank->ring.head.posted_sequence > rank->last;
        newest = rank->ring.head.posted_sequence > newest->ring.head.posted_sequence ? rank : newest;
    }
    if (!unfinished) {
        return;
    }
    sequence = newest->ring.head.posted_sequence;
    append_ranks(summary, sequence, false, &in);
    pl_text_append(summary->text, "Collective ");
    append_collective(summary->text, sequence, newest->ring.head.posted_kind, newest->ring.head.posted_name);
    pl_text_printf(summary->text, " has not ended. In it: rank %s.", pl_text_string(&in));
    if (append_ranks(summary, sequence, true, &missing) > 0) {
        pl_text_printf(summary->text, " Not in it: rank %s.", pl_text_string(&missing));
        for (size_t i = 0; i < summary->count; i++) {
            const struct rank *rank = &summary->ranks[i];

            if (rank->ring.head.posted_sequence != sequence) {
                pl_text_printf(summary->text, " Rank %d came to collective %" PRIu64 " last.", rank->ring.head.rank,
                               rank->ring.head.posted_sequence);
            }
        }
    }
    pl_text_append(summary->text, "\n");
}

/* Names the ranks whose rings were not given. */
static void say_missing(const struct summary *summary)
{
    size_t at = 0;
    bool any = false;

    for (int number = 0; number < summary->size; number++) {
        if (at < summary->count && summary->ranks[at].ring.head.rank == number) {
            at++;
            continue;
        }
        pl_text_printf(summary->text, "%s%d", any ? ", " : "Without the rings of rank ", number);
        any = true;
    }
    if (any) {
        pl_text_append(summary->text, ": what follows is about the others.\n");
    }
}

static enum pl_status summarise(struct summary *summary, struct pl_trace_rank **ret_ranks, size_t *ret_count,
                                struct pl_error *reterr)
{
    struct pl_trace_rank *ranks;

    PL_TRY(find_steps(summary, reterr));
    say_missing(summary);
    if (summary->steps < 2) {
        pl_text_printf(summary->text,
                       "The rings have %zu collectives of all ranks in common, too few to compare. A ring keeps the "
                       "last records; PACELINE_TRACE_RECORDS sets how many.\n",
                       summary->steps);
        say_unfinished(summary);
        return PL_OK;
    }
    PL_TRY(correct_clocks(summary, reterr));
    add_times(summary);
    PL_TRY(add_steps(summary, reterr));
    pl_text_printf(summary->text, "%zu rank%s on %d host%s, collectives %" PRIu64 " to %" PRIu64 ", %.3f s.\n",
                   summary->count, summary->count == 1 ? "" : "s", summary->hosts, summary->hosts == 1 ? "" : "s",
                   summary->first, summary->first + summary->steps - 1, (double)summary->total_ns / PL_NS_PER_S);
    PL_TRY(say_who(summary, reterr));
    say_unfinished(summary);
    PL_TRY(pl_memory_alloc(&ranks, summary->count, sizeof(*ranks), reterr));
    for (size_t i = 0; i < summary->count; i++) {
        fill_shares(&summary->ranks[i], summary->total_ns);
        ranks[i] = summary->ranks[i].told;
    }
    *ret_ranks = ranks;
    *ret_count = summary->count;
    return PL_OK;
}

enum pl_status pl_trace_compare(const char *const *paths, size_t count, struct pl_text *text,
                                struct pl_trace_rank **ret_ranks, size_t *ret_count, struct pl_error *reterr)
{
    struct summary summary = {.count = count, .text = text};
    enum pl_status status = PL_MEMORY;

    *ret_ranks = NULL;
    *ret_count = 0;
    summary.ranks = pl_memory_new(count, sizeof(*summary.ranks), reterr);
    if (summary.ranks) {
        status = read_rings(&summary, paths, reterr);
    }
    if (status == PL_OK) {
        status = summarise(&summary, ret_ranks, ret_count, reterr);
    }
    free_ranks(&summary);
    return status == PL_OK ? pl_text_check(text, reterr) : status;
}

enum pl_status pl_trace_summarise(const char *const *paths, size_t count, struct pl_text *text, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_trace_rank *ranks = NULL;
    size_t rank_count = 0;
    int width = (int)strlen("host");

    PL_TRY(pl_trace_compare(paths, count, text, &ranks, &rank_count, reterr));
    for (size_t i = 0; i < rank_count; i++) {
        const int length = (int)strlen(ranks[i].host);

        width = length > width ? length : width;
    }
    if (rank_count > 0) {
        pl_text_printf(text, "\n  rank  %-*s  computes  data  saves  waits for others  moves data  late\n", width,
                       "host");
    }
    for (size_t i = 0; i < rank_count; i++) {
        const struct pl_trace_rank *rank = &ranks[i];

        pl_text_printf(text, "  %4d  %-*s  %6.1f %%  %2.0f %%  %3.0f %%  %14.1f %%  %8.1f %%  %4" PRIu64 "\n",
                       rank->rank, width, rank->host, rank->shares[PL_TRACE_COMPUTES], rank->shares[PL_TRACE_DATA],
                       rank->shares[PL_TRACE_SAVES], rank->shares[PL_TRACE_WAITS], rank->shares[PL_TRACE_MOVES],
                       rank->late);
    }
    return pl_text_check(text, reterr);
}
