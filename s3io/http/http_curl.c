/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP engine: libcurl transfers on one thread, with stall and low-speed limits. */
#include "s3io/http/http.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SPARE_HANDLES = 64,
    /* needs a tenth of the system calls of the default, 16 KiB; larger buffers were not faster */
    RECEIVE_BYTES = 256 * 1024,
    SEND_BYTES = 512 * 1024,
    AHEAD_BYTES = 128 * 1024,           /* most bytes of a body that the kernel buffers before they are sent */
    CHECK_PEERS_NS = 200 * 1000 * 1000, /* how often transfers are checked for a stall */
    IDLE_MS = 60 * 1000,
    CONNECT_MS = 10 * 1000, /* name lookup, TCP and TLS together */
    /* the low-speed limit: a transfer slower than this for twice the stall time ends */
    SLOW_BYTES_PER_S = 16 * 1024,
    LONG_TIMEOUT_FACTOR = 20, /* factor on the stall time for a request with the long timeout */
};

struct pl_http {
    CURLM *multi;
    char *ca_bundle;
    struct pl_http_options options;
    /* requests that wait for their start or run, in the order of sending */
    struct pl_http_request *requests, *requests_last;
    CURL *spares[SPARE_HANDLES];
    size_t spare_count;
    int64_t looked_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    struct {
        struct pl_http_task *first;
        struct pl_http_task **last;
        bool stop;
    } synced; /* under `lock` */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

/* Initialises libcurl once, because its global initialisation is not thread-safe before 7.84. */
static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void unlink_request(struct pl_http *http, struct pl_http_request *request)
{
    if (request->previous) {
        request->previous->next = request->next;
    } else {
        http->requests = request->next;
    }
    if (request->next) {
        request->next->previous = request->previous;
    } else {
        http->requests_last = request->previous;
    }
    request->previous = request->next = NULL;
}

/*
 * Releases a transfer's resources. The easy handle is kept for reuse only after a success: after a failed name lookup,
 * libcurl 7.88 refuses settings on a reset handle.
 */
static void release_transfer(struct pl_http *http, struct pl_http_request *request, bool reuse)
{
    if (request->easy) {
        if (request->running) {
            curl_multi_remove_handle(http->multi, request->easy);
        }
        if (reuse && http->spare_count < SPARE_HANDLES) {
            curl_easy_reset(request->easy);
            http->spares[http->spare_count++] = request->easy;
        } else {
            curl_easy_cleanup(request->easy);
        }
    }
    curl_slist_free_all(request->lines);
    request->easy = request->lines = NULL;
    request->running = false;
}

static void finish(struct pl_http *http, struct pl_http_request *request, enum pl_status status)
{
    unlink_request(http, request);
    release_transfer(http, request, status == PL_OK);
    request->handler->done(request, status);
}

static void keep_line(struct pl_http_request *request, const char *line, size_t bytes)
{
    if (!request->head_text) {
        return;
    }
    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        pl_text_clear(request->head_text);
    } else if (request->head_text->length + bytes <= PL_HTTP_HEAD_MAX_BYTES) { /* a longer head is an error */
        pl_text_append_n(request->head_text, line, bytes);
    }
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct pl_http_request *request = context;
    size_t bytes = size * count;

    if (request->head_done && !(bytes >= 5 && memcmp(line, "HTTP/", 5) == 0)) {
        return bytes; /* trailers are ignored */
    }
    keep_line(request, line, bytes);
    request->callback_status = pl_http_head_line(&request->head, line, bytes, &request->error);
    if (request->callback_status == PL_OK && bytes <= 2 && (line[0] == '\r' || line[0] == '\n') &&
        request->head.status >= 200) {
        request->head_done = true;
        if (request->handler->head) {
            request->callback_status = request->handler->head(request, &request->error);
        }
    }
    return request->callback_status == PL_OK ? bytes : 0;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct pl_http_request *request = context;
    size_t bytes = size * count;

    request->callback_status = request->handler->body(request, data, bytes, &request->error);
    if (request->callback_status != PL_OK) {
        return 0;
    }
    request->received_bytes += bytes;
    return bytes;
}

/* Limits the unsent bytes in the kernel. By default it buffers some MiB, and a slow network may need longer than the
 * stall time to send them; the transfer would seem to make no progress. */
static int on_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
    const int bytes = AHEAD_BYTES;

    (void)context;
    (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
    return CURL_SOCKOPT_OK;
}

static bool is_method(const struct pl_http_request *request, const char *method)
{
    return strcmp(request->method, method) == 0;
}

