/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The control link: frames between the hosts' process 1 and, on one host, between process 1 and its helpers (rank
 * shims, the relay, the launch agent). A frame is an 8-byte head ('P', 'L', version, type, payload length as
 * 32-bit little endian) and a payload of fields, each followed by a NUL.
 *
 * A link never blocks: what does not fit into the socket waits in memory, bounded by PL_LINK_MAX_WAITING_BYTES.
 */
#ifndef PL_ENTRYPOINT_SSH_LINK_H
#define PL_ENTRYPOINT_SSH_LINK_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

/* type, its fields in order */
#define PL_FRAME_LIST(X)                                                                                               \
    X(HELLO, "kind, host, of a shim its rank: the first frame on every connection")                                    \
    X(READY, "host, processes: this host has everything that it needs to run ranks, and its devices make so many; "    \
             "from the master, without processes: all hosts are there")                                                \
    X(HEARTBEAT, "nothing: I am alive")                                                                                \
    X(START, "host, command: run this launch daemon on your host")                                                     \
    X(STARTED, "error: the daemon runs where it is empty, or why not")                                                 \
    X(BEGUN, "pid: a watched program runs")                                                                            \
    X(ENDED, "an exit report, see exit_report.h")                                                                      \
    X(STOP, "signal: pass this signal to the programs")                                                                \
    X(RESULT, "failed (0 or 1), text: how the job ended")                                                              \
    X(DONE, "nothing: nobody of the job is left on this host")                                                         \
    X(CATCHES, "rank, 0 or 1: a shim was sent STOP, and whether its program has a handler for the signal")             \
    X(HOLD, "text: a rank has ended badly during a stop, and others still save; the failure file so far")              \
    X(SUSPENDED, "name, how: this program was stopped by a signal and does nothing; without how: it goes on")          \
    X(RELEASE, "nothing: shims whose rank has ended need not wait for other ranks any more")                           \
    X(QUIET, "0 or 1, state: whether nothing has happened on this host for PACELINE_HANG_S; see supervise/apart.h")    \
    X(EXEC, "words, and as many descriptors as it brings: run this program, see supervise/exec.h")                     \
    X(MESSAGE, "word, what belongs to it: between parts of one program, see programs/sweep")

enum pl_frame_type {
#define PL_FRAME_ENUM(name, fields) PL_FRAME_##name,
    PL_FRAME_LIST(PL_FRAME_ENUM)
#undef PL_FRAME_ENUM
        PL_FRAME_TYPES,
};

enum {
    PL_FRAME_VERSION = 4,
    PL_FRAME_HEAD_BYTES = 8,
    PL_FRAME_MAX_FIELDS = 256,
    PL_FRAME_MAX_BYTES = 128 * 1024, /* payload; an mpirun command for many hosts is long */
    PL_LINK_MAX_WAITING_BYTES = 4 * 1024 * 1024,
    PL_LINK_MAX_FDS = 3,
};

/** A received frame; the fields lie in the link's buffer and stay valid until the next pl_link_next(). */
struct pl_frame {
    enum pl_frame_type type;
    size_t count;
    const char *fields[PL_FRAME_MAX_FIELDS];
};

/**
 * Decode the frame at the beginning of `data`. `*ret_used` is its whole size; 0 means that more bytes are needed.
 *
 * Errors  PL_CORRUPT: wrong magic, version, type, size, or fields that do not end.
 */
enum pl_status pl_link_frame_decode(const char *data, size_t bytes, struct pl_frame *frame, size_t *ret_used,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Append the encoded frame to `text`. */
enum pl_status pl_link_frame_encode(struct pl_text *text, enum pl_frame_type type, const char *const *fields,
                                    size_t count, struct pl_error *reterr) PL_MUST_CHECK;

/** Field `index` as a whole number within [low, high]. */
enum pl_status pl_link_frame_number(const struct pl_frame *frame, size_t index, int64_t low, int64_t high,
                                    int64_t *ret_value, struct pl_error *reterr) PL_MUST_CHECK;

const char *pl_link_frame_name(enum pl_frame_type type);

struct pl_link {
    int fd; /* -1 when closed */
    struct pl_text in, out;
    size_t consumed_bytes; /* of `in`, by the frame that was handed out last */
    size_t sent_bytes;     /* of `out` */
    int64_t received_ns;   /* when bytes came last */
    bool ended;            /* the other side closed */
    /* descriptors that have come with a frame and were not taken; more than these are closed */
    int fds[PL_LINK_MAX_FDS];
    size_t fds_count;
};

#define PL_LINK_NONE ((struct pl_link){.fd = -1})

/** Take over `fd` (a stream socket), which becomes non-blocking; closed by pl_link_close(). */
enum pl_status pl_link_open(struct pl_link *link, int fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Queue a frame and send what the socket takes now. A closed link drops it: its end is seen by pl_link_next(). */
enum pl_status pl_link_send(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** pl_link_send() with the fields as arguments. */
#define PL_LINK_SEND(link, type, reterr, ...)                                                                          \
    pl_link_send((link), (type), (const char *const[]){__VA_ARGS__},                                                   \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), (reterr))

/**
 * The same over a unix socket with `fds_count` descriptors, from 1 to PL_LINK_MAX_FDS, which stay the caller's. Nothing
 * that was queued before may wait.
 */
enum pl_status pl_link_send_fds(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                                const int *fds, size_t fds_count, struct pl_error *reterr) PL_MUST_CHECK;

/** Send what waits. */
void pl_link_flush(struct pl_link *link);

/** Send what waits, at the longest until `deadline_ns`. */
void pl_link_drain(struct pl_link *link, int64_t deadline_ns);

/** Read what the socket has; call when poll(2) says so. */
enum pl_status pl_link_read(struct pl_link *link, struct pl_error *reterr) PL_MUST_CHECK;

/** The next whole frame that was read. Errors: PL_END none yet; PL_PEER none, and the other side closed; PL_CORRUPT. */
enum pl_status pl_link_next(struct pl_link *link, struct pl_frame *frame, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait for the next frame until `deadline_ns`, for a program that has nothing else to wait for. Errors: PL_TIMEOUT and
 * PL_PEER, without a text; PL_CORRUPT, PL_SYSTEM.
 */
enum pl_status pl_link_await(struct pl_link *link, int64_t deadline_ns, struct pl_frame *frame,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** The poll(2) events this link waits for. */
short pl_link_events(const struct pl_link *link);

void pl_link_close(struct pl_link *link);

#endif
