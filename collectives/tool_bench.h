/* SPDX-License-Identifier: Apache-2.0 */
/** What tool_bench.c and its peer share. */
#ifndef PL_COLLECTIVES_TOOL_BENCH_H
#define PL_COLLECTIVES_TOOL_BENCH_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Initialise MPI as a plain MPI program would, so that the peer pays for no thread support. False without MPI. */
bool bench_peer_start(void);

/** MPI_Allreduce of a sum, in place, in calls of at most `piece_bytes`. False where MPI has no such type. */
bool bench_peer_allreduce(void *data, uint64_t count, enum pl_dtype dtype, uint64_t piece_bytes);

void bench_peer_end(void);

#endif
