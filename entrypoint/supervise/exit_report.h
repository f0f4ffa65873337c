/* SPDX-License-Identifier: Apache-2.0 */
/** The exit report: how a supervised program ended, as it is sent to every host and printed in the failure file. */
#ifndef PL_ENTRYPOINT_SUPERVISE_EXIT_REPORT_H
#define PL_ENTRYPOINT_SUPERVISE_EXIT_REPORT_H

#include "base/status.h"
#include "base/text.h"
#include "entrypoint/output/tail.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/process.h"

enum {
    PL_EXIT_REPORT_HOST_BYTES = 256,
    PL_EXIT_REPORT_PROGRAM_BYTES = 256,
    PL_EXIT_REPORT_TAIL_BYTES = 2048,
    PL_EXIT_REPORT_NOTE_BYTES = 700,
};

struct pl_exit_report {
    enum pl_process_kind kind;
    int rank; /* -1 if the program is not a rank */
    char host[PL_EXIT_REPORT_HOST_BYTES];
    bool not_started; /* the program did not start; `note` says why */
    bool signalled;
    int code;                                   /* exit code, or number of the signal */
    bool out_of_memory;                         /* the kernel's memory limit killed a process here meanwhile */
    char program[PL_EXIT_REPORT_PROGRAM_BYTES]; /* "" if its shim was killed and so reported nothing */
    /* a reason that the exit code does not tell: not started, a limit, a full disk; mostly "" */
    char note[PL_EXIT_REPORT_NOTE_BYTES];
    /* the line of its stderr that tells the cause, for example an exception's own line; "" if there is none */
    char cause[PL_TAIL_LINE_BYTES + 1];
    char place[PL_TAIL_PLACE_BYTES];      /* where the exception was raised: "train.py:31"; "" if that is not known */
    char tail[PL_EXIT_REPORT_TAIL_BYTES]; /* the program's last stderr lines */
};

#define PL_EXIT_REPORT_NONE ((struct pl_exit_report){.rank = -1})

bool pl_exit_report_ok(const struct pl_exit_report *exit_report);

enum pl_status pl_exit_report_send(const struct pl_exit_report *exit_report, struct pl_link *link,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Decodes an ENDED frame. */
enum pl_status pl_exit_report_receive(const struct pl_frame *frame, struct pl_exit_report *ret_report,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Prints who ended: "rank 1 on host algo-2", "the program on host algo-1". */
void pl_exit_report_name(enum pl_process_kind kind, int rank, const char *host, struct pl_text *text);

/**
 * Prints one sentence: "rank 1 on host algo-2 exited with code 3", "... was killed by signal 9 (SIGKILL): out of memory
 * ...". The meaning of a shell's code is added: "... exited with code 137 (a shell's code for a command that signal 9,
 * SIGKILL, has ended)".
 */
void pl_exit_report_sentence(const struct pl_exit_report *exit_report, struct pl_text *text);

/**
 * Prints the cause, the sentence, the program, and as many of its last stderr lines as fit in `max_bytes` altogether.
 * The cause is the exception that ended the program, with its place: "ValueError: bad data (train.py:31, rank 3 on
 * algo-2)", or without an exception an error message in the last line (output/tail.h). If the sentence names a limit
 * that was reached, it comes first, and the cause follows unless the last lines show it. A line "Next: ..." follows a
 * sentence that says too little: after SIGKILL or a fault such as SIGSEGV (also of a command of a shell), and in a job
 * that was stopped by the signal `stopped_by` (0: it was not). For one of Paceline's own tools it prints only the
 * tool's last line.
 */
void pl_exit_report_print(const struct pl_exit_report *exit_report, int stopped_by, size_t max_bytes,
                          struct pl_text *text);

/** Returns a line that says what to do after a job was stopped by the signal `number`, or "". */
const char *pl_exit_report_stop_step(int number);

/**
 * pl_exit_report_print() for a preparation step: `what` the step does, then the cause. If no signal or limit ended the
 * step, and there is no other cause, the last line of its stderr is the cause. Paceline's own tools are not named.
 */
void pl_exit_report_print_step(const struct pl_exit_report *exit_report, const char *what, size_t max_bytes,
                               struct pl_text *text);

#endif
