/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the job's hosts and groups, chooses the distribution's hosts, and counts the processes of each host. */
#include "entrypoint/job/job.h"

#include "base/memory.h"
#include "entrypoint/job/config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char per_host[] = "sagemaker_mpi_num_of_processes_per_host";

const char *pl_hosts_group_name(const struct pl_python_json *group)
{
    return pl_python_json_text(pl_python_json_member(group, "instance_group_name"));
}

static const struct pl_python_json *find_group(const struct pl_job *job, const char *name)
{
    PL_PYTHON_JSON_EACH(group, job->groups) {
        if (strcmp(pl_hosts_group_name(group), name) == 0) {
            return group;
        }
    }
    return NULL;
}

/* Add the names of `list` to `names`, each only once. */
static enum pl_status add_hosts(const char *path, const struct pl_python_json *list, struct pl_strv *names,
                                struct pl_error *reterr)
{
    PL_TRY(pl_config_check_names(path, list, "a host name", reterr));
    PL_PYTHON_JSON_EACH(host, list) {
        if (pl_strv_find(names, pl_python_json_text(host)) >= 0) {
            return pl_config_wrong(path, host, "each host once", reterr);
        }
        pl_strv_add(names, pl_python_json_text(host));
    }
    return PL_OK;
}

/* Check the hosts of one group: each is one of "hosts" and belongs to no earlier group. So their total number has a
 * limit. */
static enum pl_status check_group_hosts(const char *path, const struct pl_python_json *list, const struct pl_job *job,
                                        struct pl_strv *grouped, struct pl_error *reterr)
{
    PL_TRY(add_hosts(path, list, grouped, reterr));
    PL_PYTHON_JSON_EACH(host, list) {
        if (pl_strv_find(&job->hosts, pl_python_json_text(host)) < 0) {
            return pl_config_wrong(path, host, "one of the names in \"hosts\"", reterr);
        }
    }
    return PL_OK;
}

/* Check instance_groups and topology for the types that later code relies on. */
static enum pl_status check_groups(const char *path, struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv grouped = PL_STRV_NONE;

    PL_PYTHON_JSON_EACH(group, job->groups) {
        const struct pl_python_json *hosts = NULL;
        const char *name = NULL;
        const struct pl_config_member members[] = {{"instance_group_name", .text = &name}, {"hosts", .list = &hosts}};

        if (pl_python_json_kind(group) != PL_PYTHON_JSON_OBJECT) {
            return pl_config_wrong(path, group, "an object", reterr);
        }
        PL_TRY(pl_config_members(path, group, members, PL_ARRAY_ITEMS(members), reterr));
        PL_TRY(check_group_hosts(path, hosts, job, &grouped, reterr));
    }
    job->topology = pl_python_json_member(job->resource, "topology");
    if (job->topology && !pl_hyperparameters_is_true(job->topology)) {
        job->topology = NULL;
    }
    return pl_strv_check(&grouped, reterr);
}

enum pl_status pl_hosts_read(struct pl_job *job, struct pl_error *reterr)
{
    const char *path = pl_pool_printf(&job->pool, "%s/resourceconfig.json", job->paths.input_config);
    const struct pl_python_json *hosts = NULL;
    const struct pl_config_member members[] = {
        {"current_host", .text = &job->current_host},
        {"hosts", .list = &hosts},
        {"network_interface_name", .text = &job->network_interface, .fallback = "eth0"},
        {"current_instance_type", .text = &job->instance_type, .fallback = "local"},
        {"current_group_name", .text = &job->group_name, .fallback = "homogeneousCluster"},
        {"instance_groups", .list = &job->groups, .is_optional = true},
    };
    const enum pl_status status = pl_config_read(path, true, &job->resource, reterr);

    if (status == PL_NOT_FOUND) { /* each job has this file */
        pl_error_set(reterr, status,
                     "there is no job here: '%.200s' does not exist. SageMaker writes it; `paceline demo` runs a job "
                     "without SageMaker",
                     path);
    }
    PL_TRY(status);
    PL_TRY(pl_config_members(path, job->resource, members, PL_ARRAY_ITEMS(members), reterr));
    if (pl_python_json_count(hosts) == 0 || pl_python_json_count(hosts) > PL_JOB_HOSTS_MAX) {
        return pl_config_wrong(path, hosts, "1 to 4096 host names", reterr);
    }
    PL_TRY(add_hosts(path, hosts, &job->hosts, reterr));
    job->host_index = pl_strv_find(&job->hosts, job->current_host);
    if (job->host_index < 0) {
        /* SageMaker Studio's local mode runs one container whose name is not in the list. */
        if (strcasecmp(pl_environment_get_or(job->process, "SM_STUDIO_LOCAL_MODE", ""), "true") != 0) {
            return pl_config_wrong(path, pl_python_json_member(job->resource, "current_host"),
                                   "one of the names in \"hosts\"", reterr);
        }
        job->host_index = 0;
    }
    return check_groups(path, job, reterr);
}

