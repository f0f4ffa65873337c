/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-check: the ranks of `paceline check`, up to two per host, which mpirun starts as it would start the job's.
 * They report the state of their hosts, test whether all reach each other, run checked sums and copies by Paceline's
 * collectives and by MPI's, compare clocks, and measure each link; rank 0 evaluates and prints.
 *
 * Every wait has a deadline: messages between two ranks have their own; an alarm covers everything else and reports the
 * present phase.
 */
#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/options.h"
#include "collectives/bootstrap.h"
#include "collectives/world.h"
#include "collectives/world_private.h"
#include "programs/check/check.h"

#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REACH_NS (10 * PL_NS_PER_S)  /* a halted host may be late; if all answer it takes milliseconds */
#define SPIN_NS (200 * PL_NS_PER_US) /* then the rank sleeps: the kernel needs the CPU to move the awaited data */
#define NAP_LEAST_NS (10 * PL_NS_PER_US)
#define NAP_MOST_NS (500 * PL_NS_PER_US)
enum {
    TAG_HOST = 1,
    TAG_RECEIVED,
    TAG_DECISION,
    TAG_CLOCK,
    ALARM_S = 120,
    PINGS = 5,
    VALUES = 1 << 18,
    REASON_LINES = 6,
};

/* Present phase; global, because a signal handler has no argument. */
static const char *volatile phase = "MPI_Init";

static void on_alarm(int number)
{
    static const char words[] = "check: not finished after 120 s, in the phase: ";

    (void)number;
    if (write(STDERR_FILENO, words, sizeof(words) - 1) > 0 && write(STDERR_FILENO, phase, strlen(phase)) > 0 &&
        write(STDERR_FILENO, "\n", 1) > 0) {
        _exit(1);
    }
    _exit(1);
}

_Noreturn void pl_check_fail(const char *what)
{
    fprintf(stderr, "check: %s: %s\n", phase, what);
    fflush(NULL);
    _exit(1); /* MPI_Finalize() would wait for the other ranks */
}

void *pl_check_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);

    if (!memory) {
        pl_check_fail("out of memory");
    }
    return memory;
}

bool pl_check_wait_until(void *request, int64_t deadline_ns)
{
    const int64_t begin_ns = pl_clock_now_ns();
    int done = 0;

    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        const int64_t waited_ns = pl_clock_now_ns() - begin_ns;

        if (pl_deadline_passed(deadline_ns)) {
            return false;
        }
        if (waited_ns > SPIN_NS) {
            pl_clock_nap(pl_clock_backoff_ns(waited_ns, NAP_LEAST_NS, NAP_MOST_NS), deadline_ns);
        } else {
            sched_yield();
        }
    }
    return done != 0;
}

/* ---- do all ranks reach each other? ---- */

/* Each rank sends its host's data to every other one. Sets `received` [size] for each rank whose data came. */
static void exchange_hosts(struct pl_check_ranks *check, unsigned char *received)
{
    MPI_Request *in = pl_check_allocate((size_t)check->size, sizeof(MPI_Request));
    MPI_Request *out = pl_check_allocate((size_t)check->size, sizeof(MPI_Request));
    const int64_t deadline_ns = pl_deadline_after_ns(REACH_NS);
    const int bytes = (int)sizeof(struct pl_check_host);

    for (int i = 0; i < check->size; i++) {
        in[i] = out[i] = MPI_REQUEST_NULL;
        if (i != check->rank) {
            MPI_Irecv(&check->by_rank[i], bytes, MPI_BYTE, i, TAG_HOST, MPI_COMM_WORLD, &in[i]);
        }
    }
    for (int i = 0; i < check->size; i++) {
        if (i != check->rank) {
            MPI_Isend(&check->by_rank[check->rank], bytes, MPI_BYTE, i, TAG_HOST, MPI_COMM_WORLD, &out[i]);
        }
    }
    for (int i = 0; i < check->size; i++) {
        received[i] = pl_check_wait_until(&in[i], deadline_ns);
        pl_check_wait_until(&out[i], received[i] ? deadline_ns : 0);
    }
    free(in); /* requests that are still under way end with the process */
    free(out);
}

