/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of each algorithm as pure functions: ring, Rabenseifner, recursive doubling, trees, chains, pairwise. */
#include "collectives/algorithms/algorithm.h"

static const char *const texts[PL_ALGORITHM_COUNT] = {
#define PL_ALGORITHM_ROW(name, text) [PL_ALGORITHM_##name] = text,
    PL_ALGORITHM_LIST(PL_ALGORITHM_ROW)
#undef PL_ALGORITHM_ROW
};

static const struct pl_algorithm_step idle = {.to = -1, .from = -1};

const char *pl_algorithm_text(enum pl_algorithm algorithm)
{
    return texts[algorithm];
}

/* Largest power of two not above n. */
static int power_below(int n)
{
    int power = 1;

    while (power <= n / 2) {
        power *= 2;
    }
    return power;
}

static int log_of(int power)
{
    int log = 0;

    while (power >> (log + 1)) {
        log++;
    }
    return log;
}

static int log_above(int n)
{
    int log = log_of(n);

    return 1 << log < n ? log + 1 : log;
}

static int wrap(int position, int n)
{
    return ((position % n) + n) % n;
}

static struct pl_algorithm_step ring_reduce(int n, int position, int round)
{
    return (struct pl_algorithm_step){.to = wrap(position + 1, n),
                                      .send_first = wrap(position - round - 1, n),
                                      .send_blocks = 1,
                                      .from = wrap(position - 1, n),
                                      .recv_first = wrap(position - round - 2, n),
                                      .recv_blocks = 1,
                                      .combine = true,
                                      .received_left = true};
}

static struct pl_algorithm_step ring_gather(int n, int position, int round)
{
    return (struct pl_algorithm_step){.to = wrap(position + 1, n),
                                      .send_first = wrap(position - round, n),
                                      .send_blocks = 1,
                                      .from = wrap(position - 1, n),
                                      .recv_first = wrap(position - round - 1, n),
                                      .recv_blocks = 1};
}

/*
 * If n is not a power of two, the first 2 * extra positions form pairs. The odd position of a pair sends its vector to
 * the even one, which takes part for both under the number position / 2 and sends the result back at the end.
 */
struct fold {
    int power;
    int log;
    int extra;
    int number; /* number among the positions that take part; -1: takes no part */
};

static struct fold fold_of(int n, int position)
{
    struct fold fold = {.power = power_below(n)};

    fold.log = log_of(fold.power);
    fold.extra = n - fold.power;
    if (position >= 2 * fold.extra) {
        fold.number = position - fold.extra;
    } else {
        fold.number = position % 2 ? -1 : position / 2;
    }
    return fold;
}

static int unfolded(const struct fold *fold, int number)
{
    return number < fold->extra ? 2 * number : number + fold->extra;
}

/* A step of the round in which pairs exchange; it returns results if `back`. Positions above the pairs are idle. */
static struct pl_algorithm_step fold_step(const struct fold *fold, int position, int blocks, bool back)
{
    struct pl_algorithm_step step = idle;
    bool odd = position % 2 != 0;

    if (position >= 2 * fold->extra) {
        return idle;
    }
    if (odd != back) {
        step.to = odd ? position - 1 : position + 1;
        step.send_blocks = blocks;
    } else {
        step.from = odd ? position - 1 : position + 1;
        step.recv_blocks = blocks;
        step.combine = !back;
    }
    return step;
}

static struct pl_algorithm_step halving(int n, int position, int round)
{
    struct fold fold = fold_of(n, position);
    struct pl_algorithm_step step = idle;
    int mask;
    int peer;

    if (fold.extra && round == 0) {
        return fold_step(&fold, position, fold.power, false);
    }
    round -= fold.extra ? 1 : 0;
    if (round >= 2 * fold.log) {
        return fold_step(&fold, position, fold.power, true);
    }
    if (fold.number < 0) {
        return idle;
    }
    if (round < fold.log) {
        mask = fold.power >> (round + 1);
        peer = fold.number ^ mask;
        step.send_first = peer & ~(mask - 1);
        step.recv_first = fold.number & ~(mask - 1);
        step.combine = true;
    } else {
        mask = 1 << (round - fold.log);
        peer = fold.number ^ mask;
        step.send_first = fold.number & ~(mask - 1);
        step.recv_first = peer & ~(mask - 1);
    }
    step.to = unfolded(&fold, peer);
    step.from = step.to;
    step.send_blocks = mask;
    step.recv_blocks = mask;
    step.received_left = peer < fold.number;
    return step;
}

