/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/virtual_threads.h"

#include "base/clock.h"
#include "base/random.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum { MOST_THREADS = 24, STACK_BYTES = 256 << 10, MOST_RANKS = 8 };

/* No seed needs a hundredth of it: what goes on after that goes on without end. */
static const uint64_t MOST_TURNS = 1000000;

struct thread {
    ucontext_t context;
    void *stack;
    int rank;
    bool ended;
    const void *waits_for; /* NULL: nothing but the time */
    int64_t until_ns;      /* the thread goes on at that time */
    void (*function)(void *argument);
    void *(*posix)(void *argument);
    void *argument;
};

static struct {
    struct thread threads[MOST_THREADS];
    int count;
    struct thread *current; /* NULL: no simulation runs */
    ucontext_t main;
    uint64_t seed, turns;
    int64_t now_ns;
    bool held;
    int refuse_after[MOST_RANKS];
    bool has_refused;
    char failure[VIRTUAL_TEXT_BYTES];
} all;

void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);
int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_trylock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __real_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __real_pthread_cond_clockwait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
int __real_pthread_cond_signal(pthread_cond_t *);
int __real_pthread_cond_broadcast(pthread_cond_t *);
int __real_clock_gettime(clockid_t, struct timespec *);
int __real_nanosleep(const struct timespec *, struct timespec *);
int __real_sched_yield(void);

void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_join(pthread_t, void **);
int __wrap_pthread_tryjoin_np(pthread_t, void **);
int __wrap_pthread_mutex_lock(pthread_mutex_t *);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *);
int __wrap_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __wrap_pthread_cond_clockwait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
int __wrap_pthread_cond_signal(pthread_cond_t *);
int __wrap_pthread_cond_broadcast(pthread_cond_t *);
int __wrap_clock_gettime(clockid_t, struct timespec *);
int __wrap_nanosleep(const struct timespec *, struct timespec *);
int __wrap_sched_yield(void);

/* ---- whose turn it is ---- */

uint64_t virtual_draw(uint64_t below)
{
    return pl_random_next(&all.seed) % below;
}

const char *virtual_failure(void)
{
    return all.failure;
}

int virtual_rank(void)
{
    return all.current->rank;
}

/* Draws one of the threads that may go on; the time goes on if none may. NULL: all wait without an end. */
static struct thread *draw_thread(void)
{
    struct thread *able[MOST_THREADS];
    int64_t next_ns = PL_DEADLINE_NEVER;
    size_t count = 0;

    for (int i = 0; i < all.count; i++) {
        struct thread *thread = &all.threads[i];

        if (!thread->ended && thread->until_ns < next_ns) {
            next_ns = thread->until_ns;
        }
    }
    if (next_ns == PL_DEADLINE_NEVER) {
        return NULL;
    }
    all.now_ns = next_ns > all.now_ns ? next_ns : all.now_ns;
    for (int i = 0; i < all.count; i++) {
        if (!all.threads[i].ended && all.threads[i].until_ns <= all.now_ns) {
            able[count++] = &all.threads[i];
        }
    }
    return able[virtual_draw(count)];
}

static void go_to(struct thread *thread, ucontext_t *from)
{
    all.current = thread;
    thread->until_ns = PL_DEADLINE_NEVER;
    thread->waits_for = NULL;
    if (from != &thread->context) {
        swapcontext(from, &thread->context);
    }
}

static void stop(void)
{
    struct thread *current = all.current;

    all.current = NULL;
    swapcontext(&current->context, &all.main);
}

static void fail_at(const char *format, va_list values)
{
    int length = snprintf(all.failure, sizeof(all.failure), "rank %d: ", all.current ? all.current->rank : -1);

    vsnprintf(all.failure + length, sizeof(all.failure) - (size_t)length, format, values);
}

_Noreturn void virtual_fail(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    fail_at(format, values);
    va_end(values);
    stop();
    abort();
}

/* The calling thread has said what it waits for. */
static void give_turn(void)
{
    struct thread *before = all.current, *next = draw_thread();

    if (!next) {
        virtual_fail("every thread waits, and nothing will wake one");
    }
    if (++all.turns > MOST_TURNS) {
        virtual_fail("goes on without an end");
    }
    go_to(next, &before->context);
}

void virtual_yield(bool always)
{
    if (all.current && !all.held && (always || virtual_draw(8) == 0)) {
        all.current->until_ns = all.now_ns;
        give_turn();
    }
}

void virtual_hold(bool held)
{
    all.held = held;
}

void virtual_wait(const void *address, int64_t until_ns)
{
    all.current->waits_for = address;
    all.current->until_ns = until_ns;
    give_turn();
}

void virtual_wake(const void *address)
{
    for (int i = 0; i < all.count; i++) {
        if (all.threads[i].waits_for == address && !all.threads[i].ended) {
            all.threads[i].waits_for = NULL;
            all.threads[i].until_ns = all.now_ns;
        }
    }
}

void virtual_dawdle(int64_t below_ns)
{
    virtual_wait(NULL, all.now_ns + (int64_t)virtual_draw((uint64_t)below_ns));
}

static void begin_thread(void)
{
    struct thread *self = all.current;

    if (self->posix) {
        self->posix(self->argument);
    } else {
        self->function(self->argument);
    }
    self->ended = true;
    virtual_wake(self);
    for (int i = 0; i < all.count; i++) {
        if (!all.threads[i].ended) {
            give_turn();
        }
    }
    stop();
}

static struct thread *add(int rank, void *argument)
{
    struct thread *thread = &all.threads[all.count];
    void *stack = thread->stack;

