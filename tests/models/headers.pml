/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives/shm/run.c: heads in two alternating slots. Each rank posts number s, reads the data beside all heads of s and goes on.
 * -DBROKEN uses one slot: a fast rank then overwrites what a slow one still reads.
 */
#define RANKS 3
#define OPS 4
#ifdef BROKEN
#define SLOT(rank, s) (rank)
#else
#define SLOT(rank, s) ((rank) * 2 + ((s) & 1))
#endif

byte sequence[RANKS * 2];
byte data[RANKS * 2];

proctype rank(byte me)
{
    byte s = 1;
    byte other;
    do
    :: s > OPS -> break
    :: else ->
        data[SLOT(me, s)] = s;
        sequence[SLOT(me, s)] = s;
        other = 0;
        do
        :: other == RANKS -> break
        :: other < RANKS && sequence[SLOT(other, s)] >= s ->
            assert(data[SLOT(other, s)] == s);
            other++
        od;
        s++
    od
}

init {
    atomic { run rank(0); run rank(1); run rank(2) }
}
