/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of each algorithm as pure functions: ring, Rabenseifner, recursive doubling, trees, chains, pairwise. */
#include "collectives/algorithms/algorithm.h"

static const char *const texts[PL_PATTERN_COUNT] = {
#define PL_PATTERN_ROW(name, text) [PL_PATTERN_##name] = text,
    PL_PATTERN_LIST(PL_PATTERN_ROW)
#undef PL_PATTERN_ROW
};

static const struct pl_step idle = {.to = -1, .from = -1};

const char *pl_pattern_text(enum pl_pattern pattern)
{
    return texts[pattern];
}

/* Largest power of two not above n, and its logarithm. */
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

static int wrap(int place, int n)
{
    return ((place % n) + n) % n;
}

static struct pl_step ring_reduce(int n, int place, int round)
{
    return (struct pl_step){.to = wrap(place + 1, n),
                            .send_first = wrap(place - round - 1, n),
                            .send_blocks = 1,
                            .from = wrap(place - 1, n),
                            .recv_first = wrap(place - round - 2, n),
                            .recv_blocks = 1,
                            .combine = true,
                            .received_left = true};
}

static struct pl_step ring_gather(int n, int place, int round)
{
    return (struct pl_step){.to = wrap(place + 1, n),
                            .send_first = wrap(place - round, n),
                            .send_blocks = 1,
                            .from = wrap(place - 1, n),
                            .recv_first = wrap(place - round - 1, n),
                            .recv_blocks = 1};
}

/*
 * Where n is no power of two, the first 2 * extra positions pair up: the odd one sends its vector to the even one,
 * which takes part for both under the number position / 2, and sends the result back in the end.
 */
struct fold {
    int power;
    int log;
    int extra;
    int number; /* -1: folded away */
};

static struct fold fold_of(int n, int place)
{
    struct fold fold = {.power = power_below(n)};

    fold.log = log_of(fold.power);
    fold.extra = n - fold.power;
    if (place >= 2 * fold.extra) {
        fold.number = place - fold.extra;
    } else {
        fold.number = place % 2 ? -1 : place / 2;
    }
    return fold;
}

static int unfolded(const struct fold *fold, int number)
{
    return number < fold->extra ? 2 * number : number + fold->extra;
}

/* The pairing round: `back` returns results. Positions beyond the pairs are idle. */
static struct pl_step fold_step(const struct fold *fold, int place, int blocks, bool back)
{
    struct pl_step step = idle;
    bool odd = place % 2 != 0;

    if (place >= 2 * fold->extra) {
        return idle;
    }
    if (odd != back) {
        step.to = odd ? place - 1 : place + 1;
        step.send_blocks = blocks;
    } else {
        step.from = odd ? place - 1 : place + 1;
        step.recv_blocks = blocks;
        step.combine = !back;
    }
    return step;
}

static struct pl_step halving(int n, int place, int round)
{
    struct fold fold = fold_of(n, place);
    struct pl_step step = idle;
    int mask;
    int peer;

