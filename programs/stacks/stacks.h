/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The facts that `paceline stacks` collects about one program: what /proc shows, and the native stacks of its threads.
 *
 * Sizes are fixed, because a separate process fills this in, in shared memory (collect.h). Every text ends with a NUL,
 * even if that process is killed in the middle, holds no control characters, and is cut if it does not fit.
 */
#ifndef PL_PROGRAMS_STACKS_STACKS_H
#define PL_PROGRAMS_STACKS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PL_STACKS_MOST_THREADS = 512, /* limit for one program; further threads are only counted */
    PL_STACKS_MOST_FRAMES = 128,  /* limit for one thread; its report shows fewer */
    PL_STACKS_PYTHON_BYTES = 32 * 1024,
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
    char state;    /* as in /proc/PID/stat; 0 if it has ended */
    char wait[64]; /* kernel function in which it waits; "" if it does not wait or the kernel does not tell */
    char problem[384];
    size_t frame_count; /* innermost first */
    bool is_cut;        /* whether there are more frames */
    /* frames; for a thread without a stack this memory is never touched */
    struct pl_stacks_frame frames[PL_STACKS_MOST_FRAMES];
};

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

#endif
