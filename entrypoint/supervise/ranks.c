/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out on which CPUs the ranks of a host run, and whether they have never been connected with each other. */
#include "entrypoint/supervise/ranks.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/supervise.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_MINUTE_NS (60 * PL_NS_PER_S)
#define LOOK_NS (2 * PL_NS_PER_S)

/* A look may happen while a connection is being made, so one look that cannot tell is not enough. */
enum { MOST_LOOKS = 2 };

enum { TABLE_BYTES = 64 << 20, ADDRESS_BYTES = 48, ESTABLISHED = 1 };

void pl_apart_open(struct pl_apart *apart, const struct pl_job *job)
{
    apart->minute_ns = FIRST_MINUTE_NS;
    apart->connected = job->is_check || job->settings.independent_ranks;
}

void pl_apart_begin(struct pl_apart *apart, const struct pl_frame *frame)
{
    int64_t accepted;

    if (pl_link_frame_number(frame, 5, 0, INT64_MAX, &accepted, NULL) != PL_OK) {
        apart->connected = true;
        return;
    }
    if (!apart->begun || (uint64_t)accepted < apart->accepted) {
        apart->accepted = (uint64_t)accepted;
    }
    apart->begun = true;
    apart->ranks++;
    apart->begun_ns = pl_clock_now_ns();
    apart->next_look_ns = pl_deadline_after_ns(LOOK_NS);
}

/* If memory is out, the line is left out: it only helps people. */
static bool insert(struct pl_placement *placement, int rank, const char *cpus)
{
    struct pl_cpus_of *ranks = realloc(placement->ranks, (placement->count + 1) * sizeof(*ranks));
    char *copy = pl_memory_string(cpus, NULL);
    size_t at = placement->count;

    if (ranks) {
        placement->ranks = ranks;
    }
    if (!ranks || !copy) {
        free(copy);
        return false;
    }
    for (; at > 0 && ranks[at - 1].rank > rank; at--) {
        ranks[at] = ranks[at - 1];
    }
    ranks[at] = (struct pl_cpus_of){.rank = rank, .cpus = copy};
    placement->count++;
    return true;
}

void pl_placement_add(struct pl_placement *placement, const struct pl_frame *frame)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int64_t rank, local_size;

    if (placement->done || pl_link_frame_number(frame, 2, 0, INT32_MAX, &rank, NULL) != PL_OK ||
        pl_link_frame_number(frame, 3, 1, INT32_MAX, &local_size, NULL) != PL_OK || frame->count < 5) {
        return;
    }
    placement->done = !insert(placement, (int)rank, frame->fields[4]);
    if (!placement->done && placement->count == (size_t)local_size) {
        pl_cpus_describe(placement->ranks, placement->count, &text);
        pl_log(PL_LOG_DEBUG, "%s", pl_text_string(&text));
        pl_placement_done(placement);
        placement->done = true;
    }
}

void pl_placement_done(struct pl_placement *placement)
{
    for (size_t i = 0; i < placement->count; i++) {
        free(placement->ranks[i].cpus);
    }
    free(placement->ranks);
    *placement = (struct pl_placement){.ranks = NULL};
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
    for (size_t i = 0; i < ends_count; i++) {
        for (size_t k = 0; k < i; k++) {
            inside += ends[k].shim == ends[i].shim && strcmp(ends[k].local, ends[i].remote) == 0 &&
                      strcmp(ends[k].remote, ends[i].local) == 0;
        }
    }
    *ret_count = inside;
    return PL_OK;
}

/* Append the sockets of `process`; none if /proc hides them. */
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

/* Get the number of open TCP connections whose two ends are in processes of the same rank. */
static enum pl_status count_inside_ranks(const struct stat *paceline, size_t *ret_count, struct pl_error *reterr)
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

/* Whether all connections accepted since the last finding are open now, with both ends in one rank. */
static bool is_inside(struct pl_apart *apart, uint64_t accepted)
{
    struct stat paceline;
    uint64_t after;
    size_t inside;

    if (stat("/proc/self/exe", &paceline) != 0 || count_inside_ranks(&paceline, &inside, NULL) != PL_OK ||
        pl_proc_accepted(&after, NULL) != PL_OK || after != accepted || inside < apart->inside ||
        inside - apart->inside != accepted - apart->accepted) {
        return false;
    }
    apart->accepted = accepted;
    apart->inside = inside;
    return true;
}

