/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds out about one program for `paceline stacks`: what /proc shows (describe.c), Python's own stacks (python.c), the
 * native stacks of its threads (collect.c), and its report (report.c).
 *
 * Source  proc(5); ptrace(2) and libdwfl.h of elfutils; Python's documentation of faulthandler.register() and site.
 * Test    tests/unit/programs/stacks/test_describe.c, test_python.c, test_collect.c and test_report.c
 */
#ifndef PL_PROGRAMS_STACKS_STACKS_H
#define PL_PROGRAMS_STACKS_STACKS_H

#include "base/text.h"

#include <sys/types.h>

enum {
    PL_STACKS_MOST_THREADS = 512, /* limit for one program; further threads are only counted */
    PL_STACKS_MOST_FRAMES = 128,  /* limit for one thread; its report shows fewer */
    PL_STACKS_PYTHON_BYTES = 32 * 1024,
    PL_PYTHON_SIGNAL = 62,      /* SIGRTMAX - 2, as in sitecustomize.py */
    PL_REPORT_MOST_LINES = 200, /* limit for one program */
    PL_REPORT_MOST_FRAMES = 40, /* limit for one thread, whose innermost frames are printed */
    PL_REPORT_MOST_PYTHON_LINES = 80,
};

struct pl_stacks_frame {
    uint64_t pc;
    char function[160]; /* "" if no symbol covers the address */
    char module[64];    /* file name without its directory; "" if no file is mapped at the address */
    uint64_t offset;    /* offset of the address in the module */
};

struct pl_stacks_thread {
    pid_t tid;
    char name[32];
    char state;    /* state as in /proc/PID/stat; 0 if the thread has ended */
    char wait[64]; /* kernel function in which it waits; "" if it does not wait or the kernel does not tell */
    char problem[384];
    size_t frame_count; /* innermost first */
    bool is_cut;        /* whether there are more frames */
    /* frames; for a thread without a stack this memory is never touched */
    struct pl_stacks_frame frames[PL_STACKS_MOST_FRAMES];
};

/**
 * The facts. Sizes are fixed, because a separate process fills this in, in shared memory. Every text ends with a NUL,
 * even if that process is killed in the middle, holds no control characters, and is cut if it does not fit.
 */
struct pl_stacks_program {
    pid_t pid;
    int rank;           /* -1 if it has no rank */
    char name[256];     /* name without the arguments */
    char state;         /* state of the main thread at the end of the sample; 0 if it has ended */
    double cpu_s;       /* CPU time of all threads since its start */
    double cpu_percent; /* CPU use during the sample, in percent of one core */
    bool is_python;
    bool handles_usr1;
    char python[PL_STACKS_PYTHON_BYTES]; /* Python's stacks as its faulthandler writes them; "" if it was not asked */
    char problem[512];                   /* the reason why there are no native stacks; "" if there are */
    size_t thread_count, threads_left_out;
    struct pl_stacks_thread threads[PL_STACKS_MOST_THREADS]; /* the main thread first */
};

/* ---- what /proc shows ---- */

/** Returns "sleeping" for S and so on; "ended" for 0. */
const char *pl_describe_state(char state);

/**
 * Makes the name of a program from the `bytes` of its command line, in which NULs separate the arguments: the first
 * argument and, for an interpreter, the script or module. Other arguments may hold secrets and are left out.
 */
void pl_describe_name(const char *words, size_t bytes, char *ret_name, size_t name_bytes);

/**
 * Fills in what /proc shows of the program `program->pid`: all but its state, CPU time and stacks. Fields that cannot
 * be read stay empty.
 */
void pl_describe_program(struct pl_stacks_program *program);

/* ---- Python's own stacks: `PACELINE_HANG_S` has programs/python/sitecustomize.py register a signal and a file ---- */

/**
 * Makes the process `program->pid` write its stacks, and fills in `program->python`. Does nothing if the process did
 * not register the signal or is stopped. Waits until `deadline_ns` at most.
 */
void pl_python_collect(struct pl_stacks_program *program, int64_t deadline_ns);

/** Appends the main thread's functions of `stacks`, the outermost first, each with a newline. */
void pl_python_append_key(const char *stacks, struct pl_text *text);

/** Appends at most `most_lines` lines of the report. Returns their number. */
size_t pl_python_append_report(const char *stacks, size_t most_lines, struct pl_text *text);

/**
 * Appends what the main thread is doing: "wait (threading.py line 320), called by get (queue.py line 171), called by
 * main (train.py line 8)". False if that is unknown.
 */
bool pl_python_append_place(const char *stacks, struct pl_text *text);

/* ---- all of it, in a separate process ---- */

/** Fills in what it finds about the program `program->pid`, in shared memory. It runs in a separate process. */
typedef void pl_collect_run(struct pl_stacks_program *program, int64_t deadline_ns);

/**
 * The usual function: first what /proc says, then Python's stacks, then the native stacks. A failure is written to the
 * thread's `problem`, or to the program's `problem` if no thread can have a stack.
 */
pl_collect_run pl_collect_describe;

/**
 * Collects with `run` about the process `pid`, until `deadline_ns`.
 *
 * Ownership  release `*ret_program` with pl_collect_free().
 * Errors     PL_MEMORY, PL_SYSTEM; what stands in the way of stacks is written to the program's `problem` instead.
 */
enum pl_status pl_collect_program(pid_t pid, pl_collect_run *run, int64_t deadline_ns,
                                  struct pl_stacks_program **ret_program, struct pl_error *reterr) PL_MUST_CHECK;

void pl_collect_free(struct pl_stacks_program *program);

/** Writes why ptrace was refused with `code`, and what would permit it, from what /proc shows of this process. */
void pl_collect_explain(int code, const char *own_status, const char *yama_scope, char *ret_text, size_t text_bytes);

/* ---- the report ---- */

/**
 * Appends the report: a line about the program, with the `host` unless that is "", then Python's own stacks, then each
 * thread. Threads with the same stack and state are printed once.
 */
void pl_report_program(const struct pl_stacks_program *program, const char *host, struct pl_text *text);

/** Appends what the main thread is doing, in a few words: "stopped", "poll in recv in step". */
void pl_report_place(const struct pl_stacks_program *program, struct pl_text *text);

#endif
