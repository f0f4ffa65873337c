/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Status by value and the caller-owned error report: the error rule of the whole project.
 *
 * A fallible function returns `enum pl_status` and takes `struct pl_error *reterr` last. The function that finds the
 * failure calls pl_error_raise() once. Callers may add context with pl_error_context(), and return the status. `reterr`
 * may be NULL when only the status matters.
 */
#ifndef PL_BASE_STATUS_H
#define PL_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#define PL_MUST_CHECK __attribute__((warn_unused_result))
#define PL_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))

/** Defines the function `name` for a cleanup attribute: it passes the pointer, to a `type`, to `release`. */
#define PL_CLEANUP(name, type, release)                                                                                \
    static inline void name(type **at)                                                                                 \
    {                                                                                                                  \
        release(*at);                                                                                                  \
    }

/* name, text for people */
#define PL_STATUS_LIST(X)                                                                                              \
    X(OK, "ok")                                                                                                        \
    X(INVALID, "invalid input")                                                                                        \
    X(NOT_FOUND, "not found")                                                                                          \
    X(LIMIT, "limit exceeded")                                                                                         \
    X(MEMORY, "out of memory")                                                                                         \
    X(SYSTEM, "system call failed")                                                                                    \
    X(LIBRARY, "a library failed")                                                                                     \
    X(TIMEOUT, "deadline passed")                                                                                      \
    X(CANCELLED, "cancelled")                                                                                          \
    X(MISMATCH, "ranks disagree")                                                                                      \
    X(PEER, "a peer is gone")                                                                                          \
    X(CORRUPT, "corrupt data")                                                                                         \
    X(END, "end of data")                                                                                              \
    X(UNSUPPORTED, "not supported")                                                                                    \
    X(FAILED, "failed")

enum pl_status {
#define PL_STATUS_ENUM(name, text) PL_##name,
    PL_STATUS_LIST(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
};

/** Where the number in `code` comes from. */
enum pl_domain {
    PL_DOMAIN_NONE,
    PL_DOMAIN_ERRNO,
    PL_DOMAIN_CURL,
    PL_DOMAIN_HTTP, /* an HTTP status */
    PL_DOMAIN_MPI,
    PL_DOMAIN_CUDA,
    PL_DOMAIN_NCCL,
    PL_DOMAIN_ARCHIVE, /* an error of libarchive */
    PL_DOMAIN_ZLIB,    /* an error of zlib's inflate */
    PL_DOMAIN_CRYPTO,  /* an error of libcrypto */
    PL_DOMAIN_RANK,    /* the failure was received from another rank, or that rank is gone; `code` is its number */
};

enum {
    PL_ERROR_CAUSE_BYTES = 600,
    PL_ERROR_CONTEXT_BYTES = 400,
};

/** An error report. Initialise it with PL_ERROR_NONE; it needs no release. */
struct pl_error {
    enum pl_status status;
    enum pl_domain domain;
    int64_t code;                         /* native code; `domain` tells its meaning */
    bool retryable;                       /* trying again may work */
    char cause[PL_ERROR_CAUSE_BYTES];     /* text of the cause, written once, at the place of the failure */
    char context[PL_ERROR_CONTEXT_BYTES]; /* text that callers append; it cannot displace the cause */
};

#define PL_ERROR_NONE ((struct pl_error){.status = PL_OK})

/**
 * Writes the report and returns `status`.
 *
 * The cause is the formatted text; for PL_DOMAIN_ERRNO, ": " and the system's text for `code` follow. A text that does
 * not fit is cut and ends in "...". An earlier report in `reterr` is replaced.
 */
enum pl_status pl_error_raise(struct pl_error *reterr, enum pl_status status, enum pl_domain domain, int64_t code,
                              const char *format, ...) PL_PRINTF(5, 6);

/** Like pl_error_raise(), for failures without a native code. */
#define pl_error_set(reterr, status, ...) pl_error_raise((reterr), (status), PL_DOMAIN_NONE, 0, __VA_ARGS__)

/** For a call that failed with errno: PL_SYSTEM and "cannot " before the text, "cannot open 'a.txt': No such file". */
#define pl_error_errno(reterr, ...) pl_error_raise((reterr), PL_SYSTEM, PL_DOMAIN_ERRNO, errno, "cannot " __VA_ARGS__)

/** Appends what the caller was doing, for example "reading channel 'training'". Later texts follow earlier ones. */
void pl_error_context(struct pl_error *reterr, const char *format, ...) PL_PRINTF(2, 3);

/** Writes "cause (context; context)" to `text`, at most `text_bytes` including the NUL, and returns `text`. */
const char *pl_error_text(const struct pl_error *error, char *text, uint32_t text_bytes);

/** Returns the status without PL_, for example "INVALID". */
const char *pl_status_name(enum pl_status status);

/**
 * Reports a broken invariant of our own code: prints the place and the condition, and aborts, also in release builds.
 */
#define PL_BUG_IF(condition)                                                                                           \
    do {                                                                                                               \
        if (__builtin_expect(!!(condition), 0)) {                                                                      \
            pl_bug(__FILE__, __LINE__, __func__, #condition);                                                          \
        }                                                                                                              \
    } while (0)

__attribute__((noreturn)) void pl_bug(const char *file, int line, const char *function, const char *condition);

/** Returns from the calling function with the status of `expression` unless the status is PL_OK. */
#define PL_TRY(expression)                                                                                             \
    do {                                                                                                               \
        enum pl_status pl_try_status_ = (expression);                                                                  \
        if (pl_try_status_ != PL_OK) {                                                                                 \
            return pl_try_status_;                                                                                     \
        }                                                                                                              \
    } while (0)

#endif
