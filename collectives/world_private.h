/* SPDX-License-Identifier: Apache-2.0 */
/** The inside of a world, for the files that make it up: world.c, topology.c, request.c, arena.c. Backends use backend.h. */
#ifndef PL_COLLECTIVES_WORLD_PRIVATE_H
#define PL_COLLECTIVES_WORLD_PRIVATE_H

#include "collectives/backend.h"

enum { PL_WORLD_MAX_BACKENDS = 4 };

/** A backend of the table as this world sees it. */
struct pl_world_backend {
    const struct pl_backend *backend;
    bool on;
    void *state;
    char reason[PL_BACKEND_REASON_BYTES]; /* why it is off */
};

struct pl_topology {
    int *host_of;  /* [size] */
    int *local_of; /* [size]: rank among those of its host */
    pid_t *pid_of; /* [size]: 0 on other hosts */
    int *order;    /* [size]: ring place -> rank */
    int *labels;   /* [size]: see pl_world_label() */
    int hosts;
    int local_size; /* of this rank's host */
    bool homogeneous;
    bool one_process;
    bool oversubscribed;
};

/** A piece of arena memory in a world whose ranks share none. */
struct pl_private_span {
    struct pl_private_span *next;
    void *data;
    uint64_t offset_bytes;
};

struct pl_world {
    struct pl_bootstrap *bootstrap;
    bool owns_bootstrap;
    int rank;
    int size;
    struct pl_topology topology;
    struct pl_knobs knobs;
    struct pl_world_backend backends[PL_WORLD_MAX_BACKENDS];
    int backend_count;
    int64_t timeout_ns; /* negative: none */
    int64_t spin_ns;
    unsigned wire_flag; /* of float32 allreduces, by the setting wire_type */

    struct pl_private_span *private_spans;
    uint64_t private_bytes; /* handed out so far: names the next piece */

    uint64_t sequence;
    struct pl_request *first; /* the one that runs */
    struct pl_request *last;
    struct pl_request *unused;
    struct pl_observer observer; /* all zero while nobody observes */
    struct pl_error failure;     /* sticky; status PL_OK while all is well */
};

/** Find out who shares a host. `inherit` (a parent world and the parent's rank of each of ours) skips the handshake. */
enum pl_status pl_topology_init(struct pl_topology *topology, struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                                const struct pl_world *parent, const int *parent_ranks, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;
void pl_topology_done(struct pl_topology *topology);

/** Check `collective` and copy it, normalised, with its signature, to `request`. */
enum pl_status pl_collective_check(const struct pl_world *world, const struct pl_collective *collective, struct pl_request *request,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Cancel and release all requests of a world that is going away. */
void pl_request_drop_all(struct pl_world *world);

/** Release arena memory that is still allocated. */
void pl_arena_drop_all(struct pl_world *world);

#endif
