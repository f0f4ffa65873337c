/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether ranks that were started together have never been connected with each other. */
#include "entrypoint/supervise/apart.h"

#include "base/log.h"
#include "entrypoint/proc/network.h"
#include "entrypoint/supervise/sessions.h"

#define FIRST_MINUTE_NS (60 * PL_NS_PER_S)
#define LOOK_NS (2 * PL_NS_PER_S)

/* A look may happen while a connection is being made, so one look that cannot tell is not enough. */
enum { MOST_LOOKS = 2 };

void pl_apart_open(struct pl_apart *apart, const struct pl_job *job)
{
    apart->minute_ns = FIRST_MINUTE_NS;
    apart->connected = job->is_check || job->settings.independent_ranks;
}

void pl_apart_begin(struct pl_apart *apart, const struct pl_frame *frame)
{
    int64_t accepted;

    if (pl_link_frame_number(frame, 5, 0, INT64_MAX, &accepted, NULL) != PL_OK) {
        apart->connected = true;
        return;
    }
    if (!apart->begun || (uint64_t)accepted < apart->accepted) {
        apart->accepted = (uint64_t)accepted;
    }
    apart->begun = true;
    apart->ranks++;
    apart->begun_ns = pl_clock_now_ns();
    apart->next_look_ns = pl_deadline_after_ns(LOOK_NS);
}

/* Whether all connections accepted since the last finding are open now, with both ends in one rank. */
static bool is_inside(struct pl_apart *apart, uint64_t accepted)
{
    struct stat paceline;
    uint64_t after;
    size_t inside;

    if (stat("/proc/self/exe", &paceline) != 0 || pl_network_inside_ranks(&paceline, &inside, NULL) != PL_OK ||
        pl_network_accepted(&after, NULL) != PL_OK || after != accepted || inside < apart->inside ||
        inside - apart->inside != accepted - apart->accepted) {
        return false;
    }
    apart->accepted = accepted;
    apart->inside = inside;
    return true;
}

static bool has_accepted(const struct pl_apart *apart, uint64_t *ret_accepted)
{
    return pl_network_accepted(ret_accepted, NULL) != PL_OK || *ret_accepted != apart->accepted;
}

/* The connections of a rank end with it, so compare the count now. */
void pl_apart_end(struct pl_apart *apart)
{
    uint64_t accepted;

    apart->ranks--;
    apart->connected = apart->connected || has_accepted(apart, &accepted);
}

void pl_apart_look(struct pl_apart *apart, int64_t *next_ns)
{
    uint64_t accepted = 0;

    if (apart->connected || apart->ranks == 0) {
        return;
    }
    if (pl_deadline_passed(apart->next_look_ns)) {
        apart->next_look_ns = pl_deadline_after_ns(LOOK_NS);
        if (!has_accepted(apart, &accepted) || is_inside(apart, accepted)) {
            apart->looks = 0;
        } else {
            apart->connected = ++apart->looks == MOST_LOOKS;
        }
    }
    *next_ns = apart->next_look_ns < *next_ns ? apart->next_look_ns : *next_ns;
}

enum pl_apart_state pl_apart_state(const struct pl_apart *apart)
{
    if (apart->connected) {
        return PL_APART_CONNECTED;
    }
    return apart->begun && apart->looks == 0 && pl_clock_now_ns() - apart->begun_ns >= apart->minute_ns
               ? PL_APART_FOR_A_MINUTE
               : PL_APART_UNKNOWN;
}

/* Returns the highest state of all hosts with ranks, or the lowest. */
static enum pl_apart_state state_of_all(const struct pl_supervisor *supervisor, const struct pl_sessions *sessions,
                                        bool lowest)
{
    enum pl_apart_state state = pl_apart_state(&supervisor->apart);

    for (size_t i = 0; i < sessions->count; i++) {
        const struct pl_session *session = &sessions->items[i];

        if (!session->outside && (lowest ? session->apart < state : session->apart > state)) {
            state = session->apart;
        }
    }
    return state;
}

static bool has_several(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->ranks != PL_LAUNCH_PLAN_RANKS_NONE && supervisor->plan->processes > 1;
}

void pl_apart_log_minute(struct pl_supervisor *supervisor, const struct pl_sessions *sessions)
{
    if (supervisor->apart.minute_logged || supervisor->failed || sessions->count == 0 || !has_several(supervisor) ||
        state_of_all(supervisor, sessions, true) != PL_APART_FOR_A_MINUTE ||
        state_of_all(supervisor, sessions, false) != PL_APART_FOR_A_MINUTE) {
        return;
    }
    supervisor->apart.minute_logged = true;
    pl_log(PL_LOG_INFO,
           "in the first %lld s no rank has called MPI_Init or joined another one in a torch process group. This is "
           "normal while programs prepare. If it does not change, the %d programs run independently, or wait for each "
           "other without end: see docs/troubleshooting.md",
           (long long)(supervisor->apart.minute_ns / PL_NS_PER_S), supervisor->plan->processes);
}

bool pl_apart_is_possible(const struct pl_supervisor *supervisor, const struct pl_sessions *sessions)
{
    return has_several(supervisor) && state_of_all(supervisor, sessions, false) != PL_APART_CONNECTED;
}

void pl_apart_log_end(const struct pl_supervisor *supervisor)
{
    pl_log(PL_LOG_WARNING,
           "no rank has called MPI_Init or joined another one in a torch process group: %d programs ran independently, "
           "and each has trained its own model; if they should have trained one model, see docs/troubleshooting.md, "
           "else set PACELINE_INDEPENDENT_RANKS=1",
           supervisor->plan->processes);
}
