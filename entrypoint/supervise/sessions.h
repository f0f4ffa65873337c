/* SPDX-License-Identifier: Apache-2.0 */
/** The master's ssh sessions, one to each worker host, whose stdin and stdout are the control link. */
#ifndef PL_ENTRYPOINT_SUPERVISE_SESSIONS_H
#define PL_ENTRYPOINT_SUPERVISE_SESSIONS_H

#include "entrypoint/supervise/supervise.h"

struct pl_session {
    const char *host;
    struct pl_connection *link; /* NULL while there is no session */
    int ssh_stderr_fd;          /* a file in memory with ssh's stderr */
    int64_t next_try_ns;        /* PL_DEADLINE_NEVER while a session is up or is being opened */
    bool outside;               /* the host is not part of the launch, which does not wait for it */
    bool ready;                 /* the host has confirmed its name, and is prepared */
    int processes;              /* the number of processes that the host has announced; 0 if it has not */
    bool program_ended;         /* the host's own program has ended */
    bool quiet;                 /* nothing happens on the host, see watch.h */
    enum pl_apart_state apart;  /* what the host has reported about its ranks */
    bool done;                  /* no process of the job is left on the host */
    char reason[400];           /* why the last session failed */
    bool refused;               /* the host itself gave `reason`: it cannot be linked */
    bool reached;               /* `reason` is from a session that got further than connecting */
};

struct pl_sessions {
    struct pl_sshd sshd;
    struct pl_session *items; /* hosts[1..] of the plan, then its outside_hosts */
    size_t count;
    int64_t begun_ns; /* time at which the first try was due */
};

#define PL_SESSIONS_NONE ((struct pl_sessions){.sshd = PL_SSHD_NONE})

/** Makes a session for each worker of the plan; none without a link. Opens nothing. */
enum pl_status pl_sessions_make(struct pl_supervisor *supervisor, struct pl_sessions *sessions,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Finds or makes the keys, and writes the files that ssh needs. Runs a step, which ends every other program of this
 * host.
 */
enum pl_status pl_sessions_prepare(struct pl_supervisor *supervisor, struct pl_sessions *sessions,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the sessions that are due. `*next_ns` is lowered to the time of the next one. */
enum pl_status pl_sessions_open_due(struct pl_supervisor *supervisor, struct pl_sessions *sessions, int64_t *next_ns,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the session over `connection`, or NULL. */
struct pl_session *pl_sessions_find(const struct pl_sessions *sessions, const struct pl_connection *connection);

/** Call when a session's connection is gone before the host was ready: keeps the reason, and tries again later. */
void pl_sessions_failed(const struct pl_sessions *sessions, struct pl_session *session);

/**
 * Returns how many hosts are not ready and may become so; hosts that are not part of the launch count only with
 * `outside`. Appends the first of them and the reasons to `text`, which may be NULL.
 */
size_t pl_sessions_missing(const struct pl_sessions *sessions, bool outside, struct pl_text *text);

void pl_sessions_close(struct pl_sessions *sessions);

#endif
