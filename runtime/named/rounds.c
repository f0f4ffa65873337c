/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negotiation rounds: ranks announce submissions, and process all announcements. Every rank processes the same bytes in
 * the same order.
 */

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/device.h"
#include "runtime/named/operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first byte of an announcement in a payload. */
enum announcement {
    ANNOUNCE_ID = 1,        /* uint32_t id, row counts */
    ANNOUNCE_WHOLE = 2,     /* uint16_t name length, name, definition, row counts */
    ANNOUNCE_ANONYMOUS = 3, /* as ANNOUNCE_WHOLE, but the name is used only once */
};

enum { WAITING_LINES = 8 };

#define AGREEING "agreeing on named tensors" /* for messages */

/* The times between two rounds that agree on nothing. */
static const int64_t NAP_SHORTEST_NS = 20 * PL_NS_PER_US;
static const int64_t NAP_LONGEST_NS = 2 * PL_NS_PER_MS;

static void announce_long(struct pl_named *named, const struct pl_operation *operation, bool by_id)
{
    struct pl_text *payload = &named->round.payload;
    size_t row_counts = pl_named_definition_row_counts(&operation->definition, named->ranks);

    if (by_id) {
        pl_text_append_char(payload, ANNOUNCE_ID);
        pl_text_append_n(payload, (const char *)&operation->entry->id, sizeof(operation->entry->id));
    } else {
        uint16_t length = (uint16_t)strlen(operation->entry->name);

        pl_text_append_char(payload, operation->is_anonymous ? ANNOUNCE_ANONYMOUS : ANNOUNCE_WHOLE);
        pl_text_append_n(payload, (const char *)&length, sizeof(length));
        pl_text_append_n(payload, operation->entry->name, length);
        pl_text_append_n(payload, (const char *)&operation->definition, sizeof(operation->definition));
    }
    pl_text_append_n(payload, (const char *)operation->row_counts, row_counts * sizeof(uint64_t));
}

/* Returns whether the number fits into the head: at the end of the last range, or as a new range. */
static bool announce_short(struct pl_named_head *head, unsigned *ranges, uint32_t id)
{
    if (*ranges > 0 && head->ranges[*ranges - 1].first + head->ranges[*ranges - 1].count == id) {
        head->ranges[*ranges - 1].count++;
        return true;
    }
    if (*ranges == NAMED_HEAD_RANGES) {
        return false;
    }
    head->ranges[*ranges].first = id;
    head->ranges[(*ranges)++].count = 1;
    return true;
}

/*
 * Appends to a warning what this rank waits for. This is computed only for a warning, because a name for each round's
 * allgather would cost time. It names one tensor and the ranks that had not submitted it in earlier rounds, or says
 * that ranks join or leave.
 */
void pl_named_append_awaited(const void *subject, struct pl_text *text)
{
    const struct pl_named *named = subject;
    const struct pl_named_entry *entry = named->table.first_pending;
    const char *name = pl_named_name_under_way(named);

    while (entry && !(entry->announced_by[named->rank / 64] >> named->rank % 64 & 1)) {
        entry = entry->next_pending;
    }
    pl_text_append(text, AGREEING);
    if (entry) {
        pl_text_append(text, ": ");
        pl_named_entry_waiting_text(&named->table, entry, text);
    } else if (name) {
        pl_text_printf(text, ": '%s' is submitted here", name);
    } else if (named->joining || named->leaving) {
        pl_text_append(text, named->joining ? ": this rank has joined" : ": this rank shuts them down");
    }
}

static enum pl_status corrupt(const struct pl_named *named, int rank, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT,
                        "rank %d sent an announcement that this rank cannot read: are all ranks the same program?",
                        pl_world_global_rank(named->world, rank));
}

static enum pl_status take_ranges(struct pl_named *named, int rank, struct pl_error *reterr)
{
    const struct pl_named_head *head = &named->round.heads[rank];

    for (unsigned i = 0; i < NAMED_HEAD_RANGES; i++) {
        for (uint32_t id = head->ranges[i].first; id - head->ranges[i].first < head->ranges[i].count; id++) {
            struct pl_named_entry *entry = id < named->table.known_count ? named->table.known[id] : NULL;

            if (!entry) {
                return corrupt(named, rank, reterr);
            }
            PL_TRY(pl_named_table_announce(&named->table, entry, rank, NULL, NULL, reterr));
            if (named->is_observed) {
                pl_named_observed(named, PL_NAMED_ANNOUNCED, entry, rank, entry->announced == 1);
            }
        }
    }
    return PL_OK;
}

