/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that run one operation again and again, small and large, until one of them is hit by a signal at a moment of
 * chance:
 *
 *   fault_ranks KIND SIGNAL VICTIM DEADLINE_S FOLDER      KIND by number, as enum pl_kind; the signal too
 *
 * Each of the others writes FOLDER/noticed-RANK, one line: seconds from the signal to the error, its status, its words.
 * Then it waits for the others' files, so that no launcher ends anybody early, and leaves with status 3 without another
 * word to MPI.
 */
#include "base/clock.h"
#include "collectives/collective.h"
#include "collectives/world.h"

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

/* Write the time, and go. Every host of the test has the same clock. */
static void hit(int number)
{
    int64_t now_ns = pl_clock_now_ns();

    (void)number;
    if (write(hit_fd, &now_ns, sizeof(now_ns)) == sizeof(now_ns)) {
        (void)kill(getpid(), hit_by);
    }
}

static void arm(const char *folder)
{
    struct itimerval timer = {.it_value = {.tv_usec = 10000 + pl_clock_now_ns() % 40000}};
    char path[500];

    snprintf(path, sizeof(path), "%s/hit", folder);
    hit_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    (void)signal(SIGALRM, hit);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
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
    if (file != NULL) {
        fprintf(file, "%.3f %s %s\n", seconds, pl_status_name(error->status), pl_error_text(error, text, sizeof(text)));
        fclose(file);
        (void)rename(path_new, path);
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

int main(int argc, char **argv)
{
    static float send[16 * ELEMS];
    static float recv[16 * ELEMS];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_bootstrap *bootstrap = NULL;
    struct pl_world *world = NULL;
    struct pl_collective collective = {.dtype = PL_FLOAT32, .send = send, .recv = recv};
    enum pl_status status = PL_OK;
    double deadline_s;
    int victim;

    if (argc != 6) {
        fprintf(stderr, "usage: fault_ranks KIND SIGNAL VICTIM DEADLINE_S FOLDER\n");
        return 2;
    }
    collective.kind = (enum pl_kind)atoi(argv[1]);
    hit_by = atoi(argv[2]);
    victim = atoi(argv[3]);
    deadline_s = atof(argv[4]);
    if (pl_bootstrap_new_mpi(NULL, &bootstrap, &error) != PL_OK ||
        pl_world_new(bootstrap, NULL, &world, &error) != PL_OK) {
        fprintf(stderr, "no world: %s\n", error.cause);
        return 1;
    }
    for (int step = 0; status == PL_OK; step++) {
        if (step == STEPS_BEFORE && bootstrap->rank == victim) {
            arm(argv[5]);
        }
        collective.count = step % 2 ? ELEMS : 16;
        collective.root =
            collective.kind == PL_BROADCAST || collective.kind == PL_REDUCE ? step / 2 % bootstrap->size : 0;
        collective.send = collective.kind == PL_BROADCAST ? NULL : send;
        /* The first steps make connections, for which a busy machine may need longer. */
        collective.deadline_ns =
            pl_deadline_after_ns((int64_t)((step < STEPS_BEFORE ? 30 : deadline_s) * (double)PL_NS_PER_S));
        status = pl_collective_run(world, &collective, &error);
    }
    tell(argv[5], bootstrap->rank, &error);
    await_others(argv[5], bootstrap->size, victim,
                 pl_deadline_after_ns((int64_t)((deadline_s + 10) * (double)PL_NS_PER_S)));
    fprintf(stderr, "rank %d: %s\n", bootstrap->rank, error.cause);
    _exit(3);
}
