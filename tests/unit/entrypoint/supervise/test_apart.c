/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/ranks.c. */
/* The tests run in a separate network, in which no other process changes the count of connections. */
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/supervise.h"
#include "tests/unit/entrypoint/tree.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns 0, or 77 if this machine does not allow such a network. */
static int enter_network(void)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        printf("SKIP: this machine allows no network namespace: %s\n", strerror(errno));
        return 77;
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback) != 0) {
        perror("SIOCSIFFLAGS");
        return 1;
    }
    close(fd);
    return 0;
}

/* Make a connection within this host, over IPv6 on request: ends[0] has connected, ends[1] was accepted. */
static void connect_ends(bool v6, int ends[2])
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_storage at;
    socklen_t bytes = sizeof(at);
    int listener = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(listener, v6 ? (void *)&six : (void *)&four, v6 ? sizeof(six) : sizeof(four)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    four.sin_port = ((struct sockaddr_in *)&at)->sin_port; /* the port is at the same place in both structs */
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(ends[0], (struct sockaddr *)&four, sizeof(four)), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(ends[1], 0);
    close(listener);
}

/* Start a rank: a process with the name of a shim, and below it a program. Both have the descriptors of this process
 * except `closed`, and end with this process. */
static void start_rank(int closed)
{
    int begun[2];
    char byte;
    pid_t pid;

    ck_assert_int_eq(pipe(begun), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (closed >= 0) {
            close(closed);
        }
        memcpy(program_invocation_name, "paceline-python", sizeof("paceline-python"));
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            memcpy(program_invocation_name, "program", sizeof("program"));
            if (write(begun[1], "", 1) == 1) {
                pause();
            }
            _exit(1);
        }
        pause();
        _exit(1);
    }
    close(begun[1]);
    ck_assert_int_eq(read(begun[0], &byte, 1), 1);
    close(begun[0]);
}

static void close_ends(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

static void begin_ranks(struct pl_apart *apart, int ranks)
{
    struct pl_frame hello = {.type = PL_FRAME_HELLO, .count = 6, .fields = {"shim", "algo-1", "0", "2", "0"}};
    uint64_t accepted;
    char text[24];

    ck_ok(pl_proc_accepted, &accepted);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)accepted);
    hello.fields[5] = text;
    for (int i = 0; i < ranks; i++) {
        pl_apart_begin(apart, &hello);
    }
}

static void look_now(struct pl_apart *apart)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    apart->next_look_ns = 0;
    pl_apart_look(apart, &next_ns);
}

TEST(connections_of_a_rank_with_itself_connect_no_ranks)
{
    struct pl_apart apart = {.minute_ns = 0};
    int ends[2];

    begin_ranks(&apart, 2);
    ck_assert_int_eq(pl_apart_state(&apart), PL_APART_FOR_A_MINUTE);
    for (int v6 = 0; v6 < 2; v6++) {
        connect_ends(v6 != 0, ends);
        start_rank(-1);
        close_ends(ends);
        look_now(&apart);
        ck_assert_int_eq(pl_apart_state(&apart), PL_APART_FOR_A_MINUTE);
    }
    pl_apart_end(&apart);
    pl_apart_end(&apart);
    ck_assert_int_eq(pl_apart_state(&apart), PL_APART_FOR_A_MINUTE);
}

TEST(a_connection_between_two_ranks_or_with_another_process_connects_them)
{
    for (int others = 0; others < 2; others++) {
        struct pl_apart apart = {.minute_ns = 0};
        int ends[2];

        begin_ranks(&apart, 2);
        connect_ends(false, ends);
        start_rank(ends[0]);
        close(ends[1]);
        if (others == 0) {
            start_rank(-1);
            close(ends[0]);
        }
        look_now(&apart);
        ck_assert_int_eq(pl_apart_state(&apart), PL_APART_UNKNOWN); /* the connection may have been in the making */
        look_now(&apart);
        ck_assert_int_eq(pl_apart_state(&apart), PL_APART_CONNECTED);
    }
}

TEST(a_connection_that_nobody_saw_connects_them)
{
    struct pl_apart apart = {.minute_ns = 0};
    int ends[2];

    begin_ranks(&apart, 2);
    connect_ends(false, ends);
    close_ends(ends);
    pl_apart_end(&apart);
    ck_assert_int_eq(pl_apart_state(&apart), PL_APART_CONNECTED);
}

TEST(a_rank_that_does_not_know_the_count_says_nothing)
{
    const struct pl_frame hello = {.type = PL_FRAME_HELLO, .count = 6, .fields = {"shim", "algo-1", "0", "2", "0", ""}};
    struct pl_apart apart = {.minute_ns = 0};

    begin_ranks(&apart, 1);
    pl_apart_begin(&apart, &hello);
    ck_assert_int_eq(pl_apart_state(&apart), PL_APART_CONNECTED);
}

/* Returns how many lines the master logs, including those at the end, with a worker in this state. */
static int count_lines(const struct tree *tree, enum pl_apart_state worker)
{
    struct pl_session session = {.host = "algo-2", .apart = worker};
    struct pl_launch_plan plan = {.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN, .processes = 4};
    static struct pl_supervisor supervisor;
    PL_AUTO_FREE char *text = NULL;
    char path[PATH_MAX];
    int log_fd, kept_fd = dup(STDERR_FILENO), lines = 0;

    supervisor = (struct pl_supervisor){
        .job = tree->job, .plan = &plan, .ranks = plan.ranks, .sessions = {.items = &session, .count = 1}};
    pl_apart_open(&supervisor.seen.apart, tree->job);
    supervisor.seen.apart.minute_ns = 0;
    begin_ranks(&supervisor.seen.apart, 2);
    log_fd = open(scratch_path(&tree->scratch, "log", path), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(dup2(log_fd, STDERR_FILENO), 0);
    pl_apart_log_minute(&supervisor);
    pl_apart_log_minute(&supervisor);
    if (pl_apart_is_possible(&supervisor)) {
        pl_apart_log_end(&supervisor);
    }
    ck_assert_int_ge(dup2(kept_fd, STDERR_FILENO), 0);
    close(kept_fd);
    close(log_fd);
    ck_ok(pl_file_read, path, 65536, &text, NULL);
    for (const char *at = text; (at = strstr(at, "no rank has called MPI_Init")); at++) {
        lines++;
    }
    return lines;
}

TEST(the_first_minute_and_the_end_are_told_once_each_unless_a_host_knows_better)
{
    AUTO_TREE struct tree tree = tree_new();

    ck_ok(tree_job, &tree);
    ck_assert_int_eq(count_lines(&tree, PL_APART_FOR_A_MINUTE), 2);
    ck_assert_int_eq(count_lines(&tree, PL_APART_UNKNOWN), 1);
    ck_assert_int_eq(count_lines(&tree, PL_APART_CONNECTED), 0);
    tree_env(&tree, "PACELINE_INDEPENDENT_RANKS", "1");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(count_lines(&tree, PL_APART_FOR_A_MINUTE), 0);
}

UNIT_MAIN_AFTER("entrypoint/supervise/apart", enter_network())