/* Processes one announcement of `rank`'s payload at `*at`, and advances `*at`. */
static enum pl_status process_announcement(struct pl_named *named, int rank, const unsigned char **at,
                                           const unsigned char *end, struct pl_error *reterr)
{
    char name[PL_NAMED_MAX_NAME_BYTES + 64];
    struct pl_named_definition definition;
    struct pl_named_entry *entry;
    unsigned char type = *(*at)++;
    size_t row_counts_bytes;

    if (type == ANNOUNCE_ID) {
        uint32_t id;

        if ((size_t)(end - *at) < sizeof(id)) {
            return corrupt(named, rank, reterr);
        }
        memcpy(&id, *at, sizeof(id));
        *at += sizeof(id);
        if (id >= named->table.known_count) {
            return corrupt(named, rank, reterr);
        }
        entry = named->table.known[id];
        definition = entry->agreed;
    } else {
        uint16_t length;

        if ((size_t)(end - *at) < sizeof(length)) {
            return corrupt(named, rank, reterr);
        }
        memcpy(&length, *at, sizeof(length));
        *at += sizeof(length);
        if (length >= sizeof(name) || (size_t)(end - *at) < length + sizeof(definition)) {
            return corrupt(named, rank, reterr);
        }
        memcpy(name, *at, length);
        name[length] = '\0';
        memcpy(&definition, *at + length, sizeof(definition));
        *at += length + sizeof(definition);
        entry = pl_named_table_find(&named->table, name, reterr);
        if (!entry) {
            return PL_MEMORY;
        }
        if (entry->announced == 0 && !entry->known) {
            entry->anonymous = type == ANNOUNCE_ANONYMOUS;
        }
    }
    row_counts_bytes = pl_named_definition_row_counts(&definition, named->ranks) * sizeof(uint64_t);
    if ((size_t)(end - *at) < row_counts_bytes) {
        return corrupt(named, rank, reterr);
    }
    PL_TRY(pl_named_table_announce(&named->table, entry, rank, &definition, row_counts_bytes ? *at : NULL, reterr));
    pl_named_observed(named, PL_NAMED_ANNOUNCED, entry, rank, entry->announced == 1);
    *at += row_counts_bytes;
    return PL_OK;
}

/* Fails an operation that has no collective; it may still be queued. */
static void fail(struct pl_named *named, struct pl_operation *operation, enum pl_status status, const char *failure)
{
    pl_operation_unqueue(named, operation);
    pl_operation_agree(named, operation);
    pl_operation_end(named, operation, status, failure);
}

/* Fails every tensor that does not run yet. All ranks do so in the same round. */
static enum pl_status fail_pending(struct pl_named *named, enum pl_status status, const char *failure,
                                   struct pl_error *reterr)
{
    while (named->table.first_pending) {
        struct pl_named_entry *entry = named->table.first_pending;

        pl_named_observed(named, PL_NAMED_AGREED, entry, named->rank, false);
        PL_TRY(pl_named_table_retire(&named->table, entry, false, reterr));
        if (entry->local && entry->local->state != OPERATION_RUNNING) {
            fail(named, entry->local, status, failure);
        } else {
            pl_named_table_drop_idle(&named->table, entry);
        }
    }
    return PL_OK;
}

/* Appends the names of the tensors that ranks wait for, each with the ranks that have not submitted it. */
static void append_waiting(const struct pl_named *named, struct pl_text *text)
{
    int lines = 0;

    for (const struct pl_named_entry *entry = named->table.first_pending; entry; entry = entry->next_pending) {
        if (lines++ == WAITING_LINES) {
            pl_text_append(text, "; and more");
            break;
        }
        pl_text_append(text, lines > 1 ? "; " : "");
        pl_named_entry_waiting_text(&named->table, entry, text);
    }
}

