/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The control link: frames between the process 1 of all hosts, and on one host between process 1 and its helpers (rank
 * shims, the relay, the launch agent). A frame is an 8-byte head ('P', 'L', version, type, payload length as 32-bit
 * little endian) and a payload of fields, each followed by a NUL.
 *
 * A link never blocks: bytes that do not fit into the socket wait in memory, at most PL_LINK_MAX_WAITING_BYTES.
 */
#ifndef PL_ENTRYPOINT_SSH_LINK_H
#define PL_ENTRYPOINT_SSH_LINK_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

/* The types of frames, and the fields of each in order. */
#define PL_FRAME_LIST(X)                                                                                               \
    X(HELLO, "kind, host, and for a shim its rank, the ranks on its host, its CPUs, the number of connections that "   \
             "its host has accepted, for the master its attempt of the job: the first frame on every connection")      \
    X(READY,                                                                                                           \
      "host, processes, restarts: this host has all that it needs to run ranks, and its devices make this number of "  \
      "processes; so often it would start the job again; from the master, the host alone: all hosts are linked")       \
    X(HEARTBEAT, "no field: the sender is alive")                                                                      \
    X(START, "host, command: run this launch daemon on your host")                                                     \
    X(STARTED, "error: why the daemon does not run; empty if it runs")                                                 \
    X(BEGUN, "pid: a watched program runs")                                                                            \
    X(ENDED, "an exit report, see exit_report.c")                                                                      \
    X(SIGNAL, "signal: a shim forwards it to its program, a stop to a rank without a handler after RELEASE; between "  \
              "hosts it stops the job")                                                                                \
    X(RESULT, "failed (0, 1, or again and after the text the number of the attempt that follows), text: how the job "  \
              "ended")                                                                                                 \
    X(DONE, "no field: no process of the job is left on this host")                                                    \
    X(CATCHES, "rank, 0 or 1: a shim got SIGNAL, and whether its program has a handler for the signal")                \
    X(HOLD, "text: a rank has failed during a stop, or has no handler, while others save; the text of the failure "    \
            "file so far")                                                                                             \
    X(SUSPENDED, "name, how: a signal has stopped this program, and it does nothing; without how: it continues")       \
    X(RELEASE, "empty: no rank saves; ranks without a handler get the signal, and shims of ended ranks may end")       \
    X(QUIET, "0 or 1, state: whether nothing has happened on this host for PACELINE_HANG_S; see supervise/ranks.h")    \
    X(EXEC, "words, and descriptors: run this program, see supervise/frames.c")                                        \
    X(MESSAGE, "word, and its fields: between the parts of one program, see programs/sweep")                           \
    X(OWN_WORDS, "no field: a program on this host has written the failure file itself")

enum pl_frame_type {
#define PL_FRAME_ENUM(name, fields) PL_FRAME_##name,
    PL_FRAME_LIST(PL_FRAME_ENUM)
#undef PL_FRAME_ENUM
        PL_FRAME_TYPES,
};

enum {
    PL_FRAME_VERSION = 6,
    PL_FRAME_HEAD_BYTES = 8,
    PL_FRAME_MAX_FIELDS = 256,
    PL_FRAME_MAX_BYTES = 128 * 1024, /* bytes of payload; an mpirun command for many hosts is long */
    PL_LINK_MAX_WAITING_BYTES = 4 * 1024 * 1024,
    PL_LINK_MAX_FDS = 3,
};

/** A received frame. Its fields lie in the link's buffer and stay valid until the next pl_link_next(). */
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

/** Get field `index` as a whole number within [low, high]. */
enum pl_status pl_link_frame_number(const struct pl_frame *frame, size_t index, int64_t low, int64_t high,
                                    int64_t *ret_value, struct pl_error *reterr) PL_MUST_CHECK;

const char *pl_link_frame_name(enum pl_frame_type type);

struct pl_link {
    int fd; /* -1 when closed */
    struct pl_text in, out;
    size_t consumed_bytes; /* bytes of `in` that the last returned frame used */
    size_t sent_bytes;     /* bytes of `out` that are sent */
    int64_t received_ns;   /* time at which bytes arrived last */
    bool ended;            /* the other side has closed the link */
    short events;          /* events for poll(2) that the link waits for */
    /* descriptors that arrived with a frame and that nobody has taken yet; if more arrive, they are closed */
    int fds[PL_LINK_MAX_FDS];
    size_t fds_count;
};

#define PL_LINK_NONE ((struct pl_link){.fd = -1})

/** Take over `fd` (a stream socket), and make it non-blocking. pl_link_close() closes it. */
enum pl_status pl_link_open(struct pl_link *link, int fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Queue a frame and send what the socket takes now. A closed link drops the frame; pl_link_next() reports the end. */
enum pl_status pl_link_send(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** pl_link_send() with the fields as arguments. */
#define PL_LINK_SEND(link, type, reterr, ...)                                                                          \
    pl_link_send((link), (type), (const char *const[]){__VA_ARGS__},                                                   \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), (reterr))

/**
 * Send a frame over a unix socket with `fds_count` descriptors, from 1 to PL_LINK_MAX_FDS, which stay the caller's. No
 * earlier frame may still be queued.
 */
enum pl_status pl_link_send_fds(struct pl_link *link, enum pl_frame_type type, const char *const *fields, size_t count,
                                const int *fds, size_t fds_count, struct pl_error *reterr) PL_MUST_CHECK;

/** Send the bytes that wait, as far as the socket takes them now. */
void pl_link_flush(struct pl_link *link);

/** Send the bytes that wait, until `deadline_ns` at most. */
void pl_link_drain(struct pl_link *link, int64_t deadline_ns);

/** Read the bytes that the socket has. Call it when poll(2) reports that there are some. */
enum pl_status pl_link_read(struct pl_link *link, struct pl_error *reterr) PL_MUST_CHECK;

/* Get the next whole frame that was read. Errors: PL_END: there is none yet; PL_PEER: there is none, and the peer has
 * closed the link; PL_CORRUPT. */
enum pl_status pl_link_next(struct pl_link *link, struct pl_frame *frame, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait for the next frame until `deadline_ns`. For a program that has nothing else to wait for. Errors: PL_TIMEOUT and
 * PL_PEER, without a text; PL_CORRUPT, PL_SYSTEM.
 */
enum pl_status pl_link_await(struct pl_link *link, int64_t deadline_ns, struct pl_frame *frame,
                             struct pl_error *reterr) PL_MUST_CHECK;

void pl_link_close(struct pl_link *link);

#endif
