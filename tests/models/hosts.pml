/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job on a master and a worker, from preparation to the end (docs/internals/supervision.md has its states, go_host() and the
 * others their order, as pl_host_go() and the others have it). The worker's program needs the link, or has it beside it. Each
 * host may fail while it prepares, each program may not start, may fail or end well; the worker may refuse the link, and
 * the network may cut it at any moment. When a program has failed, the master may start the job again, once: the second
 * attempt is a job of its own, over a link of its own (docs/stopping.md, "Starting again").
 *   Every run ends: there is no state from which a host cannot go on to its end.
 *   A worker that is linked loses the master only if the network is cut, or the master had given it up.
 *   A worker that is told to start again is prepared, and the master does so too.
 *   When the master begins the second attempt, no process of the first is left on the worker, or the attempt only
 *   reports that the worker is lost.
 * -DBROKEN: the end of a program before the master connected is not told.
 */
mtype = { READY, FAILED, OVER, FAILED_PROGRAM, SUCCEEDED, AGAIN, NO_PROCESS }; /* what the hosts send each other */
mtype = { HOST_PREPARING, HOST_LINKING, HOST_RUNNING, HOST_CLOSING, HOST_ENDED };
mtype = { CONNECTION_OPEN, CONNECTION_READY, CONNECTION_ENDED, CONNECTION_DROPPED };
mtype = { SESSION_AWAY, SESSION_REFUSED, SESSION_LINKED, SESSION_IDLE, SESSION_DONE, SESSION_LOST };

#define ATTEMPTS 2

/* the link of each attempt */
chan to_worker[ATTEMPTS] = [8] of { mtype };
chan to_master[ATTEMPTS] = [8] of { mtype };

bool beside;    /* the link is beside the program */
bool refuses;   /* the worker cannot be linked, and says so */
bool cut[ATTEMPTS];       /* the link has ended, */
bool by_master[ATTEMPTS]; /* because the master has, */
bool given_up[ATTEMPTS];  /* which did not wait for the worker */
byte master_at;           /* the attempt in which the master is: a worker of another one does not take it */
bool left_nothing;        /* the worker has ended all of the first attempt */

inline go_host(next)
{
    d_step {
        assert((host == HOST_PREPARING && (next == HOST_LINKING || next == HOST_ENDED)) ||
               (host == HOST_LINKING && (next == HOST_RUNNING || next == HOST_CLOSING)) ||
               (host == HOST_RUNNING && next == HOST_CLOSING) || (host == HOST_CLOSING && next == HOST_ENDED) ||
               (host == HOST_ENDED && next == HOST_PREPARING));
        host = next
    }
}

inline go_connection(state, next)
{
    d_step {
        assert((state == CONNECTION_OPEN && next != CONNECTION_OPEN) ||
               (state == CONNECTION_READY && (next == CONNECTION_ENDED || next == CONNECTION_DROPPED)) ||
               (state == CONNECTION_ENDED && next == CONNECTION_DROPPED));
        state = next
    }
}

inline go_session(next)
{
    d_step {
        assert((session == SESSION_AWAY && (next == SESSION_REFUSED || next == SESSION_LINKED || next == SESSION_DONE)) ||
               (session == SESSION_LINKED && (next == SESSION_IDLE || next == SESSION_DONE || next == SESSION_LOST)) ||
               (session == SESSION_IDLE && (next == SESSION_DONE || next == SESSION_LOST)) ||
               (session == SESSION_DONE && next == SESSION_DONE));
        session = next
    }
}

#define LINKED (session == SESSION_LINKED || session == SESSION_IDLE)

/* The host's program begins, or cannot be started; it ends. */
inline run_program()
{
    if
    :: program == CONNECTION_OPEN -> go_connection(program, CONNECTION_READY)
    :: program == CONNECTION_OPEN -> go_connection(program, CONNECTION_ENDED); badly = true
    :: program == CONNECTION_READY -> go_connection(program, CONNECTION_ENDED)
    :: program == CONNECTION_READY -> go_connection(program, CONNECTION_ENDED); badly = true
    fi
}

inline send_result()
{
    if
    :: failed -> to_worker[n]!FAILED
    :: !failed -> to_worker[n]!SUCCEEDED
    fi
}

#define RUNS (program == CONNECTION_OPEN || program == CONNECTION_READY)

inline take_result()
{
    if
    :: session == SESSION_AWAY || LINKED || session == SESSION_DONE -> go_session(SESSION_DONE)
    :: else
    fi
}

proctype network()
{
    if
    :: cut[0] = true
    :: cut[1] = true
    :: cut[0] = true; cut[1] = true
    :: skip
    fi
}