/* Fails the tensors that ranks wait for in vain. The error names them, and the ranks that have not submitted them. */
static enum pl_status fail_waiting(struct pl_named *named, enum pl_status status, const char *why,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_append(&text, why);
    append_waiting(named, &text);
    PL_TRY(pl_text_check(&text, reterr));
    return fail_pending(named, status, text.data, reterr);
}

static void append_all_awaited(const void *subject, struct pl_text *text)
{
    pl_text_append(text, AGREEING ": ");
    append_waiting(subject, text);
}

/* Warns of the tensor that has been pending longest while rounds go on. Only the lowest rank warns. */
static void warn_of_oldest(struct pl_named *named)
{
    const struct pl_named_entry *oldest = named->table.first_pending;
    struct pl_named_round *round = &named->round;

    if (oldest->pending_number != round->oldest_number) {
        round->oldest_number = oldest->pending_number;
        round->oldest_since_ns = pl_clock_now_ns();
        round->oldest_reported_ns = 0;
        return;
    }
    pl_world_report_wait(named->world, pl_clock_now_ns() - round->oldest_since_ns, &round->oldest_reported_ns,
                         &(struct pl_about){.append = append_all_awaited, .subject = named});
}

/* Decides whether to wait longer for tensors that are not ready. `any`: the flags that at least one rank has set. */
static enum pl_status check_waiting(struct pl_named *named, uint32_t any, struct pl_error *reterr)
{
    if (named->table.ready_count > 0) {
        named->round.deadline_ns = 0;
        return PL_OK;
    }
    if (any & NAMED_HEAD_EXPIRED) { /* other threads might still have submitted the tensors */
        PL_TRY(fail_waiting(named, PL_TIMEOUT,
                            "waited until the deadline for tensors that not all ranks have submitted: ", reterr));
    }
    if (!named->table.first_pending) {
        named->round.deadline_ns = 0;
    } else if (!named->round.deadline_ns) {
        named->round.deadline_ns = pl_world_deadline_ns(named->world);
    }
    return PL_OK;
}

/* Sets a growing delay between rounds that agree on nothing, while ranks wait for submissions of other threads. */
static void pace(struct pl_named *named, uint32_t any)
{
    struct pl_named_round *round = &named->round;
    int64_t now_ns;

    if (any & NAMED_HEAD_UPDATES) {
        round->quiet_since_ns = round->quiet_until_ns = 0;
        named->moves++;
        return;
    }
    now_ns = pl_clock_now_ns();
    round->quiet_since_ns = round->quiet_since_ns ? round->quiet_since_ns : now_ns;
    round->quiet_until_ns =
        now_ns + pl_clock_backoff_ns(now_ns - round->quiet_since_ns, NAP_SHORTEST_NS, NAP_LONGEST_NS);
}

/* Returns whether a round that is needed may begin now. */
static bool may_begin(const struct pl_named *named)
{
    if (named->held) {
        return false;
    }
    return !named->round.quiet_until_ns || named->first_queued || (named->joining && !named->join_announced) ||
           named->leaving || pl_deadline_passed(named->round.quiet_until_ns);
}

static enum pl_status leave(struct pl_named *named, int rank, struct pl_error *reterr)
{
    char failure[PL_RANK_NAME_BYTES + 40], name[PL_RANK_NAME_BYTES];

    named->left = true;
    named->left_rank = rank;
    snprintf(failure, sizeof(failure), "%s shut the named tensors down", pl_world_rank_name(named->world, rank, name));
    PL_TRY(fail_pending(named, PL_CANCELLED, failure, reterr));
    while (named->first_queued) {
        fail(named, named->first_queued, PL_CANCELLED, failure);
    }
    return PL_OK;
}

/* Processes a round that has arrived completely. */
static enum pl_status process_round(struct pl_named *named, struct pl_error *reterr)
{
    const unsigned char *at = named->round.received;
    uint32_t any = 0;
    int leaving_rank = -1;

