/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives/shm/zero_copy.c: direct collectives. Between two of them a rank rewrites its own arena buffer; during one, others read it and
 * write results to it. -DBROKEN leaves without waiting for the others' "done" word.
 */
#define RANKS 3
#define OPS 3

byte head[RANKS * 2];
byte let_go[RANKS];
byte buffer[RANKS * RANKS]; /* buffer[owner * RANKS + share]: 2 * s when produced for s, 2 * s + 1 when reduced */

proctype rank(byte me)
{
    byte s = 1;
    byte other;
    do
    :: s > OPS -> break
    :: else ->
        other = 0; /* produce */
        do
        :: other == RANKS -> break
        :: else -> buffer[me * RANKS + other] = 2 * s; other++
        od;
        head[me * 2 + (s & 1)] = s;
        other = 0;
        do
        :: other == RANKS -> break
        :: other < RANKS && head[other * 2 + (s & 1)] >= s -> other++
        od;
        other = 0; /* reduce this rank's share of all buffers */
        do
        :: other == RANKS -> break
        :: else -> assert(buffer[other * RANKS + me] == 2 * s); other++
        od;
        other = 0;
        do
        :: other == RANKS -> break
        :: else -> buffer[other * RANKS + me] = 2 * s + 1; other++
        od;
        let_go[me] = s;
        other = 0;
        do
        :: other == RANKS -> break
#ifdef BROKEN
        :: other < RANKS -> other++
#else
        :: other < RANKS && let_go[other] >= s -> other++
#endif
        od;
        other = 0; /* consume */
        do
        :: other == RANKS -> break
        :: else -> assert(buffer[me * RANKS + other] == 2 * s + 1); other++
        od;
        s++
    od
}

init {
    atomic { run rank(0); run rank(1); run rank(2) }
}
