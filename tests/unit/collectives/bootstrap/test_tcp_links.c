/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/bootstrap/tcp_links.c. */
/* The number of TCP connections between two ranks of different jobs. */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/environment.h"
#include "tests/support/unit.h"

/* The connections of a job of Open MPI 4 with the additional variables `more`, NAME=value. */
static unsigned links_with(const char *ranks, const char *hosts, const char *links, const char *more)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *interface;

    ck_ok(pl_environment_new_empty, &environment);
    ck_ok(pl_environment_set, environment, "OMPI_COMM_WORLD_SIZE", ranks);
    ck_ok(pl_environment_set, environment, "OMPI_MCA_orte_num_nodes", hosts);
    ck_ok(pl_environment_set, environment, "OMPI_MCA_btl_tcp_if_include", "ens5");
    ck_ok(pl_environment_set, environment, "OMPI_MCA_btl_tcp_links", links);
    ck_ok(pl_environment_put, environment, more);
    return pl_tcp_links_count(environment, &interface);
}

static unsigned links_of(const char *ranks, const char *hosts, const char *more)
{
    return links_with(ranks, hosts, "", more);
}

/* The connections of a job of two hosts with one rank each that asks for seven. */
static unsigned seven_with(const char *more)
{
    return links_with("2", "2", "7", more);
}

TEST(there_is_one_unless_the_job_says_more)
{
    ck_assert_uint_eq(links_of("2", "2", "X="), 1);
    ck_assert_uint_eq(links_of("3", "3", "OMPI_MCA_pml=ob1"), 1);
    ck_assert_uint_eq(links_of("16", "2", "OMPI_MCA_btl_tcp_links="), 1);
    ck_assert_uint_eq(links_of("16", "2", "OMPI_MCA_btl_tcp_links=3"), 3);
}

TEST(a_job_that_sends_by_other_ways_is_left_alone)
{
    ck_assert_uint_eq(links_of("2", "2", "OMPI_MCA_btl_tcp_links=1"), 1);
    ck_assert_uint_eq(links_of("2", "2", "OMPI_MCA_btl_tcp_links=9"), 9);
    ck_assert_uint_eq(links_of("2", "1", "OMPI_MCA_btl_tcp_links=9"), 1);
    ck_assert_uint_eq(links_of("1", "1", "OMPI_MCA_btl_tcp_links=9"), 1);
    ck_assert_uint_eq(links_of("2", "", "OMPI_MCA_btl_tcp_links=9"), 1); /* Open MPI 5 */
    ck_assert_uint_eq(seven_with("OMPI_MCA_pml=ob1"), 7);
    ck_assert_uint_eq(seven_with("OMPI_MCA_pml=cm"), 1);
    ck_assert_uint_eq(seven_with("OMPI_MCA_btl_tcp_if_include="), 1);
    ck_assert_uint_eq(seven_with("OMPI_MCA_btl_tcp_if_include=eth0,eth1"), 1);
    ck_assert_uint_eq(seven_with("OMPI_MCA_btl_tcp_if_include=10.0.0.0/8"), 1);
}

TEST(open_mpi_is_told_by_the_environment)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    unsigned links = 0;

    ck_ok(pl_environment_export, "OMPI_COMM_WORLD_SIZE", "2");
    ck_ok(pl_environment_export, "OMPI_MCA_orte_num_nodes", "2");
    ck_ok(pl_environment_export, "OMPI_MCA_btl_tcp_if_include", "ens5");
    ck_ok(pl_environment_export, "OMPI_MCA_btl_tcp_links", "7");
    ck_ok(pl_environment_export, "OMPI_MCA_btl_tcp_bandwidth_ens5:1", "40");
    ck_ok(pl_tcp_links_request, &links);
    ck_assert_uint_eq(links, 7);
    ck_ok(pl_environment_new, &environment);
    ck_assert_str_eq(pl_environment_get(environment, "OMPI_MCA_btl_tcp_links"), "7");
    ck_assert_str_eq(pl_environment_get(environment, "OMPI_MCA_btl_tcp_latency_ens5:0"), "100");
    ck_assert_str_eq(pl_environment_get(environment, "OMPI_MCA_btl_tcp_latency_ens5:6"), "100");
    ck_assert_str_eq(pl_environment_get(environment, "OMPI_MCA_btl_tcp_bandwidth_ens5:6"), "100");
    ck_assert_str_eq(pl_environment_get(environment, "OMPI_MCA_btl_tcp_bandwidth_ens5:1"), "40"); /* set by the job */
    ck_assert_ptr_null(pl_environment_get(environment, "OMPI_MCA_btl_tcp_latency_ens5:7"));
}

UNIT_MAIN("collectives/bootstrap/tcp_links")
