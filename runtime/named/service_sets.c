/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service's process sets, and the names in them. A set is a numbered group of ranks with its own world and engine. A
 * name is in flight, or the set's engine has an entry for it that all ranks know.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/world_private.h"
#include "runtime/compare_lines.h"
#include "runtime/named/operation.h"
#include "runtime/named/service_private.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "process sets" /* for messages */

/* How long the members wait for each other to make a set's world, after all ranks have compared their lists. */
static const int64_t MEET_NS = 60 * PL_NS_PER_S;

/* ---- names ---- */

struct pl_service_name *pl_service_find_name(struct pl_service *service, int set, const char *text, bool is_group)
{
    uint64_t hash = pl_hash(PL_HASH_START, text, strlen(text));
    struct pl_service_name *name = service->synced.names[hash % SERVICE_NAME_CHAINS];

    while (name &&
           (name->hash != hash || name->set != set || name->is_group != is_group || strcmp(name->text, text) != 0)) {
        name = name->next;
    }
    return name;
}

enum pl_status pl_service_claim_name(struct pl_service *service, struct pl_service_name *name,
                                     struct pl_named_submission *submission, struct pl_error *reterr)
{
    if (name && name->submission) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is still under way: wait for it before it is submitted again",
                            submission->name);
    }
    if (!name) {
        size_t text_bytes = strlen(submission->name) + 1;
        struct pl_service_name **chain;

        PL_TRY(pl_memory_alloc(&name, 1, sizeof(*name) + text_bytes, reterr));
        name->hash = pl_hash(PL_HASH_START, submission->name, text_bytes - 1);
        name->set = submission->number;
        name->is_group = submission->is_grouped;
        memcpy(name->text, submission->name, text_bytes);
        chain = &service->synced.names[name->hash % SERVICE_NAME_CHAINS];
        name->next = *chain;
        *chain = name;
    }
    name->submission = submission;
    submission->of_name = name;
    return PL_OK;
}

/* Drops a name that is neither in flight nor known to all ranks. */
static void drop(struct pl_service *service, struct pl_service_name *name)
{
    struct pl_service_name **at = &service->synced.names[name->hash % SERVICE_NAME_CHAINS];

    while (*at != name) {
        at = &(*at)->next;
    }
    *at = name->next;
    free(name);
}

void pl_service_drop_name(struct pl_service *service, struct pl_named_submission *submission)
{
    struct pl_service_name *name = PL_TAKE(submission->of_name);

    if (name) {
        name->submission = NULL;
        if (!name->entry) {
            drop(service, name);
        }
    }
}

/* Forgets the entries of a set before it is removed. */
static void forget_names(struct pl_service *service, int set)
{
    for (size_t i = 0; i < SERVICE_NAME_CHAINS; i++) {
        for (struct pl_service_name *name = service->synced.names[i], *next; name; name = next) {
            next = name->next;
            if (name->set == set) {
                name->entry = NULL;
                if (!name->submission) {
                    drop(service, name);
                }
            }
        }
    }
}

static void names_done(struct pl_service *service)
{
    for (size_t i = 0; i < SERVICE_NAME_CHAINS; i++) {
        for (struct pl_service_name *name = service->synced.names[i], *next; name; name = next) {
            next = name->next;
            free(name);
        }
    }
}

/* ---- sets ---- */

static void set_release(struct pl_service *service, struct pl_service_members *set)
{
    struct pl_named **at = &service->all;

    while (set->named && *at && *at != set->named) {
        at = &(*at)->next;
    }
    if (set->named && *at) {
        *at = set->named->next;
    }
    pl_named_free(set->named);
    if (set->world != service->world) {
        pl_world_free(set->world);
    }
    free(set->ranks);
    memset(set, 0, sizeof(*set));
}

void pl_service_sets_free(struct pl_service *service)
{
    for (size_t i = service->set_count; i-- > 0;) {
        set_release(service, &service->sets[i]);
    }
    free(service->sets);
    names_done(service);
}

enum pl_status pl_service_sets_new(struct pl_service *service, struct pl_error *reterr)
{
    int size = pl_world_size(service->world);
    struct pl_service_members *all;

