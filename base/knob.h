/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The settings ("knobs") of a Paceline job, in one table with one line for each.
 *
 * A setting called NAME is set by the environment variable PACELINE_NAME (upper case) or by the hyperparameter
 * paceline_NAME, which the entrypoint turns into that variable. If Horovod has the same setting, its variable counts
 * when PACELINE_NAME is not set. All ranks use the values that rank 0 resolved.
 *
 * The table is in base, although it has settings of other folders, because the entrypoint checks a job's settings and
 * is not linked with those folders.
 */
#ifndef PL_BASE_KNOB_H
#define PL_BASE_KNOB_H

#include "base/environment.h"
#include "base/status.h"

#include <stdint.h>

struct pl_text;

/**
 * INT and SIZE are integers (SIZE may have the suffix KiB, MiB or GiB), REAL is a finite number; all three are at least
 * 0. TEXT has at most 127 bytes. WORD is empty or one of the setting's words; N in a word stands for a number of one or
 * two digits.
 */
enum pl_knob_type {
    PL_KNOB_TYPE_BOOL,
    PL_KNOB_TYPE_INT,
    PL_KNOB_TYPE_SIZE,
    PL_KNOB_TYPE_REAL,
    PL_KNOB_TYPE_TEXT,
    PL_KNOB_TYPE_WORD
};

/*
 * NAME, name, type, unit (for WORD: its words), default, Horovod's variable or NULL, help. Settings from BACKEND on are
 * only for measurements and tests.
 */
