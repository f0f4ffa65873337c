/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults in chosen calls of a rank that preloads this. FAULTS has words ATTEMPT:RANK:NUMBER:CALL, separated by spaces.
 * In this attempt of the job (PACELINE_RESTART) this rank ends by SIGKILL in the call of this number, counted from 1:
 *
 *   step          a forward pass of the last layer of examples/mnist
 *   memory        the same pass, but the rank takes memory, at most 2 GiB, until the kernel kills it
 *   keep, load    half of at least 1 MiB is copied into the job's kept memory, or out of it
 *   open=TEXT     a file whose path has TEXT has been opened
 *   write=TEXT    half of the bytes of a call of write(2) are in such a file
 */
#undef _FILE_OFFSET_BITS /* each name is a function of its own here, as in the libraries that call them */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LARGE_BYTES = 1 << 20,
    PIECE_BYTES = 16 << 20,
    PIECES = 128,
    PLACES = 8,
    NO_TRANS = 111,
    TRANS = 112,
    CLASSES = 10
};

static char chosen[128]; /* the call; empty: none */
static atomic_long left; /* number of such calls until the chosen one has come */

static struct {
    uintptr_t begin, end;
} kept[PLACES]; /* mappings of the kept memory */
static unsigned kept_count;

__attribute__((constructor)) static void choose(void)
{
    const char *attempt = getenv("PACELINE_RESTART"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char mine[64];
    long number;

    snprintf(mine, sizeof(mine), "%s:%s:", attempt ? attempt : "", rank ? rank : "");
    for (const char *at = getenv("FAULTS"); at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (strncmp(at, mine, strlen(mine)) == 0 && sscanf(at + strlen(mine), "%ld:%127s", &number, chosen) == 2) {
            atomic_store(&left, number);
        }
    }
}

static bool is_due(void)
{
    return atomic_fetch_sub(&left, 1) == 1;
}

static void end(void)
{
    kill(getpid(), SIGKILL);
}

static void take_memory(void)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "w"); /* no other process is killed instead */

    if (file) {
        fputs("1000", file);
        fclose(file);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        void *piece = malloc(PIECE_BYTES);

        if (piece) {
            memset(piece, 1, PIECE_BYTES);
        }
    }
}

/* Whether the chosen call is `name` of a file whose path has the chosen text. */
static bool is_chosen(const char *name, int fd)
{
    char link[64], path[4096];
    ssize_t length;

    if (fd < 0 || strncmp(chosen, name, strlen(name)) != 0) {
        return false;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    return strstr(path, chosen + strlen(name));
}

static int opened(const char *path, int flags, mode_t mode)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);

    if (is_chosen("open=", fd) && is_due()) {
        end();
    }
    return fd;
}

#define OPENED(path, flags)                                                                                            \
    ({                                                                                                                 \
        va_list args;                                                                                                  \
        mode_t mode;                                                                                                   \
                                                                                                                       \
        va_start(args, flags);                                                                                         \
        mode = (flags)&O_CREAT ? va_arg(args, mode_t) : 0;                                                             \
        va_end(args);                                                                                                  \
        opened(path, flags, mode);                                                                                     \
    })

int open(const char *path, int flags, ...)
{
    return OPENED(path, flags);
}

int open64(const char *path, int flags, ...)
{
    return OPENED(path, flags);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (is_chosen("write=", fd) && is_due()) {
        syscall(SYS_write, fd, data, bytes / 2);
        end();
    }
    return syscall(SYS_write, fd, data, bytes);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    void *map;
    long result = syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    bool is_kept = strcmp(chosen, "keep") == 0 || strcmp(chosen, "load") == 0;

    memcpy(&map, &result, sizeof(map));
    if (is_kept && fd >= 0 && map != MAP_FAILED && bytes >= LARGE_BYTES && kept_count < PLACES) {
        char link[64], path[64] = "";

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "paceline-kept")) {
            kept[kept_count].begin = (uintptr_t)map;
            kept[kept_count++].end = (uintptr_t)map + bytes;
        }
    }
    return map;
}

static bool is_in_kept(const void *at)
{
    bool found = false;

    for (unsigned i = 0; i < kept_count; i++) {
        found = found || ((uintptr_t)at >= kept[i].begin && (uintptr_t)at < kept[i].end);
    }
    return found;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
    if (kept_count > 0 && bytes >= LARGE_BYTES &&
        ((strcmp(chosen, "keep") == 0 && is_in_kept(to)) || (strcmp(chosen, "load") == 0 && is_in_kept(from))) &&
        is_due()) {
        memmove(to, from, bytes / 2);
        end();
    }
    return memmove(to, from, bytes);
}

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc)
{
    void (*real)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
    bool memory = strcmp(chosen, "memory") == 0;

    *(void **)&real = dlsym(RTLD_NEXT, "cblas_sgemm");
    if ((memory || strcmp(chosen, "step") == 0) && trans_a == NO_TRANS && trans_b == TRANS && n == CLASSES &&
        is_due()) {
        if (memory) {
            take_memory();
        }
        end();
    }
    real(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
