/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects everything about one program in a forked process, which fills it in, in shared memory. That process may come
 * to a file that libdw cannot handle, or to a read of /proc that does not return: what it has found so far is reported
 * in time.
 *
 * ptrace stops one thread at a time while libdw reads the addresses on its stack; their names are looked up when it
 * runs again. PTRACE_SEIZE sends no signal, and the kernel ends the trace if this process dies: nothing stays stopped.
 * (PTRACE_ATTACH, which eu-stack and gdb use, sends SIGSTOP: the program stays stopped if the tracer is killed then,
 * and the tracer waits for the end of an uninterruptible wait.) A process that a signal had stopped before stays
 * stopped. A program can notice the trace in one way: a system call that the kernel does not restart by itself
 * (epoll_wait(2), see signal(7)) returns EINTR.
 *
 * Symbols come from the files that the process has mapped; no server for debug information is asked.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/supervise/process.h"
#include "programs/stacks/stacks.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_BYTES = 65536 };

#define SHORT_WAIT_NS (100 * PL_NS_PER_MS) /* wait for a thread that the kernel may not be able to stop */
#define REAP_NS PL_NS_PER_S                /* longest wait for the end of a killed process */

/* Time that the forked process gets to end by itself before the deadline, so that it can report how far it came. */
#define MARGIN_NS (200 * PL_NS_PER_MS)

void pl_collect_explain(int code, const char *own_status, const char *yama_scope, char *ret_text, size_t text_bytes)
{
    bool may = (pl_text_field_number(own_status, "CapEff", 16, 0) >> CAP_SYS_PTRACE) & 1;
    bool filtered = pl_text_field_number(own_status, "Seccomp", 10, 0) == 2;
    long scope = strtol(yama_scope, NULL, 10);
    char yama[64] = "";

    if (scope > 0) {
        snprintf(yama, sizeof(yama), ", kernel.yama.ptrace_scope is %ld", scope);
    }
    snprintf(ret_text, text_bytes, "ptrace: %s (this process has %s CAP_SYS_PTRACE%s%s); %s", strerror(code),
             may ? "the capability" : "no", yama, filtered ? ", a seccomp filter is active" : "",
             scope == 3 ? "the host's administrator has switched ptrace off for all"
                        : "`docker exec --privileged` allows it, or a container that was started with "
                          "`--cap-add SYS_PTRACE`");
}