static bool has_accepted(const struct pl_apart *apart, uint64_t *ret_accepted)
{
    return pl_proc_accepted(ret_accepted, NULL) != PL_OK || *ret_accepted != apart->accepted;
}

/* A rank's connections end with the rank, so compare the count now. */
void pl_apart_end(struct pl_apart *apart)
{
    uint64_t accepted;

    apart->ranks--;
    apart->connected = apart->connected || has_accepted(apart, &accepted);
}

void pl_apart_look(struct pl_apart *apart, int64_t *next_ns)
{
    uint64_t accepted = 0;

    if (apart->connected || apart->ranks == 0) {
        return;
    }
    if (pl_deadline_passed(apart->next_look_ns)) {
        apart->next_look_ns = pl_deadline_after_ns(LOOK_NS);
        if (!has_accepted(apart, &accepted) || is_inside(apart, accepted)) {
            apart->looks = 0;
        } else {
            apart->connected = ++apart->looks == MOST_LOOKS;
        }
    }
    *next_ns = apart->next_look_ns < *next_ns ? apart->next_look_ns : *next_ns;
}

enum pl_apart_state pl_apart_state(const struct pl_apart *apart)
{
    if (apart->connected) {
        return PL_APART_CONNECTED;
    }
    return apart->begun && apart->looks == 0 && pl_clock_now_ns() - apart->begun_ns >= apart->minute_ns
               ? PL_APART_FOR_A_MINUTE
               : PL_APART_UNKNOWN;
}

/* Whether any host with ranks is in this state. */
static bool is_any(const struct pl_supervisor *supervisor, enum pl_apart_state state)
{
    bool found = pl_apart_state(&supervisor->seen.apart) == state;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        found = found || (!session->outside && session->apart == state);
    }
    return found;
}

static bool has_several(const struct pl_supervisor *supervisor)
{
    return supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE && supervisor->plan->processes > 1;
}

void pl_apart_log_minute(struct pl_supervisor *supervisor)
{
    if (supervisor->seen.apart.minute_logged || supervisor->outcome.failed || supervisor->sessions.count == 0 ||
        !has_several(supervisor) || is_any(supervisor, PL_APART_UNKNOWN) || is_any(supervisor, PL_APART_CONNECTED)) {
        return;
    }
    supervisor->seen.apart.minute_logged = true;
    pl_log(PL_LOG_INFO,
           "in the first %lld s no rank has called MPI_Init or joined another one in a torch process group. This is "
           "normal while programs prepare. If it does not change, the %d programs run independently, or wait for each "
           "other without end: see docs/troubleshooting.md",
           (long long)(supervisor->seen.apart.minute_ns / PL_NS_PER_S), supervisor->plan->processes);
}

bool pl_apart_is_possible(const struct pl_supervisor *supervisor)
{
    return has_several(supervisor) && !is_any(supervisor, PL_APART_CONNECTED);
}

void pl_apart_log_end(const struct pl_supervisor *supervisor)
{
    pl_log(PL_LOG_WARNING,
           "no rank has called MPI_Init or joined another one in a torch process group: %d programs ran independently, "
           "and each has trained its own model. For torch and Lightning use torch_distributed or Torchrun() in the "
           "SDK, else see docs/troubleshooting.md; if this is meant, set PACELINE_INDEPENDENT_RANKS=1",
           supervisor->plan->processes);
}

/* Warn of ranks that have succeeded while others still run, for example in MPI_Init(), which then never returns. */
void pl_ranks_log_early_end(struct pl_supervisor *supervisor)
{
    const struct pl_main *main = &supervisor->main;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    if (supervisor->ranks != PL_LAUNCH_PLAN_RANKS_MPIRUN || supervisor->state != PL_HOST_RUNNING || main->ended ||
        supervisor->outcome.failed || supervisor->stop.number != 0) {
        return;
    }
    pl_exit_report_name(PL_PROCESS_RANK, main->left_early.rank, main->left_early.host, &name);
    pl_log(PL_LOG_WARNING, "%s ended with 0 %lld s ago, and %d of %d ranks still run", pl_text_string(&name),
           (long long)(supervisor->main.early_end_ns / PL_NS_PER_S), supervisor->plan->processes - main->ranks_ended,
           supervisor->plan->processes);
}
