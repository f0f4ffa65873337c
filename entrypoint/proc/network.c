/* SPDX-License-Identifier: Apache-2.0 */
/* The network of this host, as /proc describes it. */
#include "entrypoint/proc/network.h"

#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTERS_BYTES = 65536, TABLE_BYTES = 64 << 20, ADDRESS_BYTES = 48, ESTABLISHED = 1 };

/* Add up the numbers of group `group` ("Tcp") in a file of counters. `names` lists the counters and ends with NULL.
 * Returns false if one of them is missing. */
static bool sum_counters(const char *text, const char *group, const char *const *names, uint64_t *ret_sum)
{
    const size_t group_bytes = strlen(group);
    const char *keys = NULL, *values = NULL;
    size_t found = 0, wanted = 0;

    while (text && !values) { /* a group has two lines with as many words: the names, then the numbers */
        if (strncmp(text, group, group_bytes) == 0 && text[group_bytes] == ':') {
            *(!keys ? &keys : &values) = text + group_bytes + 1;
        }
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    *ret_sum = 0;
    while (values && *keys == ' ' && *values == ' ') {
        size_t length = strcspn(++keys, " \n");

        for (wanted = 0; names[wanted]; wanted++) {
            if (strlen(names[wanted]) == length && strncmp(keys, names[wanted], length) == 0) {
                *ret_sum += strtoull(values, NULL, 10);
                found++;
            }
        }
        keys += length;
        values++;
        values += strcspn(values, " \n");
    }
    return found > 0 && found == wanted;
}

static enum pl_status read_sum(const char *path, const char *group, const char *const *names, uint64_t *ret_sum,
                               struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;

    PL_TRY(pl_file_read(path, COUNTERS_BYTES, &text, NULL, reterr));
    return sum_counters(text, group, names, ret_sum)
               ? PL_OK
               : pl_error_set(reterr, PL_UNSUPPORTED, "%s has no %s of %s", path, names[0], group);
}

uint64_t pl_network_bytes(void)
{
    static const char *const names[] = {"InOctets", "OutOctets", NULL};
    uint64_t sum;

    return read_sum("/proc/self/net/netstat", "IpExt", names, &sum, NULL) == PL_OK ? sum : 0;
}

enum pl_status pl_network_accepted(uint64_t *ret_count, struct pl_error *reterr)
{
    static const char *const names[] = {"PassiveOpens", NULL};

    return read_sum("/proc/self/net/snmp", "Tcp", names, ret_count, reterr);
}

/* A socket of a rank's process. */
struct rank_socket {
    uint64_t inode;
    pid_t shim; /* the shim of the rank */
};

/* One end of a connection, which belongs to a rank. */
struct end {
    char local[ADDRESS_BYTES], remote[ADDRESS_BYTES];
    pid_t shim;
};

static int by_inode(const void *left, const void *right)
{
    const struct rank_socket *a = left, *b = right;

    return (a->inode > b->inode) - (a->inode < b->inode);
}

static int by_addresses(const void *left, const void *right)
{
    const struct end *a = left, *b = right;
    const int order = strcmp(a->local, b->local);

    return order != 0 ? order : strcmp(a->remote, b->remote);
}

/* An IPv4 address may be written as an IPv6 address at one end of a connection only: cut the prefix off. */
static void copy_address(const char *text, char *ret_copy)
{
    static const char mapped[] = "0000000000000000FFFF0000";
    const size_t skip = strncmp(text, mapped, sizeof(mapped) - 1) == 0 ? sizeof(mapped) - 1 : 0;

    snprintf(ret_copy, ADDRESS_BYTES, "%s", text + skip);
}

/* Append the ends of connections in one table to `*ends`. */
static enum pl_status add_ends(const char *table, const struct rank_socket *sockets, size_t sockets_count,
                               struct end **ends, size_t *capacity, size_t *count, struct pl_error *reterr)
{
    for (const char *line = strchr(table, '\n'); line; line = strchr(line + 1, '\n')) {
        char local[ADDRESS_BYTES], remote[ADDRESS_BYTES];
        const struct rank_socket *found;
        struct rank_socket key;
        unsigned state;

        if (sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %*u %*d %" SCNu64, local, remote, &state, &key.inode) != 4 ||
            state != ESTABLISHED) {
            continue;
        }
        found = bsearch(&key, sockets, sockets_count, sizeof(key), by_inode);
        if (found) {
            PL_TRY(pl_memory_grow(ends, capacity, *count + 1, sizeof(**ends), reterr));
            copy_address(local, (*ends)[*count].local);
            copy_address(remote, (*ends)[*count].remote);
            (*ends)[(*count)++].shim = found->shim;
        }
    }
    return PL_OK;
}

/* Count the connections whose two ends are both among `sockets` and belong to one rank. Sorts `sockets`. */
static enum pl_status count_inside(const char *tcp, const char *tcp6, struct rank_socket *sockets, size_t count,
                                   size_t *ret_count, struct pl_error *reterr)
{
    PL_AUTO_FREE struct end *ends = NULL;
    size_t ends_count = 0, capacity = 0, inside = 0;

    *ret_count = 0;
    if (count == 0) {
        return PL_OK;
    }
    qsort(sockets, count, sizeof(*sockets), by_inode);
    PL_TRY(add_ends(tcp, sockets, count, &ends, &capacity, &ends_count, reterr));
    PL_TRY(add_ends(tcp6, sockets, count, &ends, &capacity, &ends_count, reterr));
    if (ends_count == 0) {
        return PL_OK;
    }
    qsort(ends, ends_count, sizeof(*ends), by_addresses);
    for (size_t i = 0; i < ends_count; i++) {
        const struct end *other;
        struct end key;

        memcpy(key.local, ends[i].remote, sizeof(key.local));
        memcpy(key.remote, ends[i].local, sizeof(key.remote));
        other = bsearch(&key, ends, ends_count, sizeof(key), by_addresses);
        inside += other && other->shim == ends[i].shim;
    }
    *ret_count = inside / 2;
    return PL_OK;
}

/* Append the sockets of a process that this process may see. */
static enum pl_status add_sockets(const struct pl_proc_of_rank *process, struct rank_socket **sockets, size_t *capacity,
                                  size_t *count, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    const struct dirent *entry;
    char text[64];

    snprintf(text, sizeof(text), "/proc/%d/fd", (int)process->pid);
    directory = opendir(text);
    while (directory && (entry = readdir(directory))) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, text, sizeof(text) - 1);
        uint64_t inode;

        text[length > 0 ? length : 0] = '\0';
        if (sscanf(text, "socket:[%" SCNu64 "]", &inode) == 1) {
            PL_TRY(pl_memory_grow(sockets, capacity, *count + 1, sizeof(**sockets), reterr));
            (*sockets)[(*count)++] = (struct rank_socket){.inode = inode, .shim = process->shim};
        }
    }
    return PL_OK;
}