/* Writes why ptrace failed: which process traces already, or what is forbidden. False if the thread has ended. */
static bool explain_error(pid_t pid, pid_t tid, int code, char *ret_text, size_t text_bytes)
{
    PL_AUTO_FREE char *status = NULL;
    PL_AUTO_FREE char *own_status = NULL;
    PL_AUTO_FREE char *scope = NULL;
    struct pl_proc_stat stat;
    uint64_t tracer = 0;
    char path[96], name[64];

    if (code == ESRCH || pl_proc_read_stat(pid, tid, &stat, NULL) != PL_OK || stat.state == 'Z' || stat.state == 'X') {
        snprintf(ret_text, text_bytes, "it has ended");
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
    if (pl_file_read(path, FILE_BYTES, &status, NULL, NULL) == PL_OK) {
        tracer = pl_text_field_number(status, "TracerPid", 10, 0);
    }
    if (tracer != 0) {
        pl_proc_file_name((pid_t)tracer, name, sizeof(name));
        snprintf(ret_text, text_bytes, "it is being traced by process %d%s%s%s", (int)tracer, *name ? " (" : "", name,
                 *name ? ")" : "");
        return true;
    }
    if (pl_file_read("/proc/self/status", FILE_BYTES, &own_status, NULL, NULL) != PL_OK) {
        own_status = NULL;
    }
    if (pl_file_read("/proc/sys/kernel/yama/ptrace_scope", FILE_BYTES, &scope, NULL, NULL) != PL_OK) {
        scope = NULL; /* a kernel without yama */
    }
    pl_collect_explain(code, own_status ? own_status : "", scope ? scope : "0", ret_text, text_bytes);
    return true;
}

/* Waits until the traced thread has stopped. Returns 0 or an errno: ESRCH if the thread has ended, ETIMEDOUT. */
static int await_stop(pid_t tid, int64_t deadline_ns, int *ret_signal)
{
    int64_t began_ns = pl_clock_now_ns();

    for (;;) {
        int status = 0;
        pid_t waited = waitpid(tid, &status, __WALL | WNOHANG);

        if (waited == tid && WIFSTOPPED(status)) {
            /* A signal may have stopped it first; the thread gets that signal when it continues. */
            *ret_signal = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
            return 0;
        }
        if (waited == tid || (waited < 0 && errno != EINTR)) {
            return ESRCH;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return ETIMEDOUT;
        }
        pl_clock_nap(pl_clock_backoff_ns(pl_clock_now_ns() - began_ns, 20 * PL_NS_PER_US, PL_NS_PER_MS), deadline_ns);
    }
}

struct walk {
    struct pl_stacks_thread *thread;
    bool calls[PL_STACKS_MOST_FRAMES]; /* the address is a return address, which is one past the call */
    int64_t deadline_ns;
};

static int take_frame(Dwfl_Frame *frame, void *argument)
{
    struct walk *walk = argument;
    struct pl_stacks_thread *thread = walk->thread;
    Dwarf_Addr pc;
    bool is_activation;

    if (!dwfl_frame_pc(frame, &pc, &is_activation)) {
        return DWARF_CB_ABORT;
    }
    if (thread->frame_count == PL_STACKS_MOST_FRAMES || pl_deadline_passed(walk->deadline_ns)) {
        thread->is_cut = true;
        return DWARF_CB_ABORT;
    }
    walk->calls[thread->frame_count] = !is_activation;
    thread->frames[thread->frame_count++].pc = pc;
    return DWARF_CB_OK;
}

static void name_frame(Dwfl *dwfl, struct pl_stacks_frame *frame, bool is_call)
{
    Dwarf_Addr address = frame->pc - is_call, start = 0;
    Dwfl_Module *module = dwfl_addrmodule(dwfl, address);
    const char *file, *function, *slash;

    if (!module) {
        return;
    }
    file = dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, NULL, NULL);
    frame->offset = address - start;
    if (file) {
        slash = strrchr(file, '/');
        pl_proc_copy_text(slash ? slash + 1 : file, frame->module, sizeof(frame->module));
    }
    function = dwfl_module_addrname(module, address);
    if (function) {
        pl_proc_copy_text(function, frame->function, sizeof(frame->function));
    }
}

/* Returns the frame of an earlier thread at the same address: each look-up of a name walks all symbols of a file. */
static const struct pl_stacks_frame *find_named(const struct pl_stacks_program *program, size_t before, uint64_t pc)
{
    for (size_t i = 0; i < before; i++) {
        const struct pl_stacks_thread *thread = &program->threads[i];

        for (size_t j = 0; j < thread->frame_count; j++) {
            if (thread->frames[j].pc == pc) {
                return &thread->frames[j];
            }
        }
    }
    return NULL;
}

/* Collects one thread's stack. False if this thread, and so each thread of its process, cannot be traced. */
static bool unwind_thread(Dwfl *dwfl, struct pl_stacks_program *program, size_t index, int64_t deadline_ns)
{
    struct pl_stacks_thread *thread = &program->threads[index];
    struct walk walk = {.thread = thread, .deadline_ns = deadline_ns};
    int64_t short_ns = pl_deadline_after_ns(SHORT_WAIT_NS);
    int64_t stop_by_ns = thread->state == 'D' && short_ns < deadline_ns ? short_ns : deadline_ns;
    int signal_number = 0, code;

    if (ptrace(PTRACE_SEIZE, thread->tid, NULL, NULL) != 0) {
        return !explain_error(program->pid, thread->tid, errno, thread->problem, sizeof(thread->problem));
    }
    code = ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL) == 0 ? 0 : errno;
    code = code == 0 ? await_stop(thread->tid, stop_by_ns, &signal_number) : code;
    if (code == ETIMEDOUT) { /* the trace ends when this process ends */
        snprintf(thread->problem, sizeof(thread->problem), "the kernel did not let it stop in time%s",
                 thread->state == 'D' ? ": its wait is uninterruptible" : "");
        return true;
    }
    if (code != 0) {
        snprintf(thread->problem, sizeof(thread->problem), "it has ended");
        return true;
    }
    dwfl_getthread_frames(dwfl, thread->tid, take_frame, &walk); /* this returns an error if a stack ends early */
    ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)signal_number);
    if (thread->frame_count == 0) {
        snprintf(thread->problem, sizeof(thread->problem), "libdw: %s", dwfl_errmsg(-1));
    }
    for (size_t i = 0; i < thread->frame_count; i++) {
        const struct pl_stacks_frame *named = find_named(program, index, thread->frames[i].pc);

        if (named) {
            thread->frames[i] = *named;
        } else {
            name_frame(dwfl, &thread->frames[i], walk.calls[i]);
        }
    }
    return true;
}

