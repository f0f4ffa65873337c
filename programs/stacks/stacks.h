/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline stacks` knows of one program: as /proc says it, and the native stacks of its threads.
 *
 * Sizes are fixed, because a process of its own fills this in shared memory (collect.h). Texts end with a NUL, also
 * when that process was killed in the middle, hold no control characters, and are cut where they do not fit.
 */
#ifndef PL_PROGRAMS_STACKS_STACKS_H
#define PL_PROGRAMS_STACKS_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PL_STACKS_MOST_THREADS = 512, /* of one program; more are counted */
    PL_STACKS_MOST_FRAMES = 128,  /* of one thread; its report shows fewer */
    PL_STACKS_PYTHON_BYTES = 32 * 1024,
};

struct pl_stacks_frame {
    uint64_t pc;
    char function[160]; /* "" where no symbol covers the address */
    char module[64];    /* the file's last name; "" where the address lies in none */
    uint64_t offset;    /* of the address in the module */
};

struct pl_stacks_thread {
    pid_t tid;
    char name[32];
    char state;    /* as in /proc/PID/stat; 0: it has ended */
    char wait[64]; /* the kernel function that it waits in; "" when it does not, or the kernel does not say */
    char problem[384];
    size_t frame_count;                                   /* innermost first */
    bool is_cut;                                          /* there are more frames */
    struct pl_stacks_frame frames[PL_STACKS_MOST_FRAMES]; /* of a thread without a stack never touched */
};

struct pl_stacks_program {
    pid_t pid;
    int rank;           /* -1: none */
    char name[256];     /* without the arguments */
    char state;         /* of the main thread, when the sample ended; 0: it has ended */
    double cpu_s;       /* since its start, all threads */
    double cpu_percent; /* of one core, during the sample */
    bool is_python;
    bool handles_usr1;
    char python[PL_STACKS_PYTHON_BYTES]; /* Python's stacks, as its faulthandler writes them; "" where not asked for */
    char problem[512];                   /* why there are no native stacks; "" where there are */
    size_t thread_count, threads_left_out;
    struct pl_stacks_thread threads[PL_STACKS_MOST_THREADS]; /* the main thread first */
};

#endif
