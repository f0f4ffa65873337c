/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/proc/delivery.c. */
#include "entrypoint/proc/delivery.h"

#include "base/clock.h"
#include "entrypoint/proc/proc.h"
#include "tests/support/refuse_call.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 5, NONE = -1 };
enum role { PLAIN, CATCHES, IGNORES, LOADER };

/* A tree of processes, whose first is the leader of a process group. */
struct node {
    enum role role;
    int parent;
};

static struct shared {
    atomic_int pid[PROCESSES], got[PROCESSES]; /* how often its handler ran */
    atomic_bool leaves[PROCESSES], starts_handling[PROCESSES], starts_ignoring[PROCESSES], forks[PROCESSES];
} * shared;
static int self;
static struct pl_delivery delivery;
static struct scratch scratch;

static void count(int number)
{
    atomic_fetch_add(&shared->got[self], 1);
}

static void nap(void)
{
    pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
}

static void handle(int number)
{
    const struct sigaction action = {.sa_handler = count};

    sigaction(number, &action, NULL);
}

static void set_handlers(enum role role)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE}; /* a sanitizer handles them too */

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        signal(faults[i], SIG_DFL);
        if (role == LOADER) {
            handle(faults[i]);
        }
    }
    signal(SIGTERM, role == IGNORES ? SIG_IGN : SIG_DFL);
    if (role == CATCHES || role == LOADER) {
        handle(SIGTERM);
    }
}

/* Whether the leader of the group is there: a test that fails must leave nobody. */
static bool leader_is_there(void)
{
    return kill(getpgrp(), 0) == 0;
}

_Noreturn static void run_tree(const struct node *nodes, int nodes_count)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    self = 0;
    for (int child = 1; child < nodes_count; child++) {
        if (nodes[child].parent == self && fork() == 0) {
            self = child; /* the children of a node follow it */
        }
    }
    set_handlers(nodes[self].role);
    atomic_store(&shared->pid[self], getpid());
    while (!atomic_load(&shared->leaves[self]) && leader_is_there()) {
        if (atomic_exchange(&shared->starts_handling[self], false)) {
            handle(SIGTERM);
        }
        if (atomic_exchange(&shared->starts_ignoring[self], false)) {
            signal(SIGTERM, SIG_IGN);
        }
        if (atomic_exchange(&shared->forks[self], false) && fork() == 0) {
            self = PROCESSES - 1;
            atomic_store(&shared->pid[self], getpid());
        }
        nap();
    }
    _exit(0);
}

static pid_t fork_leader(void)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        setpgid(0, 0);
        return 0;
    }
    setpgid(pid, pid);
    return pid;
}

/* Start the tree and wait until all of it runs. Returns its process group. */
static pid_t start(const struct node *nodes, int nodes_count)
{
    pid_t pid;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    pid = fork_leader();
    if (pid == 0) {
        run_tree(nodes, nodes_count);
    }
    for (int i = 0; i < nodes_count; i++) {
        while (atomic_load(&shared->pid[i]) == 0) {
            nap();
        }
    }
    return pid;
}

/* Start a shell that makes the file `ready`, and wait for that. */
static pid_t start_shell(const char *script)
{
    char path[PATH_MAX];
    pid_t pid;

    scratch = scratch_new();
    pid = fork_leader();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_handlers(PLAIN);
        if (chdir(scratch.path) == 0) {
            execlp("sh", "sh", "-c", script, (char *)NULL);
        }
        _exit(127);
    }
    while (access(scratch_path(&scratch, "ready", path), F_OK) != 0) {
        nap();
    }
    return pid;
}

static bool lives(int number)
{
    struct pl_proc_stat stat;

    return pl_proc_read_stat(atomic_load(&shared->pid[number]), 0, &stat, NULL) == PL_OK && stat.state != 'Z';
}

static void await_got(int number)
{
    while (atomic_load(&shared->got[number]) == 0) {
        nap();
    }
}

static void await_death(int number)
{
    while (lives(number)) {
        nap();
    }
}

/* Look again: nobody gets the signal. */
static void look_in_vain(void)
{
    const size_t waiting = delivery.waiting;

    pl_delivery_go_on(&delivery);
    ck_assert_uint_eq(delivery.waiting, waiting);
}

/* Have a process end by itself, and look at the others for the first time after it. */
static void leave(int number)
{
    atomic_store(&shared->leaves[number], true);
    await_death(number);
    look_in_vain();
}

static void go_on_until_over(void)
{
    while (delivery.waiting > 0) {
        pl_delivery_go_on(&delivery);
        nap();
    }
}

static void finish(pid_t group)
{
    kill(-group, SIGKILL);
    while (waitpid(group, NULL, 0) < 0) {
    }
    pl_delivery_done(&delivery);
}

/* A shell may have started a process after the last look: it must not hold the output of this test, which meson reads
 * to its end. */
static void finish_shell(pid_t group)
{
    kill(-group, SIGKILL);
    pl_delivery_done(&delivery);
    scratch_done(&scratch);
}

TEST(a_process_with_a_handler_gets_the_signal_for_its_descendants)
{
    static const struct node nodes[] = {{CATCHES, NONE}, {PLAIN, 0}, {CATCHES, 0}, {CATCHES, 1}};
    const pid_t group = start(nodes, 4);

    ck_assert(pl_delivery_begin_if_caught(&delivery, SIGTERM));
    await_got(0);
    ck_assert_uint_eq(delivery.waiting, 0);
    for (int i = 1; i < 4; i++) {
        ck_assert(lives(i));
        ck_assert_int_eq(atomic_load(&shared->got[i]), 0);
    }
    finish(group);
}