#define PL_KNOB_LIST(X)                                                                                                \
    X(TIMEOUT_S, "timeout_s", REAL, "s", "600", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",                                 \
      "longest wait for other ranks in a collective operation; 0: no limit, the default under Horovod")                \
    X(STALL_S, "stall_s", REAL, "s", "60", "HOROVOD_STALL_CHECK_TIME_SECONDS",                                         \
      "warn when a wait for other ranks lasts longer than this; 0: never")                                             \
    X(DEVICE, "device", WORD, "auto on off cuda:N", "auto", NULL,                                                      \
      "GPUs: auto: used if there are any; on: needed; off: not used; cuda:N: each rank uses GPU number N")             \
    X(SHARE_DEVICE, "share_device", BOOL, "", "0", NULL,                                                               \
      "several ranks of a host may use one GPU if there are fewer GPUs than ranks")                                    \
    X(REPRODUCIBLE, "reproducible", BOOL, "", "0", NULL,                                                               \
      "same bits for any number of hosts, ranks per host and algorithm")                                               \
    X(WIRE_TYPE, "wire_type", WORD, "float16 bfloat16", "", NULL,                                                      \
      "float32 sums are sent between hosts as float16 or bfloat16 with error feedback; empty: as float32")             \
    X(PROGRESS, "progress", WORD, "auto on off", "auto", NULL,                                                         \
      "a thread that advances collectives while the program computes: auto (between hosts), on or off")                \
    X(CHECK_WEIGHTS, "check_weights", BOOL, "", "1", NULL,                                                             \
      "Horovod's DistributedOptimizer compares the ranks' weights once, and warns if they differ")                     \
    X(CHECKPOINT_IGNORE, "checkpoint_ignore", BOOL, "", "0", NULL,                                                     \
      "1: training begins at step 0 if the checkpoints are of another model or optimizer")                             \
    X(KEEP_STEPS, "keep_steps", INT, "steps", "0", NULL,                                                               \
      "with max_restarts: steps between copies of the state in memory; 0: they cost 1 %")                              \
    X(BUCKET_BYTES, "bucket_bytes", SIZE, "", "4MiB", NULL, "bytes of a plan's gradients that are reduced together")   \
    X(PS_STALENESS, "ps_staleness", WORD, "none N", "none", NULL,                                                      \
      "steps by which a parameter server's worker may be ahead of the slowest one; none: no limit")                    \
    X(PS_WIRE_TYPE, "ps_wire_type", WORD, "float16 bfloat16 int8", "", NULL,                                           \
      "type in which gradients for another host's parameter server are sent; empty: unchanged")                        \
    X(TRACE, "trace", TEXT, "", "", "HOROVOD_TIMELINE",                                                                \
      "path of a trace of all ranks, for chrome://tracing; empty: kept in memory only")                                \
    X(TRACE_RECORDS, "trace_records", INT, "records", "16384", NULL,                                                   \
      "how many records of 64 bytes a rank's trace keeps")                                                             \
    X(LOG, "log", WORD, "debug info warning error", "info", NULL,                                                      \
      "which of its own lines Paceline logs, from this level on: debug, info, warning or error")                       \
    X(BACKEND, "backend", WORD, "shm hier p2p nccl device", "", NULL,                                                  \
      "only this one: shm, hier or p2p, for GPUs nccl (one rank too) or device; empty: the best that works")           \
    X(ALGORITHM, "algorithm", WORD, "ring halving doubling tree direct", "", NULL,                                     \
      "allreduce between hosts: ring, halving, doubling, tree or direct; empty: the cost model chooses")               \
    X(SEGMENT_BYTES, "segment_bytes", SIZE, "", "0", NULL,                                                             \
      "size of the pieces in which a large message is sent and reduced; 0: the cost model chooses")                    \
    X(LINK_LATENCY_US, "link_latency_us", REAL, "us", "0", NULL,                                                       \
      "time of an empty message between hosts, for the cost model; 0: measure")                                        \
    X(LINK_GBPS, "link_gbps", REAL, "Gbit/s", "0", NULL, "rate of one host's link, for the cost model; 0: measure")    \
    X(SPIN_US, "spin_us", REAL, "us", "100", NULL,                                                                     \
      "how long a waiting rank spins before it sleeps, if there are enough CPUs")                                      \
    X(KERNEL, "kernel", WORD, "auto avx512 avx2 neon plain", "auto", NULL,                                             \
      "code for reductions: auto, avx512, avx2, neon or plain; all give the same bits")

enum pl_knob {
#define PL_KNOB_ENUM(id, name, type, unit, fallback, horovod, help) PL_KNOB_##id,
    PL_KNOB_LIST(PL_KNOB_ENUM)
#undef PL_KNOB_ENUM
        PL_KNOB_COUNT
};

enum { PL_KNOB_TEXT_BYTES = 128 };

enum pl_knob_source { PL_KNOB_FROM_DEFAULT, PL_KNOB_FROM_PACELINE, PL_KNOB_FROM_HOROVOD };

struct pl_knob_value {
    enum pl_knob_source source;
    int64_t whole; /* value of BOOL (0, 1), INT, SIZE */
    double real;   /* value of REAL; also of INT and SIZE */
    char text[PL_KNOB_TEXT_BYTES];
};

/** All settings, without pointers, so that they can be sent to other ranks as bytes. */
struct pl_knobs {
    struct pl_knob_value values[PL_KNOB_COUNT];
};

struct pl_knob_info {
    const char *name;
    const char *variable; /* "PACELINE_NAME" */
    enum pl_knob_type type;
    const char *unit;
    const char *words; /* words of a WORD, separated by blanks; "" for other types */
    const char *fallback;
    const char *horovod; /* Horovod's variable; NULL if Horovod has no such setting */
    const char *help;
};

const struct pl_knob_info *pl_knob_info(enum pl_knob knob);

/**
 * Resolves all settings: PACELINE_NAME, else Horovod's variable, else the default. An empty variable counts as not set;
 * HOROVOD_TIMELINE=DYNAMIC too, because it names no file. Booleans are 1/0, true/false, yes/no, on/off in any case.
 *
 * Errors  PL_INVALID naming the variable, its value and what was expected.
 * Test    tests/unit/base/test_knob.c
 */
enum pl_status pl_knobs_resolve(const struct pl_environment *environment, struct pl_knobs *ret_knobs,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether the first `length` bytes of `variable` name a removed setting. For one release such a variable is accepted
 * without effect, and rank 0 warns once.
 */
bool pl_knob_is_gone(const char *variable, size_t length);

/** Sets all settings to their defaults. */
void pl_knobs_default(struct pl_knobs *ret_knobs);

/** Sets one setting from a text, as its variable would. `what` is the source of the text, for messages. */
enum pl_status pl_knob_set(struct pl_knobs *knobs, enum pl_knob knob, const char *text, const char *what,
                           struct pl_error *reterr) PL_MUST_CHECK;

/** Reads `text` as a boolean, for a setting that is not in the table; `what` names it in the message. */
enum pl_status pl_knob_read_bool(const char *text, const char *what, bool *ret_value,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Reads `text` as one of `words`, which are separated by blanks; `what` names it in the message. */
enum pl_status pl_knob_read_word(const char *text, const char *words, const char *what,
                                 struct pl_error *reterr) PL_MUST_CHECK;

bool pl_knob_bool(const struct pl_knobs *knobs, enum pl_knob knob);
int64_t pl_knob_int(const struct pl_knobs *knobs, enum pl_knob knob);
double pl_knob_real(const struct pl_knobs *knobs, enum pl_knob knob);

/**
 * Converts a REAL setting in units of `unit_ns` to nanoseconds. The result is at most a century, so that it can be
 * added to the clock's time.
 */
int64_t pl_knob_ns(const struct pl_knobs *knobs, enum pl_knob knob, int64_t unit_ns);

const char *pl_knob_text(const struct pl_knobs *knobs, enum pl_knob knob);

#endif
