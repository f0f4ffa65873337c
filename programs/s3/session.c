/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of each subcommand: a client, notice of signals that would end the process, and threads. */
#include "programs/s3/s3.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

enum pl_status pl_tool_connect(struct pl_tool *tool, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(pl_environment_new(&tool->environment, reterr));
    status = pl_s3_client_new(tool->environment, &tool->client_options, &tool->client, reterr);
    if (status == PL_NOT_FOUND && !tool->again) { /* a person calls it, not the entry point */
        pl_error_context(reterr, "public data needs no credentials with --no-sign-request");
    }
    return status;
}

/*
 * Returns the signals to hold, except those that our parent set to be ignored: if they were blocked, they would be
 * delivered nevertheless.
 */
static void stop_signals(sigset_t *ret_signals)
{
    static const int signals[] = {SIGINT, SIGTERM};

    sigemptyset(ret_signals);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(signals); i++) {
        struct sigaction action;

        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(ret_signals, signals[i]);
        }
    }
}

enum pl_status pl_tool_hold_stop(struct pl_tool *tool, struct pl_error *reterr)
{
    sigset_t stop;

    stop_signals(&stop);
    /* the client's thread blocks all signals itself, and later threads inherit this mask */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    tool->stop_fd = signalfd(-1, &stop, SFD_CLOEXEC);
    return tool->stop_fd >= 0 ? PL_OK : pl_error_errno(reterr, "set up signals");
}

bool pl_tool_goes_on(const struct pl_tool *tool)
{
    struct pollfd stop = {.fd = tool->stop_fd, .events = POLLIN};

    return poll(&stop, 1, 0) <= 0;
}

void pl_tool_let_stop(struct pl_tool *tool)
{
    sigset_t stop;

    pl_file_close_at(&tool->stop_fd);
    stop_signals(&stop);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* a pending signal, which was not read, is delivered now */
}

/* State of one pl_tool_each(): each thread takes the next index. */
struct each {
    size_t count;
    tool_each_function *function;
    void *context;
    pthread_mutex_t lock;
    struct {
        size_t next;
        enum pl_status status;
        struct pl_error error;
    } synced;
};

static void *run_each(void *context)
{
    struct each *each = context;

    for (;;) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status;
        size_t index;

        pthread_mutex_lock(&each->lock);
        index = each->synced.status == PL_OK ? each->synced.next++ : each->count;
        pthread_mutex_unlock(&each->lock);
        if (index >= each->count) {
            return NULL;
        }
        status = each->function(each->context, index, &error);
        pthread_mutex_lock(&each->lock);
        if (status != PL_OK && each->synced.status == PL_OK) {
            each->synced.status = status;
            each->synced.error = error;
        }
        pthread_mutex_unlock(&each->lock);
    }
}

enum pl_status pl_tool_each(size_t count, tool_each_function *function, void *context, struct pl_error *reterr)
{
    struct each each = {.count = count, .function = function, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[TOOL_AT_A_TIME - 1];
    size_t started = 0;

    while (started < PL_ARRAY_ITEMS(threads) && started + 1 < count &&
           pthread_create(&threads[started], NULL, run_each, &each) == 0) {
        started++;
    }
    run_each(&each); /* this thread works too, alone if no other thread could be started */
    for (size_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (each.synced.status != PL_OK) {
        *reterr = each.synced.error;
    }
    return each.synced.status;
}