/* Finds the host name of a rank that has not answered: mpirun fills hosts in their order. */
static void name_rank(const struct pl_check_ranks *check, int rank, char *ret_name, size_t room)
{
    const int hosts = pl_check_evaluate_count_hosts(check->needs.hosts);
    const char *at = check->needs.hosts;
    int wanted;

    if (check->by_rank[rank].name[0] != '\0') {
        snprintf(ret_name, room, "%.150s", check->by_rank[rank].name);
        return;
    }
    if (hosts == 0 || check->size % hosts != 0) {
        snprintf(ret_name, room, "rank %d", rank);
        return;
    }
    wanted = rank / (check->size / hosts);
    for (; wanted > 0; wanted--) {
        at = strchr(at, ',') + 1;
    }
    snprintf(ret_name, room, "%.*s", (int)strcspn(at, ","), at);
}

/* On rank 0: asks the ranks whose data came which ranks' data they have received, and lists the pairs of hosts
 * without messages. */
static void collect_silent(struct pl_check_ranks *check, const unsigned char *received)
{
    unsigned char *all = pl_check_allocate((size_t)check->size, (size_t)check->size);
    const int64_t deadline_ns = pl_deadline_after_ns(2 * REACH_NS); /* others may have waited for their deadline */
    char from[160], to[160], line[324];

    memcpy(all, received, (size_t)check->size);
    for (int i = 1; i < check->size; i++) {
        unsigned char *row = all + (size_t)i * (size_t)check->size;
        MPI_Request request;

        memset(row, 1, (size_t)check->size);
        if (received[i]) {
            MPI_Irecv(row, check->size, MPI_BYTE, i, TAG_RECEIVED, MPI_COMM_WORLD, &request);
            row[0] = (unsigned char)pl_check_wait_until(&request, deadline_ns) && row[0];
        }
    }
    for (int i = 0; i < check->size; i++) {
        for (int k = 0; k < check->size; k++) {
            if (!all[(size_t)i * (size_t)check->size + (size_t)k]) {
                name_rank(check, k, from, sizeof(from));
                name_rank(check, i, to, sizeof(to));
                snprintf(line, sizeof(line), "%s > %s\n", from, to);
                if (!strstr(pl_text_string(&check->silent), line)) {
                    pl_text_append(&check->silent, line);
                }
            }
        }
    }
    free(all);
}

/* Returns false on rank 0 if a rank does not answer; other ranks return only if all answer. */
static bool reach(struct pl_check_ranks *check)
{
    unsigned char *received = pl_check_allocate((size_t)check->size, 1);
    unsigned char decision = 0;
    MPI_Request request;

    phase = "the first messages";
    exchange_hosts(check, received);
    received[check->rank] = 1;
    if (check->rank != 0) {
        MPI_Isend(received, check->size, MPI_BYTE, 0, TAG_RECEIVED, MPI_COMM_WORLD, &request);
        pl_check_wait_until(&request, pl_deadline_after_ns(REACH_NS));
        MPI_Irecv(&decision, 1, MPI_BYTE, 0, TAG_DECISION, MPI_COMM_WORLD, &request);
        while (!pl_check_wait_until(&request, pl_deadline_after_ns(4 * REACH_NS)) || !decision) {
            pause(); /* rank 0 reports the problem, then mpirun ends this process; otherwise the alarm ends it */
        }
        free(received);
        return true;
    }
    collect_silent(check, received);
    decision = check->silent.length == 0;
    for (int i = 1; i < check->size; i++) {
        if (received[i]) {
            MPI_Isend(&decision, 1, MPI_BYTE, i, TAG_DECISION, MPI_COMM_WORLD, &request);
            pl_check_wait_until(&request, pl_deadline_after_ns(REACH_NS));
        }
    }
    free(received);
    return decision != 0;
}

/* Groups the ranks by host; hosts are in the order of their first ranks. */
static void find_hosts(struct pl_check_ranks *check)
{
    int *ranks_of = pl_check_allocate((size_t)check->size, sizeof(int));

    check->leaders = pl_check_allocate((size_t)check->size, sizeof(int));
    check->host_of = pl_check_allocate((size_t)check->size, sizeof(int));
    check->uniform = true;
    for (int rank = 0; rank < check->size; rank++) {
        int host = 0;

        while (host < check->hosts &&
               strcmp(check->by_rank[check->leaders[host]].name, check->by_rank[rank].name) != 0) {
            host++;
        }
        if (host == check->hosts) {
            check->leaders[check->hosts++] = rank;
        }
        check->host_of[rank] = host;
        check->local_rank = rank == check->rank ? ranks_of[host] : check->local_rank;
        ranks_of[host]++;
    }
    for (int host = 1; host < check->hosts; host++) {
        check->uniform = check->uniform && ranks_of[host] == ranks_of[0];
    }
    free(ranks_of);
}