#define SET(option, value) (code = code ? code : curl_easy_setopt(easy, (option), (value)))

static CURLcode set_method(CURL *easy, const struct pl_http_request *request)
{
    CURLcode code = CURLE_OK;

    if (is_method(request, "HEAD")) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (is_method(request, "PUT") || is_method(request, "POST")) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        SET(CURLOPT_POSTFIELDS, request->body_bytes ? request->body : "");
        SET(CURLOPT_CUSTOMREQUEST, request->method);
    } else if (!is_method(request, "GET")) {
        SET(CURLOPT_CUSTOMREQUEST, request->method);
    }
    return code;
}

_Static_assert(sizeof(((struct pl_http_request *)NULL)->error_text) >= CURL_ERROR_SIZE, "libcurl writes so much");

static CURLcode set_options(const struct pl_http *http, CURL *easy, struct pl_http_request *request)
{
    CURLcode code = CURLE_OK;

    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_PRIVATE, request);
    SET(CURLOPT_ERRORBUFFER, request->error_text);
    SET(CURLOPT_HTTPHEADER, (struct curl_slist *)request->lines);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BYTES);
    SET(CURLOPT_SOCKOPTFUNCTION, on_socket);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, request);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* ignore the head of a proxy's answer to CONNECT */
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, request);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(CURLOPT_MAXAGE_CONN, 20L);   /* S3 closes idle connections after some seconds */
    SET(CURLOPT_FOLLOWLOCATION, 0L); /* a redirect needs a new signature */
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    /* The signature covers the unchanged path. */
    SET(CURLOPT_PATH_AS_IS, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, request->plain_allowed ? "http,https" : "https");
#else
    SET(CURLOPT_PROTOCOLS, request->plain_allowed ? (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS) : (long)CURLPROTO_HTTPS);
#endif
    if (http->ca_bundle) {
        SET(CURLOPT_CAINFO, http->ca_bundle);
    }
    if (request->direct) {
        SET(CURLOPT_PROXY, "");
    }
    return code ? code : set_method(easy, request);
}

#undef SET

static bool add_line(struct pl_http_request *request, const char *line)
{
    struct curl_slist *lines = curl_slist_append(request->lines, line);

    if (lines) {
        request->lines = lines;
    }
    return lines;
}

/* Begins the transfer. On failure, request->error has the cause. */
static enum pl_status start(struct pl_http *http, struct pl_http_request *request, int64_t now_ns)
{
    bool lines_ok = true;
    CURLcode code;
    CURLMcode multi_code;

    request->easy = http->spare_count ? http->spares[--http->spare_count] : curl_easy_init();
    for (size_t i = 0; i < request->header_count && lines_ok; i++) {
        lines_ok = add_line(request, request->headers[i]);
    }
    /* An empty value removes a header that libcurl would add. */
    lines_ok = lines_ok && add_line(request, "Expect:") && add_line(request, "Accept:");
    if (!request->easy || !lines_ok) {
        return pl_error_set(&request->error, PL_MEMORY, "out of memory for a transfer");
    }
    code = set_options(http, request->easy, request);
    if (code != CURLE_OK) {
        return pl_error_raise(&request->error, PL_LIBRARY, PL_DOMAIN_CURL, code, "cannot set up a transfer: %s",
                              curl_easy_strerror(code));
    }
    multi_code = curl_multi_add_handle(http->multi, request->easy);
    if (multi_code != CURLM_OK) {
        return pl_error_raise(&request->error, PL_LIBRARY, PL_DOMAIN_CURL, multi_code, "cannot start a transfer: %s",
                              curl_multi_strerror(multi_code));
    }
    request->running = true;
    request->progress_ns = request->slow_since_ns = now_ns;
    return PL_OK;
}

static bool may_try_again(CURLcode code)
{
    switch ((int)code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_BAD_CONTENT_ENCODING:
        return true;
    default:
        return false;
    }
}

/* Returns the status of a transfer that libcurl has ended. */
static enum pl_status transfer_status(struct pl_http_request *request, CURLcode code)
{
    enum pl_status status = PL_FAILED;
    curl_off_t connect_us = 0;
    long proxy_status = 0;

