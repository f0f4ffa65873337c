/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan as JSON, and as lines for people. */
#include "base/environment.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "entrypoint/launch/plan.h"

#include <string.h>

/* The characters that a shell does not interpret. */
#define PLAIN_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"

static struct pl_python_json *object_of(const struct pl_environment *environment)
{
    struct pl_python_json *object = pl_python_json_new_object();

    for (char *const *at = pl_environment_strings(environment); *at && object; at++) {
        PL_AUTO_FREE char *name = pl_memory_string_n(*at, strcspn(*at, "="), NULL);

        if (!name ||
            pl_python_json_set(object, name, pl_python_json_new_string(*at + strlen(name) + 1), NULL) != PL_OK) {
            pl_python_json_free(object);
            return NULL;
        }
    }
    return object;
}

static struct pl_python_json *steps_of(const struct pl_launch_plan_steps *steps)
{
    struct pl_python_json *list = pl_python_json_new_array();

    for (size_t i = 0; i < steps->count && list; i++) {
        const struct pl_environment *additions = steps->items[i].additions;
        struct pl_python_json *step = pl_python_json_new_object();
        enum pl_status what = pl_python_json_set(step, "what", pl_python_json_new_string(steps->items[i].what), NULL);
        enum pl_status argv = pl_python_json_set(step, "argv", pl_strv_json(&steps->items[i].argv), NULL);
        enum pl_status env = additions ? pl_python_json_set(step, "env", object_of(additions), NULL) : PL_OK;
        enum pl_status added = pl_python_json_append(list, step, NULL);

        if (what != PL_OK || argv != PL_OK || env != PL_OK || added != PL_OK) {
            pl_python_json_free(list);
            return NULL;
        }
    }
    return list;
}

static struct pl_python_json *side_of(const struct pl_sidecar *side)
{
    struct pl_python_json *object;
    const char *config;
    enum pl_status name;
    enum pl_status argv;
    enum pl_status env;
    enum pl_status next;

    if (!side) {
        return pl_python_json_new_null();
    }
    object = pl_python_json_new_object();
    config = pl_environment_get(side->environment, "TF_CONFIG");
    name = pl_python_json_set(object, "name", pl_python_json_new_string(side->name), NULL);
    argv = pl_python_json_set(object, "argv", pl_strv_json(&side->argv), NULL);
    env = pl_python_json_set(object, "TF_CONFIG",
                             config ? pl_python_json_new_string(config) : pl_python_json_new_null(), NULL);
    next = side->next ? pl_python_json_set(object, "next", side_of(side->next), NULL) : PL_OK;
    if (name != PL_OK || argv != PL_OK || env != PL_OK || next != PL_OK) {
        pl_python_json_free(object);
        return NULL;
    }
    return object;
}

static enum pl_status print(const struct pl_python_json *root, struct pl_text *text, struct pl_error *reterr)
{
    pl_python_json_print(root, PL_PYTHON_JSON_SPACED, text);
    pl_text_append_char(text, '\n');
    return pl_text_check(text, reterr);
}

enum pl_status pl_launch_plan_print_environment(const struct pl_environment *environment, struct pl_text *text,
                                                struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *object = object_of(environment);

    if (!object) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory printing an environment");
    }
    return print(object, text, reterr);
}

