/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The call check: every rank of a world learns whether all have called the same collective, and if not, two calls that
 * differ. It uses small messages next to the data: ceil(log2 L) rounds to the first of a host's L ranks, ceil(log2 H)
 * rounds between the first ranks of H hosts, and back inside the hosts. Data of small collectives is sent along
 * (eager). Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_P2P_CHECK_CALLS_H
#define PL_COLLECTIVES_P2P_CHECK_CALLS_H

#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/reduce/kernel.h"

enum {
    PL_CHECK_CALLS_ROOM_BYTES = 16384, /* limit for the data of all ranks together, or for its sum */
    PL_CHECK_CALLS_TAGS = 16,          /* tags per collective: the call check uses the last one, data the others */
};

enum { PL_CHECK_CALLS_NONE = -1 }; /* value of a_rank if no mismatch is known */

/** Message of the call check: the record of a call, and the first mismatch that the sender knows. */
struct pl_check_calls_record {
    struct pl_signature own;
    int32_t a_rank; /* the mismatch: rank a_rank calls `a`, rank b_rank calls `b` */
    int32_t b_rank;
    struct pl_signature a; /* this and `b` are sent only if there is a mismatch */
    struct pl_signature b;
};

/** Phase of the call check: see check_calls.c. */
enum pl_check_calls_phase { PL_CHECK_CALLS_UP, PL_CHECK_CALLS_BETWEEN, PL_CHECK_CALLS_DOWN };

struct pl_check_calls {
    const struct pl_world *world;
    const struct pl_transport *transport;
    const struct pl_kernel *kernel;
    int size;
    int hosts; /* number of hosts; on a single host every rank counts as a host */
    int host;
    int local;
    int local_size;
    int *starts;  /* [hosts + 1]: positions of the hosts' first ranks; positions count host by host */
    int *rank_at; /* [size]: rank at each position */
    bool done;
    enum pl_check_calls_phase phase;
    int distance; /* distance of the round under way */
    int from;     /* rank whose message this one waits for; -1: no rank */
    int to;       /* rank that this one sends to; -1: no rank */
    uint32_t tag;
    uint64_t block_bytes;          /* size of every rank's data that is sent along; may be 0 */
    bool summed;                   /* whether the data is reduced on the way, by `reduction` */
    struct pl_reduction reduction; /* has no divisor and no postscale */
    struct pl_transfer in;         /* the messages of the round: `in` is received, `out` is sent */
    struct pl_transfer out;
    struct pl_check_calls_record record;
    char *message_in; /* a record and data */
    char *message_out;
    char *gathered; /* data of all ranks: one block per position, or the sum */
};

/** Tag of a data message of the world's collective `number`; `slot` is 0 to PL_CHECK_CALLS_TAGS - 2. */
uint32_t pl_check_calls_tag(uint64_t number, unsigned slot);

enum pl_status pl_check_calls_init(struct pl_check_calls *check, const struct pl_world *world,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_check_calls_done(struct pl_check_calls *check);

/**
 * Start the check. Every rank sends `block_bytes` of `data` along, at most PL_CHECK_CALLS_ROOM_BYTES / n; may be 0.
 * With a `reduction` the data is reduced on the way and may have PL_CHECK_CALLS_ROOM_BYTES. The reduction's prescale is
 * applied, but not its postscale and divisor: see pl_check_calls_can_sum().
 */
enum pl_status pl_check_calls_start(struct pl_check_calls *check, const struct pl_signature *signature,
                                    const void *data, uint64_t block_bytes, const struct pl_reduction *reduction,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** End the check at once, without messages and data, because the ranks have agreed on the call before (PL_AGREED). */
void pl_check_calls_skip(struct pl_check_calls *check);

/**
 * Whether data can be reduced on the way: the number of hosts is a power of two, so that all ranks get the same bits.
 */
bool pl_check_calls_can_sum(const struct pl_check_calls *check);

/** Advance; increases `*progress_count` if a message has come. After the last round, PL_MISMATCH if ranks disagree. */
enum pl_status pl_check_calls_progress(struct pl_check_calls *check, uint64_t *progress_count,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the data of `rank`, or the sum of all ranks' data; valid when the check is done. */
const void *pl_check_calls_data(const struct pl_check_calls *check, int rank);

/** The rank whose message this one waits for; if none, the rank that has not taken this one's message; if none, -1. */
int pl_check_calls_waits_for(const struct pl_check_calls *check);

/** Cancel the messages under way; only pl_check_calls_done() may follow. */
void pl_check_calls_cancel(struct pl_check_calls *check);

#endif