    if (request->callback_status != PL_OK) {
        return request->callback_status; /* the handler has set the error */
    }
    if (code == CURLE_OK && request->head.status == 0) {
        code = CURLE_GOT_NOTHING;
    }
    if (code == CURLE_OK) {
        return PL_OK;
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
        status = PL_TIMEOUT;
    } else if (code == CURLE_OUT_OF_MEMORY) {
        status = PL_MEMORY;
    } else if (code == CURLE_UNSUPPORTED_PROTOCOL) {
        /* Before a connection, the URL's scheme is wrong; after one, the response was not HTTP. */
        curl_easy_getinfo(request->easy, CURLINFO_CONNECT_TIME_T, &connect_us);
        status = connect_us > 0 ? PL_FAILED : PL_INVALID;
    }
    pl_error_raise(&request->error, status, PL_DOMAIN_CURL, code, "%s",
                   request->error_text[0] ? request->error_text : curl_easy_strerror(code));
    curl_easy_getinfo(request->easy, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
    /* A proxy that refuses with 403 or 407 would refuse again. */
    request->error.retryable = (may_try_again(code) || connect_us > 0) && proxy_status / 100 != 4;
    return status;
}

static void run_tasks(struct pl_http *http, bool *ret_stop)
{
    struct pl_http_task *task;

    pthread_mutex_lock(&http->lock);
    task = http->synced.first;
    http->synced.first = NULL;
    http->synced.last = &http->synced.first;
    *ret_stop = http->synced.stop;
    pthread_mutex_unlock(&http->lock);
    while (task) {
        struct pl_http_task *next = task->next; /* the task may be posted again, or free itself, when it runs */

        task->run(task);
        task = next;
    }
}

/* Starts the requests that are due. `done` may change the list, so the walk begins again after each change. */
static void start_due(struct pl_http *http, int64_t now_ns)
{
    struct pl_http_request *request = http->requests;

    while (request) {
        if (!request->running && request->start_ns <= now_ns) {
            enum pl_status status = start(http, request, now_ns);

            if (status != PL_OK) {
                finish(http, request, status);
                request = http->requests;
                continue;
            }
        }
        request = request->next;
    }
}

static void finish_ended(struct pl_http *http)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        struct pl_http_request *request = NULL;
        CURLcode code = message->data.result;

        if (message->msg != CURLMSG_DONE) {
            continue;
        }
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        finish(http, request, transfer_status(request, code));
    }
}

/* Whether the transfer must end. Sets request->error to the reason. */
static bool is_stuck(const struct pl_http *http, struct pl_http_request *request, int64_t now_ns)
{
    int64_t stall_ns = http->options.stall_ns;
    curl_off_t sent = 0;
    uint64_t bytes;

    if (request->deadline_ns <= now_ns) {
        pl_error_set(&request->error, PL_TIMEOUT, "the response was not complete before the deadline");
        return true;
    }
    if (!request->running) {
        return false;
    }
    curl_easy_getinfo(request->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    bytes = request->received_bytes + request->head.head_bytes + (uint64_t)sent;
    if (bytes != request->progress_bytes) {
        request->progress_bytes = bytes;
        request->progress_ns = now_ns;
    }
    if (now_ns - request->progress_ns >= (request->long_timeout ? LONG_TIMEOUT_FACTOR : 1) * stall_ns) {
        pl_error_set(&request->error, PL_TIMEOUT, "no byte was sent or received for %.1f s",
                     (double)(now_ns - request->progress_ns) / 1e9);
        request->error.retryable = true;
        return true;
    }
    if (!request->long_timeout && now_ns - request->slow_since_ns >= 2 * stall_ns) {
        double rate = (double)(bytes - request->slow_bytes) * 1e9 / (double)(now_ns - request->slow_since_ns);

        if (rate < SLOW_BYTES_PER_S) {
            pl_error_set(&request->error, PL_TIMEOUT, "the transfer was too slow: %.0f bytes/s for %.1f s", rate,
                         (double)(now_ns - request->slow_since_ns) / 1e9);
            request->error.retryable = true;
            return true;
        }
        request->slow_since_ns = now_ns;
        request->slow_bytes = bytes;
    }
    return false;
}

static void end_stuck(struct pl_http *http, int64_t now_ns)
{
    struct pl_http_request *request = http->requests;

    if (now_ns - http->looked_ns < CHECK_PEERS_NS) {
        return;
    }
    http->looked_ns = now_ns;
    while (request) {
        if (is_stuck(http, request, now_ns)) {
            finish(http, request, PL_TIMEOUT);
            request = http->requests;
        } else {
            request = request->next;
        }
    }
}

/* Returns how long the thread may sleep: until the next start, or the next check of running transfers. */
static int sleep_ms(const struct pl_http *http, int64_t now_ns)
{
    int64_t until_ns = now_ns + IDLE_MS * PL_NS_PER_MS;

    for (const struct pl_http_request *request = http->requests; request; request = request->next) {
        int64_t due_ns = request->running ? http->looked_ns + CHECK_PEERS_NS : request->start_ns;

        until_ns = due_ns < until_ns ? due_ns : until_ns;
    }
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + PL_NS_PER_MS - 1) / PL_NS_PER_MS);
}

