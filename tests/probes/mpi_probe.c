/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small MPI program that does what a test asks of one rank:
 *
 *   mpi_probe                     one allreduce, print "rank R of N sum S on HOST", end well
 *   mpi_probe exit R CODE         rank R exits with CODE, the others wait to be ended
 *   mpi_probe raise R SIGNAL      rank R kills itself with SIGNAL
 *   mpi_probe stubborn R CODE     as exit, and the other ranks ignore SIGTERM
 *   mpi_probe daemon R SECONDS    rank R leaves a process that holds its output open; all end well
 *   mpi_probe last R CODE         all ranks finish, then rank R exits with CODE
 *   mpi_probe save R SECONDS      wait; on SIGTERM sleep SECONDS, write /opt/ml/model/saved-RANK, end well
 *   mpi_probe alone R SECONDS [HOW]   the same, but only rank R handles SIGTERM, and leaves without MPI_Finalize();
 *                                 the others die of it, HOW leave: exit with 1, ignore: go on for 600 s
 *   mpi_probe sleep R SECONDS     all ranks do steps for SECONDS
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked;

static void ask_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

static void nap(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&left, &left) != 0 && errno == EINTR && !stop_asked) {
    }
}

static void leave(int number)
{
    (void)number;
    _exit(1);
}

static void leave_daemon(double seconds)
{
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        if (fork() > 0) {
            _exit(0);
        }
        for (double slept = 0; slept < seconds; slept += 1) {
            sleep(1);
        }
        _exit(0);
    }
}

static void save(int rank, double seconds)
{
    char path[64];
    int fd;

    while (!stop_asked) {
        nap(0.05);
    }
    stop_asked = 0;
    nap(seconds);
    snprintf(path, sizeof(path), "/opt/ml/model/saved-%d", rank);
    fd = open(path, O_CREAT | O_WRONLY, 0644);
    if (fd >= 0) {
        close(fd);
    }
}

static void steps(double seconds)
{
    int one = 1, sum = 0, ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int step = 0; step < (int)(seconds * 10); step++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        nap(0.1);
    }
    if (sum != ranks) {
        exit(9);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 3 ? argv[1] : "";
    int chosen = argc > 3 ? atoi(argv[2]) : -1;
    double number = argc > 3 ? atof(argv[3]) : 0;
    const char *others = argc > 4 ? argv[4] : "";
    const char *host = getenv("SM_CURRENT_HOST");
    int rank, size, one = 1, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(verb, "save") == 0) {
        signal(SIGTERM, ask_stop);
    } else if (strcmp(verb, "alone") == 0) {
        signal(SIGTERM, rank == chosen                  ? ask_stop
                        : strcmp(others, "leave") == 0  ? leave
                        : strcmp(others, "ignore") == 0 ? SIG_IGN
                                                        : SIG_DFL);
    } else if (strcmp(verb, "stubborn") == 0 && rank != chosen) {
        signal(SIGTERM, SIG_IGN);
    }
    printf("rank %d of %d sum %d on %s\n", rank, size, sum, host ? host : "no host");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(verb, "exit") == 0 || strcmp(verb, "stubborn") == 0) {
        if (rank == chosen) {
            fprintf(stderr, "this is the last word of rank %d\n", rank);
            exit((int)number);
        }
        nap(600);
    } else if (strcmp(verb, "raise") == 0) {
        if (rank == chosen) {
            fprintf(stderr, "this is the last word of rank %d\n", rank);
            raise((int)number);
        }
        nap(600);
    } else if (strcmp(verb, "daemon") == 0 && rank == chosen) {
        leave_daemon(number);
    } else if (strcmp(verb, "save") == 0) {
        save(rank, number);
    } else if (strcmp(verb, "alone") == 0) {
        if (rank == chosen) {
            save(rank, number);
            _exit(0);
        }
        nap(600);
    } else if (strcmp(verb, "sleep") == 0) {
        steps(number);
    }
    MPI_Finalize();
    return strcmp(verb, "last") == 0 && rank == chosen ? (int)number : 0;
}