static struct pl_algorithm_step doubling(int n, int position, int round)
{
    struct fold fold = fold_of(n, position);
    int peer;

    if (fold.extra && round == 0) {
        return fold_step(&fold, position, 1, false);
    }
    round -= fold.extra ? 1 : 0;
    if (round >= fold.log) {
        return fold_step(&fold, position, 1, true);
    }
    if (fold.number < 0) {
        return idle;
    }
    peer = fold.number ^ (1 << round);
    return (struct pl_algorithm_step){.to = unfolded(&fold, peer),
                                      .send_blocks = 1,
                                      .from = unfolded(&fold, peer),
                                      .recv_blocks = 1,
                                      .combine = true,
                                      .received_left = peer < fold.number};
}

/* Binomial tree: in round k, the position at 2^k of each group of 2^(k+1) sends to the group's first. */
static struct pl_algorithm_step tree_reduce(int n, int position, int round)
{
    struct pl_algorithm_step step = idle;
    int mask = 1 << round;

    if (position % mask) {
        return idle;
    }
    if (position & mask) {
        step.to = position - mask;
        step.send_blocks = 1;
    } else if (position + mask < n) {
        step.from = position + mask;
        step.recv_blocks = 1;
        step.combine = true;
    }
    return step;
}

static struct pl_algorithm_step tree_broadcast(int n, int position, int round)
{
    struct pl_algorithm_step step = idle;
    int mask = 1 << (log_above(n) - 1 - round);

    if (position % mask) {
        return idle;
    }
    if (position & mask) {
        step.from = position - mask;
        step.recv_blocks = 1;
    } else if (position + mask < n) {
        step.to = position + mask;
        step.send_blocks = 1;
    }
    return step;
}

static struct pl_algorithm_step chain(int n, int position, int round, bool to_root)
{
    struct pl_algorithm_step step = idle;
    int before = to_root ? position + 1 : position - 1;
    int after = to_root ? position - 1 : position + 1;

    if (round == 0 && before >= 0 && before < n) {
        step.from = before;
        step.recv_blocks = 1;
        step.combine = to_root;
    } else if (round == 1 && after >= 0 && after < n) {
        step.to = after;
        step.send_blocks = 1;
    }
    return step;
}

static struct pl_algorithm_step pairwise(int n, int position, int round)
{
    int to = wrap(position + round + 1, n);
    int from = wrap(position - round - 1, n);

    return (struct pl_algorithm_step){
        .to = to, .send_first = to, .send_blocks = 1, .from = from, .recv_first = from, .recv_blocks = 1};
}

static struct pl_algorithm_step direct(enum pl_algorithm algorithm, int n, int position, int root, int round)
{
    struct pl_algorithm_step step;

    if (round < n - 1) {
        step = pairwise(n, position, round);
        step.per_sender = true;
        return step;
    }
    round -= n - 1;
    if (algorithm == PL_ALGORITHM_DIRECT) {
        step = pairwise(n, position, round);
        step.send_first = position;
        return step;
    }
    step = idle;
    if (position == root) {
        step.from = wrap(root + round + 1, n);
        step.recv_first = step.from;
        step.recv_blocks = 1;
    } else if (round == 0) {
        step.to = root;
        step.send_first = position;
        step.send_blocks = 1;
    }
    return step;
}

