/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the fake driver's files share. */
#ifndef PL_TESTS_FAKES_FAKE_CUDA_PRIVATE_H
#define PL_TESTS_FAKES_FAKE_CUDA_PRIVATE_H

#include "tests/fakes/fake_cuda.h"

#include <cuda.h>
#include <pthread.h>

enum { MAX_DEVICES = 16, MAX_FAILS = 8, MAX_FUNCTIONS = 64 };

/* One cuEventRecord, independent of earlier or later records of the event on other streams. */
struct record {
    int users;
    bool done;
    bool never; /* in a stream that is stuck */
    int64_t done_ns;
};

struct work {
    struct work *next;
    void (*run)(void *argument);
    void (*guest)(void *argument, bool runs); /* work of another library */
    void *argument;                           /* freed after the run if `owned` */
    bool owned;
    bool down;              /* a copy to the host, which can be held */
    struct record *records; /* instead of `run` */
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
    bool stuck;    /* its present work never ends */
    bool hangs;    /* its queued work will never end */
    bool captures; /* into a graph; what was given to it since is dropped */
    int priority;
    bool closed; /* the thread ends when nothing is left */
};

struct CUevent_st {
    struct CUctx_st *context;
    struct CUevent_st *next;
    struct record *latest; /* NULL: never recorded */
    bool timed;
};

/* A function that a module has handed out; NULL before. */
struct CUfunc_st {
    const struct kernel *kernel;
};

struct CUmod_st {
    struct CUmod_st *next;
    struct CUfunc_st functions[MAX_FUNCTIONS];
};

/* The primary context of one device. */
struct CUctx_st {
    int ordinal; /* number among the visible devices */
    int physical;
    int retained;
    CUresult failure;
    bool kernel_fails; /* the next kernel fails */
    bool kernel_hangs; /* the next kernel hangs */
    bool fill_hangs;   /* the next fill hangs */
    bool hangs;        /* a kernel or fill has hung */
    uint64_t used_bytes;
    int allocations;
    bool is_capture_broken; /* by a call that may not be made beside it */
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
    bool has_started; /* cuInit() was called */
    bool is_gone;     /* the process exits */
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
    struct fake_fail skip, late_fail; /* of orders */
    bool fails_late;                  /* the present call fails by an order */
    int fail_count;
    long calls;
    long launches;
    struct CUctx_st contexts[MAX_DEVICES];
};

extern struct fake_cuda fake;

/** Count the call and decide its result before it does anything; the lock is held afterwards, whatever the result. */
CUresult fake_enter(const char *name);

/** The thread's context; NULL if it has none. */
struct CUctx_st *fake_context(void);

/** Start a function that needs a context: returns from it if the call must fail. */
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
 * For a function that waits for all work of the context without a limit: here it ends the test instead. Call with the
 * lock held.
 */
void fake_wait_for_device(struct CUctx_st *context, const char *name);

/** The same for a function that releases something, which it also does if the context is unusable or an order says that
 * the call fails. */
#define ENTER_RELEASE(name)                                                                                            \
    CUresult enter_result_ = fake_enter(name);                                                                         \
    struct CUctx_st *context = fake_context();                                                                         \
    if ((enter_result_ != CUDA_SUCCESS && !fake.fails_late) || !context) {                                             \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return enter_result_ != CUDA_SUCCESS ? enter_result_ : CUDA_ERROR_INVALID_CONTEXT;                             \
    }

/** The end of a function that has released something. */
#define LEAVE_RELEASED() LEAVE(enter_result_ != CUDA_SUCCESS ? enter_result_ : context->failure)

#define LEAVE(result)                                                                                                  \
    do {                                                                                                               \
        CUresult leave_result_ = (result);                                                                             \
        pthread_mutex_unlock(&fake.lock);                                                                              \
        return leave_result_;                                                                                          \
    } while (0)

/* Call all of these with the lock held. */
CUresult fake_beside_captures(struct CUctx_st *context); /* a call that ends a capture, unless its thread passes them */
bool fake_skips(const char *name);                       /* whether this call of the function is to do nothing */
/* NULL: the context's own stream; a stream that does not exist ends the test */
CUstream fake_stream(struct CUctx_st *context, CUstream stream);
CUresult fake_add(struct CUctx_st *context, CUstream stream, const struct work *work);
void fake_wait_all(struct CUctx_st *context);    /* returns when all streams are empty or stuck */
void fake_end_context(struct CUctx_st *context); /* releases its streams, events and modules too */

/** Open device memory to the calling thread's work, and close it again. */
void fake_memory_open(void);
void fake_memory_close(void);

int64_t fake_now_ns(void);

#endif
