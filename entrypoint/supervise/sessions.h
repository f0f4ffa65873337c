/* SPDX-License-Identifier: Apache-2.0 */
/** The master's ssh sessions, one to each worker host, whose stdin and stdout are the control link. */
#ifndef PL_ENTRYPOINT_SUPERVISE_SESSIONS_H
#define PL_ENTRYPOINT_SUPERVISE_SESSIONS_H

#include "entrypoint/supervise/supervise.h"

struct pl_session {
    const char *host;
    struct pl_connection *link; /* NULL while there is no session */
    int ssh_stderr_fd;          /* a memory file with ssh's stderr */
    int64_t next_try_ns;        /* PL_DEADLINE_NEVER while a session is up or being made */
    bool outside;               /* it is beside the launch, which does not wait for it */
    bool ready;                 /* the host has said that it is the one that was meant, and is prepared */
    int processes;              /* how many it has said that it gets; 0: it has not */
    bool program_ended;         /* the program that it runs itself */
    bool quiet;                 /* nothing happens on it, see watch.h */
    enum pl_apart_state apart;  /* of its ranks */
    bool done;                  /* nobody of the job is left on it */
    char reason[400];           /* why the last session failed */
    bool refused;               /* the reason is the host's own: it cannot be linked */
    bool reached;               /* the reason is of a session that got further than to connect */
};

struct pl_sessions {
    struct pl_sshd sshd;
    struct pl_session *items; /* hosts[1..] of the plan, then its outside_hosts */
    size_t count;
    int64_t begun_ns; /* when the first try was due */
};

#define PL_SESSIONS_NONE ((struct pl_sessions){.sshd = PL_SSHD_NONE})

/** One for each worker of the plan, none without a link. Opens nothing. */
enum pl_status pl_sessions_make(struct pl_supervisor *supervisor, struct pl_sessions *sessions,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Find or make the keys, and write what ssh needs. Runs a step, which ends every other program of this host. */
enum pl_status pl_sessions_prepare(struct pl_supervisor *supervisor, struct pl_sessions *sessions,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Open the sessions that are due; `*next_ns` becomes the time of the next one where that is earlier. */
enum pl_status pl_sessions_open_due(struct pl_supervisor *supervisor, struct pl_sessions *sessions, int64_t *next_ns,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The session over `connection`, or NULL. */
struct pl_session *pl_sessions_find(const struct pl_sessions *sessions, const struct pl_connection *connection);

/** A session's connection is gone before the host was ready: keep the reason, and try again later. */
void pl_sessions_failed(const struct pl_sessions *sessions, struct pl_session *session);

/**
 * How many hosts are not ready and may become so, those beside the launch only with `outside`; the first of them and
 * why are appended to `text`, which may be NULL.
 */
size_t pl_sessions_missing(const struct pl_sessions *sessions, bool outside, struct pl_text *text);

void pl_sessions_close(struct pl_sessions *sessions);

#endif
