/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives/shm/staged.c: an allreduce of ROUNDS rounds through DEPTH rounds of staging memory. Any step whose condition holds may
 * come next, which covers every order that the code prefers. Contents carry the round they belong to.
 * -DBROKEN stages ahead without regard to DEPTH.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifdef BROKEN
#define ROOM true
#else
#define ROOM (staged[me] - finished < DEPTH)
#endif
#define ROUNDS 4
#define DEPTH 2
#define PART(owner, round, part) (((owner) * DEPTH + (round) % DEPTH) * RANKS + (part))

byte staged[RANKS];
byte consumed[RANKS];
byte memory[RANKS * DEPTH * RANKS]; /* 2 * (round + 1) staged, 2 * (round + 1) + 1 reduced */

#define AT_LEAST(word, least) (word[0] >= (least) && word[1] >= (least) && word[RANKS - 1] >= (least))

proctype rank(byte me)
{
    byte finished = 0;
    byte other;
    do
    :: finished == ROUNDS -> break
    :: staged[me] < ROUNDS && ROOM ->
        other = 0;
        do
        :: other == RANKS -> break
        :: other < RANKS && other == me -> other++
        :: other < RANKS && other != me -> memory[PART(me, staged[me], other)] = 2 * (staged[me] + 1); other++
        od;
        staged[me]++
    :: consumed[me] < staged[me] && AT_LEAST(staged, consumed[me] + 1) ->
        other = 0;
        do
        :: other == RANKS -> break
        :: other < RANKS && other == me -> other++
        :: other < RANKS && other != me ->
            assert(memory[PART(other, consumed[me], me)] == 2 * (consumed[me] + 1));
            memory[PART(other, consumed[me], me)] = 2 * (consumed[me] + 1) + 1;
            other++
        od;
        consumed[me]++
    :: finished < consumed[me] && AT_LEAST(consumed, finished + 1) ->
        other = 0;
        do
        :: other == RANKS -> break
        :: other < RANKS && other == me -> other++
        :: other < RANKS && other != me -> assert(memory[PART(me, finished, other)] == 2 * (finished + 1) + 1); other++
        od;
        finished++
    od
}

init {
    atomic {
        run rank(0);
        run rank(1);
#if RANKS > 2
        run rank(2)
#endif
    }
}