    PL_TRY(pl_memory_grow(&service->sets, &service->set_capacity, 1, sizeof(*all), reterr));
    all = memset(service->sets, 0, sizeof(*all));
    service->set_count = 1;
    all->world = service->world;
    all->count = size;
    PL_TRY(pl_memory_alloc(&all->ranks, (size_t)size, sizeof(int), reterr));
    for (int i = 0; i < size; i++) {
        all->ranks[i] = i;
    }
    PL_TRY(pl_named_new(service->world, &service->options, &all->named, reterr));
    service->all = all->named;
    return PL_OK;
}

/* Returns PL_OK if all ranks make the same call and none has failed before (`own`). */
static enum pl_status compare_ranks(struct pl_service *service, const char *verb, const int *ranks, int count,
                                    struct pl_error *own, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *line;

    pl_text_append(&text, verb);
    for (int i = 0; i < count; i++) {
        pl_text_printf(&text, i ? ",%d" : " %d", ranks[i]);
    }
    if (own->status == PL_OK) {
        own->status = pl_text_check(&text, own);
    }
    line = pl_text_string(&text);
    return pl_compare_lines(service->world, WHAT, own, &line, 1, reterr);
}

static int find_ranks(const struct pl_service *service, const int *ranks, int count)
{
    for (size_t i = 0; i < service->set_count; i++) {
        const struct pl_service_members *set = &service->sets[i];

        if (count > 0 && set->count == count && memcmp(set->ranks, ranks, (size_t)count * sizeof(int)) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static enum pl_status check_list(const struct pl_service *service, const int *ranks, int count, struct pl_error *reterr)
{
    int found;

    PL_TRY(pl_ranks_check("a process set", ranks, count, pl_world_size(service->world), reterr));
    found = find_ranks(service, ranks, count);
    return found < 0 ? PL_OK : pl_error_set(reterr, PL_INVALID, "these ranks are process set %d already", found);
}

/* If this rank is a member, makes the new set's world and engine. */
static enum pl_status open_member(struct pl_service *service, struct pl_service_members *set, struct pl_error *reterr)
{
    for (int i = 0; i < set->count; i++) {
        if (set->ranks[i] == pl_world_rank(service->world)) {
            PL_TRY(pl_world_new_sub_until(service->world, set->ranks, set->count, pl_deadline_after_ns(MEET_NS),
                                          &set->world, reterr));
            PL_TRY(pl_named_new(set->world, &service->options, &set->named, reterr));
            pl_named_use_device(set->named, service->all->device.device);
            return PL_OK;
        }
    }
    return PL_OK;
}

/* Allocates the memory that every rank needs for a set. */
static enum pl_status make_room(struct pl_service *service, size_t number, struct pl_service_members *set,
                                const int *ranks, struct pl_error *reterr)
{
    PL_TRY(
        pl_memory_grow(&service->sets, &service->set_capacity, number + 1, sizeof(struct pl_service_members), reterr));
    PL_TRY(pl_memory_alloc(&set->ranks, (size_t)set->count, sizeof(int), reterr));
    memcpy(set->ranks, ranks, (size_t)set->count * sizeof(int));
    return PL_OK;
}

enum pl_status pl_service_sets_add(struct pl_service *service, const int *ranks, int count, int *ret_set,
                                   struct pl_error *reterr)
{
    struct pl_service_members set = {.count = count};
    struct pl_error own = PL_ERROR_NONE;
    enum pl_status status;
    size_t number = 1;

    while (number < service->set_count && service->sets[number].count > 0) {
        number++;
    }
    if (count > 0) {
        own.status = make_room(service, number, &set, ranks, &own);
    }
    status = compare_ranks(service, "add ranks", ranks, count, &own, reterr);
    if (status == PL_OK) {
        status = check_list(service, ranks, count, reterr); /* the lists are equal on all ranks, so the result is too */
    }
    if (status == PL_OK) {
        own.status = open_member(service, &set, &own);
        status = pl_compare_lines(service->world, WHAT, &own, NULL, 0, reterr);
    }
    if (status != PL_OK) {
        set_release(service, &set);
        return status;
    }
    if (number == service->set_count) {
        service->set_count++;
    }
    service->sets[number] = set;
    if (set.named) {
        set.named->next = service->all->next;
        service->all->next = set.named;
    }
    *ret_set = (int)number;
    return PL_OK;
}

static struct pl_service_members *find(const struct pl_service *service, int set)
{
    return set >= 0 && (size_t)set < service->set_count && service->sets[set].count > 0 ? &service->sets[set] : NULL;
}

static enum pl_status unknown(int set, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "there is no process set %d", set);
}

/*
 * Returns PL_OK if no member has an operation of `set` in flight; else all ranks report the name of one operation.
 * `*all_at` has room for the names of all ranks. Collective.
 */
static enum pl_status check_idle(struct pl_service *service, int set, void **all_at, struct pl_error *reterr)
{
    const struct pl_service_members *found = find(service, set);
    const char *name = found->named ? pl_named_name_under_way(found->named) : NULL;
    const char *agreed = found->named ? pl_named_name_agreed(found->named) : NULL;
    size_t size = (size_t)pl_world_size(service->world);
    char own[PL_NAMED_MAX_NAME_BYTES] = "";

    name = name ? name : agreed ? agreed : "";
    memcpy(own, name, pl_text_whole_bytes(name, strnlen(name, sizeof(own) - 1))); /* a group's may be longer */
    PL_TRY(pl_compare_gather(service->world, own, all_at, sizeof(own), reterr));
    for (size_t rank = 0; rank < size; rank++) {
        const char *other = (const char *)*all_at + rank * sizeof(own);

        if (*other) {
            return pl_error_set(reterr, PL_INVALID, "process set %d cannot be removed: '%s' is under way on rank %d",
                                set, other, pl_world_global_rank(service->world, (int)rank));
        }
    }
    return PL_OK;
}

enum pl_status pl_service_sets_remove(struct pl_service *service, int set, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;
    PL_AUTO_FREE void *all = pl_memory_new((size_t)pl_world_size(service->world), PL_NAMED_MAX_NAME_BYTES, &own);

    PL_TRY(compare_ranks(service, "remove set", &set, 1, &own, reterr));
    if (set == 0) {
        return pl_error_set(reterr, PL_INVALID, "process set 0 is the whole world and stays");
    }
    if (!find(service, set)) {
        return unknown(set, reterr);
    }
    PL_TRY(check_idle(service, set, &all, reterr));
    for (struct pl_named_submission *late = service->synced.first; late; late = late->next) {
        late->named = late->number == set ? NULL : late->named;
    }
    forget_names(service, set);
    set_release(service, find(service, set));
    return PL_OK;
}

enum pl_status pl_service_set_named(const struct pl_service *service, int set, struct pl_named **ret_named,
                                    struct pl_error *reterr)
{
    const struct pl_service_members *found = find(service, set);

    if (!found) {
        return unknown(set, reterr);
    }
    if (!found->named) {
        return pl_error_set(reterr, PL_INVALID, "rank %d is not in process set %d",
                            pl_world_global_rank(service->world, pl_world_rank(service->world)), set);
    }
    *ret_named = found->named;
    return PL_OK;
}

/* ---- calls of other threads ---- */

int pl_service_list_sets(struct pl_service *service, int *ret_sets, int room)
{
    int count = 0;

    pthread_mutex_lock(&service->lock);
    for (size_t i = 0; i < service->set_count; i++) {
        if (service->sets[i].count > 0) {
            if (count < room) {
                ret_sets[count] = (int)i;
            }
            count++;
        }
    }
    pthread_mutex_unlock(&service->lock);
    return count;
}

int pl_service_find_set(struct pl_service *service, const int *ranks, int count)
{
    int found;

    pthread_mutex_lock(&service->lock);
    found = find_ranks(service, ranks, count);
    pthread_mutex_unlock(&service->lock);
    return found;
}

enum pl_status pl_service_get_set(struct pl_service *service, int set, struct pl_service_set *ret_set, int *ret_ranks,
                                  int room, struct pl_error *reterr)
{
    const struct pl_service_members *found;
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&service->lock);
    found = find(service, set);
    if (!found) {
        status = unknown(set, reterr);
    } else if (ret_ranks && found->count != room) {
        status = pl_error_set(reterr, PL_INVALID, "process set %d has %d ranks now, not %d", set, found->count, room);
    } else {
        *ret_set = (struct pl_service_set){found->count, found->world ? pl_world_rank(found->world) : -1, found->world};
        for (int i = 0; ret_ranks && i < room; i++) {
            ret_ranks[i] = found->ranks[i];
        }
    }
    pthread_mutex_unlock(&service->lock);
    return status;
}
