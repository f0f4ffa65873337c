/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that repeat one operation, small and large, until a signal hits one of them at a random moment, or one stays in
 * its own code:
 *
 *   fault_ranks KIND SIGNAL VICTIM DEADLINE_S FOLDER
 *
 * KIND is a number of enum pl_kind, `names` for named tensors or `plan` for a gradient plan. SIGNAL is a number; with 0
 * the victim is late. Each of the other ranks writes FOLDER/noticed-RANK with one line: the seconds from the signal to
 * the error, its status, its message. Then it waits for the files of the others, so that no launcher ends a rank early,
 * and exits with status 3 without another MPI call.
 */
#include "base/clock.h"
#include "collectives/bootstrap.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "runtime/plan.h"
#include "runtime/service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { ELEMS = 200000, STEPS_BEFORE = 6 };

static int hit_fd;
static int hit_by;

/* Write the time, and die. All hosts of the test have the same clock. */
static void hit(int number)
{
    int64_t now_ns = pl_clock_now_ns();

    (void)number;
    if (write(hit_fd, &now_ns, sizeof(now_ns)) == sizeof(now_ns)) {
        kill(getpid(), hit_by);
    }
}

static void arm(const char *folder)
{
    struct itimerval timer = {.it_value = {.tv_usec = 10000 + pl_clock_now_ns() % 40000}};
    char path[500];

    snprintf(path, sizeof(path), "%s/hit", folder);
    hit_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (hit_by == 0) {
        int64_t now_ns = pl_clock_now_ns();

        (void)!write(hit_fd, &now_ns, sizeof(now_ns));
        for (;;) {
            pause();
        }
    }
    signal(SIGALRM, hit);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static double seconds_since_hit(const char *folder)
{
    int64_t now_ns = pl_clock_now_ns();
    int64_t hit_ns = 0;
    char path[500];
    int fd;

    snprintf(path, sizeof(path), "%s/hit", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &hit_ns, sizeof(hit_ns)) != sizeof(hit_ns)) {
        return -1; /* an error before the signal */
    }
    close(fd);
    return (double)(now_ns - hit_ns) / (double)PL_NS_PER_S;
}

static void tell(const char *folder, int rank, const struct pl_error *error)
{
    double seconds = seconds_since_hit(folder);
    char text[1500];
    char path[500];
    char path_new[510];
    FILE *file;

    snprintf(path, sizeof(path), "%s/noticed-%d", folder, rank);
    snprintf(path_new, sizeof(path_new), "%s.new", path);
    file = fopen(path_new, "we");
    if (file) {
        fprintf(file, "%.3f %s %s\n", seconds, pl_status_name(error->status), pl_error_text(error, text, sizeof(text)));
        fclose(file);
        rename(path_new, path);
    }
}

static void await_others(const char *folder, int size, int victim, int64_t deadline_ns)
{
    for (int rank = 0; rank < size; rank++) {
        char path[500];

        snprintf(path, sizeof(path), "%s/noticed-%d", folder, rank);
        while (rank != victim && access(path, F_OK) != 0 && !pl_deadline_passed(deadline_ns)) {
            pl_clock_nap(10 * PL_NS_PER_MS, deadline_ns);
        }
    }
}

/* The operation that the ranks run. */
struct operation {
    struct pl_world *world;
    struct pl_service *named;        /* NULL: the operation is not a named tensor's */
    struct pl_plan *plan;            /* NULL: the operation is not a plan's */
    struct pl_collective collective; /* else */
};

static float send[16 * ELEMS];
static float recv[16 * ELEMS];

static enum pl_status make(struct operation *operation, const char *kind, struct pl_error *reterr)
{
    size_t index;

    if (strcmp(kind, "names") == 0) {
        return pl_service_new(operation->world, NULL, &operation->named, reterr);
    }
    if (strcmp(kind, "plan") == 0) {
        PL_TRY(pl_plan_new(operation->world, NULL, &operation->plan, reterr));
        PL_TRY(pl_plan_add(operation->plan, "small", 1, &(uint64_t){16}, &index, reterr));
        PL_TRY(pl_plan_add(operation->plan, "large", 1, &(uint64_t){ELEMS}, &index, reterr));
        return pl_plan_seal(operation->plan, reterr);
    }
    operation->collective = (struct pl_collective){.kind = (enum pl_kind)atoi(kind), .dtype = PL_FLOAT32, .recv = recv};
    return PL_OK;
}

static enum pl_status run(struct operation *operation, int step, struct pl_error *reterr)
{
    struct pl_collective *collective = &operation->collective;
    uint64_t count = step % 2 ? ELEMS : 16;

    if (operation->named) {
        struct pl_completion completion = {0};
        char name[20];

        snprintf(name, sizeof(name), "g%d", step % 6);
        PL_TRY(pl_service_submit(operation->named, 0,
                                 &(struct pl_named_op){.name = name,
                                                       .kind = PL_ALLREDUCE,
                                                       .dtype = PL_FLOAT32,
                                                       .op = PL_SUM,
                                                       .dims = 1,
                                                       .shape = {count},
                                                       .send = send,
                                                       .recv = recv},
                                 &completion, reterr));
        return pl_service_wait(operation->named, &completion, reterr);
    }
    if (operation->plan) {
        PL_TRY(pl_plan_ready(operation->plan, 1, reterr));
        PL_TRY(pl_plan_ready(operation->plan, 0, reterr));
        return pl_plan_wait(operation->plan, reterr);
    }
    collective->count = count;
    collective->root = collective->kind == PL_BROADCAST || collective->kind == PL_REDUCE
                           ? step / 2 % pl_world_size(operation->world)
                           : 0;
    collective->send = collective->kind == PL_BROADCAST ? NULL : send;
    return pl_collective_run(operation->world, collective, reterr);
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    struct operation operation = {.world = NULL};
    enum pl_status status = PL_OK;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    double deadline_s;
    int victim;

    if (argc != 6) {
        fprintf(stderr, "usage: fault_ranks KIND SIGNAL VICTIM DEADLINE_S FOLDER\n");
        return 2;
    }
    hit_by = atoi(argv[2]);
    victim = atoi(argv[3]);
    deadline_s = atof(argv[4]);
    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK ||
        pl_world_new(bootstrap, NULL, &operation.world, &error) != PL_OK ||
        make(&operation, argv[1], &error) != PL_OK) {
        fprintf(stderr, "no world: %s\n", error.cause);
        return 1;
    }
    for (int step = 0; status == PL_OK; step++) {
        if (step == STEPS_BEFORE && bootstrap->rank == victim) {
            arm(argv[5]);
        }
        /* The first steps make connections; a busy machine may need longer for these. */
        operation.world->timeout_ns = (int64_t)((step < STEPS_BEFORE ? 30 : deadline_s) * (double)PL_NS_PER_S);
        status = run(&operation, step, &error);
    }
    tell(argv[5], bootstrap->rank, &error);
    await_others(argv[5], bootstrap->size, victim,
                 pl_deadline_after_ns((int64_t)((deadline_s + 60) * (double)PL_NS_PER_S)));
    fprintf(stderr, "rank %d: %s\n", bootstrap->rank, pl_error_text(&error, text, sizeof(text)));
    _exit(3);
}
