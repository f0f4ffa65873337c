/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stop of an MPI job (docs/internals/supervision.md has its states, go() below their order, as pl_stop_go() has it): the
 * platform's signal comes to either host, to both or to none, at any moment; rank 0 is on the master, rank 1 is on the
 * worker. A program runs and ends by itself, well or badly; one with a handler for the signal saves and ends well,
 * one without dies of it. mpirun kills all ranks once the shim of a rank has left whose program ended badly. Once during
 * the stop another host may be linked, so that the master asks again.
 *   Every run ends: there is no state from which a process cannot go on to its end.
 *   No rank that saves is killed, unless one had left before it was asked to stop.
 *   The cause is not a rank that mpirun killed, where a rank failed by itself.
 * -DBROKEN: the shim of a rank that has ended does not wait for the release.
 */
#define RANKS 2

mtype = { SIGNAL, CATCHES, ENDED, RELEASE, RESULT };
mtype = { RUNS, SAVES, OVER };
mtype = { RUNNING, SAVING, HELD, DEFERRED, RELEASED }; /* enum pl_stop_state */

chan to_shim[RANKS] = [4] of { mtype };
chan from_shim[RANKS] = [4] of { mtype, byte };
chan to_worker = [8] of { mtype };
chan to_master = [8] of { mtype, byte, byte };

bool signalled[2];      /* of the master, of the worker */
bool killed[RANKS];     /* by mpirun */
bool left[RANKS];       /* the shim has ended */
bool bad_left;          /* one whose program ended badly, which mpirun sees */
bool unasked_left;      /* one that nobody had asked to stop */
bool mpirun_over;
bool own_failure;       /* a rank has failed by itself, or of the signal */

#define ALL_LEFT (left[0] && left[1])

inline go(next)
{
    d_step {
        assert((state == RUNNING && (next == SAVING || next == DEFERRED)) ||
               (state == SAVING && (next == SAVING || next == HELD || next == RELEASED)) ||
               (state == HELD && (next == SAVING || next == RELEASED)) || (state == DEFERRED && next == RELEASED) ||
               (state == RELEASED && (next == SAVING || next == RELEASED)));
        state = next
    }
}

proctype platform()
{
    do
    :: !signalled[0] -> signalled[0] = true
    :: !signalled[1] -> signalled[1] = true
    :: break
    od
}

/* How a program ends: 0 well, 1 killed by mpirun, 2 badly by itself. */
proctype shim(byte me)
{
    mtype program = RUNS;
    byte how = 0;
    bool catches, told;
    mtype state = RUNNING;

    if
    :: catches = true
    :: catches = false
    fi;
    do
    :: program == RUNS -> program = OVER
    :: program == RUNS -> atomic { program = OVER; how = 2; own_failure = true }
    :: program == SAVES -> program = OVER
    :: program != OVER && killed[me] ->
        assert(program != SAVES || unasked_left);
        program = OVER;
        how = 1
    :: to_shim[me]?SIGNAL ->
        if
        :: program == OVER -> go(SAVING)
        :: program != OVER ->
            from_shim[me]!CATCHES(catches);
            if
            :: catches -> program = SAVES; go(SAVING)
            :: !catches -> go(DEFERRED)
            fi
        fi
    :: to_shim[me]?RELEASE ->
        if
        :: state == DEFERRED && program != OVER -> atomic { program = OVER; how = 2; own_failure = true }
        :: else
        fi;
        go(RELEASED)
    :: program == OVER && !told -> from_shim[me]!ENDED(how); told = true
#ifdef BROKEN
    :: told -> break
#else
    :: told && (state == RUNNING || state == RELEASED || killed[me]) -> break
#endif
    od;
    atomic {
        left[me] = true;
        bad_left = bad_left || how > 0;
        unasked_left = unasked_left || state == RUNNING
    }
}

proctype mpirun()
{
    do
    :: ALL_LEFT -> break
    :: bad_left && !ALL_LEFT && !killed[0] -> atomic { killed[0] = true; killed[1] = true }
    od;
    mpirun_over = true
}

/* What the master and the worker do when they are first told of the stop, by the platform or by the other. */
inline stop_master()
{
    if
    :: state != RUNNING
    :: state == RUNNING ->
        go(SAVING);
        to_shim[0]!SIGNAL;
        to_worker!SIGNAL
    fi
}

inline stop_worker()
{
    if
    :: state != RUNNING
    :: state == RUNNING ->
        go(SAVING);
        to_shim[1]!SIGNAL;
        to_master!SIGNAL(0, 0)
    fi
}

inline take_answer(which)
{
    answered[which] = true;
    saving[which] = what && !ended[which]
}

inline take_end(which)
{
    ended[which] = true;
    saving[which] = false;
    if
    :: what > severity -> severity = what
    :: else
    fi
}

#define KNOWN(rank) ((answered[rank] || ended[rank]) && !saving[rank])

proctype master()
{
    mtype state = RUNNING;
    bool linked; /* another host, during the stop */
    bool answered[RANKS], saving[RANKS], ended[RANKS];
    byte severity = 0; /* of the cause */
    byte rank, what;

    do
    :: signalled[0] && state == RUNNING -> stop_master()
    :: to_master?SIGNAL(rank, what) -> stop_master()
    :: from_shim[0]?CATCHES(what) -> take_answer(0)
    :: to_master?CATCHES(rank, what) -> take_answer(rank)
    :: from_shim[0]?ENDED(what) -> take_end(0)
    :: to_master?ENDED(rank, what) -> take_end(rank)
    :: state == RELEASED && !linked -> linked = true; go(SAVING)
    :: state == SAVING && severity > 0 && (saving[0] || saving[1]) -> go(HELD)
    :: (state == SAVING || state == HELD) && KNOWN(0) && KNOWN(1) ->
        go(RELEASED);
        to_shim[0]!RELEASE;
        to_worker!RELEASE
    :: mpirun_over && ended[0] && ended[1] -> break
    od;
    assert(!own_failure || severity == 2);
    to_worker!RESULT
}

proctype worker()
{
    mtype state = RUNNING;
    byte what;

    do
    :: signalled[1] && state == RUNNING -> stop_worker()
    :: to_worker?SIGNAL -> stop_worker()
    :: to_worker?RELEASE -> go(RELEASED); to_shim[1]!RELEASE
    :: to_worker?RESULT -> break
    :: from_shim[1]?CATCHES(what) -> to_master!CATCHES(1, what)
    :: from_shim[1]?ENDED(what) -> to_master!ENDED(1, what)
    od
}

init
{
    atomic {
        run platform();
        run mpirun();
        run shim(0);
        run shim(1);
        run master();
        run worker()
    }
}
