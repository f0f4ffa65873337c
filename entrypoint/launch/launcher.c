/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the launchers share: hosts, roles, variables, steps, instance types with EFA. */
#include "entrypoint/launch/launcher.h"

#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"

#include <string.h>

bool pl_launcher_includes(const struct pl_job *job)
{
    return pl_strv_find(&job->distribution_groups, job->group_name) >= 0 && job->distribution_index >= 0;
}

/* A range such as "2:4" allows another number of hosts; a single number such as "3" does not. */
static bool allows_range(const char *nodes)
{
    return strchr(nodes, ':');
}

static bool allows_restarts(const char *count)
{
    return *count != '\0' && strcmp(count, "0") != 0;
}

/* Get the value of the option `name` at words[at], which begins with two dashes, from `--name=value` or `--name value`.
 * torchrun takes dashes and underscores as the same. Returns NULL if the word is not this option. */
static const char *option_value(const struct pl_strv *words, size_t at, const char *name)
{
    const char *word = words->items[at] + strlen("--");
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if (word[i] != name[i] && !(word[i] == '-' && name[i] == '_')) {
            return NULL;
        }
    }
    if (word[length] == '=') {
        return word + length + 1;
    }
    return word[length] == '\0' && at + 1 < words->count ? words->items[at + 1] : NULL;
}

static const struct {
    const char *variable, *option;
    bool (*allows)(const char *value);
} elastic[] = {{"PET_NNODES", "nnodes", allows_range}, {"PET_MAX_RESTARTS", "max_restarts", allows_restarts}};

static bool is_torchrun(const char *word)
{
    const char *slash = strrchr(word, '/');

    return strcmp(slash ? slash + 1 : word, "torchrun") == 0 || strcmp(word, "torch.distributed.run") == 0 ||
           strcmp(word, "torch.distributed.launch") == 0;
}

/* Whether the options of torchrun are so. They end before its script, whose options may have the same names. */
static bool has_elastic_options(const struct pl_strv *words)
{
    size_t at = 0;

    while (at < words->count && !is_torchrun(words->items[at])) {
        at++;
    }
    for (at++; at < words->count && !pl_text_ends_with(words->items[at], ".py"); at++) {
        for (size_t i = 0; i < PL_ARRAY_ITEMS(elastic) && pl_text_begins_with(words->items[at], "--"); i++) {
            const char *value = option_value(words, at, elastic[i].option);

            if (value && elastic[i].allows(value)) {
                return true;
            }
        }
    }
    return false;
}

bool pl_launcher_is_elastic(const struct pl_environment *environment, const struct pl_strv *words)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(elastic); i++) {
        const char *value = pl_environment_get(environment, elastic[i].variable);

        if (value && elastic[i].allows(value)) {
            return true;
        }
    }
    for (size_t i = 0; words && i + 1 < words->count; i++) {
        PL_AUTO_STRV struct pl_strv text = PL_STRV_NONE; /* of a shell's -c */

        if (strcmp(words->items[i], "-c") == 0 && pl_strv_split(words->items[i + 1], "-c", &text, NULL) == PL_OK &&
            has_elastic_options(&text)) {
            return true;
        }
    }
    return words && has_elastic_options(words);
}

/* The master of a distribution also links the hosts outside it. They need not be there at the start. */
static void add_outside_hosts(const struct pl_job *job, struct pl_launch_plan *plan)
{
    if (!job->settings.link || job->outside_hosts.count == 0 || pl_launcher_is_elastic(job->process, NULL)) {
        return;
    }
    if (plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        plan->link = PL_LAUNCH_PLAN_LINK_BESIDE;
    }
    pl_strv_add_all(&plan->outside_hosts, &job->outside_hosts);
}

void pl_launcher_use_hosts(const struct pl_job *job, const struct pl_strv *hosts, int index,
                           struct pl_launch_plan *plan)
{
    const bool needed = plan->launcher->needs_link;
    const bool linked =
        hosts->count > 1 && (needed || (job->settings.link && !pl_launcher_is_elastic(job->process, NULL)));

    pl_strv_add_all(&plan->hosts, hosts);
    plan->host_index = index;
    plan->role = index == 0 ? PL_LAUNCH_PLAN_MASTER : PL_LAUNCH_PLAN_WORKER;
    plan->link = !linked ? PL_LAUNCH_PLAN_LINK_NONE : needed ? PL_LAUNCH_PLAN_LINK_NEEDED : PL_LAUNCH_PLAN_LINK_BESIDE;
    if (index == 0) {
        add_outside_hosts(job, plan);
    }
}

