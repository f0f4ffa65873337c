/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/shim.c, entrypoint/supervise/links.c. */
#include "base/clock.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/supervise/supervise.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void await(struct pl_link *link, enum pl_frame_type type, struct pl_frame *frame)
{
    do {
        ck_ok(pl_link_await, link, pl_deadline_after_ns(30 * PL_NS_PER_S), frame);
    } while (frame->type != type);
}

/* Wait until /proc has this letter as the state of the process: T stopped, Z ended. */
static void await_state(const char *pid, char wanted)
{
    char name[32], state = ' ';

    snprintf(name, sizeof(name), "/proc/%.10s/stat", pid);
    while (state != wanted) {
        FILE *file = fopen(name, "re");

        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fscanf(file, "%*d %*s %c", &state), 1);
        fclose(file);
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
}

/* The shim is halted while the rank ends and the stop comes, so it finds both at once. */
TEST(the_shim_of_a_rank_that_had_ended_when_the_stop_came_waits_for_its_release)
{
    const char *const argv[] = {"cat", NULL};
    char *environment[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    struct pl_shim_options options = {.kind = PL_PROCESS_RANK, .host = "algo-1", .setup = PL_PROCESS_SETUP_NONE};
    struct pl_signals signals = PL_SIGNALS_NONE;
    struct pl_link link = PL_LINK_NONE;
    struct pl_frame frame;
    char shim[16];
    int input[2], pair[2], unread;
    pid_t pid;

    options.setup.argv = argv;
    options.setup.environment = environment;
    ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_ok(pl_signals_open, &signals);
    ck_ok(pl_shim_fork_for, &options, &signals, pair[1], input, 1, &pid);
    close(pair[1]);
    ck_ok(pl_link_open, &link, pair[0]);
    await(&link, PL_FRAME_BEGUN, &frame);
    kill(pid, SIGSTOP);
    snprintf(shim, sizeof(shim), "%d", (int)pid);
    await_state(shim, 'T');
    close(input[1]);
    await_state(frame.fields[0], 'Z');
    ck_assert_int_eq(PL_LINK_SEND(&link, PL_FRAME_SIGNAL, NULL, "15"), PL_OK);
    kill(pid, SIGCONT);
    await(&link, PL_FRAME_ENDED, &frame);
    ck_assert_int_eq(PL_LINK_SEND(&link, PL_FRAME_HEARTBEAT, NULL, ""), PL_OK);
    do {
        ck_assert_int_eq(ioctl(link.fd, SIOCOUTQ, &unread), 0);
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    } while (unread > 0);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = link.fd}, 1, 0), 0); /* the shim has read the frame, and still runs */
    ck_assert_int_eq(PL_LINK_SEND(&link, PL_FRAME_RELEASE, NULL, ""), PL_OK);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    pl_link_close(&link);
    close(input[0]);
    close(signals.fd);
}

TEST(a_frame_that_asks_for_what_may_not_follow_changes_no_link)
{
    enum pl_session_state state = PL_SESSION_AWAY;

    ck_assert(!pl_session_go(&state, PL_SESSION_IDLE) && !pl_session_go(&state, PL_SESSION_LOST));
    ck_assert(pl_session_go(&state, PL_SESSION_LINKED) && pl_session_go(&state, PL_SESSION_DONE));
    ck_assert(!pl_session_go(&state, PL_SESSION_LINKED) && !pl_session_go(&state, PL_SESSION_LOST));
    ck_assert_int_eq(state, PL_SESSION_DONE);
}

UNIT_MAIN("entrypoint/stop_state")