/* ---- values ---- */

static float input_of(int rank, int i)
{
    return (float)((i * 3 + rank) % 4); /* sums of small whole numbers are exact */
}

static void run_allreduce(struct pl_world *world, float *data, int count)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!world) {
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (pl_allreduce(world, data, data, (uint64_t)count, PL_FLOAT32, PL_SUM, &error) != PL_OK) {
        pl_check_fail(error.cause);
    }
}

static void run_broadcast(struct pl_world *world, float *data, int count, int root)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!world) {
        MPI_Bcast(data, count, MPI_FLOAT, root, MPI_COMM_WORLD);
    } else if (pl_broadcast(world, data, (uint64_t)count, PL_FLOAT32, root, &error) != PL_OK) {
        pl_check_fail(error.cause);
    }
}

static uint64_t try_allreduce(const struct pl_check_ranks *check, struct pl_world *world, float *data, int count)
{
    uint64_t wrong = 0;

    for (int i = 0; i < count; i++) {
        data[i] = input_of(check->rank, i);
    }
    run_allreduce(world, data, count);
    for (int i = 0; i < count; i++) {
        int sum = 0;

        for (int rank = 0; rank < check->size % 4; rank++) {
            sum += (i * 3 + rank) % 4;
        }
        wrong += data[i] != (float)(sum + check->size / 4 * 6); /* four consecutive ranks have 0, 1, 2 and 3 */
    }
    return wrong;
}

static uint64_t try_broadcast(const struct pl_check_ranks *check, struct pl_world *world, float *data, int count,
                              int root)
{
    uint64_t wrong = 0;

    for (int i = 0; i < count; i++) {
        data[i] = check->rank == root ? (float)(i % 8191 + root) : -1;
    }
    run_broadcast(world, data, count, root);
    for (int i = 0; i < count; i++) {
        wrong += data[i] != (float)(i % 8191 + root);
    }
    return wrong;
}

static void check_world(struct pl_check_ranks *check, struct pl_world *world, float *data)
{
    static const int counts[] = {1, 4099, VALUES};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(counts); i++) {
        check->values.wrong_allreduce += try_allreduce(check, world, data, counts[i]);
        check->values.wrong_broadcast += try_broadcast(check, world, data, counts[i], 0);
        check->values.wrong_broadcast += try_broadcast(check, world, data, counts[i], check->size - 1);
    }
}

static void check_values(struct pl_check_ranks *check)
{
    float *data = pl_check_allocate(VALUES, sizeof(float));
    uint64_t *all = pl_check_allocate((size_t)check->size, sizeof(uint64_t[2]));
    uint64_t mine[2];
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL;
    struct pl_error error = PL_ERROR_NONE;

    phase = "allreduce and broadcast";
    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK ||
        pl_world_new(bootstrap, NULL, &world, &error) != PL_OK) {
        pl_check_fail(error.cause);
    }
    check_world(check, world, data);
    check_world(check, NULL, data);
    pl_world_free(world);
    pl_bootstrap_free(bootstrap);
    mine[0] = check->values.wrong_allreduce;
    mine[1] = check->values.wrong_broadcast;
    MPI_Gather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int rank = 1; rank < check->size && check->rank == 0; rank++) {
        check->values.wrong_allreduce += all[2 * rank];
        check->values.wrong_broadcast += all[2 * rank + 1];
    }
    check->values.known = true;
    free(all);
    free(data);
}

/* ---- clocks ---- */