enum pl_status pl_launch_plan_print(const struct pl_job *job, const struct pl_launch_plan *plan,
                                    const struct pl_launch_plan_steps *source, struct pl_text *text,
                                    struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = pl_python_json_new_object();
    const struct {
        const char *name;
        struct pl_python_json *value;
    } members[] = {
        {"version", pl_python_json_new_int64(PL_LAUNCH_PLAN_VERSION)},
        {"role", pl_python_json_new_string(pl_launch_plan_role_text(plan->role))},
        {"launcher", pl_python_json_new_string(plan->launcher->name)},
        {"hosts", pl_strv_json(&plan->hosts)},
        {"host", pl_python_json_new_string(job->current_host)},
        {"cwd", pl_python_json_new_string(plan->cwd)},
        {"argv", plan->argv.count > 0 ? pl_strv_json(&plan->argv) : pl_python_json_new_null()},
        {"env", object_of(plan->additions)},
        {"processes", pl_python_json_new_int64(plan->processes)},
        {"source", steps_of(source)},
        {"steps", steps_of(&plan->steps)},
        {"side", side_of(plan->side)},
        {"sync", plan->sync.count > 0 ? pl_strv_json(&plan->sync) : pl_python_json_new_null()},
        {"sshd", pl_python_json_new_bool(plan->link != PL_LAUNCH_PLAN_LINK_NONE)},
        {"warnings", pl_strv_json(&plan->warnings)},
    };
    enum pl_status status = PL_OK;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(members); i++) {
        if (pl_python_json_set(root, members[i].name, members[i].value, reterr) != PL_OK) {
            status = PL_MEMORY;
        }
    }
    if (plan->shown && status == PL_OK) {
        status = pl_python_json_set(root, plan->launcher->name, pl_python_json_copy(plan->shown), reterr);
    }
    PL_TRY(status);
    return print(root, text, reterr);
}

/* Append words so that a shell reads them as they are. */
static void append_command(const struct pl_strv *argv, struct pl_text *text)
{
    for (size_t i = 0; i < argv->count; i++) {
        const char *word = argv->items[i];
        bool plain = *word != '\0' && word[strspn(word, PLAIN_CHARACTERS)] == '\0';

        pl_text_append(text, i > 0 ? " " : "");
        if (plain) {
            pl_text_append(text, word);
            continue;
        }
        pl_text_append_char(text, '\'');
        for (; *word != '\0'; word++) {
            if (*word == '\'') {
                pl_text_append(text, "'\\''");
            } else {
                pl_text_append_char(text, *word);
            }
        }
        pl_text_append_char(text, '\'');
    }
    pl_text_append_char(text, '\n');
}

static void append_steps(const char *head, const struct pl_launch_plan_steps *steps, struct pl_text *text)
{
    for (size_t i = 0; i < steps->count; i++) {
        pl_text_printf(text, "%-12s %s: ", head, steps->items[i].what);
        append_command(&steps->items[i].argv, text);
    }
}

enum pl_status pl_launch_plan_print_lines(const struct pl_job *job, const struct pl_launch_plan *plan,
                                          const struct pl_launch_plan_steps *source, struct pl_text *text,
                                          struct pl_error *reterr)
{
    pl_text_printf(text, "%-12s %s (this host: %s, its role: %s)\n", "launcher", plan->launcher->name,
                   job->current_host, pl_launch_plan_role_text(plan->role));
    pl_text_printf(text, "%-12s", "hosts");
    for (size_t i = 0; i < plan->hosts.count; i++) {
        pl_text_printf(text, " %s", plan->hosts.items[i]);
    }
    pl_text_printf(text, "\n%-12s %d\n%-12s %s\n", "processes", plan->processes, "directory", plan->cwd);
    append_steps("code", source, text);
    append_steps("step", &plan->steps, text);
    for (const struct pl_sidecar *side = plan->side; side; side = side->next) {
        pl_text_printf(text, "%-12s %s: ", "beside", side->name);
        append_command(&side->argv, text);
    }
    if (plan->argv.count > 0) {
        pl_text_printf(text, "%-12s ", "command");
        append_command(&plan->argv, text);
    } else {
        pl_text_printf(text, "%-12s none: this host waits for %s\n", "command", plan->hosts.items[0]);
    }
    if (plan->sync.count > 0) {
        pl_text_printf(text, "%-12s ", "upload");
        append_command(&plan->sync, text);
    }
    for (char *const *at = pl_environment_strings(plan->additions); *at; at++) {
        pl_text_printf(text, "%-12s %s\n", at == pl_environment_strings(plan->additions) ? "environment" : "", *at);
    }
    for (size_t i = 0; i < plan->warnings.count; i++) {
        pl_text_printf(text, "%-12s %s\n", "warning", plan->warnings.items[i]);
    }
    PL_TRY(pl_text_check(text, reterr));
    pl_text_mask(text->data, text->length);
    return PL_OK;
}
