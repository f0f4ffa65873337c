/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives/shm/eventcount.c: publishing and sleeping. A sleeper's futex wait has no timeout here, so a lost wake-up is a deadlock.
 * -DBROKEN leaves out the look at the word after announcing the sleep, which loses wake-ups.
 */
#define SLEEPERS 2

byte words = 0;          /* published so far: 2 publishers, one each */
byte sleepers = 0;
byte bell = 0;
bool waits[SLEEPERS];    /* inside the kernel */

proctype publisher()
{
    byte before;
    d_step { words++ }
    before = sleepers;
    if
    :: before > 0 ->
        bell++;                                       /* atomic_fetch_add */
        d_step { waits[0] = false; waits[1] = false } /* FUTEX_WAKE */
    :: else
    fi
}

proctype sleeper(byte me)
{
    byte heard;
    do
    :: words == 2 -> break
    :: words < 2 ->
        heard = bell;
        d_step { sleepers++ }
        if
#ifndef BROKEN
        :: words == 2 -> skip
        :: words < 2 ->
#else
        :: true ->
#endif
            /* FUTEX_WAIT: the kernel compares and queues as one. A rank sleeps only while something is missing. */
            atomic {
                if
                :: bell == heard -> waits[me] = true
                :: else
                fi
            }
            !waits[me]
        fi;
        d_step { sleepers-- }
    od
}

init {
    atomic { run publisher(); run publisher(); run sleeper(0); run sleeper(1) }
}
