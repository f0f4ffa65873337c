/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job on a master and a worker, from preparation to the end (docs/supervision.md has its states, go_host() and the
 * others their order, as pl_host_go() and the others have it). The worker's program needs the link, or has it beside it. Each
 * host may fail while it prepares, each program may not start, may fail or end well; the worker may refuse the link, and
 * the network may cut it at any moment.
 *   Every run ends: there is no state from which a host cannot go on to its end.
 *   A worker that is linked loses the master only if the network is cut, or the master had given it up.
 * -DBROKEN: the end of a program before the master connected is not told.
 */
mtype = { READY, FAILED, OVER, SUCCEEDED, NO_PROCESS }; /* what the hosts send each other */
mtype = { HOST_PREPARING, HOST_LINKING, HOST_RUNNING, HOST_CLOSING, HOST_ENDED };
mtype = { CONNECTION_OPEN, CONNECTION_READY, CONNECTION_ENDED, CONNECTION_DROPPED };
mtype = { SESSION_AWAY, SESSION_REFUSED, SESSION_LINKED, SESSION_IDLE, SESSION_DONE, SESSION_LOST };

chan to_worker = [8] of { mtype };
chan to_master = [8] of { mtype };

bool beside;    /* the link is beside the program */
bool refuses;   /* the worker cannot be linked, and says so */
bool cut;       /* the link has ended, */
bool by_master; /* because the master has, */
bool given_up;  /* which did not wait for the worker */

inline go_host(next)
{
    d_step {
        assert((host == HOST_PREPARING && (next == HOST_LINKING || next == HOST_ENDED)) ||
               (host == HOST_LINKING && (next == HOST_RUNNING || next == HOST_CLOSING)) ||
               (host == HOST_RUNNING && next == HOST_CLOSING) || (host == HOST_CLOSING && next == HOST_ENDED));
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
    :: failed -> to_worker!FAILED
    :: !failed -> to_worker!SUCCEEDED
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
    :: cut = true
    :: skip
    fi
}

proctype master()
{
    mtype host = HOST_PREPARING, session = SESSION_AWAY, link = CONNECTION_OPEN, program = CONNECTION_OPEN;
    bool failed, badly;

    do
    :: to_master?READY ->
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
    :: to_master?OVER ->
        if
        :: session == SESSION_LINKED -> go_session(SESSION_IDLE)
        :: else
        fi
    :: to_master?FAILED -> failed = true
    :: to_master?NO_PROCESS ->
        if
        :: LINKED -> go_session(SESSION_DONE)
        :: else
        fi
    :: cut && empty(to_master) && link != CONNECTION_DROPPED ->
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
    :: host == HOST_PREPARING -> failed = true; go_host(HOST_LINKING)
    :: host == HOST_LINKING && !failed && (beside || session == SESSION_LINKED) ->
        go_host(HOST_RUNNING);
        if
        :: !beside -> to_worker!READY
        :: else
        fi
    :: host == HOST_LINKING && !failed && session == SESSION_AWAY -> failed = true /* it has waited for long enough */
    :: host == HOST_RUNNING && RUNS -> run_program(); failed = failed || badly
    :: (host == HOST_LINKING && failed) || (host == HOST_RUNNING && (failed || (!RUNS && (!beside || session != SESSION_LINKED)))) ->
        go_host(HOST_CLOSING);
        send_result()
    :: host == HOST_CLOSING && !LINKED -> break
    od;
    given_up = session == SESSION_AWAY;
    go_host(HOST_ENDED);
    by_master = !cut;
    cut = true
}

proctype worker()
{
    mtype host = HOST_PREPARING, session = SESSION_AWAY, link = CONNECTION_OPEN, program = CONNECTION_OPEN;
    bool failed, badly, told;

    do
    :: to_worker?READY ->
        if
        :: host == HOST_LINKING -> go_host(HOST_RUNNING)
        :: else
        fi
    :: to_worker?FAILED -> failed = true; take_result()
    :: to_worker?SUCCEEDED -> take_result()
    :: cut && empty(to_worker) && link != CONNECTION_DROPPED ->
        go_connection(link, CONNECTION_DROPPED);
        if
        :: LINKED ->
            assert(!by_master || given_up);
            go_session(SESSION_LOST);
            failed = true
        :: else
        fi
    :: host == HOST_PREPARING -> go_host(HOST_LINKING)
    :: host == HOST_PREPARING -> failed = true; go_host(HOST_LINKING)
    :: atomic {
        (host == HOST_LINKING || host == HOST_RUNNING) && link == CONNECTION_OPEN && !cut && !refuses ->
            to_master!READY /* the master has connected */
        };
        go_connection(link, CONNECTION_READY);
        if
        :: session == SESSION_AWAY -> go_session(SESSION_LINKED)
        :: else
        fi;
        if
#ifndef BROKEN
        :: !RUNS -> to_master!OVER /* before the master connected */
#endif
        :: else
        fi
    :: host == HOST_LINKING && beside && !failed -> go_host(HOST_RUNNING)
    :: host == HOST_RUNNING && RUNS ->
        run_program();
        failed = failed || (badly && beside);
        if
        :: !RUNS && LINKED -> to_master!OVER
        :: else
        fi
    :: host == HOST_LINKING && (failed || !beside) && (session != SESSION_AWAY || cut || refuses) && (failed || cut || refuses) ->
        go_host(HOST_CLOSING) /* it has told the master, or none comes */
    :: host == HOST_RUNNING && (session == SESSION_DONE || failed || (beside && !RUNS && !LINKED)) -> go_host(HOST_CLOSING)
    :: host == HOST_CLOSING && !told ->
        told = true;
        if
        :: LINKED -> to_master!FAILED
        :: else
        fi;
        if
        :: link == CONNECTION_READY -> to_master!NO_PROCESS
        :: else
        fi
    :: host == HOST_CLOSING && told && link != CONNECTION_READY -> break
    od;
    go_host(HOST_ENDED)
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