TEST(a_process_without_a_handler_waits_for_its_descendant_and_its_sibling)
{
    static const struct node nodes[] = {{PLAIN, NONE}, {CATCHES, 0}, {PLAIN, 0}, {PLAIN, 2}};
    const pid_t group = start(nodes, 4);

    ck_assert(pl_delivery_begin_if_caught(&delivery, SIGTERM));
    await_got(1);
    ck_assert_uint_eq(delivery.waiting, 3);
    look_in_vain();
    leave(1); /* now the others have time to end by themselves */
    ck_assert_uint_eq(delivery.waiting, 3);
    go_on_until_over();
    for (int i = 0; i < 4; i++) {
        await_death(i);
    }
    ck_assert_int_eq(atomic_load(&shared->got[1]), 1);
    finish(group);
}

TEST(a_process_that_goes_on_after_its_descendant_gets_the_signal)
{
    static const struct node nodes[] = {{IGNORES, NONE}, {PLAIN, 0}, {CATCHES, 1}};
    const pid_t group = start(nodes, 3);

    pl_delivery_begin(&delivery, group, SIGTERM);
    await_got(2);
    ck_assert_uint_eq(delivery.waiting, 2);
    leave(2);
    atomic_store(&shared->forks[1], true);
    while (atomic_load(&shared->pid[PROCESSES - 1]) == 0) {
        nap();
    }
    go_on_until_over();
    await_death(1);
    await_death(PROCESSES - 1);
    ck_assert(lives(0)); /* it ignores the signal */
    finish(group);
}

TEST(a_process_that_waits_and_then_has_a_handler_gets_the_signal)
{
    static const struct node nodes[] = {{PLAIN, NONE}, {CATCHES, 0}, {PLAIN, 0}};
    const pid_t group = start(nodes, 3);

    pl_delivery_begin(&delivery, group, SIGTERM);
    ck_assert_uint_eq(delivery.waiting, 2);
    atomic_store(&shared->starts_handling[2], true);
    while (delivery.waiting == 2) {
        pl_delivery_go_on(&delivery);
        nap();
    }
    await_got(2);
    ck_assert_uint_eq(delivery.waiting, 1);
    ck_assert(lives(0));
    finish(group);
}

TEST(a_worker_of_torchs_loader_counts_as_one_without_a_handler)
{
    static const struct node nodes[] = {{PLAIN, NONE}, {LOADER, 0}};
    const pid_t group = start(nodes, 2);

    ck_assert(!pl_delivery_begin_if_caught(&delivery, SIGTERM));
    pl_delivery_begin(&delivery, group, SIGTERM);
    ck_assert_uint_eq(delivery.waiting, 0);
    await_got(1);
    await_death(0);
    finish(group);
}

TEST(a_shell_runs_its_trap_at_once)
{
    const pid_t group = start_shell("trap 'exit 3' TERM; sh -c ': >ready; sleep 100'");
    int status;

    ck_assert(pl_delivery_begin_if_caught(&delivery, SIGTERM));
    ck_assert_int_eq(waitpid(group, &status, 0), group);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    finish_shell(group);
}

/* The outer shell waits meanwhile, so that the processes are looked at again and again. */
TEST(what_a_trap_starts_does_not_get_the_signal)
{
    const pid_t group =
        start_shell("sh -c 'trap \"for i in 1 2 3 4 5 6 7 8; do sleep 0.01 || exit 4; done; exit 3\" TERM; "
                    ": >ready; while :; do sleep 0.01; done'; exit $?");
    int status;

    pl_delivery_begin(&delivery, group, SIGTERM);
    ck_assert_uint_ge(delivery.waiting, 1);
    while (waitpid(group, &status, WNOHANG) == 0) {
        pl_delivery_go_on(&delivery);
        nap();
    }
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    finish_shell(group);
}

TEST(without_handlers_and_without_proc_the_whole_group_gets_the_signal)
{
    static const struct node plain[] = {{PLAIN, NONE}, {PLAIN, 0}}, catching[] = {{CATCHES, NONE}, {CATCHES, 0}};
    pid_t group = start(plain, 2);

    ck_assert(!pl_delivery_begin_if_caught(&delivery, SIGTERM));
    pl_delivery_begin(&delivery, group, SIGTERM);
    await_death(0);
    await_death(1);
    finish(group);
    group = start(catching, 2);
    refuse_call(SYS_openat, NULL);
    ck_assert(!pl_delivery_begin_if_caught(&delivery, SIGTERM));
    pl_delivery_begin(&delivery, group, SIGTERM);
    await_got(0);
    await_got(1);
    look_in_vain();
    finish(group);
}

TEST(a_process_that_then_ignores_the_signal_still_handles_it_and_sigkill_gets_everybody)
{
    static const struct node nodes[] = {{PLAIN, NONE}, {CATCHES, 0}, {PLAIN, 1}};
    const pid_t group = start(nodes, 3);

    pl_delivery_begin(&delivery, group, SIGTERM);
    await_got(1);
    ck_assert_uint_eq(delivery.handling, 1);
    atomic_store(&shared->starts_ignoring[1], true);
    while (pl_proc_catches(atomic_load(&shared->pid[1]), SIGTERM)) {
        nap();
    }
    look_in_vain();
    ck_assert_uint_eq(delivery.handling, 1);
    ck_assert_uint_eq(delivery.waiting, 1);
    pl_delivery_begin(&delivery, group, SIGKILL);
    ck_assert_uint_eq(delivery.handling, 0);
    for (int i = 0; i < 3; i++) {
        await_death(i);
    }
    finish(group);
}

UNIT_MAIN("entrypoint/proc/delivery")