static double wall_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void compare_clocks(struct pl_check_ranks *check)
{
    phase = "comparing clocks";
    for (int host = 1; host < check->hosts; host++) {
        const int leader = check->leaders[host];
        double best_s = 1e9, theirs = 0;

        for (int ping = 0; ping < PINGS && (check->rank == 0 || check->rank == leader); ping++) {
            double before = wall_s(), after;

            if (check->rank == leader) {
                MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_CLOCK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                before = wall_s();
                MPI_Send(&before, 1, MPI_DOUBLE, 0, TAG_CLOCK, MPI_COMM_WORLD);
                continue;
            }
            MPI_Send(NULL, 0, MPI_BYTE, leader, TAG_CLOCK, MPI_COMM_WORLD);
            MPI_Recv(&theirs, 1, MPI_DOUBLE, leader, TAG_CLOCK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            after = wall_s();
            if (after - before < best_s) {
                best_s = after - before;
                check->by_rank[leader].clock_s = theirs - (before + after) / 2;
            }
        }
    }
}

/* ---- result ---- */

/* On rank 0: prints the result and returns the exit code. */
static int evaluate(struct pl_check_ranks *check, int64_t begun_ns)
{
    struct pl_check_host *hosts = pl_check_allocate((size_t)check->hosts, sizeof(*hosts));
    struct pl_check_report report = {.needs = &check->needs,
                                     .hosts = hosts,
                                     .hosts_count = check->hosts,
                                     .links = check->links,
                                     .links_count = check->links_count,
                                     .values = check->values,
                                     .silent = &check->silent};
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE, reasons = PL_TEXT_NONE, json = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_check_rows rows;
    double seconds;
    size_t missed;

    for (int host = 0; host < check->hosts; host++) {
        hosts[host] = check->by_rank[check->leaders[host]];
    }
    pl_check_evaluate(&report, &rows);
    missed = pl_check_print(&rows, &table, &reasons);
    if (rows.failed || pl_text_check(&table, NULL) != PL_OK || pl_text_check(&reasons, NULL) != PL_OK) {
        pl_check_fail("out of memory");
    }
    seconds = (double)(pl_clock_now_ns() - begun_ns) / 1e9;
    if (!check->needs.json) {
        printf("%s%d host%s, checked in %.1f s: %s\n", pl_text_string(&table), check->hosts,
               check->hosts == 1 ? "" : "s", seconds, missed == 0 ? "all needs are met" : "a need is missed");
    } else if (pl_check_print_json(&rows, check->hosts, seconds, &json, &error) == PL_OK) {
        fputs(pl_text_string(&json), stdout);
    } else {
        pl_check_fail(error.cause);
    }
    fflush(stdout);
    if (missed > REASON_LINES) {
        fprintf(stderr, "check: %zu needs are missed, the first of them:\n", missed);
    }
    for (const char *line = pl_text_string(&reasons); *line != '\0' && missed > 0; line += strcspn(line, "\n") + 1) {
        static int printed;

        if (printed++ < REASON_LINES) {
            fprintf(stderr, "%.*s\n", (int)strcspn(line, "\n"), line);
        }
    }
    pl_check_rows_done(&rows);
    free(hosts);
    return missed == 0 ? 0 : 1;
}

static int run_ranks(struct pl_check_ranks *check)
{
    const int64_t begun_ns = pl_clock_now_ns();
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_check_host *mine;
    int level, code = 0;

    signal(SIGALRM, on_alarm);
    alarm(ALARM_S);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &check->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check->size);
    check->by_rank = pl_check_allocate((size_t)check->size, sizeof(*check->by_rank));
    mine = &check->by_rank[check->rank];
    if (pl_environment_new(&environment, NULL) != PL_OK) {
        pl_check_fail("out of memory");
    }
    pl_check_host_read("", pl_environment_get_or(environment, "SM_MODEL_DIR", "/"),
                       pl_environment_get_or(environment, "SM_NETWORK_INTERFACE_NAME", ""), mine);
    gethostname(mine->name, sizeof(mine->name) - 1);
    if (!reach(check)) {
        find_hosts(check);
        code = evaluate(check, begun_ns);
        _exit(code); /* MPI_Finalize() would wait for ranks that do not answer */
    }
    find_hosts(check);
    check_values(check);
    compare_clocks(check);
    phase = "measuring links";
    pl_check_links_measure(check);
    code = check->rank == 0 ? evaluate(check, begun_ns) : 0;
    phase = "MPI_Finalize";
    MPI_Finalize();
    return code;
}

int main(int argc, char **argv)
{
    struct pl_check_ranks check = {.rank = 0};
    struct pl_error error = PL_ERROR_NONE;
    const enum pl_status status = pl_check_read_needs(argc, argv, &check.needs, &error);

    if (status == PL_END) {
        return 0;
    }
    if (status != PL_OK) {
        fprintf(stderr, "check: %s\n", error.cause);
        return PL_EXIT_USAGE;
    }
    return run_ranks(&check);
}
