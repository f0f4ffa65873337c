/* SPDX-License-Identifier: Apache-2.0 */
/**
 * HTTP/1.1 transfers, all driven by one thread, the engine's thread. All code of requests runs on that thread and so
 * needs no locks among requests. Other threads pass tasks to it with pl_http_post().
 *
 * Threads  pl_http_post() and pl_http_run(): any thread. pl_http_send(), pl_http_cancel() and all callbacks: only the
 *          engine's thread.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_HTTP_HTTP_H
#define PL_S3IO_HTTP_HTTP_H

#include "base/status.h"
#include "base/text.h"
#include "s3io/http/http_head.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct pl_http;

/** Zero-initialise, then set the options that differ from the defaults. Strings are copied. */
struct pl_http_options {
    const char *ca_bundle;     /* NULL for the system's certificates */
    unsigned idle_connections; /* number of connections that are kept open for reuse */
    /* a transfer ends after this time without a byte in either direction, and after twice this time below the low-speed
     * limit; 0 means 10 s */
    int64_t stall_ns;
};

/** A task for the engine's thread. Embed it in a struct and set `run`. It may be posted again as soon as it runs. */
struct pl_http_task {
    void (*run)(struct pl_http_task *task);
    struct pl_http_task *next; /* used by the engine */
};

struct pl_http_request;

/**
 * Callbacks of a request. Only `done` may call pl_http_cancel() or free the request: from this call on the request
 * belongs to its owner again.
 */
struct pl_http_handler {
    /* The head of the final response is complete. An error that it returns ends the transfer. May be NULL. */
    enum pl_status (*head)(struct pl_http_request *request, struct pl_error *reterr);
    /* Gets a piece of the body. */
    enum pl_status (*body)(struct pl_http_request *request, const void *data, size_t bytes, struct pl_error *reterr);
    /* PL_OK: a complete response has come, with any HTTP status. Otherwise request->error has the cause and whether to
     * try again. */
    void (*done)(struct pl_http_request *request, enum pl_status status);
};

/** Zero-initialise, then set the members before the results. The owner must keep its memory unchanged until `done`. */
struct pl_http_request {
    const struct pl_http_handler *handler;
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    const void *body;
    size_t body_bytes;
    bool direct;               /* use no proxy: for link-local services */
    bool plain_allowed;        /* permit http:// in addition to https:// */
    bool long_timeout;         /* the server may be slow, and silent for twenty times the stall time */
    int64_t start_ns;          /* do not start before this time; 0 means at once */
    int64_t deadline_ns;       /* the request ends at this time at the latest */
    struct pl_text *head_text; /* gets the lines of the final response's head; may be NULL */

    /* The results. */
    struct pl_http_head head;
    uint64_t received_bytes; /* bytes of the body that the handler got in this transfer */
    struct pl_error error;

    /* The following is used by the engine. */
    struct pl_http_request *previous, *next;
    void *easy, *lines;
    bool running, head_done;
    enum pl_status callback_status; /* status that a callback returned */
    int64_t progress_ns, slow_since_ns;
    uint64_t progress_bytes, slow_bytes;
    char error_text[256]; /* libcurl's error message */
};

/** Starts the engine's thread, which blocks all signals. */
enum pl_status pl_http_new(const struct pl_http_options *options, struct pl_http **ret_http,
                           struct pl_error *reterr) PL_MUST_CHECK;

/** Ends the thread. Every request gets `done` with PL_CANCELLED before. Does nothing for NULL. */
void pl_http_free(struct pl_http *http);

/** Runs `task` once on the engine's thread. Tasks run in the order of posting. Cannot fail. */
void pl_http_post(struct pl_http *http, struct pl_http_task *task);

/** As pl_http_post(), and waits until the task has run. Not on the engine's thread. */
void pl_http_run(struct pl_http *http, struct pl_http_task *task);

/** A task with a thread that waits for its end. Embed it in a struct and set `task.run`. */
struct pl_http_call {
    struct pl_http_task task;
    pthread_mutex_t lock;
    pthread_cond_t ended_cond;
    struct {
        bool ended;
    } synced; /* under `lock` */
};

/**
 * Posts the call's task, and waits until the task, or work that it has begun, calls pl_http_end(). Not on the engine's
 * thread. `meanwhile` (may be NULL) is called on the waiting thread at once and then ten times a second.
 */
void pl_http_call(struct pl_http *http, struct pl_http_call *call, void (*meanwhile)(struct pl_http_call *call));

/** Ends the call, on the engine's thread. The waiting thread sees all that was written before, and may free `call`. */
void pl_http_end(struct pl_http_call *call);

/**
 * Begins a request. `done` is called later, never from within this call. A request may be sent again from its own
 * `done`.
 */
void pl_http_send(struct pl_http *http, struct pl_http_request *request);

/** Cancels a request that was sent and has not ended: `done` will not be called. Not from `head` and `body`. */
void pl_http_cancel(struct pl_http *http, struct pl_http_request *request);

#endif