/* Read a table; "" if this host does not have the protocol. */
static enum pl_status read_table(const char *path, char **ret_text, struct pl_error *reterr)
{
    if (access(path, F_OK) != 0) {
        *ret_text = pl_memory_string("", reterr);
        return *ret_text ? PL_OK : PL_MEMORY;
    }
    return pl_file_read(path, TABLE_BYTES, ret_text, NULL, reterr);
}

enum pl_status pl_network_inside_ranks(const struct stat *paceline, size_t *ret_count, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_proc_of_rank *processes = NULL;
    PL_AUTO_FREE struct rank_socket *sockets = NULL;
    PL_AUTO_FREE char *tcp = NULL;
    PL_AUTO_FREE char *tcp6 = NULL;
    size_t processes_count = 0, count = 0, capacity = 0;

    PL_TRY(pl_proc_list_ranks(paceline, &processes, &processes_count, reterr));
    for (size_t i = 0; i < processes_count; i++) {
        PL_TRY(add_sockets(&processes[i], &sockets, &capacity, &count, reterr));
    }
    PL_TRY(read_table("/proc/self/net/tcp", &tcp, reterr));
    PL_TRY(read_table("/proc/self/net/tcp6", &tcp6, reterr));
    return count_inside(tcp, tcp6, sockets, count, ret_count, reterr);
}
