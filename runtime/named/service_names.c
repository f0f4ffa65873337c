/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a service, by set: which are under way, and which entries the engines have for those that all ranks
 * know. The lock is held in all of them.
 */
#include "base/hash.h"
#include "base/memory.h"
#include "runtime/named/service_private.h"

#include <stdlib.h>
#include <string.h>

/* Returns the place of a name in its chain, which points to NULL if it is not there. */
static struct pl_service_name **find_name(struct pl_service *service, int set, const char *text, bool is_group,
                                          uint64_t *ret_hash)
{
    struct pl_service_name **at;

    *ret_hash = pl_hash(PL_HASH_START, text, strlen(text));
    at = &service->synced.names[*ret_hash % SERVICE_NAME_CHAINS];
    while (*at && ((*at)->hash != *ret_hash || (*at)->set != set || (*at)->is_group != is_group ||
                   strcmp((*at)->text, text) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

enum pl_status pl_service_claim_name(struct pl_service *service, struct pl_named_submission *submission,
                                     struct pl_error *reterr)
{
    size_t text_bytes = strlen(submission->name) + 1;
    uint64_t hash;
    struct pl_service_name **at =
        find_name(service, submission->number, submission->name, submission->is_grouped, &hash);

    if (*at && (*at)->submission) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is still under way: wait for it before it is submitted again",
                            submission->name);
    }
    if (!*at) {
        struct pl_service_name *name = pl_memory_new(1, sizeof(*name) + text_bytes, reterr);

        if (!name) {
            return PL_MEMORY;
        }
        name->hash = hash;
        name->set = submission->number;
        name->is_group = submission->is_grouped;
        memcpy(name->text, submission->name, text_bytes);
        *at = name;
    }
    (*at)->submission = submission;
    submission->of_name = *at;
    return PL_OK;
}

/* Drops a name that stands for nothing any more. */
static void drop_if_idle(struct pl_service *service, struct pl_service_name *name)
{
    struct pl_service_name **at = &service->synced.names[name->hash % SERVICE_NAME_CHAINS];

    if (!name->submission && !name->entry) {
        while (*at != name) {
            at = &(*at)->next;
        }
        *at = name->next;
        free(name);
    }
}

void pl_service_drop_name(struct pl_service *service, struct pl_named_submission *submission)
{
    struct pl_service_name *name = PL_TAKE(submission->of_name);

    if (name) {
        name->submission = NULL;
        drop_if_idle(service, name);
    }
}

void pl_service_forget_names(struct pl_service *service, int set)
{
    for (size_t i = 0; i < SERVICE_NAME_CHAINS; i++) {
        for (struct pl_service_name *name = service->synced.names[i], *next; name; name = next) {
            next = name->next;
            if (name->set == set) {
                name->entry = NULL;
                drop_if_idle(service, name);
            }
        }
    }
}

void pl_service_names_done(struct pl_service *service)
{
    for (size_t i = 0; i < SERVICE_NAME_CHAINS; i++) {
        for (struct pl_service_name *name = service->synced.names[i], *next; name; name = next) {
            next = name->next;
            free(name);
        }
    }
}
