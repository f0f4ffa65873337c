/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into programs that were built with -finstrument-functions: each process writes the address of each function
 * that it enters to WAY_FOLDER/PID, 8 bytes each up to a 0, and the memory map that names them to WAY_FOLDER/PID.maps.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define UNSEEN __attribute__((no_instrument_function))

enum { RANGES = 512, MOST = 1 << 23 };

static __thread int own; /* the hooks' own calls are not of interest */
static pid_t of;
static uint64_t *trace, *trace_end; /* a mapped file, since the program closes descriptors that it does not know */
static struct {
    unsigned long from, to;
} ranges[RANGES];
static int ranges_count;

UNSEEN static void copy_maps(const char *folder)
{
    FILE *maps = fopen("/proc/self/maps", "re"), *copy;
    char line[4096];

    snprintf(line, sizeof(line), "%s/%d.maps", folder, (int)of);
    copy = fopen(line, "we");
    if (!maps || !copy) {
        abort();
    }
    for (ranges_count = 0; ranges_count < RANGES && fgets(line, sizeof(line), maps); ranges_count++) {
        fputs(line, copy);
        sscanf(line, "%lx-%lx", &ranges[ranges_count].from, &ranges[ranges_count].to);
    }
    fclose(copy);
    fclose(maps);
}

UNSEEN static int is_known(uintptr_t address)
{
    for (int i = 0; i < ranges_count; i++) {
        if (address >= ranges[i].from && address < ranges[i].to) {
            return 1;
        }
    }
    return 0;
}

UNSEEN static void open_trace(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    if (fd < 0 || ftruncate(fd, MOST * 8L) != 0) {
        abort();
    }
    trace = mmap(NULL, MOST * 8L, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (trace == MAP_FAILED) {
        abort();
    }
    trace_end = trace + MOST;
    while (trace < trace_end && *trace != 0) {
        trace++; /* what this process entered before its execve() */
    }
    close(fd);
}

UNSEEN void __cyg_profile_func_enter(void *function, void *site);
UNSEEN void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site)
{
    const char *folder = own ? NULL : getenv("WAY_FOLDER");
    uint64_t *at;
    char path[4096];

    (void)site;
    if (!folder) {
        return;
    }
    own = 1;
    if (of != getpid()) {
        of = getpid();
        snprintf(path, sizeof(path), "%s/%d", folder, (int)of);
        open_trace(path);
        ranges_count = 0;
    }
    if (!is_known((uintptr_t)function)) {
        copy_maps(folder);
    }
    at = __atomic_fetch_add(&trace, sizeof(*at), __ATOMIC_RELAXED); /* threads write to one trace */
    if (at >= trace_end) {
        abort();
    }
    *at = (uintptr_t)function;
    own = 0;
}

void __cyg_profile_func_exit(void *function, void *site)
{
    (void)function;
    (void)site;
}