int pl_algorithm_rounds(enum pl_algorithm algorithm, int n)
{
    struct fold fold = fold_of(n, 0);
    int folds = fold.extra ? 2 : 0;

    switch (algorithm) {
    case PL_ALGORITHM_RING:
    case PL_ALGORITHM_DIRECT:
    case PL_ALGORITHM_DIRECT_REDUCE:
        return 2 * (n - 1);
    case PL_ALGORITHM_HALVING:
        return 2 * fold.log + folds;
    case PL_ALGORITHM_DOUBLING:
        return fold.log + folds;
    case PL_ALGORITHM_TREE:
        return 2 * log_above(n);
    case PL_ALGORITHM_RING_REDUCE_SCATTER:
    case PL_ALGORITHM_RING_ALLGATHER:
    case PL_ALGORITHM_DIRECT_REDUCE_SCATTER:
    case PL_ALGORITHM_PAIRWISE:
        return n - 1;
    case PL_ALGORITHM_TREE_BROADCAST:
    case PL_ALGORITHM_TREE_REDUCE:
        return log_above(n);
    case PL_ALGORITHM_CHAIN_BROADCAST:
    case PL_ALGORITHM_CHAIN_REDUCE:
        return n > 1 ? 2 : 0;
    }
    return 0;
}

int pl_algorithm_blocks(enum pl_algorithm algorithm, int n)
{
    switch (algorithm) {
    case PL_ALGORITHM_RING:
    case PL_ALGORITHM_DIRECT:
    case PL_ALGORITHM_RING_REDUCE_SCATTER:
    case PL_ALGORITHM_RING_ALLGATHER:
    case PL_ALGORITHM_DIRECT_REDUCE_SCATTER:
    case PL_ALGORITHM_DIRECT_REDUCE:
    case PL_ALGORITHM_PAIRWISE:
        return n;
    case PL_ALGORITHM_HALVING:
        return power_below(n);
    case PL_ALGORITHM_DOUBLING:
    case PL_ALGORITHM_TREE:
    case PL_ALGORITHM_TREE_BROADCAST:
    case PL_ALGORITHM_CHAIN_BROADCAST:
    case PL_ALGORITHM_TREE_REDUCE:
    case PL_ALGORITHM_CHAIN_REDUCE:
        break;
    }
    return 1;
}

/* Rotates a step's positions: algorithms with a root are written for root 0. */
static struct pl_algorithm_step rotated(struct pl_algorithm_step step, int n, int root)
{
    step.to = step.to < 0 ? -1 : wrap(step.to + root, n);
    step.from = step.from < 0 ? -1 : wrap(step.from + root, n);
    return step;
}

struct pl_algorithm_step pl_algorithm_step_at(enum pl_algorithm algorithm, int n, int position, int root, int round)
{
    int turned_place = wrap(position - root, n);

    switch (algorithm) {
    case PL_ALGORITHM_RING:
        return round < n - 1 ? ring_reduce(n, position, round) : ring_gather(n, position, round - (n - 1));
    case PL_ALGORITHM_RING_REDUCE_SCATTER:
        return ring_reduce(n, position, round);
    case PL_ALGORITHM_RING_ALLGATHER:
        return ring_gather(n, position, round);
    case PL_ALGORITHM_HALVING:
        return halving(n, position, round);
    case PL_ALGORITHM_DOUBLING:
        return doubling(n, position, round);
    case PL_ALGORITHM_TREE:
        return round < log_above(n) ? tree_reduce(n, position, round)
                                    : tree_broadcast(n, position, round - log_above(n));
    case PL_ALGORITHM_DIRECT:
    case PL_ALGORITHM_DIRECT_REDUCE:
    case PL_ALGORITHM_DIRECT_REDUCE_SCATTER:
        return direct(algorithm, n, position, root, round);
    case PL_ALGORITHM_TREE_BROADCAST:
        return rotated(tree_broadcast(n, turned_place, round), n, root);
    case PL_ALGORITHM_TREE_REDUCE:
        return rotated(tree_reduce(n, turned_place, round), n, root);
    case PL_ALGORITHM_CHAIN_BROADCAST:
        return rotated(chain(n, turned_place, round, false), n, root);
    case PL_ALGORITHM_CHAIN_REDUCE:
        return rotated(chain(n, turned_place, round, true), n, root);
    case PL_ALGORITHM_PAIRWISE:
        return pairwise(n, position, round);
    }
    return idle;
}

bool pl_algorithm_reduces_per_sender(enum pl_algorithm algorithm, int n, int round)
{
    return round == n - 2 && (algorithm == PL_ALGORITHM_DIRECT || algorithm == PL_ALGORITHM_DIRECT_REDUCE ||
                              algorithm == PL_ALGORITHM_DIRECT_REDUCE_SCATTER);
}
