/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the rate of the links between hosts. Hosts form disjoint pairs in each round, as in a tournament. In each
 * round one host of a pair sends to the other for a fixed time, then the other way round. A link that seems too slow is
 * measured again: another process may have had the CPU.
 */
#include "base/clock.h"
#include "programs/check/check.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define MOVES_NS (10 * PL_NS_PER_S)      /* longest wait for a message of the other host */
#define LINKS_NS (12 * PL_NS_PER_S / 10) /* time for all rounds */
#define SLOT_LEAST_NS (15 * PL_NS_PER_MS)
#define SLOT_MOST_NS (300 * PL_NS_PER_MS)
enum {
    TAG_GO = 1,
    TAG_DATA,
    TAG_DONE,
    TIMES_MOST = 3,
    ROUNDS_MOST = 32, /* number of hosts with which each host is measured in a large job */
    WINDOW = 8,       /* messages under way */
    CHUNK_BYTES = 256 * 1024,
};

struct links {
    MPI_Comm peers; /* one rank of each host; a rank's number in `peers` is the number of its host */
    MPI_Comm local; /* the ranks of this host */
    int me, count, rounds;
    int64_t slot_ns;
    /* [hosts]: bytes received from each host, and times of the first and the last. begin_ns is negative, so that the
     * maximum over a host's ranks is the earliest time. */
    double *bytes, *begin_ns, *end_ns;
    char (*transports)[24]; /* [hosts]: transport by which this host sent to each */
    char *buffers;          /* WINDOW * CHUNK_BYTES */
};

static void wait_for(MPI_Request *request)
{
    if (!pl_check_wait_until(request, pl_deadline_after_ns(MOVES_NS))) {
        pl_check_fail("no message between two hosts arrived for 10 s");
    }
}

static void receive_empty(const struct links *links, int peer, int tag)
{
    MPI_Request request;

    MPI_Irecv(NULL, 0, MPI_BYTE, peer, tag, links->peers, &request);
    wait_for(&request);
}

static void send_empty(const struct links *links, int peer, int tag)
{
    MPI_Request request;

    MPI_Isend(NULL, 0, MPI_BYTE, peer, tag, links->peers, &request);
    wait_for(&request);
}

/* Sends messages for the length of a slot. Each begins with a flag for the last one. Empty ones after the last meet
 * the receives that are posted already. */
static void send_slot(struct links *links, int peer)
{
    MPI_Request window[WINDOW];
    struct pl_check_counters before, after;
    uint64_t bytes = 0;
    bool last = false;
    int64_t end_ns;

    pl_check_host_count("", &before);
    for (int i = 0; i < WINDOW; i++) {
        window[i] = MPI_REQUEST_NULL;
    }
    receive_empty(links, peer, TAG_GO);
    end_ns = pl_deadline_after_ns(links->slot_ns);
    for (int i = 0; !last; i = (i + 1) % WINDOW) {
        char *buffer = links->buffers + (size_t)i * CHUNK_BYTES;

        wait_for(&window[i]);
        last = pl_deadline_passed(end_ns) && bytes > CHUNK_BYTES;
        buffer[0] = last;
        MPI_Isend(buffer, CHUNK_BYTES, MPI_BYTE, peer, TAG_DATA, links->peers, &window[i]);
        bytes += CHUNK_BYTES;
    }
    for (int i = 0; i < WINDOW; i++) {
        wait_for(&window[i]);
    }
    for (int i = 1; i < WINDOW; i++) {
        send_empty(links, peer, TAG_DATA);
    }
    receive_empty(links, peer, TAG_DONE);
    pl_check_host_count("", &after);
    pl_check_host_transport(&before, &after, bytes, links->transports[peer], sizeof(links->transports[peer]));
}

static void receive_slot(struct links *links, int peer)
{
    MPI_Request window[WINDOW];
    int64_t begin_ns = 0, end_ns = 0;
    double bytes = 0;
    bool last = false;
    int next = 0;

    for (int i = 0; i < WINDOW; i++) {
        MPI_Irecv(links->buffers + (size_t)i * CHUNK_BYTES, CHUNK_BYTES, MPI_BYTE, peer, TAG_DATA, links->peers,
                  &window[i]);
    }
    send_empty(links, peer, TAG_GO);
    for (; !last; next = (next + 1) % WINDOW) {
        wait_for(&window[next]);
        end_ns = pl_clock_now_ns();
        bytes += begin_ns != 0 ? CHUNK_BYTES : 0; /* the first message starts the clock */
        begin_ns = begin_ns != 0 ? begin_ns : end_ns;
        last = links->buffers[(size_t)next * CHUNK_BYTES] != 0;
        if (!last) {
            MPI_Irecv(links->buffers + (size_t)next * CHUNK_BYTES, CHUNK_BYTES, MPI_BYTE, peer, TAG_DATA, links->peers,
                      &window[next]);
        }
    }
    for (int i = 0; i < WINDOW; i++) {
        wait_for(&window[i]);
    }
    send_empty(links, peer, TAG_DONE);
    links->bytes[peer] = bytes;
    links->begin_ns[peer] = -(double)begin_ns;
    links->end_ns[peer] = (double)end_ns;
}

