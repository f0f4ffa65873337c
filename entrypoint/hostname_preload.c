/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into ranks: gethostname() returns the job's name for this host, from PACELINE_HOST_NAME. NCCL and MPI
 * compare host names, but a container's real name has nothing to do with the job's names, or is the same on all hosts.
 * Processes without the variable get the real name.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* The library's gethostname(). Its name in C differs, so that the call of the system's gethostname() below is not a
 * call of itself. */
__attribute__((visibility("default"))) int preloaded_gethostname(char *name, size_t bytes) __asm__("gethostname");

int preloaded_gethostname(char *name, size_t bytes)
{
    struct utsname real;
    const char *answer = getenv("PACELINE_HOST_NAME");
    size_t length;

    if (!answer || *answer == '\0') {
        if (uname(&real) != 0) {
            return -1;
        }
        answer = real.nodename;
    }
    length = strlen(answer);
    memcpy(name, answer, length < bytes ? length + 1 : bytes);
    if (length >= bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

struct termios;
struct winsize;

__attribute__((visibility("default"))) int preloaded_openpty(int *master_fd, int *slave_fd, char *name,
                                                             const struct termios *attributes,
                                                             const struct winsize *size) __asm__("openpty");

int preloaded_openpty(int *master_fd, int *slave_fd, char *name, const struct termios *attributes,
                      const struct winsize *size)
{
    union {
        void *symbol;
        int (*call)(int *, int *, char *, const struct termios *, const struct winsize *);
    } real = {.symbol = NULL};

    if (!getenv("PACELINE_RANK_PIPES")) {
        real.symbol = dlsym(RTLD_NEXT, "openpty");
    }
    if (!real.symbol) {
        errno = ENOSYS;
        return -1;
    }
    return real.call(master_fd, slave_fd, name, attributes, size);
}
