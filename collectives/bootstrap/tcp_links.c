/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several TCP connections between two ranks, to use the whole rate of a network that limits each connection to a part
 * of it (EC2: 5 Gbit/s).
 *
 * Open MPI's own parameter for this, btl_tcp_links, gains nothing without further settings and can hang (4.1.4; 5.0.6
 * has the same code):
 *
 * - mca_btl_tcp_create() gives every connection but the first twice the latency, and bml/r2 sends messages up to the
 *   eager limit, which all of ours are, only over those of the least latency. The parameters `btl_tcp_latency_IF:N` and
 *   `btl_tcp_bandwidth_IF:N`, which exist for each connection of an interface, make them equal.
 * - Each MPI_Isend takes two turns of the connections: mca_pml_ob1_send_inline() takes one before it finds that TCP
 *   cannot send inline. So only half of an even number of connections are used, but all of an odd number.
 * - If both ends connect at once, mca_btl_tcp_proc_accept() finds no endpoint closed and gives every connection to the
 *   last one, which has room for one: the others are forgotten, and messages queued for them never leave. So one end of
 *   a pair opens all its connections, before anything else is sent.
 *
 * Because of the last point only a process whose MPI was initialised here may have several connections;
 * pl_bootstrap_new_mpi() fails in other processes. And mca_btl_tcp_proc_create() makes room for one more connection
 * than the peer offers: all ranks need the same number before MPI_Init(), or memory is overwritten.
 */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/environment.h"

#include <stdio.h>
#include <string.h>

static unsigned number_of(const struct pl_environment *environment, const char *name)
{
    unsigned number = 0;

    /* Open MPI reads the variable too, and reports a value that is not a number */
    return pl_environment_get_number_or(environment, name, 0, 1U << 20, &number, NULL) == PL_OK ? number : 0;
}

static bool goes_over_tcp(const struct pl_environment *environment, const char **ret_interface)
{
    const char *interface = pl_environment_get_or(environment, "OMPI_MCA_btl_tcp_if_include", "");
    const char *messaging = pl_environment_get_or(environment, "OMPI_MCA_pml", "ob1");

    *ret_interface = interface;
    return *interface && !strpbrk(interface, ",/") && strcmp(messaging, "ob1") == 0;
}

unsigned pl_tcp_links_count(const struct pl_environment *environment, const char **ret_interface)
{
    unsigned ranks = number_of(environment, "OMPI_COMM_WORLD_SIZE");
    unsigned hosts = number_of(environment, "OMPI_MCA_orte_num_nodes");
    unsigned own = number_of(environment, "OMPI_MCA_btl_tcp_links");

    if (!goes_over_tcp(environment, ret_interface) || hosts < 2 || ranks <= 1) {
        return 1;
    }
    return own > 0 ? own : 1;
}

static enum pl_status make_equal(const char *what, const char *interface, unsigned link, struct pl_error *reterr)
{
    char name[128];

    snprintf(name, sizeof(name), "OMPI_MCA_btl_tcp_%s_%s:%u", what, interface, link);
    return pl_environment_export(name, "100", reterr);
}

enum pl_status pl_tcp_links_request(unsigned *ret_links, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *interface;

    PL_TRY(pl_environment_new(&environment, reterr));
    *ret_links = pl_tcp_links_count(environment, &interface);
    if (*ret_links == 1) {
        return PL_OK;
    }
    for (unsigned link = 0; link < *ret_links; link++) {
        PL_TRY(make_equal("latency", interface, link, reterr));
        PL_TRY(make_equal("bandwidth", interface, link, reterr));
    }
    return PL_OK;
}
