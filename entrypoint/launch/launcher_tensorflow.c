/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two distributions of TensorFlow that need no mpirun: TF_CONFIG, as the TensorFlow container writes it. For the
 * parameter server, a separate task runs next to the program on each host until the master's program has ended. With
 * PACELINE_TF_CHIEF the first host's program is the chief in TF_CONFIG, and the other hosts run a server instead of the
 * program.
 */
#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/needs.h"

#include <string.h>

enum { TRAINING_PORT = 2222, SERVER_PORT = 2223, MIRRORED_PORT = 8890 };

/* A task without a program of the user: a server that reads its cluster from TF_CONFIG and runs until it is killed. */
static const char server_program[] =
    "import json, os\n"
    "import tensorflow as tf\n"
    "config = json.loads(os.environ['TF_CONFIG'])\n"
    "cluster = tf.train.ClusterSpec(config['cluster'])\n"
    "tf.distribute.Server(cluster, job_name=config['task']['type'], task_index=config['task']['index']).join()\n";

/* Append "NAME": ["host:port", ...] for the hosts from `first` up to `end`, excluding `end`. */
static void append_addresses(const struct pl_strv *hosts, const char *name, size_t first, size_t end, int port,
                             struct pl_text *text)
{
    pl_text_printf(text, "\"%s\": [", name);
    for (size_t i = first; i < end; i++) {
        PL_AUTO_TEXT struct pl_text address = PL_TEXT_NONE;

        pl_text_printf(&address, "%s:%d", hosts->items[i], port);
        pl_text_append(text, i == first ? "" : ", ");
        pl_python_json_print_string(pl_text_string(&address), text);
    }
    pl_text_append_char(text, ']');
}

static void append_task(int index, const char *type, struct pl_text *text)
{
    pl_text_printf(text, "}, \"environment\": \"cloud\", \"task\": {\"index\": %d, \"type\": \"%s\"}}", index, type);
}

static void append_server_cluster(const struct pl_strv *hosts, const char *first, struct pl_text *text)
{
    pl_text_append(text, "{\"cluster\": {");
    append_addresses(hosts, first, 0, 1, TRAINING_PORT, text);
    if (hosts->count > 1) {
        pl_text_append(text, ", ");
        append_addresses(hosts, "ps", 0, hosts->count, SERVER_PORT, text);
        pl_text_append(text, ", ");
        append_addresses(hosts, "worker", 1, hosts->count, TRAINING_PORT, text);
    }
}

/* Returns the TF_CONFIG of a task. `first` is the type of the task that the first host's program is. */
static const char *make_config(struct pl_launch_plan *plan, const char *first, int index, const char *type)
{
    PL_AUTO_TEXT struct pl_text config = PL_TEXT_NONE;

    append_server_cluster(&plan->hosts, first, &config);
    append_task(index, type, &config);
    return pl_pool_text(&plan->pool, &config);
}

static enum pl_status add_server(const struct pl_program *program, const char *first, int index, bool is_worker,
                                 struct pl_launch_plan *plan, struct pl_error *reterr)
{
    struct pl_sidecar *side = pl_pool_new(&plan->pool, 1, sizeof(*side));
    struct pl_sidecar **end = &plan->side;

    PL_TRY(pl_pool_check(&plan->pool, reterr));
    *side =
        (struct pl_sidecar){.name = is_worker ? "worker" : "ps", .is_worker = is_worker, .argv = {.pool = &plan->pool}};
    while (*end) {
        end = &(*end)->next;
    }
    *end = side;
    if (!program->python) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "sagemaker_parameter_server_enabled starts TensorFlow's parameter server on each host. It "
                            "needs Python, and there is no python3 on PATH");
    }
    pl_strv_add(&side->argv, program->python, "-c", server_program);
    PL_TRY(pl_environment_new_copy(plan->environment, &side->environment, reterr));
    PL_TRY(pl_environment_add(side->environment, plan->additions, reterr));
    PL_TRY(pl_environment_set(side->environment, "TF_CONFIG", make_config(plan, first, index, side->name), reterr));
    /* A parameter server only stores variables and sends them on; the GPUs belong to the program or to the worker's
     * server. */
    return is_worker ? PL_OK : pl_environment_set(side->environment, "CUDA_VISIBLE_DEVICES", "", reterr);
}

static enum pl_status plan_server(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const bool has_chief = job->settings.tf_chief;
    const char *first = has_chief ? "chief" : "master";
    struct pl_program program;
    bool is_master;

    is_master = plan->host_index == 0;
    plan->processes = has_chief ? 1 : (int)plan->hosts.count;
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    PL_TRY(add_server(&program, first, plan->host_index, false, plan, reterr));
    pl_needs_module(&program, "tensorflow",
                    "sagemaker_parameter_server_enabled starts TensorFlow's parameter server, and tensorflow is not "
                    "in this image: build it with TensorFlow, or name tensorflow in requirements.txt",
                    plan);
    if (has_chief && !is_master) {
        return add_server(&program, first, plan->host_index - 1, true, plan, reterr);
    }
    pl_launcher_set(plan, "TF_CONFIG",
                    make_config(plan, first, is_master ? 0 : plan->host_index - 1, is_master ? first : "worker"));
    return pl_program_use(job, &program, plan, reterr);
}

static void describe_server(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    if (job->settings.tf_chief) {
        pl_text_printf(text, "the program on the first of %zu hosts, servers on all", plan->hosts.count);
    }
}

static enum pl_status plan_mirrored(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text config = PL_TEXT_NONE;
    struct pl_program program;

    plan->processes = (int)plan->hosts.count;
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    pl_text_append(&config, "{\"cluster\": {");
    append_addresses(&plan->hosts, "worker", 0, plan->hosts.count, MIRRORED_PORT, &config);
    append_task(plan->host_index, "worker", &config);
    pl_launcher_set(plan, "TF_CONFIG", pl_pool_text(&plan->pool, &config));
    return pl_program_use(job, &program, plan, reterr);
}

const struct pl_launcher pl_launcher_parameter_server = {.name = "parameter_server",
                                                         .launch = PL_JOB_PARAMETER_SERVER,
                                                         .needs_link = true,
                                                         .plan = plan_server,
                                                         .describe = describe_server};
const struct pl_launcher pl_launcher_multi_worker_mirrored = {
    .name = "multi_worker_mirrored", .launch = PL_JOB_MULTI_WORKER_MIRRORED, .plan = plan_mirrored};
