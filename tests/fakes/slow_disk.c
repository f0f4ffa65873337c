/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow disk for a program that preloads this: each write(2) to a file below SLOW_DISK_FOLDER takes SLOW_DISK_S
 * seconds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void wait_for_disk(const char *path)
{
    const char *folder = getenv("SLOW_DISK_FOLDER"), *seconds = getenv("SLOW_DISK_S");

    if (folder && seconds && strncmp(path, folder, strlen(folder)) == 0) {
        sleep((unsigned)atoi(seconds));
    }
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t);
    char link[64], path[4096];
    ssize_t length;

    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (strncmp(program_invocation_short_name, "paceline", strlen("paceline")) != 0) {
        return real(fd, data, bytes); /* sshd's unprivileged part may make no other system call */
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    if (length > 0) {
        path[length] = '\0';
        wait_for_disk(path);
    }
    return real(fd, data, bytes);
}