    if (all.count == MOST_THREADS) {
        abort();
    }
    all.count++;
    stack = stack ? stack : __real_calloc(1, STACK_BYTES);
    *thread = (struct thread){.stack = stack, .rank = rank, .until_ns = all.now_ns, .argument = argument};
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = stack;
    thread->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&thread->context, begin_thread, 0);
    return thread;
}

void virtual_spawn(int rank, void (*function)(void *argument), void *argument)
{
    add(rank, argument)->function = function;
}

void virtual_begin(uint64_t seed)
{
    all.count = 0;
    all.seed = seed;
    all.turns = 0;
    all.now_ns = PL_NS_PER_S;
    all.held = all.has_refused = false;
    all.failure[0] = '\0';
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        all.refuse_after[rank] = -1;
    }
}

bool virtual_run(void)
{
    struct thread *first = draw_thread();

    go_to(first, &all.main);
    all.current = NULL;
    return !all.failure[0];
}

/* ---- memory ---- */

void virtual_refuse_memory(int after)
{
    all.refuse_after[all.current->rank] = after;
}

bool virtual_has_refused(void)
{
    return all.has_refused;
}

void *virtual_new(size_t count, size_t bytes)
{
    return __real_calloc(count, bytes);
}

static bool refuses(void)
{
    if (!all.current || all.refuse_after[all.current->rank] < 0 || all.refuse_after[all.current->rank]-- > 0) {
        return false;
    }
    all.has_refused = true;
    return true;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refuses() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return refuses() ? NULL : __real_realloc(memory, bytes);
}

/* ---- time ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    if (!all.current) {
        return __real_clock_gettime(clock, ret_now);
    }
    all.now_ns += 100; /* who only looks at the clock sees it move */
    ret_now->tv_sec = all.now_ns / PL_NS_PER_S;
    ret_now->tv_nsec = all.now_ns % PL_NS_PER_S;
    return 0;
}

int __wrap_nanosleep(const struct timespec *nap, struct timespec *ret_left)
{
    if (!all.current) {
        return __real_nanosleep(nap, ret_left);
    }
    virtual_wait(NULL, all.now_ns + nap->tv_sec * PL_NS_PER_S + nap->tv_nsec);
    return 0;
}

int __wrap_sched_yield(void)
{
    if (!all.current) {
        return __real_sched_yield();
    }
    virtual_wait(NULL, all.now_ns + 1 + (int64_t)virtual_draw(20000));
    return 0;
}

/* ---- threads, locks, conditions ---- */

int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument)
{
    struct thread *thread;

    if (!all.current) {
        return __real_pthread_create(ret_thread, attributes, function, argument);
    }
    thread = add(all.current->rank, argument);
    thread->posix = function;
    *ret_thread = (pthread_t)(uintptr_t)thread;
    return 0;
}

int __wrap_pthread_tryjoin_np(pthread_t thread_at, void **ret_value)
{
    const struct thread *thread = (const struct thread *)(uintptr_t)thread_at;

    (void)ret_value;
    return thread->ended ? 0 : EBUSY;
}

int __wrap_pthread_join(pthread_t thread_at, void **ret_value)
{
    const struct thread *thread = (const struct thread *)(uintptr_t)thread_at;

    if (!all.current) {
        return __real_pthread_join(thread_at, ret_value);
    }
    while (!thread->ended) {
        virtual_wait(thread, PL_DEADLINE_NEVER);
    }
    return 0;
}

/* The first number in a lock is 0 while nobody has it, as in glibc's own. */
static int *owner_of(pthread_mutex_t *lock)
{
    return (int *)(void *)lock;
}

static void take(pthread_mutex_t *lock)
{
    while (*owner_of(lock)) {
        virtual_wait(lock, PL_DEADLINE_NEVER);
    }
    *owner_of(lock) = 1;
}

static void release(pthread_mutex_t *lock)
{
    if (!*owner_of(lock)) {
        virtual_fail("releases a lock that nobody has");
    }
    *owner_of(lock) = 0;
    virtual_wake(lock);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (!all.current) {
        return __real_pthread_mutex_lock(lock);
    }
    virtual_yield(false);
    take(lock);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *lock)
{
    if (!all.current) {
        return __real_pthread_mutex_trylock(lock);
    }
    if (*owner_of(lock)) {
        return EBUSY;
    }
    take(lock);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    if (!all.current) {
        return __real_pthread_mutex_unlock(lock);
    }
    release(lock);
    virtual_yield(false);
    return 0;
}

static int wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns)
{
    release(lock);
    virtual_wait(condition, until_ns);
    take(lock);
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    return all.current ? wait_for(condition, lock, PL_DEADLINE_NEVER) : __real_pthread_cond_wait(condition, lock);
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock,
                                  const struct timespec *until)
{
    return all.current ? wait_for(condition, lock, until->tv_sec * PL_NS_PER_S + until->tv_nsec)
                       : __real_pthread_cond_clockwait(condition, lock, clock, until);
}

/* Wakes one of those that wait, whichever the seed draws. */
int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    struct thread *waiting[MOST_THREADS];
    size_t count = 0;

    if (!all.current) {
        return __real_pthread_cond_signal(condition);
    }
    for (int i = 0; i < all.count; i++) {
        if (!all.threads[i].ended && all.threads[i].waits_for == condition) {
            waiting[count++] = &all.threads[i];
        }
    }
    if (count > 0) {
        struct thread *woken = waiting[virtual_draw(count)];

        woken->waits_for = NULL;
        woken->until_ns = all.now_ns;
    }
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (!all.current) {
        return __real_pthread_cond_broadcast(condition);
    }
    virtual_wake(condition);
    return 0;
}
