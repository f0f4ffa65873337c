/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what this host offers: memory, shared memory, limits, disk, adapters, and how much each interface has sent. */
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/devices.h"
#include "programs/check/check.h"

#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { PATH_BYTES = 512, TEXT_BYTES = 64 * 1024 };

static char *read_below(const char *root, const char *name)
{
    char path[PATH_BYTES];
    char *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return pl_file_read(path, TEXT_BYTES, &text, NULL, NULL) == PL_OK ? text : NULL;
}

/* Reads the number at the start of the first file that exists; CHECK_UNKNOWN if neither exists, or it says "max". */
static int64_t number_in(const char *root, const char *version2, const char *version1)
{
    PL_AUTO_FREE char *text = read_below(root, version2);
    char *end = NULL;
    int64_t number;

    if (!text) {
        text = read_below(root, version1);
    }
    number = text ? strtoll(text, &end, 10) : 0;
    return !end || end == text ? CHECK_UNKNOWN : number;
}

/* Reads the memory of the machine. The container's limit counts if it is lower; cgroup version 1 writes a huge
 * number for no limit. */
static void read_memory(const char *root, struct pl_check_host *host)
{
    PL_AUTO_FREE char *text = read_below(root, "proc/meminfo");
    int64_t limit = number_in(root, "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes");
    int64_t used = number_in(root, "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory/memory.usage_in_bytes");

    host->memory_bytes = text ? (int64_t)pl_text_field_number(text, "MemTotal", 10, 0) * 1024 : CHECK_UNKNOWN;
    host->memory_free_bytes = text ? (int64_t)pl_text_field_number(text, "MemAvailable", 10, 0) * 1024 : CHECK_UNKNOWN;
    if (limit > 0 && (host->memory_bytes < 0 || limit < host->memory_bytes)) {
        host->memory_bytes = limit;
        if (used >= 0 && (host->memory_free_bytes < 0 || limit - used < host->memory_free_bytes)) {
            host->memory_free_bytes = limit > used ? limit - used : 0;
        }
    }
}

static void read_disk(const char *path, int64_t *ret_bytes, int64_t *ret_free_bytes)
{
    struct statvfs info;
    const bool known = statvfs(path, &info) == 0;

    *ret_bytes = known ? (int64_t)(info.f_blocks * info.f_frsize) : CHECK_UNKNOWN;
    *ret_free_bytes = known ? (int64_t)(info.f_bavail * info.f_frsize) : CHECK_UNKNOWN;
}

static int64_t limit_of(int resource)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) {
        return CHECK_UNKNOWN;
    }
    return limit.rlim_cur == RLIM_INFINITY ? CHECK_UNLIMITED : (int64_t)limit.rlim_cur;
}

void pl_check_host_read(const char *root, const char *model, const char *interface, struct pl_check_host *ret_host)
{
    char path[PATH_BYTES];
    int64_t whole, pids = number_in(root, "sys/fs/cgroup/pids.max", "sys/fs/cgroup/pids/pids.max");
    struct pl_devices_efa efa;

    memset(ret_host, 0, sizeof(*ret_host));
    pl_devices_efa(root, &efa);
    snprintf(ret_host->efa, sizeof(ret_host->efa), "%s", efa.name);
    ret_host->efa_usable = efa.usable;
    snprintf(ret_host->wanted, sizeof(ret_host->wanted), "%s", interface);
    ret_host->interface_exists = if_nametoindex(interface) != 0;
    read_memory(root, ret_host);
    snprintf(path, sizeof(path), "%s/dev/shm", root);
    read_disk(path, &ret_host->shm_bytes, &ret_host->shm_free_bytes);
    read_disk(model, &whole, &ret_host->disk_bytes);
    ret_host->files = limit_of(RLIMIT_NOFILE);
    ret_host->locked_bytes = limit_of(RLIMIT_MEMLOCK);
    ret_host->processes = limit_of(RLIMIT_NPROC);
    if (pids >= 0 && (ret_host->processes < 0 || pids < ret_host->processes)) {
        ret_host->processes = pids;
    }
}

/* Reads a line "  eth0: BYTES ...": received bytes and seven more numbers, then the sent bytes. */
static bool read_line(const char *line, char *ret_name, size_t room, uint64_t *ret_sent)
{
    const char *colon = strchr(line, ':');
    size_t length;

    line += strspn(line, " ");
    length = colon ? (size_t)(colon - line) : 0;
    if (length == 0 || length >= room) {
        return false;
    }
    memcpy(ret_name, line, length);
    ret_name[length] = '\0';
    return sscanf(colon + 1, "%*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, ret_sent) == 1;
}

void pl_check_host_count(const char *root, struct pl_check_counters *ret_counters)
{
    PL_AUTO_FREE char *text = read_below(root, "proc/self/net/dev");
    char *rest = NULL;
    struct pl_devices_efa efa;

    pl_devices_efa(root, &efa);
    *ret_counters = (struct pl_check_counters){.efa_bytes = efa.sent_bytes};
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL;
         line && ret_counters->count < (int)PL_ARRAY_ITEMS(ret_counters->interfaces);
         line = strtok_r(NULL, "\n", &rest)) {
        ret_counters->count += read_line(line, ret_counters->interfaces[ret_counters->count].name,
                                         sizeof(ret_counters->interfaces[0].name),
                                         &ret_counters->interfaces[ret_counters->count].sent_bytes);
    }
}

static uint64_t sent_by(const struct pl_check_counters *counters, const char *name)
{
    for (int i = 0; i < counters->count; i++) {
        if (strcmp(counters->interfaces[i].name, name) == 0) {
            return counters->interfaces[i].sent_bytes;
        }
    }
    return 0;
}

void pl_check_host_transport(const struct pl_check_counters *before, const struct pl_check_counters *after,
                             uint64_t bytes, char *ret_name, size_t room)
{
    uint64_t most = 0;

    *ret_name = '\0';
    if (bytes > 0 && after->efa_bytes - before->efa_bytes >= bytes / 2) {
        snprintf(ret_name, room, "efa");
        return;
    }
    for (int i = 0; i < after->count; i++) {
        uint64_t sent = after->interfaces[i].sent_bytes - sent_by(before, after->interfaces[i].name);

        if (bytes > 0 && sent >= bytes / 2 && sent > most) {
            snprintf(ret_name, room, "tcp %s", after->interfaces[i].name);
            most = sent;
        }
    }
}
