/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a function for many indices on a few threads. */
#include "programs/s3/s3.h"

#include "base/memory.h"

#include <pthread.h>

/* State of one pl_tool_each(): each thread takes the next index. */
struct each {
    size_t count;
    tool_each_function *function;
    void *context;
    pthread_mutex_t lock;
    struct {
        size_t next;
        enum pl_status status;
        struct pl_error error;
    } synced;
};

static void *run(void *context)
{
    struct each *each = context;

    for (;;) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status;
        size_t index;

        pthread_mutex_lock(&each->lock);
        index = each->synced.status == PL_OK ? each->synced.next++ : each->count;
        pthread_mutex_unlock(&each->lock);
        if (index >= each->count) {
            return NULL;
        }
        status = each->function(each->context, index, &error);
        pthread_mutex_lock(&each->lock);
        if (status != PL_OK && each->synced.status == PL_OK) {
            each->synced.status = status;
            each->synced.error = error;
        }
        pthread_mutex_unlock(&each->lock);
    }
}

enum pl_status pl_tool_each(size_t count, tool_each_function *function, void *context, struct pl_error *reterr)
{
    struct each each = {.count = count, .function = function, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[TOOL_AT_A_TIME - 1];
    size_t started = 0;

    while (started < PL_ARRAY_ITEMS(threads) && started + 1 < count &&
           pthread_create(&threads[started], NULL, run, &each) == 0) {
        started++;
    }
    run(&each); /* this thread works too, alone if no other thread could be started */
    for (size_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (each.synced.status != PL_OK) {
        *reterr = each.synced.error;
    }
    return each.synced.status;
}
