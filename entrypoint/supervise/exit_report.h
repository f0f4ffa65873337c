/* SPDX-License-Identifier: Apache-2.0 */
/** The exit report: how a supervised program ended, as it is sent to every host and printed in the failure file. */
#ifndef PL_ENTRYPOINT_SUPERVISE_EXIT_REPORT_H
#define PL_ENTRYPOINT_SUPERVISE_EXIT_REPORT_H

#include "base/status.h"
#include "base/text.h"
#include "entrypoint/output/tail.h"
#include "entrypoint/ssh/link.h"

/* what, words for people */
#define PL_EXIT_SOURCE_LIST(X)                                                                                         \
    X(PROGRAM, "the program")                                                                                          \
    X(RANK, "rank")                                                                                                    \
    X(LAUNCHER, "mpirun")                                                                                              \
    X(DAEMON, "Open MPI's launch daemon")                                                                              \
    X(SSHD, "sshd")                                                                                                    \
    X(SIDECAR, "the parameter server")                                                                                 \
    X(SYNC, "the upload of intermediate output")                                                                       \
    X(STEP, "the command")                                                                                             \
    X(AGENT, "torchrun")                                                                                               \
    X(STACKS, "the report of where programs stand")                                                                    \
    X(WORKER_SERVER, "the worker's server")                                                                            \
    X(EXEC, "the program")

enum pl_exit_source {
#define PL_EXIT_SOURCE_ENUM(name, text) PL_EXIT_SOURCE_##name,
    PL_EXIT_SOURCE_LIST(PL_EXIT_SOURCE_ENUM)
#undef PL_EXIT_SOURCE_ENUM
};

enum {
    PL_EXIT_REPORT_HOST_BYTES = 256,
    PL_EXIT_REPORT_PROGRAM_BYTES = 256,
    PL_EXIT_REPORT_TAIL_BYTES = 2048,
    PL_EXIT_REPORT_NOTE_BYTES = 700,
};

struct pl_exit_report {
    enum pl_exit_source source;
    int rank; /* -1 when it is none */
    char host[PL_EXIT_REPORT_HOST_BYTES];
    bool not_started; /* `note` says why */
    bool signalled;
    int code;                                   /* exit code, or the signal's number */
    bool out_of_memory;                         /* the kernel's memory limit killed something here meanwhile */
    char program[PL_EXIT_REPORT_PROGRAM_BYTES]; /* "" when its shim was killed and so reported nothing */
    /* why it did not start; a limit, a full disk; what mpirun does not say; mostly "" */
    char note[PL_EXIT_REPORT_NOTE_BYTES];
    char cause[PL_TAIL_LINE_BYTES + 1];   /* of its stderr, an exception's own line, say; "" when there is none */
    char tail[PL_EXIT_REPORT_TAIL_BYTES]; /* its last stderr lines */
};

#define PL_EXIT_REPORT_NONE ((struct pl_exit_report){.rank = -1})

bool pl_exit_report_ok(const struct pl_exit_report *exit_report);

enum pl_status pl_exit_report_send(const struct pl_exit_report *exit_report, struct pl_link *link,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Decode an ENDED frame. */
enum pl_status pl_exit_report_receive(const struct pl_frame *frame, struct pl_exit_report *ret_report,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Who it was: "rank 1 on host algo-2", "the program on host algo-1". */
void pl_exit_report_name(enum pl_exit_source source, int rank, const char *host, struct pl_text *text);

/**
 * One sentence: "rank 1 on host algo-2 exited with code 3", "... was killed by signal 9 (SIGKILL): out of memory ...".
 */
void pl_exit_report_sentence(const struct pl_exit_report *exit_report, struct pl_text *text);

/**
 * Of one of our own tools in the place of the job's program its last words. Else the sentence, then the cause unless
 * the lines below show it, then the program, then as many of its last stderr lines as fit in `max_bytes` altogether.
 */
void pl_exit_report_print(const struct pl_exit_report *exit_report, size_t max_bytes, struct pl_text *text);

/**
 * The same for a preparation step: `what` it was about, then the cause, which is the last line of its stderr where it
 * has no other and no signal or limit ended it. Paceline's own tools are not named.
 */
void pl_exit_report_print_step(const struct pl_exit_report *exit_report, const char *what, size_t max_bytes,
                               struct pl_text *text);

#endif
