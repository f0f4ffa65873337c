/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake driver's files share. */
#ifndef PL_TESTS_FAKES_FAKE_CUDA_PRIVATE_H
#define PL_TESTS_FAKES_FAKE_CUDA_PRIVATE_H

#include "tests/fakes/fake_cuda.h"

#include <cuda.h>
#include <pthread.h>

enum { MAX_DEVICES = 16, MAX_FAILS = 8, MAX_FUNCTIONS = 64 };

/* One cuEventRecord: what was recorded before or later on another stream has nothing to do with it. */
struct record {
    int users;
    bool done;
    bool never; /* in a stream that is stuck */
    int64_t done_ns;
};

struct work {
    struct work *next;
    void (*run)(void *argument);
    void (*guest)(void *argument, bool runs); /* another library's */
    void *argument;                           /* freed after the run where `owned` */
    bool owned;
    bool down;              /* a copy to the host, which can be held */
    struct record *records; /* instead of run */
    struct record *waits_for;
};

struct CUstream_st {
    struct CUctx_st *context;
    struct CUstream_st *next;
    struct work *first;
    struct work **last;
    pthread_t thread;
    bool threaded;
    bool busy;
    bool stuck;  /* what it does never ends */
    bool hangs;  /* nor will what it was given */
    bool closed; /* the thread ends when nothing is left */
};

struct CUevent_st {
    struct CUctx_st *context;
    struct CUevent_st *next;
    struct record *latest; /* NULL: never recorded */
    bool timed;
};

/* What a module gave out, NULL before. */
struct CUfunc_st {
    const struct kernel *kernel;
};

struct CUmod_st {
    struct CUmod_st *next;
    struct CUfunc_st functions[MAX_FUNCTIONS];
};

/* The primary context of one device. */
struct CUctx_st {
    int ordinal; /* among the visible */
    int physical;
    int retained;
    CUresult failure;
    bool kernel_fails; /* the next one */
    bool kernel_hangs; /* the next one */
    bool fill_hangs;   /* the next one */
    bool hangs;        /* one has */
    uint64_t used_bytes;
    int allocations;
    struct CUstream_st standard;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct CUmod_st *modules;
};

struct fake_fail {
    char name[48];
    long at;
    long calls;
    CUresult code;
};

struct fake_cuda {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool configured;
    int devices;
    int driver;
    int arch;
    int multiprocessors;
    uint64_t memory_bytes;
    long delay_us;
    long launch_error;
    long hang;
    long lost_after;
    bool stub;
    bool mig;
    bool unguarded;
    bool leaks;
    bool holds_copies;
    struct fake_fail fails[MAX_FAILS];
    int fail_count;
    long calls;
    long launches;
    struct CUctx_st contexts[MAX_DEVICES];
};

extern struct fake_cuda fake;

/** Count the call, and return how it ends before it does anything; the lock is held after it, whatever that is. */
CUresult fake_enter(const char *name);

/** The thread's context, NULL when it has none. */
struct CUctx_st *fake_context(void);

/** Start a function that needs a context: returns from it when the call is to fail. */
#define ENTER(name)                                                                                                    \
    CUresult enter_result_ = fake_enter(name);                                                                         \
    struct CUctx_st *context = fake_context();                                                                         \
    if (enter_result_ == CUDA_SUCCESS && !context) {                                                                   \
        enter_result_ = CUDA_ERROR_INVALID_CONTEXT;                                                                    \
    } else if (enter_result_ == CUDA_SUCCESS && context->retained == 0) {                                              \
        enter_result_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;                                                               \
    } else if (enter_result_ == CUDA_SUCCESS) {                                                                        \
        enter_result_ = context->failure;                                                                              \
    }                                                                                                                  \
    if (enter_result_ != CUDA_SUCCESS) {                                                                               \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return enter_result_;                                                                                          \
    }

/**
 * For a function that waits for all work of the context, however long that takes: here it ends the test instead. The
 * lock is held.
 */
void fake_wait_for_device(struct CUctx_st *context, const char *name);

/** The same for a function that releases something, which it also does when the context is of no more use. */
#define ENTER_RELEASE(name)                                                                                            \
    CUresult enter_result_ = fake_enter(name);                                                                         \
    struct CUctx_st *context = fake_context();                                                                         \
    if (enter_result_ != CUDA_SUCCESS || !context) {                                                                   \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return enter_result_ != CUDA_SUCCESS ? enter_result_ : CUDA_ERROR_INVALID_CONTEXT;                             \
    }

#define LEAVE(result)                                                                                                  \
    do {                                                                                                               \
        CUresult leave_result_ = (result);                                                                             \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return leave_result_;                                                                                          \
    } while (0)

/* All of these with the lock held. */
/* the context's own one for NULL; one that is gone ends the test */
CUstream fake_stream(struct CUctx_st *context, CUstream stream);
CUresult fake_add(struct CUctx_st *context, CUstream stream, const struct work *work);
void fake_wait_all(struct CUctx_st *context);    /* until all streams are empty or stuck */
void fake_end_context(struct CUctx_st *context); /* with its streams, events and modules */

/** Open device memory to the calling thread's work, and close it again. */
void fake_memory_open(void);
void fake_memory_close(void);

int64_t fake_now_ns(void);

#endif
