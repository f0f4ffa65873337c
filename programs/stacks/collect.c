/* SPDX-License-Identifier: Apache-2.0 */
/* Collects one program's report: a forked process fills it in, in shared memory. */
#include "programs/stacks/collect.h"

#include "base/clock.h"
#include "base/file.h"
#include "entrypoint/supervise/process.h"
#include "programs/stacks/describe.h"
#include "programs/stacks/python.h"
#include "programs/stacks/unwind.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAP_NS PL_NS_PER_S /* longest wait for the end of a killed process */

/* Time that the forked process gets to end by itself before the deadline, so that it can report how far it came. */
#define MARGIN_NS (200 * PL_NS_PER_MS)

void pl_collect_describe(struct pl_stacks_program *program, int64_t deadline_ns)
{
    pl_describe_program(program);
    pl_python_collect(program, deadline_ns);
    pl_unwind_program(program, deadline_ns);
}

/* Waits for the forked process, whose end closes `done_fd`. Returns 1 with its status, 0 at the deadline. */
static int await_end(pid_t collector, int done_fd, int64_t deadline_ns, int *ret_status)
{
    if (pl_file_poll_readable(done_fd, deadline_ns) == 0) {
        return 0;
    }
    while (waitpid(collector, ret_status, 0) < 0 && errno == EINTR) {
    }
    return 1;
}

/* The work of the forked process. It dies with its parent, so that it does not keep a thread traced. */
struct task {
    struct pl_stacks_program *program;
    pl_collect_run *run;
    int64_t deadline_ns;
};

static void run_task(void *task_at)
{
    const struct task *task = task_at;

    task->run(task->program, task->deadline_ns);
}

static void add_problem(struct pl_stacks_program *program, const char *text)
{
    snprintf(program->problem, sizeof(program->problem), "%s", text);
}

enum pl_status pl_collect_program(pid_t pid, pl_collect_run *run, int64_t deadline_ns,
                                  struct pl_stacks_program **ret_program, struct pl_error *reterr)
{
    struct task task = {.run = run, .deadline_ns = deadline_ns - MARGIN_NS};
    struct pl_stacks_program *program;
    int fds[2], status = 0;
    pid_t collector;
    char text[128];

    program = mmap(NULL, sizeof(*program), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (program == MAP_FAILED) {
        return pl_error_errno(reterr, "map %zu bytes of shared memory", sizeof(*program));
    }
    program->pid = pid;
    program->rank = -1;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        pl_collect_free(program);
        return pl_error_errno(reterr, "make a pipe");
    }
    task.program = program;
    if (pl_process_start(0, run_task, &task, &collector, reterr) != PL_OK) {
        close(fds[0]);
        close(fds[1]);
        pl_collect_free(program);
        return PL_SYSTEM;
    }
    close(fds[1]);
    if (await_end(collector, fds[0], deadline_ns, &status) == 0) {
        kill(collector, SIGKILL);
        await_end(collector, fds[0], pl_deadline_after_ns(REAP_NS), &status);
        add_problem(program, "the time was over before the whole program was read");
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof(text), "the process that reads it was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
        add_problem(program, text);
    }
    close(fds[0]);
    *ret_program = program;
    return PL_OK;
}

void pl_collect_free(struct pl_stacks_program *program)
{
    if (program) {
        munmap(program, sizeof(*program));
    }
}
