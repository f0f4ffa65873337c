/* SPDX-License-Identifier: Apache-2.0 */
/* The committed state of an elastic program, kept for the next attempt of the job. */
#include "runtime/kept.h"
#include "base/log.h"
#include "runtime/horovod/horovod.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    struct {
        bool opened;
        struct pl_kept *kept; /* NULL: there is none, or its use has ended after a failure */
    } synced;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns the job's kept memory, or NULL. */
static struct pl_kept *open_locked(void)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!memory.synced.opened && pl_kept_open(&memory.synced.kept, &error) != PL_OK) {
        pl_log_error(&error, "no committed state is kept");
    }
    memory.synced.opened = true;
    return memory.synced.kept;
}

bool horovod_paceline_keeps(void)
{
    bool keeps;

    pthread_mutex_lock(&memory.lock);
    keeps = open_locked();
    pthread_mutex_unlock(&memory.lock);
    return keeps;
}

void horovod_paceline_keep(uint64_t commit, const void *data, size_t bytes)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_kept *kept;

    pthread_mutex_lock(&memory.lock);
    kept = open_locked();
    if (kept && pl_kept_write(kept, commit, data, bytes, &error) != PL_OK) {
        pl_log_error(&error, "no committed state is kept, a job that is started again does not go on from it");
        pl_kept_close(kept);
        memory.synced.kept = NULL;
    }
    pthread_mutex_unlock(&memory.lock);
}

const void *horovod_paceline_kept(uint64_t *ret_commit, size_t *ret_bytes)
{
    const void *data = NULL;
    struct pl_kept *kept;

    pthread_mutex_lock(&memory.lock);
    kept = open_locked();
    if (kept) {
        pl_kept_read(kept, ret_commit, &data, ret_bytes);
    }
    pthread_mutex_unlock(&memory.lock);
    return data;
}
