/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a container start: the time from exec to the user program's first instruction, and memory while it runs.
 *
 *   bench_startup PACELINE ROUNDS     prints one JSON line per case; SAGEMAKER_BASE_DIR: a tree of one host
 *   bench_startup first               the user's program: prints the time on CLOCK_MONOTONIC, in ns
 *   bench_startup wait                the user's program: prints a line and waits for its stdin to end
 *
 * Rounds alternate between starting the program directly and through `paceline`; our own time is the difference of the
 * medians.
 */
#include "tests/bench/median.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 1000, GOAL_MS = 15, GOAL_KIB = 5120 };

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Starts `argv` with its stdout in a pipe (and its stdin, if `ret_stdin`); returns the reading end. */
static int start(char *const *argv, pid_t *ret_pid, int *ret_stdin)
{
    int output[2], input[2] = {-1, -1};

    if (pipe(output) != 0 || (ret_stdin && pipe(input) != 0)) {
        perror("pipe");
        exit(1);
    }
    *ret_pid = fork();
    if (*ret_pid == 0) {
        dup2(output[1], STDOUT_FILENO);
        if (ret_stdin) {
            dup2(input[0], STDIN_FILENO);
            close(input[1]);
        }
        close(output[0]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(output[1]);
    if (ret_stdin) {
        close(input[0]);
        *ret_stdin = input[1];
    }
    return output[0];
}

static double one_start_ms(char *const *argv)
{
    long long begin_ns = now_ns();
    char text[64] = "";
    ssize_t bytes;
    pid_t pid;
    int fd = start(argv, &pid, NULL);

    bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    waitpid(pid, NULL, 0);
    if (bytes <= 0) {
        fprintf(stderr, "'%s' did not start the program\n", argv[0]);
        exit(1);
    }
    return (double)(strtoll(text, NULL, 10) - begin_ns) / 1e6;
}

static long resident_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

static pid_t first_child(pid_t pid)
{
    char path[64];
    int child = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%d", &child) != 1) {
            child = 0;
        }
        fclose(file);
    }
    return (pid_t)child;
}

static void measure_memory(char *const *argv)
{
    char text[16];
    pid_t pid, shim;
    int input, output = start(argv, &pid, &input);

    if (read(output, text, sizeof(text)) <= 0) {
        fprintf(stderr, "the program did not start\n");
        exit(1);
    }
    shim = first_child(pid);
    printf("{\"bench\": \"startup\", \"case\": \"resident_while_waiting\", \"process_1_kib\": %ld, \"shim_kib\": "
           "%ld, \"goal_kib\": %d}\n",
           resident_kib(pid), shim > 0 ? resident_kib(shim) : 0, GOAL_KIB);
    close(input);
    close(output);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    static double direct_ms[MAX_ROUNDS], through_ms[MAX_ROUNDS];
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    double direct, through;

    if (argc == 2 && strcmp(argv[1], "first") == 0) {
        return printf("%lld\n", now_ns()) > 0 ? 0 : 1;
    }
    if (argc == 2 && strcmp(argv[1], "wait") == 0) {
        char byte;

        return write(STDOUT_FILENO, "here\n", 5) == 5 && read(STDIN_FILENO, &byte, 1) >= 0 ? 0 : 1;
    }
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_startup PACELINE ROUNDS\n");
        return 2;
    }
    for (int round = 0; round < rounds; round++) {
        direct_ms[round] = one_start_ms((char *const[]){argv[0], (char *)"first", NULL});
        through_ms[round] = one_start_ms((char *const[]){argv[1], (char *)"--", argv[0], (char *)"first", NULL});
    }
    direct = median(direct_ms, (size_t)rounds);
    through = median(through_ms, (size_t)rounds);
    printf("{\"bench\": \"startup\", \"case\": \"first_instruction\", \"rounds\": %d, \"direct_ms\": %.2f, "
           "\"paceline_ms\": %.2f, \"own_ms\": %.2f, "
           "\"goal_ms\": %d}\n",
           rounds, direct, through, through - direct, GOAL_MS);
    fflush(stdout);
    measure_memory((char *const[]){argv[1], (char *)"--", argv[0], (char *)"wait", NULL});
    return 0;
}