proctype master()
{
    mtype host = HOST_PREPARING, session, link, program;
    bool failed, badly, again, lost;
    byte n;

attempt:
    session = SESSION_AWAY;
    link = CONNECTION_OPEN;
    program = CONNECTION_OPEN;
    failed = lost;
    badly = false;
    again = false;
    master_at = n;
    do
    :: to_master[n]?READY ->
        if
        :: session == SESSION_AWAY ->
            go_session(SESSION_LINKED);
            go_connection(link, CONNECTION_READY);
            if
            :: host == HOST_CLOSING -> send_result()
            :: else
            fi
        :: else
        fi
    :: to_master[n]?OVER ->
        if
        :: session == SESSION_LINKED -> go_session(SESSION_IDLE)
        :: else
        fi
    :: to_master[n]?FAILED_PROGRAM ->
        if
        :: session == SESSION_LINKED -> go_session(SESSION_IDLE); failed = true; badly = true
        :: else
        fi
    :: to_master[n]?FAILED -> failed = true
    :: to_master[n]?NO_PROCESS ->
        if
        :: LINKED -> go_session(SESSION_DONE)
        :: else
        fi
    :: cut[n] && empty(to_master[n]) && link != CONNECTION_DROPPED ->
        go_connection(link, CONNECTION_DROPPED);
        if
        :: session == SESSION_IDLE && beside && !failed -> go_session(SESSION_DONE)
        :: session == SESSION_LINKED || (session == SESSION_IDLE && (!beside || failed)) ->
            go_session(SESSION_LOST);
            failed = true
        :: else
        fi
    :: refuses && session == SESSION_AWAY -> go_session(SESSION_REFUSED); failed = failed || !beside
    :: host == HOST_PREPARING -> go_host(HOST_LINKING)
    :: host == HOST_PREPARING -> failed = true; badly = false; go_host(HOST_LINKING) /* the next attempt would not prepare it */
    :: host == HOST_LINKING && !failed && (beside || session == SESSION_LINKED) ->
        go_host(HOST_RUNNING);
        if
        :: !beside -> to_worker[n]!READY
        :: else
        fi
    :: host == HOST_LINKING && !failed && session == SESSION_AWAY -> failed = true /* it has waited for long enough */
    :: host == HOST_RUNNING && RUNS -> run_program(); failed = failed || badly
    :: (host == HOST_LINKING && failed) || (host == HOST_RUNNING && (failed || (!RUNS && (!beside || session != SESSION_LINKED)))) ->
        if
        :: n == 0 && badly && LINKED -> again = true; to_worker[n]!AGAIN
        :: send_result()
        fi;
        go_host(HOST_CLOSING)
    :: host == HOST_CLOSING && !LINKED -> break
    od;
    given_up[n] = session == SESSION_AWAY;
    go_host(HOST_ENDED);
    by_master[n] = !cut[n];
    cut[n] = true;
    if
    :: again ->
        lost = session != SESSION_DONE;
        assert(lost || left_nothing);
        go_host(HOST_PREPARING);
        n = 1;
        goto attempt
    :: else
    fi
}

proctype worker()
{
    mtype host = HOST_PREPARING, session, link, program;
    bool failed, badly, told, again;
    byte n;

attempt:
    session = SESSION_AWAY;
    link = CONNECTION_OPEN;
    program = CONNECTION_OPEN;
    failed = false;
    badly = false;
    told = false;
    again = false;
    do
    :: to_worker[n]?READY ->
        if
        :: host == HOST_LINKING -> go_host(HOST_RUNNING)
        :: else
        fi
    :: to_worker[n]?FAILED -> failed = true; take_result()
    :: to_worker[n]?AGAIN ->
        assert(host != HOST_PREPARING);
        failed = true;
        again = true;
        take_result()
    :: to_worker[n]?SUCCEEDED -> take_result()
    :: cut[n] && empty(to_worker[n]) && link != CONNECTION_DROPPED ->
        go_connection(link, CONNECTION_DROPPED);
        if
        :: LINKED ->
            assert(!by_master[n] || given_up[n]);
            go_session(SESSION_LOST);
            failed = true
        :: else
        fi
    :: host == HOST_PREPARING -> go_host(HOST_LINKING)
    :: host == HOST_PREPARING -> failed = true; go_host(HOST_LINKING)
    :: atomic {
        (host == HOST_LINKING || host == HOST_RUNNING) && link == CONNECTION_OPEN && !cut[n] && !refuses && master_at == n ->
            to_master[n]!READY /* the master has connected */
        };
        go_connection(link, CONNECTION_READY);
        if
        :: session == SESSION_AWAY -> go_session(SESSION_LINKED)
        :: else
        fi;
        if
#ifndef BROKEN
        :: !RUNS && !badly -> to_master[n]!OVER /* before the master connected */
        :: !RUNS && badly -> to_master[n]!FAILED_PROGRAM
#endif
        :: else
        fi
    :: host == HOST_LINKING && beside && !failed -> go_host(HOST_RUNNING)
    :: host == HOST_RUNNING && RUNS ->
        run_program();
        failed = failed || (badly && beside);
        if
        :: !RUNS && !badly && LINKED -> to_master[n]!OVER
        :: !RUNS && badly && LINKED -> to_master[n]!FAILED_PROGRAM
        :: else
        fi
    :: host == HOST_LINKING && (failed || !beside) && (session != SESSION_AWAY || cut[n] || refuses) && (failed || cut[n] || refuses) ->
        go_host(HOST_CLOSING) /* it has told the master, or none comes */
    :: host == HOST_RUNNING && (session == SESSION_DONE || failed || (beside && !RUNS && !LINKED)) -> go_host(HOST_CLOSING)
    :: host == HOST_CLOSING && !told ->
        told = true;
        left_nothing = true;
        if
        :: LINKED -> to_master[n]!FAILED
        :: else
        fi;
        if
        :: link == CONNECTION_READY -> to_master[n]!NO_PROCESS
        :: else
        fi
    :: host == HOST_CLOSING && told && link != CONNECTION_READY -> break
    od;
    go_host(HOST_ENDED);
    if
    :: again ->
        go_host(HOST_PREPARING);
        n = 1;
        goto attempt
    :: else
    fi
}

init
{
    if
    :: beside = true
    :: beside = false
    fi;
    if
    :: refuses = true
    :: refuses = false
    fi;
    atomic {
        run network();
        run master();
        run worker()
    }
}
