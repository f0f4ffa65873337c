/* SPDX-License-Identifier: Apache-2.0 */
/* A server's answers to its own workers (a piece is applied, a fetch is complete, a request is refused), and records
 * of lost workers, if the job may go on with fewer: their numbers, the reasons, how many are left. */
#include "base/clock.h"
#include "base/log.h"
#include "runtime/server/state.h"

#include <stdio.h>
#include <sys/wait.h>

/* Longest time from the close of a connection to the end of its process, which tells the reason. */
#define CAUSE_LAG_NS PL_NS_PER_S

static bool are_too_few(const struct pl_server_state *server)
{
    const atomic_bool *stopping = server->options->stopping;

    return !(stopping && atomic_load(stopping)) && server->options->min_workers > 0 &&
           server->total - server->lost < server->options->min_workers;
}

void pl_server_lost_note(struct pl_server_state *server, int worker)
{
    if (server->workers[worker].is_lost) {
        return;
    }
    server->workers[worker].is_lost = true;
    server->lost++;
    server->last_lost = worker;
    if (are_too_few(server) && server->few_deadline_ns == 0) {
        server->few_deadline_ns = pl_deadline_after_ns(CAUSE_LAG_NS);
    }
}

static enum pl_status end_job(const struct pl_server_state *server, int worker, const char *cause,
                              struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_PEER,
                        "worker %d (host %d) %s: %d of %d workers are left, expected %d (ps_min_workers)", worker,
                        worker / server->options->workers, cause, server->total - server->lost, server->total,
                        server->options->min_workers);
}

enum pl_status pl_server_lost_process(struct pl_server_state *server, int worker, int wait_status,
                                      struct pl_error *reterr)
{
    struct pl_server_packet packet = {
        .kind = PL_SERVER_PACKET_LEFT, .worker = worker, .is_lost = true, .stays = server->workers[worker].stays};
    char cause[64];

    if (server->options->min_workers == 0 || wait_status == 0) {
        return PL_OK;
    }
    snprintf(cause, sizeof(cause), WIFSIGNALED(wait_status) ? "was killed by signal %d" : "exited with code %d",
             WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
    if (!server->workers[worker].is_lost && server->remote) { /* the worker had left before, or never joined */
        PL_TRY(pl_server_remote_send_all(server->remote, &packet, NULL, reterr));
    }
    pl_server_lost_note(server, worker);
    if (are_too_few(server)) {
        return end_job(server, worker, cause, reterr);
    }
    pl_log(PL_LOG_WARNING, "worker %d (host %d) %s and is dropped: %d of %d workers are left, ps_min_workers is %d",
           worker, server->host, cause, server->total - server->lost, server->total, server->options->min_workers);
    return PL_OK;
}

enum pl_status pl_server_lost_check(const struct pl_server_state *server, bool *ret_waits, struct pl_error *reterr)
{
    *ret_waits = are_too_few(server);
    return *ret_waits && pl_deadline_passed(server->few_deadline_ns)
               ? end_job(server, server->last_lost, "is gone without leaving", reterr)
               : PL_OK;
}

void pl_server_answer(struct pl_server_state *server, int local, const struct pl_server_message *message,
                      const char *what)
{
    int fd = server->locals[local].fd;

    if (fd >= 0 && pl_server_message_send(fd, message, NULL, 0, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "worker %d is gone before %s", pl_server_first_worker(server) + local, what);
    }
}

void pl_server_answer_refuse(int fd, const struct pl_error *error)
{
    struct pl_server_message message = {.kind = PL_SERVER_REFUSED, .number = (int32_t)error->status};

    pl_error_text(error, message.text, sizeof(message.text));
    if (fd >= 0 && pl_server_message_send(fd, &message, NULL, 0, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "a refused worker has left before it got the reason: %s", message.text);
    }
}

void pl_server_answer_applied(struct pl_server_state *server, int local)
{
    atomic_fetch_add_explicit(&pl_server_view_slot(&server->view, (uint64_t)local)->applied, 1, memory_order_release);
    pl_server_notify(server, local);
}

void pl_server_answer_fetch(struct pl_server_state *server)
{
    for (int w = 0; w < server->options->workers; w++) {
        atomic_store_explicit(&pl_server_view_slot(&server->view, (uint64_t)w)->fetched, server->locals[w].fetches,
                              memory_order_release);
        pl_server_notify(server, w);
    }
}

void pl_server_answer_fetched(struct pl_server_state *server)
{
    if (server->fetching > 0 && --server->fetching == 0) {
        pl_server_answer_fetch(server);
    }
}