static const struct pl_python_json *named_groups(const struct pl_job *job)
{
    const struct pl_python_json *named =
        pl_python_json_member(job->framework, "sagemaker_distribution_instance_groups");

    return named && pl_hyperparameters_is_true(named) ? named : NULL;
}

static enum pl_status refuse_groups(const struct pl_python_json *node, const char *expected, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID,
                        "hyperparameter sagemaker_distribution_instance_groups: expected %s, found %s", expected,
                        pl_python_json_kind_text(pl_python_json_kind(node)));
}

static enum pl_status choose_groups(struct pl_job *job, struct pl_error *reterr)
{
    const struct pl_python_json *named = named_groups(job);

    if (named && pl_python_json_kind(named) != PL_PYTHON_JSON_ARRAY) {
        return refuse_groups(named, "a list of group names", reterr);
    }
    if (named) {
        PL_PYTHON_JSON_EACH(item, named) {
            if (pl_python_json_kind(item) != PL_PYTHON_JSON_STRING) {
                return refuse_groups(item, "group names", reterr);
            }
            pl_strv_add(&job->distribution_groups, pl_python_json_text(item));
        }
    } else if (job->drivers.launch != PL_DRIVERS_LAUNCH_OPEN && job->groups) {
        /* version 3 of the SDK launches on all hosts, whatever their groups are */
        PL_PYTHON_JSON_EACH(group, job->groups) {
            pl_strv_add(&job->distribution_groups, pl_hosts_group_name(group));
        }
    } else if (job->drivers.launch != PL_DRIVERS_LAUNCH_OPEN || job->launches) {
        pl_strv_add(&job->distribution_groups, job->group_name);
    }
    return PL_OK;
}

/* If the distribution has named groups, all hosts of other groups are outside it. */
static void choose_outside_hosts(struct pl_job *job)
{
    if (!named_groups(job) || !job->launches || job->distribution_hosts.count == 0) {
        return;
    }
    for (size_t i = 0; i < job->hosts.count; i++) {
        if (pl_strv_find(&job->distribution_hosts, job->hosts.items[i]) < 0) {
            pl_strv_add(&job->outside_hosts, job->hosts.items[i]);
        }
    }
}

/* Returns the text `name` of an entry, or NULL if it has none. */
static const char *text_of(const struct pl_python_json *entry, const char *name)
{
    const struct pl_python_json *node = pl_python_json_member(entry, name);

    return node && pl_python_json_kind(node) == PL_PYTHON_JSON_STRING ? pl_python_json_text(node) : NULL;
}

/* Put the hosts of one capacity unit together. */
static enum pl_status order_hosts(const struct pl_job *job, struct pl_strv *hosts, struct pl_error *reterr)
{
    PL_AUTO_FREE const char **units = pl_memory_new(hosts->count, sizeof(*units), reterr);
    PL_AUTO_FREE char **ordered = pl_memory_new(hosts->count, sizeof(*ordered), reterr);
    size_t placed = 0;

    if (!units || !ordered) {
        return PL_MEMORY;
    }
    PL_PYTHON_JSON_EACH(entry, job->topology) {
        const char *host = text_of(entry, "hostName");
        const int index = host ? pl_strv_find(hosts, host) : -1;

        if (index >= 0) {
            units[index] = text_of(entry, "capacityUnitId");
        }
    }
    for (size_t first = 0; first < hosts->count; first++) {
        if (!hosts->items[first]) {
            continue; /* this host is next to its neighbours already */
        }
        ordered[placed++] = PL_TAKE(hosts->items[first]);
        for (size_t i = first + 1; i < hosts->count; i++) {
            if (hosts->items[i] && units[first] && units[i] && strcmp(units[first], units[i]) == 0) {
                ordered[placed++] = PL_TAKE(hosts->items[i]);
            }
        }
    }
    memcpy(hosts->items, ordered, hosts->count * sizeof(*ordered));
    return PL_OK;
}