static int find_no_debug_info(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                              const char *file_name, const char *link, GElf_Word checksum, char **ret_name)
{
    (void)module, (void)user, (void)name, (void)base, (void)file_name, (void)link, (void)checksum, (void)ret_name;
    return -1;
}

/* Reads a file's unwind tables in advance, so that it is not done while a thread is stopped. */
static int load_tables(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr start, void *deadline_ns)
{
    Dwarf_Addr bias;

    (void)user, (void)name, (void)start;
    dwfl_module_eh_cfi(module, &bias);
    return pl_deadline_passed(*(const int64_t *)deadline_ns) ? DWARF_CB_ABORT : DWARF_CB_OK;
}

/* Whether the process has ended, or its main thread: after that /proc no longer shows the process's mappings. */
static bool has_ended(struct pl_stacks_program *program)
{
    struct pl_proc_stat stat;
    const char *text = "";

    if (pl_proc_read_stat(program->pid, 0, &stat, NULL) != PL_OK || stat.state == 'X') {
        text = "it has ended";
    } else if (stat.state == 'Z') {
        text = program->thread_count > 1 ? "its main thread has ended"
                                         : "it has ended, and its parent has not waited for it";
    }
    snprintf(program->problem, sizeof(program->problem), "%s", text);
    return *text != '\0';
}

/* Whether `code` is an error; `program->problem` then gets its text: an errno's if above 0, else libdw's. */
static bool fails(struct pl_stacks_program *program, int code)
{
    if (code != 0 && !has_ended(program)) {
        snprintf(program->problem, sizeof(program->problem), "reading its files: %s",
                 code > 0 ? strerror(code) : dwfl_errmsg(-1));
    }
    return code != 0;
}

static void unwind_threads(Dwfl *dwfl, struct pl_stacks_program *program, int64_t deadline_ns)
{
    dwfl_report_begin(dwfl);
    if (fails(program, dwfl_linux_proc_report(dwfl, program->pid)) ||
        fails(program, dwfl_report_end(dwfl, NULL, NULL)) ||
        fails(program, dwfl_linux_proc_attach(dwfl, program->pid, true))) {
        return;
    }
    dwfl_getmodules(dwfl, load_tables, &deadline_ns, 0);
    for (size_t i = 0; i < program->thread_count; i++) {
        if (pl_deadline_passed(deadline_ns)) {
            snprintf(program->threads[i].problem, sizeof(program->threads[i].problem), "no time was left for it");
        } else if (!unwind_thread(dwfl, program, i, deadline_ns) && i == 0) {
            memcpy(program->problem, program->threads[0].problem, sizeof(program->threads[0].problem));
            return;
        }
    }
}

static void unwind_program(struct pl_stacks_program *program, int64_t deadline_ns)
{
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = find_no_debug_info};
    Dwfl *dwfl;

    if (has_ended(program)) {
        return;
    }
    dwfl = dwfl_begin(&callbacks);
    if (!dwfl) {
        snprintf(program->problem, sizeof(program->problem), "libdw: %s", dwfl_errmsg(-1));
        return;
    }
    unwind_threads(dwfl, program, deadline_ns);
    dwfl_end(dwfl);
}

void pl_collect_describe(struct pl_stacks_program *program, int64_t deadline_ns)
{
    pl_describe_program(program);
    pl_python_collect(program, deadline_ns);
    unwind_program(program, deadline_ns);
}

/* Waits for the forked process, whose end closes `done_fd`. Returns 1 with its status, 0 at the deadline. */
static int await_end(pid_t collector, int done_fd, int64_t deadline_ns, int *ret_status)
{
    if (pl_file_poll(done_fd, POLLIN, deadline_ns) == 0) {
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

static int run_task(void *task_at)
{
    const struct task *task = task_at;

    task->run(task->program, task->deadline_ns);
    return 0;
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