    if (fold.extra && round == 0) {
        return fold_step(&fold, place, fold.power, false);
    }
    round -= fold.extra ? 1 : 0;
    if (round >= 2 * fold.log) {
        return fold_step(&fold, place, fold.power, true);
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

static struct pl_step doubling(int n, int place, int round)
{
    struct fold fold = fold_of(n, place);
    int peer;

    if (fold.extra && round == 0) {
        return fold_step(&fold, place, 1, false);
    }
    round -= fold.extra ? 1 : 0;
    if (round >= fold.log) {
        return fold_step(&fold, place, 1, true);
    }
    if (fold.number < 0) {
        return idle;
    }
    peer = fold.number ^ (1 << round);
    return (struct pl_step){.to = unfolded(&fold, peer),
                            .send_blocks = 1,
                            .from = unfolded(&fold, peer),
                            .recv_blocks = 1,
                            .combine = true,
                            .received_left = peer < fold.number};
}

/* Binomial tree: in round k, of every 2^(k+1) positions the one at 2^k sends to the first. */
static struct pl_step tree_reduce(int n, int place, int round)
{
    struct pl_step step = idle;
    int mask = 1 << round;

    if (place % mask) {
        return idle;
    }
    if (place & mask) {
        step.to = place - mask;
        step.send_blocks = 1;
    } else if (place + mask < n) {
        step.from = place + mask;
        step.recv_blocks = 1;
        step.combine = true;
    }
    return step;
}

static struct pl_step tree_broadcast(int n, int place, int round)
{
    struct pl_step step = idle;
    int mask = 1 << (log_above(n) - 1 - round);

    if (place % mask) {
        return idle;
    }
    if (place & mask) {
        step.from = place - mask;
        step.recv_blocks = 1;
    } else if (place + mask < n) {
        step.to = place + mask;
        step.send_blocks = 1;
    }
    return step;
}

static struct pl_step chain(int n, int place, int round, bool to_root)
{
    struct pl_step step = idle;
    int before = to_root ? place + 1 : place - 1;
    int after = to_root ? place - 1 : place + 1;

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

static struct pl_step pairwise(int n, int place, int round)
{
    int to = wrap(place + round + 1, n);
    int from = wrap(place - round - 1, n);

    return (struct pl_step){
        .to = to, .send_first = to, .send_blocks = 1, .from = from, .recv_first = from, .recv_blocks = 1};
}

static struct pl_step direct(enum pl_pattern pattern, int n, int place, int root, int round)
{
    struct pl_step step;

    if (round < n - 1) {
        step = pairwise(n, place, round);
        step.aside = true;
        return step;
    }
    round -= n - 1;
    if (pattern == PL_PATTERN_DIRECT) {
        step = pairwise(n, place, round);
        step.send_first = place;
        return step;
    }
    step = idle;
    if (place == root) {
        step.from = wrap(root + round + 1, n);
        step.recv_first = step.from;
        step.recv_blocks = 1;
    } else if (round == 0) {
        step.to = root;
        step.send_first = place;
        step.send_blocks = 1;
    }
    return step;
}

int pl_pattern_rounds(enum pl_pattern pattern, int n)
{
    struct fold fold = fold_of(n, 0);
    int folds = fold.extra ? 2 : 0;

    switch (pattern) {
    case PL_PATTERN_RING:
    case PL_PATTERN_DIRECT:
    case PL_PATTERN_DIRECT_REDUCE:
        return 2 * (n - 1);
    case PL_PATTERN_HALVING:
        return 2 * fold.log + folds;
    case PL_PATTERN_DOUBLING:
        return fold.log + folds;
    case PL_PATTERN_TREE:
        return 2 * log_above(n);
    case PL_PATTERN_RING_REDUCE_SCATTER:
    case PL_PATTERN_RING_ALLGATHER:
    case PL_PATTERN_DIRECT_REDUCE_SCATTER:
    case PL_PATTERN_PAIRWISE:
        return n - 1;
    case PL_PATTERN_TREE_BROADCAST:
    case PL_PATTERN_TREE_REDUCE:
        return log_above(n);
    case PL_PATTERN_CHAIN_BROADCAST:
    case PL_PATTERN_CHAIN_REDUCE:
        return n > 1 ? 2 : 0;
    }
    return 0;
}

int pl_pattern_blocks(enum pl_pattern pattern, int n)
{
    switch (pattern) {
    case PL_PATTERN_RING:
    case PL_PATTERN_DIRECT:
    case PL_PATTERN_RING_REDUCE_SCATTER:
    case PL_PATTERN_RING_ALLGATHER:
    case PL_PATTERN_DIRECT_REDUCE_SCATTER:
    case PL_PATTERN_DIRECT_REDUCE:
    case PL_PATTERN_PAIRWISE:
        return n;
    case PL_PATTERN_HALVING:
        return power_below(n);
    case PL_PATTERN_DOUBLING:
    case PL_PATTERN_TREE:
    case PL_PATTERN_TREE_BROADCAST:
    case PL_PATTERN_CHAIN_BROADCAST:
    case PL_PATTERN_TREE_REDUCE:
    case PL_PATTERN_CHAIN_REDUCE:
        break;
    }
    return 1;
}

/* Algorithms with a root are written for root 0: rotate positions there and back. */
static struct pl_step turned(struct pl_step step, int n, int root)
{
    step.to = step.to < 0 ? -1 : wrap(step.to + root, n);
    step.from = step.from < 0 ? -1 : wrap(step.from + root, n);
    return step;
}

struct pl_step pl_pattern_step(enum pl_pattern pattern, int n, int place, int root, int round)
{
    int turned_place = wrap(place - root, n);

    switch (pattern) {
    case PL_PATTERN_RING:
        return round < n - 1 ? ring_reduce(n, place, round) : ring_gather(n, place, round - (n - 1));
    case PL_PATTERN_RING_REDUCE_SCATTER:
        return ring_reduce(n, place, round);
    case PL_PATTERN_RING_ALLGATHER:
        return ring_gather(n, place, round);
    case PL_PATTERN_HALVING:
        return halving(n, place, round);
    case PL_PATTERN_DOUBLING:
        return doubling(n, place, round);
    case PL_PATTERN_TREE:
        return round < log_above(n) ? tree_reduce(n, place, round) : tree_broadcast(n, place, round - log_above(n));
    case PL_PATTERN_DIRECT:
    case PL_PATTERN_DIRECT_REDUCE:
    case PL_PATTERN_DIRECT_REDUCE_SCATTER:
        return direct(pattern, n, place, root, round);
    case PL_PATTERN_TREE_BROADCAST:
        return turned(tree_broadcast(n, turned_place, round), n, root);
    case PL_PATTERN_TREE_REDUCE:
        return turned(tree_reduce(n, turned_place, round), n, root);
    case PL_PATTERN_CHAIN_BROADCAST:
        return turned(chain(n, turned_place, round, false), n, root);
    case PL_PATTERN_CHAIN_REDUCE:
        return turned(chain(n, turned_place, round, true), n, root);
    case PL_PATTERN_PAIRWISE:
        return pairwise(n, place, round);
    }
    return idle;
}

bool pl_pattern_gathers(enum pl_pattern pattern, int n, int round)
{
    return round == n - 2 && (pattern == PL_PATTERN_DIRECT || pattern == PL_PATTERN_DIRECT_REDUCE ||
                              pattern == PL_PATTERN_DIRECT_REDUCE_SCATTER);
}
