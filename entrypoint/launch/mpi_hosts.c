/* SPDX-License-Identifier: Apache-2.0 */
/* The host list of mpirun, and the number of processes. Hosts of several instance types may have different numbers. */
#include "entrypoint/launch/mpi_hosts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* the places of LIST and NUMBER in `mpirun --host LIST -np NUMBER` */
enum { LIST_WORD = 2, NUMBER_WORD = 4 };

static int slots_of(const struct pl_job *job, const struct pl_launch_plan *plan, size_t host)
{
    return plan->slots[host] > 0 ? plan->slots[host] : job->devices;
}

bool pl_mpi_hosts_wait(const struct pl_launch_plan *plan)
{
    for (size_t i = 0; plan->slots && i < plan->hosts.count; i++) {
        if (plan->slots[i] == 0) {
            return true;
        }
    }
    return false;
}

/* Print algo-1:2,algo-2:4, or only the names if each host has one slot. */
static enum pl_status print_list(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *list,
                                 struct pl_error *reterr)
{
    bool single = true;

    for (size_t i = 0; i < plan->hosts.count; i++) {
        single = single && slots_of(job, plan, i) == 1;
    }
    for (size_t i = 0; i < plan->hosts.count; i++) {
        pl_text_printf(list, "%s%s", i == 0 ? "" : ",", plan->hosts.items[i]);
        if (!single) {
            pl_text_printf(list, ":%d", slots_of(job, plan, i));
        }
    }
    return pl_text_check(list, reterr);
}

/* Set plan->processes and check that they fit. If there were more ranks than slots, mpirun would fail much later, with
 * a less clear message. */
static enum pl_status count(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text each = PL_TEXT_NONE;
    int64_t slots = 0;

    for (size_t i = 0; i < plan->hosts.count; i++) {
        slots += slots_of(job, plan, i);
    }
    if (slots > PL_JOB_PROCESSES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%lld processes on %zu hosts: expected at most %d processes",
                            (long long)slots, plan->hosts.count, PL_JOB_PROCESSES_MAX);
    }
    plan->processes = job->named_processes > 0 ? job->named_processes : (int)slots;
    if (plan->processes <= slots || plan->oversubscribes || pl_mpi_hosts_wait(plan)) {
        return PL_OK;
    }
    if (slots == (int64_t)plan->slots[0] * (int64_t)plan->hosts.count) {
        pl_text_printf(&each, "%zu hosts with %d each make %lld", plan->hosts.count, plan->slots[0], (long long)slots);
    } else {
        pl_text_printf(&each, "%zu hosts have room for %lld", plan->hosts.count, (long long)slots);
    }
    return pl_error_set(reterr, PL_INVALID,
                        "%d processes do not fit: %s; raise sagemaker_mpi_num_of_processes_per_host, or put "
                        "--oversubscribe into sagemaker_mpi_custom_mpi_options",
                        plan->processes, pl_text_string(&each));
}

enum pl_status pl_mpi_hosts_add(const struct pl_job *job, bool oversubscribe, struct pl_launch_plan *plan,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    plan->oversubscribes = oversubscribe;
    plan->slots = pl_memory_new(plan->hosts.count, sizeof(*plan->slots), reterr);
    if (!plan->slots) {
        return PL_MEMORY;
    }
    memcpy(plan->slots, job->host_processes, plan->hosts.count * sizeof(*plan->slots));
    PL_TRY(count(job, plan, reterr));
    PL_TRY(print_list(job, plan, &list, reterr));
    PL_TRY(pl_strv_add_list(&plan->argv, (const char *const[]){"mpirun", "--host", pl_text_string(&list), "-np", NULL},
                            reterr));
    return pl_strv_printf(&plan->argv, reterr, "%d", plan->processes);
}

static enum pl_status replace(struct pl_strv *words, size_t at, struct pl_text *text, struct pl_error *reterr)
{
    char *word = NULL;

    PL_TRY(pl_text_take(text, &word, reterr));
    free(words->items[at]);
    words->items[at] = word;
    return PL_OK;
}

enum pl_status pl_mpi_hosts_apply(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE, number = PL_TEXT_NONE;

    PL_TRY(count(job, plan, reterr));
    PL_TRY(print_list(job, plan, &list, reterr));
    pl_text_printf(&number, "%d", plan->processes);
    PL_TRY(replace(&plan->argv, LIST_WORD, &list, reterr));
    return replace(&plan->argv, NUMBER_WORD, &number, reterr);
}
