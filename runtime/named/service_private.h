/* SPDX-License-Identifier: Apache-2.0 */
/** The service's structs, and what its two files use of each other. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_SERVICE_PRIVATE_H
#define PL_RUNTIME_NAMED_SERVICE_PRIVATE_H

#include "runtime/named/engine.h"
#include "runtime/service.h"

#include <pthread.h>

enum { SERVICE_NAME_CHAINS = 1024 };

enum pl_service_kind {
    SERVICE_OPERATIONS, /* one, or a group of them */
    SERVICE_JOIN,
    SERVICE_ADD_SET, /* these two: a fence in set 0, then the call */
    SERVICE_REMOVE_SET,
};

/** What was submitted with one call, until it has ended. */
struct pl_service_item {
    enum pl_service_kind kind;
    struct pl_completion *completion;
    int number;             /* of its process set, which may be gone before the item is handed over */
    struct pl_named *named; /* from then on */
    char *name;             /* of the operation or, `grouped`, of the group; NULL: numbered */
    uint64_t *splits;       /* of the operations, one after the other */
    const int *ranks;       /* ADD_SET */
    int rank_count;
    int *set; /* ADD_SET: out, REMOVE_SET: in */
    pl_named_handle handle;
    struct pl_service_item *next_of_name;
    struct pl_service_item *next; /* submitted, or ended */
    struct pl_service_item *previous_taken, *next_taken;
    bool grouped;
    size_t count;
    struct pl_named_op ops[];
};

struct pl_service {
    struct pl_world *world;
    struct pl_process_sets *sets; /* changed by who leads, with the lock; read with either */
    struct pl_named *all;         /* set 0; the others are its siblings */
    uint64_t start_bytes;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for those who wait */
    pthread_cond_t work;    /* for the thread */
    struct {
        struct pl_service_item *first, *last;               /* submitted, not yet taken */
        uint64_t bytes;                                     /* of those */
        struct pl_service_item *names[SERVICE_NAME_CHAINS]; /* under way, by name and set */
        uint64_t submitted;                                 /* counts up */
        size_t outstanding;                                 /* submitted, not yet ended */
        size_t calls;                /* of those, the ones that end in a callback: nobody waits */
        unsigned waiters;            /* threads that wait */
        bool leads;                  /* a thread drives; it alone uses what is below `synced` */
        bool naps;                   /* it would, but has nothing to do for a moment */
        bool thread_sleeps;          /* until it is woken */
        bool urgent;                 /* the thread need not wait for a waiter */
        bool joining, changing_sets; /* submitted, not yet ended */
        bool leaving, left;
        bool stop;
        int64_t aborts_until_ns; /* threads that wait leave the lead to pl_service_abort() until then */
    } synced;
    /* Of who leads. */
    struct pl_service_item *first_taken; /* under way in an engine */
    struct pl_service_item *join, *set_change;
    uint64_t moves;
    int64_t moved_ns; /* when something moved last */
    int64_t reported_ns;
    int64_t kept_ns; /* since when an end is kept back; 0: none is */
};

/**
 * Take what was submitted, advance every engine once, and report what has ended. With `block` it may wait until
 * something moved. True when something did. The caller leads, and does not hold the lock.
 */
bool pl_service_step(struct pl_service *service, bool block);

/** End everything that is under way with the status of `error`. */
void pl_service_end_all(struct pl_service *service, const struct pl_error *error);

/** How long nothing has moved; warns where that lasts. Of who leads. */
int64_t pl_service_idle_ns(struct pl_service *service);

/** The place in its chain of `item`'s name, or of an equal one under way. Under the lock. */
struct pl_service_item **pl_service_find_name(struct pl_service *service, const struct pl_service_item *item);

void pl_service_item_free(struct pl_service_item *item);

#endif