/* Returns the host that `me` is paired with in a round of a tournament in which each host meets each other one. `even`
 * is the number of hosts, an even number; all pairs of a round are disjoint. */
static int opponent(int me, int round, int even)
{
    const int turning = even - 1;

    if (me == turning) {
        return round;
    }
    return me == round ? turning : (2 * round - me + 2 * turning) % turning;
}

static void run_rounds(struct links *links)
{
    const int even = links->count + links->count % 2;

    links->rounds = even - 1 < ROUNDS_MOST ? even - 1 : ROUNDS_MOST;
    links->slot_ns = LINKS_NS / (2 * links->rounds);
    links->slot_ns = links->slot_ns < SLOT_LEAST_NS  ? SLOT_LEAST_NS
                     : links->slot_ns > SLOT_MOST_NS ? SLOT_MOST_NS
                                                     : links->slot_ns;
    for (int round = 0; round < links->rounds; round++) {
        int peer = opponent(links->me, round, even);

        if (peer < links->count && links->me < peer) {
            send_slot(links, peer);
            receive_slot(links, peer);
        } else if (peer < links->count) {
            receive_slot(links, peer);
            send_slot(links, peer);
        }
    }
}

/* Sums the rates of a host's ranks, which all receive at once, and gathers everything on rank 0, which keeps the
 * best result so far. */
static void gather(struct pl_check_ranks *check, struct links *links)
{
    const int hosts = check->hosts;
    double *sums = pl_check_allocate((size_t)hosts, sizeof(double));
    double *all = pl_check_allocate((size_t)hosts * (size_t)hosts, sizeof(double));
    char(*names)[24] = pl_check_allocate((size_t)hosts * (size_t)hosts, sizeof(*names));
    const bool leads = check->local_rank == 0;

    MPI_Reduce(links->bytes, sums, hosts, MPI_DOUBLE, MPI_SUM, 0, links->local);
    MPI_Reduce(leads ? MPI_IN_PLACE : links->begin_ns, links->begin_ns, hosts, MPI_DOUBLE, MPI_MAX, 0, links->local);
    MPI_Reduce(leads ? MPI_IN_PLACE : links->end_ns, links->end_ns, hosts, MPI_DOUBLE, MPI_MAX, 0, links->local);
    for (int from = 0; from < hosts; from++) {
        sums[from] *= 8e3 / (sums[from] > 0 ? links->begin_ns[from] + links->end_ns[from] : 1); /* Mbit/s */
    }
    if (leads) {
        MPI_Gather(sums, hosts, MPI_DOUBLE, all, hosts, MPI_DOUBLE, 0, links->peers);
        MPI_Gather(links->transports, hosts * 24, MPI_CHAR, names, hosts * 24, MPI_CHAR, 0, links->peers);
    }
    for (int i = 0; i < hosts * hosts && check->rank == 0; i++) {
        struct pl_check_link *link = &check->links[i];
        const int from = i / hosts, to = i % hosts;

        if (all[to * hosts + from] > 0 && all[to * hosts + from] > link->mbit) { /* 0: the two hosts were not paired */
            *link = (struct pl_check_link){.from = from, .to = to, .mbit = all[to * hosts + from]};
            memcpy(link->transport, names[i], sizeof(link->transport));
        }
    }
    free(sums);
    free(all);
    free(names);
}

/* Measures all pairs once. */
static void measure_once(struct pl_check_ranks *check, struct links *links, bool takes_part)
{
    for (int host = 0; host < check->hosts; host++) {
        links->bytes[host] = links->end_ns[host] = 0;
        links->begin_ns[host] = -1e30;
    }
    if (takes_part) {
        run_rounds(links);
    }
    gather(check, links);
}

void pl_check_links_measure(struct pl_check_ranks *check)
{
    const bool takes_part = check->uniform || check->local_rank == 0;
    const size_t hosts = (size_t)check->hosts;
    struct links links = {.me = check->host_of[check->rank], .count = check->hosts};
    int again = check->hosts > 1;

    check->links_count = check->rank == 0 ? hosts * hosts : 0;
    check->links = pl_check_allocate(hosts * hosts, sizeof(*check->links));
    for (size_t i = 0; i < hosts * hosts; i++) {
        check->links[i].mbit = -1;
    }
    links.bytes = pl_check_allocate(hosts, sizeof(double));
    links.begin_ns = pl_check_allocate(hosts, sizeof(double));
    links.end_ns = pl_check_allocate(hosts, sizeof(double));
    links.transports = pl_check_allocate(hosts, sizeof(*links.transports));
    links.buffers = pl_check_allocate(WINDOW, CHUNK_BYTES);
    MPI_Comm_split(MPI_COMM_WORLD, takes_part ? check->local_rank : MPI_UNDEFINED, links.me, &links.peers);
    MPI_Comm_split(MPI_COMM_WORLD, check->host_of[check->rank], check->rank, &links.local);
    for (int i = 0; i < TIMES_MOST && again; i++) {
        measure_once(check, &links, takes_part);
        again = pl_check_evaluate_is_slow(&check->needs, check->links, check->links_count);
        MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    free(links.bytes);
    free(links.begin_ns);
    free(links.end_ns);
    free(links.transports);
    free(links.buffers);
}
