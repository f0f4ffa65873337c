/* SPDX-License-Identifier: Apache-2.0 */
/** The service's structs, and the functions that its files share. Internal to runtime/. */
#ifndef PL_RUNTIME_NAMED_SERVICE_PRIVATE_H
#define PL_RUNTIME_NAMED_SERVICE_PRIVATE_H

#include "runtime/named/engine.h"
#include "runtime/service.h"

#include <pthread.h>

enum { SERVICE_NAME_CHAINS = 1024 };

/** A name in a process set that a submission uses now, or that all ranks know. */
struct pl_service_name {
    struct pl_service_name *next;           /* next one in its hash chain */
    struct pl_named_submission *submission; /* submission that uses the name now; NULL: none */
    struct pl_named_entry *entry;           /* entry that all ranks know, fixed; NULL: it may change */
    uint64_t hash;
    int set;
    bool is_group;
    char text[];
};

/** A process set, until it is removed. */
struct pl_service_members {
    int count;  /* number of ranks; 0: the set's number is free */
    int *ranks; /* [count], ranks of the whole world in the set's order */
    /* for the members' engine; its rank numbers and roots count in the set. NULL: this rank is not a member */
    struct pl_world *world;
    struct pl_named *named;
};

struct pl_service {
    pthread_mutex_t opening;  /* held while a device is opened; guards `device` and `is_released` */
    struct pl_device *device; /* the device that pl_service_use_device() has opened; NULL: none */
    bool is_released;
    struct pl_world *world;
    /* written by the leader with the lock held; read by the leader, or with the lock held */
    struct pl_service_members *sets; /* [set_capacity], indexed by set number */
    size_t set_count, set_capacity;
    struct pl_named *all; /* engine of set 0, first in the list of engines */
    struct pl_named_options options;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled for waiting threads */
    pthread_cond_t work;    /* signalled for the service's thread */
    struct {
        struct pl_named_submission *first, *last; /* submissions that the leader has not taken yet */
        uint64_t bytes;                           /* sum of the bytes of these submissions */
        struct pl_named_submission *spare;        /* ended small submissions, whose memory is reused */
        struct pl_service_name *names[SERVICE_NAME_CHAINS];
        uint64_t calls_made;         /* number of submissions and of waits that have ended */
        size_t outstanding;          /* number of submissions that have not ended */
        size_t calls;                /* number of submissions that end in a callback: no thread waits for them */
        unsigned waiters;            /* number of waiting threads */
        bool leads;                  /* a thread leads; only this thread uses the fields after `synced` */
        bool under_way;              /* after the last step operations in host memory were queued for a round or ran */
        bool naps;                   /* the leader sleeps briefly because nothing has moved */
        bool thread_sleeps;          /* the service's thread sleeps until it is woken */
        bool urgent;                 /* the service's thread must lead at once, and not wait for other threads */
        bool joining, changing_sets; /* a join or a change of the sets was submitted and has not ended */
        bool leaving, left;
        bool stop;
        int64_t aborts_until_ns; /* until this time waiting threads leave the lead to pl_service_abort() */
        int64_t begun_ns;        /* time when a thread last led for one step after a submission */
    } synced;
    /* used by the leader only */
    struct pl_named_submission *first_taken; /* submissions in flight in an engine */
    struct pl_named_submission *join, *set_change;
    uint64_t moves;
    int64_t moved_ns; /* time of the last progress; 0: the last step made progress */
    int64_t reported_ns;
    int64_t kept_ns; /* start of the time for which ended submissions are held back; 0: none is held back */
};

/**
 * Takes new submissions, advances every engine once, and reports ended submissions. With `block` it may wait for
 * progress. Returns whether there was any. The caller leads, and holds the lock, which is released meanwhile.
 */
bool pl_service_step(struct pl_service *service, bool block);

/**
 * Makes the calling thread the leader. Returns false if another thread does not leave the lead before the deadline;
 * that thread may hold the lock. `stops`: the service's own thread must end.
 */
bool pl_service_take_lead(struct pl_service *service, bool stops, int64_t deadline_ns);

/** Gives up the lead. */
void pl_service_leave_lead(struct pl_service *service);

/** Ends the worlds of all engines; the other ranks get the error `why`. Called by the leader of a process that ends. */
void pl_service_revoke(struct pl_service *service, const struct pl_error *why);

/** Ends all submissions with the status of `error`. The rules of pl_service_step() apply. */
void pl_service_end_all(struct pl_service *service, const struct pl_error *error);

/** Returns how long nothing has moved; warns if that lasts long. Called by the leader after a step. */
int64_t pl_service_idle_ns(struct pl_service *service);

/*
 * Names, in service_sets.c. Call these under the lock.
 */

/** Returns the name of an operation, or of a group, in `set`; NULL: there is none. */
struct pl_service_name *pl_service_find_name(struct pl_service *service, int set, const char *text, bool is_group);

/** Gives a submission its name. If `name` is NULL, it is made. No other submission may use the name. */
enum pl_status pl_service_claim_name(struct pl_service *service, struct pl_service_name *name,
                                     struct pl_named_submission *submission, struct pl_error *reterr) PL_MUST_CHECK;

/** Frees the name of a submission for others. */
void pl_service_drop_name(struct pl_service *service, struct pl_named_submission *submission);

/** Keeps the memory of a submission for reuse, or frees it. Call it under the lock. */
void pl_service_submission_free(struct pl_named_submission *submission);

/** Make set 0; release all sets, without waiting, and all names. */
enum pl_status pl_service_sets_new(struct pl_service *service, struct pl_error *reterr) PL_MUST_CHECK;
void pl_service_sets_free(struct pl_service *service);

/**
 * Do the work of pl_service_add_set() and pl_service_remove_set(), after ranks have agreed and set 0 has nothing in
 * flight. Call them under the lock. Collective.
 */
enum pl_status pl_service_sets_add(struct pl_service *service, const int *ranks, int count, int *ret_set,
                                   struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_service_sets_remove(struct pl_service *service, int set, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the engine of `set`. PL_INVALID: the set is unknown, or this rank is not a member. */
enum pl_status pl_service_set_named(const struct pl_service *service, int set, struct pl_named **ret_named,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
