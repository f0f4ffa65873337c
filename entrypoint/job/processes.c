/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the processes of each host from the hyperparameters, the instance groups and this host's devices. */
#include "entrypoint/job/processes.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char per_host[] = "sagemaker_mpi_num_of_processes_per_host";

static bool is_given(const struct pl_python_json *node)
{
    return node && pl_python_json_kind(node) != PL_PYTHON_JSON_NULL &&
           (pl_python_json_kind(node) != PL_PYTHON_JSON_STRING || *pl_python_json_text(node) != '\0');
}

/* Read a count that is a number or a text. `*ret_value` stays unchanged if it is absent or null. */
static enum pl_status read_count(const struct pl_python_json *node, const char *name, int *ret_value,
                                 struct pl_error *reterr)
{
    const char *text;
    char *end = NULL;
    long value;

    if (!is_given(node)) {
        return PL_OK;
    }
    text = pl_python_json_text(node);
    value = strtol(text, &end, 10);
    if ((pl_python_json_kind(node) != PL_PYTHON_JSON_INT && pl_python_json_kind(node) != PL_PYTHON_JSON_STRING) ||
        *end != '\0' || value < 1 || value > PL_JOB_PROCESSES_MAX) {
        PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;

        pl_python_json_print(node, PL_PYTHON_JSON_SPACED, &found);
        return pl_error_set(reterr, PL_INVALID, "hyperparameter %s: expected a whole number from 1 to %d, found %.60s",
                            name, PL_JOB_PROCESSES_MAX, pl_text_string(&found));
    }
    *ret_value = (int)value;
    return PL_OK;
}

static const char *group_name(const struct pl_python_json *group)
{
    return pl_python_json_text(pl_python_json_member(group, "instance_group_name"));
}

static bool has_group(const struct pl_job *job, const char *name)
{
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    while (group && strcmp(group_name(group), name) != 0) {
        group = pl_python_json_next(group);
    }
    return group;
}

/* Check each name and each count of {"GROUP": COUNT, ...}. */
static enum pl_status check_by_group(const struct pl_job *job, const struct pl_python_json *counts,
                                     struct pl_error *reterr)
{
    int ignored;

    for (const struct pl_python_json *count = pl_python_json_first(counts); count; count = pl_python_json_next(count)) {
        if (!has_group(job, pl_python_json_name(count))) {
            return pl_error_set(reterr, PL_INVALID,
                                "hyperparameter %s: expected names of instance_groups in resourceconfig.json, found "
                                "'%.200s'",
                                per_host, pl_python_json_name(count));
        }
        PL_TRY(read_count(count, per_host, &ignored, reterr));
    }
    return PL_OK;
}

/* Returns the number for the hosts of a group in `counts`, which has been checked; 0 if there is none. */
static int named_for(const struct pl_python_json *counts, const char *group)
{
    int value = 0;

    if (counts && pl_python_json_kind(counts) == PL_PYTHON_JSON_OBJECT) {
        counts = pl_python_json_member(counts, group);
    }
    return read_count(counts, per_host, &value, NULL) == PL_OK ? value : 0;
}

/* Whether the hosts of `group` have the same devices as this host, as far as the file says. */
static bool is_like_here(const struct pl_job *job, const struct pl_python_json *group)
{
    const struct pl_python_json *type = pl_python_json_member(group, "instance_type");

    return strcmp(group_name(group), job->group_name) == 0 || !type ||
           pl_python_json_kind(type) != PL_PYTHON_JSON_STRING ||
           strcmp(pl_python_json_text(type), job->instance_type) == 0;
}

/* Fill host_processes for the hosts of each group. Hosts without a group get as many processes as this host. */
static void fill_hosts(struct pl_job *job, const struct pl_python_json *counts)
{
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        job->host_processes[i] = job->processes_per_host;
    }
    for (; group; group = pl_python_json_next(group)) {
        const struct pl_python_json *host = pl_python_json_first(pl_python_json_member(group, "hosts"));
        const int named = job->switches.native_server           ? 1
                          : job->drivers.processes_per_host > 0 ? job->drivers.processes_per_host
                                                                : named_for(counts, group_name(group));

        for (; host; host = pl_python_json_next(host)) {
            const int index = pl_strv_find(&job->distribution_hosts, pl_python_json_text(host));

            if (index >= 0 && index != job->distribution_index) {
                job->host_processes[index] = named > 0 ? named : is_like_here(job, group) ? job->devices : 0;
            }
        }
    }
}

int64_t pl_processes_sum(const struct pl_job *job)
{
    int64_t sum = 0;

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        sum += job->host_processes[i] > 0 ? job->host_processes[i] : job->devices;
    }
    return sum;
}

enum pl_status pl_processes_count(struct pl_job *job, struct pl_error *reterr)
{
    const struct pl_python_json *counts = pl_python_json_member(job->framework, per_host);
    const int hosts = job->distribution_hosts.count > 0 ? (int)job->distribution_hosts.count : 1;
    int64_t sum;
    int named = job->drivers.processes_per_host; /* from version 3 of the SDK, for every host */

    if (job->switches.native_server) {
        counts = NULL; /* one server per host, which starts the workers of its host */
        named = 1;
    } else if (named > 0) {
        counts = NULL;
    } else if (counts && pl_python_json_kind(counts) == PL_PYTHON_JSON_OBJECT) {
        PL_TRY(check_by_group(job, counts, reterr));
        named = named_for(counts, job->group_name);
    } else {
        PL_TRY(read_count(counts, per_host, &named, reterr));
    }
    job->devices = job->gpus > 0 ? job->gpus : job->neuron_cores > 0 ? job->neuron_cores : 1;
    job->processes_per_host = named > 0 ? named : job->devices;
    if (job->processes_per_host > PL_JOB_PROCESSES_MAX / hosts) {
        return pl_error_set(reterr, PL_LIMIT, "%d hosts with %d processes each: expected at most %d processes", hosts,
                            job->processes_per_host, PL_JOB_PROCESSES_MAX);
    }
    job->host_processes = pl_memory_new((size_t)hosts, sizeof(*job->host_processes), reterr);
    if (!job->host_processes) {
        return PL_MEMORY;
    }
    fill_hosts(job, counts);
    sum = pl_processes_sum(job);
    if (sum > PL_JOB_PROCESSES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%lld processes on %d hosts: expected at most %d processes",
                            (long long)sum, hosts, PL_JOB_PROCESSES_MAX);
    }
    if (!job->switches.native_server) {
        PL_TRY(read_count(pl_python_json_member(job->framework, "sagemaker_mpi_num_processes"),
                          "sagemaker_mpi_num_processes", &job->named_processes, reterr));
    }
    job->processes = job->named_processes > 0 ? job->named_processes : sum > 0 ? (int)sum : job->processes_per_host;
    return PL_OK;
}