enum pl_status pl_hosts_choose(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_strv *chosen = &job->distribution_hosts;

    PL_TRY(choose_groups(job, reterr));
    if (!job->groups) {
        pl_strv_add_all(chosen, &job->hosts);
    }
    PL_PYTHON_JSON_EACH(group, job->groups) {
        if (pl_strv_find(&job->distribution_groups, pl_hosts_group_name(group)) >= 0) {
            PL_PYTHON_JSON_EACH(host, pl_python_json_member(group, "hosts")) {
                pl_strv_add(chosen, pl_python_json_text(host));
            }
        }
    }
    choose_outside_hosts(job);
    if (job->topology && pl_python_json_kind(job->topology) == PL_PYTHON_JSON_ARRAY && chosen->count > 2) {
        PL_TRY(order_hosts(job, chosen, reterr));
    }
    PL_TRY(pl_pool_check(&job->pool, reterr));
    job->master_host = chosen->count > 0 ? chosen->items[0] : job->hosts.items[0];
    /* Studio's local mode has another name for this host: host_index is this host's index */
    job->distribution_index = pl_strv_find(chosen, job->hosts.items[job->host_index]);
    if (job->distribution_index < 0 && pl_strv_find(&job->distribution_groups, job->group_name) >= 0) {
        return pl_error_set(
            reterr, PL_INVALID,
            "resourceconfig.json: this host '%s' is in the group '%s', but not among that group's hosts",
            job->current_host, job->group_name);
    }
    return PL_OK;
}

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

/* Check each name and each count of {"GROUP": COUNT, ...}. */
static enum pl_status check_by_group(const struct pl_job *job, const struct pl_python_json *counts,
                                     struct pl_error *reterr)
{
    int ignored;

    PL_PYTHON_JSON_EACH(count, counts) {
        if (!find_group(job, pl_python_json_name(count))) {
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
    const char *type = text_of(group, "instance_type");

    return strcmp(pl_hosts_group_name(group), job->group_name) == 0 || !type || strcmp(type, job->instance_type) == 0;
}

/* Fill host_processes for the hosts of each group. Hosts without a group get as many processes as this host. */
static void fill_hosts(struct pl_job *job, const struct pl_python_json *counts)
{
    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        job->host_processes[i] = job->processes_per_host;
    }
    PL_PYTHON_JSON_EACH(group, job->groups) {
        const int named = (job->launches & PL_JOB_NATIVE_SERVER) ? 1
                          : job->drivers.processes_per_host > 0  ? job->drivers.processes_per_host
                                                                 : named_for(counts, pl_hosts_group_name(group));

        PL_PYTHON_JSON_EACH(host, pl_python_json_member(group, "hosts")) {
            const int index = pl_strv_find(&job->distribution_hosts, pl_python_json_text(host));

            if (index >= 0 && index != job->distribution_index) {
                job->host_processes[index] = named > 0 ? named : is_like_here(job, group) ? job->devices : 0;
            }
        }
    }
}

int64_t pl_hosts_sum_processes(const struct pl_job *job)
{
    int64_t sum = 0;

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        sum += job->host_processes[i] > 0 ? job->host_processes[i] : job->devices;
    }
    return sum;
}

enum pl_status pl_hosts_count_processes(struct pl_job *job, struct pl_error *reterr)
{
    const bool by_server = job->launches & PL_JOB_NATIVE_SERVER;
    const struct pl_python_json *counts = pl_python_json_member(job->framework, per_host);
    const int hosts = job->distribution_hosts.count > 0 ? (int)job->distribution_hosts.count : 1;
    int64_t sum;
    int named = job->drivers.processes_per_host; /* the number in the files of version 3 of the SDK, for every host */

    if (by_server) {
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
        return pl_error_set(reterr, PL_LIMIT, "%d hosts with %d processes each: expected at most %d in all", hosts,
                            job->processes_per_host, PL_JOB_PROCESSES_MAX);
    }
    job->host_processes = pl_pool_new(&job->pool, (size_t)hosts, sizeof(*job->host_processes));
    PL_TRY(pl_pool_check(&job->pool, reterr));
    fill_hosts(job, counts);
    sum = pl_hosts_sum_processes(job);
    if (sum > PL_JOB_PROCESSES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%lld processes on %d hosts: expected at most %d processes",
                            (long long)sum, hosts, PL_JOB_PROCESSES_MAX);
    }
    if (!by_server) {
        PL_TRY(read_count(pl_python_json_member(job->framework, "sagemaker_mpi_num_processes"),
                          "sagemaker_mpi_num_processes", &job->named_processes, reterr));
    }
    job->processes = job->named_processes > 0 ? job->named_processes : sum > 0 ? (int)sum : job->processes_per_host;
    return PL_OK;
}