void pl_launcher_describe_ranks(const struct pl_launch_plan *plan, struct pl_text *text)
{
    const size_t hosts = plan->hosts.count;

    pl_text_printf(text, "%d rank%s on %zu host%s", plan->processes, plan->processes == 1 ? "" : "s", hosts,
                   hosts == 1 ? "" : "s");
}

void pl_launcher_set(struct pl_launch_plan *plan, const char *name, const char *value)
{
    if (pl_environment_set(plan->additions, name, value, NULL) != PL_OK) {
        plan->pool.failed = true;
    }
}

void pl_launcher_set_unless_set(const struct pl_job *job, struct pl_launch_plan *plan, const char *name,
                                const char *value)
{
    if (!pl_environment_get(job->process, name)) {
        pl_launcher_set(plan, name, value);
    }
}

enum fabric { FABRIC_EFA = 1, FABRIC_RDMA = 2 };

/* The toolkit's two lists, of its version 5.1.4; after the comment below, types that the toolkit does not have. */
static const struct {
    const char *type;
    int fabric;
} fabrics[] = {
    {"ml.g4dn.8xlarge", FABRIC_EFA},
    {"ml.g4dn.12xlarge", FABRIC_EFA},
    {"ml.g5.48xlarge", FABRIC_EFA},
    {"ml.p3dn.24xlarge", FABRIC_EFA},
    {"ml.p4d.24xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p4de.24xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p5.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p5e.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn1.32xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p6e-gb200.36xlarge", FABRIC_EFA | FABRIC_RDMA},
    /* not in the toolkit */
    {"ml.g6.8xlarge", FABRIC_EFA},
    {"ml.g6.12xlarge", FABRIC_EFA},
    {"ml.g6.16xlarge", FABRIC_EFA},
    {"ml.g6.24xlarge", FABRIC_EFA},
    {"ml.g6.48xlarge", FABRIC_EFA},
    {"ml.g6e.8xlarge", FABRIC_EFA},
    {"ml.g6e.12xlarge", FABRIC_EFA},
    {"ml.g6e.16xlarge", FABRIC_EFA},
    {"ml.g6e.24xlarge", FABRIC_EFA},
    {"ml.g6e.48xlarge", FABRIC_EFA},
    {"ml.p5en.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.p6-b200.48xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn1n.32xlarge", FABRIC_EFA | FABRIC_RDMA},
    {"ml.trn2.48xlarge", FABRIC_EFA | FABRIC_RDMA},
};

static int fabric_of(const char *instance_type)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(fabrics); i++) {
        if (strcmp(instance_type, fabrics[i].type) == 0) {
            return fabrics[i].fabric;
        }
    }
    return 0;
}

bool pl_launcher_has_efa(const struct pl_job *job)
{
    return job->efa || (fabric_of(job->instance_type) & FABRIC_EFA) != 0;
}

bool pl_launcher_has_efa_rdma(const char *instance_type)
{
    return (fabric_of(instance_type) & FABRIC_RDMA) != 0;
}

struct pl_strv *pl_launch_plan_add_step(struct pl_launch_plan_steps *steps, const char *what, const char *cwd)
{
    struct pl_launch_plan_step *step = &steps->items[steps->count];

    PL_BUG_IF(steps->count == PL_LAUNCH_PLAN_STEPS_MAX);
    steps->count++;
    *step = (struct pl_launch_plan_step){.what = pl_pool_string(&steps->pool, what),
                                         .cwd = cwd ? pl_pool_string(&steps->pool, cwd) : NULL,
                                         .argv = {.pool = &steps->pool}};
    return &step->argv;
}

struct pl_strv *pl_launch_plan_add_look(struct pl_launch_plan_steps *steps, const char *what)
{
    struct pl_strv *argv = pl_launch_plan_add_step(steps, what, NULL);

    steps->items[steps->count - 1].only_looks = true;
    return argv;
}

void pl_launch_plan_set_for_step(struct pl_launch_plan_steps *steps, const char *name, const char *value)
{
    struct pl_environment **additions_at = &steps->items[steps->count - 1].additions;

    if ((!*additions_at && pl_environment_new_empty(additions_at, NULL) != PL_OK) ||
        pl_environment_set(*additions_at, name, value, NULL) != PL_OK) {
        steps->pool.failed = true;
    }
}
