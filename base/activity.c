/* SPDX-License-Identifier: Apache-2.0 */
/* Counts a process's collectives and records in a file that process 1 reads. */
#include "base/activity.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = PL_ACTIVITY_SLOTS * PL_ACTIVITY_SLOT_BYTES, STRIDE = PL_ACTIVITY_SLOT_BYTES / sizeof(uint64_t) };

static _Atomic uint64_t own_counter;
_Atomic uint64_t *pl_activity_counter = &own_counter;

/* Opens and maps the file; with `make` it creates a new file of zeros. */
static enum pl_status map_file(const char *path, bool make, _Atomic uint64_t **ret_counters, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, make ? O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
    struct stat info;
    void *memory;

    if (fd < 0 || (make && ftruncate(fd, FILE_BYTES) != 0) || fstat(fd, &info) != 0) {
        return pl_error_errno(reterr, "open '%s'", path);
    }
    if (info.st_size != FILE_BYTES) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' has %lld bytes, expected %d", path, (long long)info.st_size,
                            FILE_BYTES);
    }
    memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return pl_error_errno(reterr, "map '%s'", path);
    }
    *ret_counters = memory;
    return PL_OK;
}

static void start_once(void)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_error error = PL_ERROR_NONE;
    const char *path;

    if (pl_environment_new(&environment, NULL) != PL_OK) {
        return;
    }
    path = pl_environment_get_or(environment, PL_ACTIVITY_VARIABLE, NULL);
    if (path && pl_activity_use(path, &error) != PL_OK) {
        pl_log_error(&error, "the watch for hangs does not see this rank's collectives and records");
    }
}

void pl_activity_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, start_once);
}

enum pl_status pl_activity_new(const char *path, struct pl_activity *ret_activity, struct pl_error *reterr)
{
    return map_file(path, true, &ret_activity->counters, reterr);
}

enum pl_status pl_activity_use(const char *path, struct pl_error *reterr)
{
    _Atomic uint64_t *counters = NULL;

    PL_TRY(map_file(path, false, &counters, reterr));
    pl_activity_counter = counters + (size_t)getpid() % PL_ACTIVITY_SLOTS * STRIDE; /* never unmapped */
    return PL_OK;
}

uint64_t pl_activity_sum(const struct pl_activity *activity)
{
    uint64_t sum = 0;

    for (size_t slot = 0; activity->counters && slot < PL_ACTIVITY_SLOTS; slot++) {
        sum += atomic_load_explicit(activity->counters + slot * STRIDE, memory_order_relaxed);
    }
    return sum;
}

void pl_activity_done(struct pl_activity *activity)
{
    if (activity->counters) {
        munmap(activity->counters, FILE_BYTES);
        activity->counters = NULL;
    }
}
