/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The call check: every rank of a world learns whether all have called the same collective, and which two have not, by
 * small messages besides the data: in ceil(log2 L) rounds to the first of a host's L ranks, ceil(log2 H) between the
 * first ones of H hosts, and back inside. Data of small collectives is sent along (eager). Internal to collectives/.
 */
#ifndef PL_COLLECTIVES_P2P_CHECK_CALLS_H
#define PL_COLLECTIVES_P2P_CHECK_CALLS_H

#include "collectives/bootstrap/transport.h"
#include "collectives/core/backend.h"
#include "collectives/reduce/kernel.h"

enum {
    PL_CHECK_CALLS_ROOM_BYTES = 16384, /* for all ranks' data together, or for their sum */
    PL_CHECK_CALLS_TAGS = 16,          /* tags of a collective: the call check uses the last, data the others */
};

enum { PL_CHECK_CALLS_NONE = -1 }; /* instead of a_rank: no mismatch is known */

/** What ranks send each other about a collective: the record of a call, and the first mismatch that they know of. */
struct pl_check_calls_record {
    struct pl_signature own;
    int32_t a_rank; /* a mismatch: rank a_rank calls a, rank b_rank calls b */
    int32_t b_rank;
    struct pl_signature a; /* these two are sent only where there is one */
    struct pl_signature b;
};

/** Where a rank stands: see check_calls.c. */
enum pl_check_calls_phase { PL_CHECK_CALLS_UP, PL_CHECK_CALLS_BETWEEN, PL_CHECK_CALLS_DOWN };

struct pl_check_calls {
    const struct pl_world *world;
    const struct pl_transport *transport;
    const struct pl_kernel *kernel;
    int size;
    int hosts; /* inside one host every rank counts as a host */
    int host;
    int local;
    int local_size;
    int *starts;  /* [hosts + 1] positions of the hosts' first ranks: ranks have positions host by host */
    int *rank_at; /* [size] by position */
    bool done;
    enum pl_check_calls_phase phase;
    int distance; /* of the round under way */
    int from;     /* the rank whose message it awaits, or -1 */
    int to;       /* the one that it sends to, or -1 */
    uint32_t tag;
    uint64_t block_bytes;          /* of every rank's data that is sent along; 0: none */
    bool summed;                   /* it is added up on the way, by: */
    struct pl_reduction reduction; /* without factors */
    struct pl_transfer in;         /* the two messages of the round */
    struct pl_transfer out;
    struct pl_check_calls_record record;
    char *message_in; /* record and data */
    char *message_out;
    char *gathered; /* a block a position, or the sum */
};

/** Tag of a message of the world's collective number `sequence`; `slot`: 0 to PL_CHECK_CALLS_TAGS - 2 for data. */
uint32_t pl_check_calls_tag(uint64_t sequence, unsigned slot);

enum pl_status pl_check_calls_init(struct pl_check_calls *check, const struct pl_world *world,
                                   struct pl_error *reterr) PL_MUST_CHECK;
void pl_check_calls_done(struct pl_check_calls *check);

/**
 * Begin. `block_bytes` of `data` are sent along from every rank: at most PL_CHECK_CALLS_ROOM_BYTES / n, 0 for none.
 * With a `reduction` they are added up on the way, at most PL_CHECK_CALLS_ROOM_BYTES then, and its prescale is applied,
 * but neither postscale nor divisor: see pl_check_calls_can_sum().
 */
enum pl_status pl_check_calls_start(struct pl_check_calls *check, const struct pl_signature *signature,
                                    const void *data, uint64_t block_bytes, const struct pl_reduction *reduction,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Whether data can be added up on the way: hosts are a power of two, so that all get the same bits. */
bool pl_check_calls_can_sum(const struct pl_check_calls *check);

/**
 * Advance; increases `*progress_count` when something came. After the last round: PL_MISMATCH where ranks disagree.
 */
enum pl_status pl_check_calls_progress(struct pl_check_calls *check, uint64_t *progress_count,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** The data of `rank`, or the sum, once done. */
const void *pl_check_calls_data(const struct pl_check_calls *check, int rank);

/** The rank whose message is awaited, else the one that does not take ours; -1 when neither is. */
int pl_check_calls_waits_for(const struct pl_check_calls *check);

/** Cancel the messages under way; only done may follow. */
void pl_check_calls_cancel(struct pl_check_calls *check);

#endif
