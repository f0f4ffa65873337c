/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of tests/integration/tcp_links.sh:
 *
 *   links_probe [stay] RANK...     these ranks initialise MPI themselves, the others leave that to Paceline
 *
 * Prints the sum over all ranks, and the number of its TCP connections to other hosts after that. With `stay`, a rank
 * that Paceline refuses waits for the others in MPI_Finalize().
 */
#include "runtime/paceline.h"

#include <mpi.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

static int count_connections(void)
{
    struct rlimit most = {.rlim_cur = 0};
    int count = 0;

    getrlimit(RLIMIT_NOFILE, &most);
    for (int fd = 0; fd < (int)most.rlim_cur && fd < 4096; fd++) {
        struct sockaddr_in own = {.sin_family = AF_UNSPEC}, peer = {.sin_family = AF_UNSPEC};
        socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);

        count += getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 && own.sin_family == AF_INET &&
                 getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
                 own.sin_addr.s_addr != peer.sin_addr.s_addr;
    }
    return count;
}

static bool is_among(const char *rank, char **words)
{
    while (rank && *words && strcmp(rank, *words) != 0) {
        words++;
    }
    return rank && *words;
}

static enum pl_status run(struct pl_error *reterr)
{
    struct pl_runtime *runtime = NULL;
    float value = 1;

    PL_TRY(pl_runtime_start(&runtime, reterr));
    PL_TRY(pl_allreduce(pl_runtime_world(runtime), &value, &value, 1, PL_FLOAT32, PL_SUM, reterr));
    printf("sum %g, connections %d\n", (double)value, count_connections());
    PL_TRY(pl_barrier(pl_runtime_world(runtime), reterr));
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(int argc, char **argv)
{
    const bool own = is_among(getenv("OMPI_COMM_WORLD_RANK"), argv + 1);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_set_prefix("probe");
    if (own) {
        MPI_Init(&argc, &argv);
    }
    status = run(&error);
    if (status != PL_OK) {
        pl_log_error(&error, "failed");
    }
    if (own && (status == PL_OK || is_among("stay", argv + 1))) {
        MPI_Finalize();
    }
    return status == PL_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