    if (named->is_observed) {
        pl_named_observed(named, PL_NAMED_ROUND, NULL, 0, false);
    }
    for (int rank = 0; rank < named->ranks; rank++) {
        const struct pl_named_head *head = &named->round.heads[rank];
        const unsigned char *end = at + head->payload_bytes;

        any |= head->flags;
        PL_TRY(take_ranges(named, rank, reterr));
        while (at < end) {
            PL_TRY(process_announcement(named, rank, &at, end, reterr));
        }
        if (head->flags & NAMED_HEAD_JOIN) {
            pl_named_table_join(&named->table, rank);
        }
        if (head->flags & NAMED_HEAD_LEAVE && leaving_rank < 0) {
            leaving_rank = rank;
        }
    }
    PL_TRY(pl_named_table_collect(&named->table, reterr));
    PL_TRY(check_waiting(named, any, reterr));
    pace(named, any);
    if (named->rank == 0 && named->table.first_pending) {
        warn_of_oldest(named);
    }
    PL_TRY(pl_named_run_ready(named, reterr));
    if (named->table.joined_count == named->ranks) {
        named->join_last_rank = named->table.last_joined;
        named->joining = false;
        pl_named_table_join_reset(&named->table);
        /* ranks that joined early have counted fewer automatic names: all start again from 0 */
        named->joins++;
        memset(named->numbered, 0, sizeof(named->numbered));
        named->numbered_groups = 0;
    }
    return leaving_rank >= 0 ? leave(named, leaving_rank, reterr) : PL_OK;
}

/* Processes the heads, and fetches the payloads if any rank has one. */
static enum pl_status process_heads(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_named_round *round = &named->round;
    struct pl_collective payloads = {
        .kind = PL_ALLGATHER,
        .dtype = PL_UINT8,
        .counts = round->payload_bytes,
        .about = {.name = "agreement", .append = pl_named_append_awaited, .subject = named}};
    size_t total = 0;

    for (int rank = 0; rank < named->ranks; rank++) {
        round->payload_bytes[rank] = round->heads[rank].payload_bytes;
        total += round->heads[rank].payload_bytes;
    }
    if (total == 0) {
        return process_round(named, reterr);
    }
    PL_TRY(pl_memory_grow(&round->received, &round->received_capacity, total, 1, reterr));
    payloads.send = pl_text_string(&round->payload);
    payloads.recv = round->received;
    round->in_payload = true;
    return pl_collective_post(named->world, &payloads, &round->request, reterr);
}

/* Begins a round, which may end at once. */
static enum pl_status post_round(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_named_round *round = &named->round;
    const struct pl_collective heads = {
        .kind = PL_ALLGATHER,
        .dtype = PL_UINT8,
        .count = sizeof(struct pl_named_head),
        .send = &round->own,
        .recv = round->heads,
        .about = {.name = "agreement", .append = pl_named_append_awaited, .subject = named}};
    unsigned ranges = 0;
    bool done = false;

    if (!round->persistent) {
        PL_TRY(pl_request_new(named->world, &heads, &round->persistent, reterr));
    }
    memset(&round->own, 0, sizeof(round->own));
    pl_text_clear(&round->payload);
    for (struct pl_operation *operation = named->first_queued; operation; operation = operation->next) {
        const struct pl_named_entry *entry = operation->entry;
        bool by_id = entry->known && memcmp(&entry->agreed, &operation->definition, sizeof(entry->agreed)) == 0;

        if (!by_id || operation->row_counts || !announce_short(&round->own, &ranges, entry->id)) {
            announce_long(named, operation, by_id);
        }
        operation->state = OPERATION_ANNOUNCED;
        round->own.flags |= NAMED_HEAD_UPDATES;
    }
    PL_TRY(pl_text_check(&round->payload, reterr));
    if (round->payload.length > UINT32_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%zu bytes of announcements in one round", round->payload.length);
    }
    named->first_queued = named->last_queued = NULL;
    round->own.payload_bytes = (uint32_t)round->payload.length;
    if (named->joining && !named->join_announced) {
        round->own.flags |= NAMED_HEAD_UPDATES | NAMED_HEAD_JOIN;
        named->join_announced = true;
    }
    if (named->leaving) {
        round->own.flags |= NAMED_HEAD_UPDATES | NAMED_HEAD_LEAVE;
    }
    if (round->deadline_ns && pl_clock_now_ns() > round->deadline_ns) {
        round->own.flags |= NAMED_HEAD_EXPIRED;
    }
    round->in_payload = false;
    PL_TRY(pl_request_start(round->persistent, &round->own, round->heads, &done, reterr));
    if (done) {
        return process_heads(named, reterr);
    }
    round->request = round->persistent;
    return PL_OK;
}