static void *engine_main(void *context)
{
    struct pl_http *http = context;
    bool stop = false;

    for (;;) {
        int running = 0;

        run_tasks(http, &stop);
        if (stop) {
            break;
        }
        start_due(http, pl_clock_now_ns());
        curl_multi_perform(http->multi, &running);
        finish_ended(http);
        end_stuck(http, pl_clock_now_ns());
        start_due(http, pl_clock_now_ns());
        curl_multi_poll(http->multi, NULL, 0, sleep_ms(http, pl_clock_now_ns()), NULL);
    }
    while (http->requests) {
        pl_error_set(&http->requests->error, PL_CANCELLED, "the transfer was cancelled");
        finish(http, http->requests, PL_CANCELLED);
    }
    run_tasks(http, &stop); /* tasks that the requests' `done` has posted */
    return NULL;
}

static void release(struct pl_http *http)
{
    for (size_t i = 0; i < http->spare_count; i++) {
        curl_easy_cleanup(http->spares[i]);
    }
    if (http->multi) {
        curl_multi_cleanup(http->multi);
    }
    pthread_mutex_destroy(&http->lock);
    free(http->ca_bundle);
    free(http);
}

/* Returns where this system has its certificates; NULL if libcurl looks there by itself, as on Debian. */
static const char *find_bundle(void)
{
    static const char debian[] = "/etc/ssl/certs/ca-certificates.crt", red_hat[] = "/etc/pki/tls/certs/ca-bundle.crt";

    return access(debian, R_OK) != 0 && access(red_hat, R_OK) == 0 ? red_hat : NULL;
}

enum pl_status pl_http_new(const struct pl_http_options *options, struct pl_http **ret_http, struct pl_error *reterr)
{
    const char *ca_bundle = options->ca_bundle ? options->ca_bundle : find_bundle();
    struct pl_http *http;

    PL_TRY(pl_memory_alloc(&http, 1, sizeof(*http), reterr));
    pthread_once(&curl_once, start_curl);
    pthread_mutex_init(&http->lock, NULL);
    http->synced.last = &http->synced.first;
    http->options = *options;
    http->options.ca_bundle = NULL;
    http->options.stall_ns = options->stall_ns ? options->stall_ns : 10 * PL_NS_PER_S;
    http->multi = curl_multi_init();
    if (ca_bundle && !(http->ca_bundle = pl_memory_string(ca_bundle, reterr))) {
        release(http);
        return PL_MEMORY;
    }
    if (!http->multi ||
        curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)http->options.idle_connections) != CURLM_OK) {
        release(http);
        return pl_error_set(reterr, PL_LIBRARY, "libcurl could not be initialised");
    }
    if (pl_thread_start(&http->thread, engine_main, http, "the transfer thread", reterr) != PL_OK) {
        release(http);
        return PL_SYSTEM;
    }
    *ret_http = http;
    return PL_OK;
}

void pl_http_free(struct pl_http *http)
{
    if (!http) {
        return;
    }
    PL_BUG_IF(pthread_equal(pthread_self(), http->thread));
    pthread_mutex_lock(&http->lock);
    http->synced.stop = true;
    pthread_mutex_unlock(&http->lock);
    curl_multi_wakeup(http->multi);
    pthread_join(http->thread, NULL);
    release(http);
}

void pl_http_post(struct pl_http *http, struct pl_http_task *task)
{
    bool first;

    task->next = NULL;
    pthread_mutex_lock(&http->lock);
    first = !http->synced.first;
    *http->synced.last = task;
    http->synced.last = &task->next;
    pthread_mutex_unlock(&http->lock);
    if (first) {
        curl_multi_wakeup(http->multi);
    }
}

void pl_http_send(struct pl_http *http, struct pl_http_request *request)
{
    pl_http_head_init(&request->head);
    request->received_bytes = 0;
    request->error = PL_ERROR_NONE;
    request->callback_status = PL_OK;
    request->head_done = false;
    request->error_text[0] = '\0';
    request->progress_bytes = request->slow_bytes = 0;
    request->next = NULL;
    request->previous = http->requests_last;
    if (http->requests_last) {
        http->requests_last->next = request;
    } else {
        http->requests = request;
    }
    http->requests_last = request;
}

void pl_http_cancel(struct pl_http *http, struct pl_http_request *request)
{
    unlink_request(http, request);
    release_transfer(http, request, false);
}