/* Adds the operation's name to the error of its request. */
static enum pl_status in_operation(const struct pl_operation *operation, enum pl_status status, struct pl_error *reterr)
{
    if (status != PL_OK) {
        pl_error_context(reterr, "'%s'", operation->entry->name);
    }
    return status;
}

/* Adds to the error of a round's request the names that this rank waits for. */
static enum pl_status in_round(const struct pl_named *named, enum pl_status status, struct pl_error *reterr)
{
    if (status != PL_OK) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_named_append_awaited(named, &text);
        pl_error_context(reterr, "%s", pl_text_string(&text));
    }
    return status;
}

/* Ends the round's request: processes the received data, and releases the request unless it is persistent. */
static enum pl_status end_request(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_request *request = PL_TAKE(named->round.request);

    PL_TRY(in_round(named, pl_request_wait(request, reterr), reterr));
    return named->round.in_payload ? process_round(named, reterr) : process_heads(named, reterr);
}

/* Waits for the request of the first running operation, and ends the operation. */
static enum pl_status end_running(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_operation *operation = named->first_running;
    enum pl_status status;

    named->first_running = operation->next;
    named->last_running = named->first_running ? named->last_running : NULL;
    status = in_operation(operation, pl_request_wait(PL_TAKE(operation->request), reterr), reterr);
    if (status != PL_OK) {
        if (!operation->submission) {
            pl_operation_end(named, operation, status, NULL);
        }
        return status;
    }
    pl_operation_finish(named, operation);
    return PL_OK;
}

bool pl_named_has_work(const struct pl_named *named)
{
    return named->failure.status == PL_OK && !named->left && named->undone > 0;
}

/* Returns whether this rank waits for something that only a round can change. */
static bool needs_round(const struct pl_named *named)
{
    return !named->left && (named->unagreed > 0 || named->joining || named->leaving);
}

static enum pl_status progress_once(struct pl_named *named, bool block, struct pl_error *reterr)
{
    bool need_round = needs_round(named), progressed = false, needs_another = false, done;

    /*
     * Requests end in the order in which they were started. Operations are tested first, because those of a round are
     * started before the next round.
     */
    while (named->first_running) {
        struct pl_operation *first = named->first_running;

        PL_TRY(in_operation(first, pl_request_test(first->request, &done, reterr), reterr));
        if (!done) {
            break;
        }
        PL_TRY(end_running(named, reterr));
        progressed = true;
    }
    if (!named->first_running && named->round.request) {
        PL_TRY(in_round(named, pl_request_test(named->round.request, &done, reterr), reterr));
        if (done) {
            PL_TRY(end_request(named, reterr));
            progressed = true;
        }
    }
    if (named->device.first) {
        PL_TRY(pl_named_device_progress(named, &progressed, reterr));
    }
    if (progressed) { /* the next submissions may need a round, too */
        return PL_OK;
    }
    if (!named->round.request && need_round && may_begin(named)) {
        PL_TRY(post_round(named, reterr));
        needs_another = !named->round.request && needs_round(named);
    }
    if (!block || named->device.first || !(named->first_running || named->round.request)) {
        return PL_OK;
    }
    if (!named->first_running) {
        PL_TRY(end_request(named, reterr));
        needs_another = needs_round(named); /* if so, it is posted before waiting for this round's operations */
    }
    return named->first_running && !needs_another && !named->device.first ? end_running(named, reterr) : PL_OK;
}

enum pl_status pl_named_progress(struct pl_named *named, bool block, struct pl_error *reterr)
{
    const struct pl_named_observer *observer = named->options.observer;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = named->failure.status;

    if (status == PL_OK) {
        named->is_observed = observer && __atomic_load_n(&observer->active, __ATOMIC_RELAXED);
        status = progress_once(named, block, &error);
        if (status != PL_OK) {
            error.status = status;
            pl_world_place_error(named->world, named->device.device, &error);
            pl_world_revoke(named->world, &error); /* others may not see the cause, such as a lack of memory here */
            named->failure = error;
        }
    }
    if (status != PL_OK && reterr) {
        *reterr = named->failure;
    }
    return status;
}
