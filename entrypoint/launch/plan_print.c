/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan as JSON, and as lines for people. */
#include "base/environment.h"
#include "base/json/python_json.h"
#include "entrypoint/launch/launcher.h"

#include <string.h>

/* The characters that a shell does not interpret. */
#define PLAIN_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"

/* Append the words as a list of JSON. */
static void print_words(const struct pl_strv *words, struct pl_text *text)
{
    pl_text_append_char(text, '[');
    for (size_t i = 0; i < words->count; i++) {
        pl_text_append(text, i > 0 ? ", " : "");
        pl_python_json_print_string(words->items[i], text);
    }
    pl_text_append_char(text, ']');
}

/* Append the words, or null if there are none. */
static void print_command(const struct pl_strv *words, struct pl_text *text)
{
    if (words->count > 0) {
        print_words(words, text);
    } else {
        pl_text_append(text, "null");
    }
}

/* Append `before`, which has a member's name, and the string. */
static void print_text(const char *before, const char *string, struct pl_text *text)
{
    pl_text_append(text, before);
    pl_python_json_print_string(string, text);
}

static void print_environment(const struct pl_environment *environment, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    pl_text_append_char(text, '{');
    for (char *const *at = pl_environment_strings(environment); *at; at++) {
        const size_t length = strcspn(*at, "=");

        pl_text_clear(&name);
        pl_text_append_n(&name, *at, length);
        text->failed = text->failed || name.failed;
        print_text(at == pl_environment_strings(environment) ? "" : ", ", pl_text_string(&name), text);
        print_text(": ", *at + length + 1, text);
    }
    pl_text_append_char(text, '}');
}

static void print_steps(const struct pl_launch_plan_steps *steps, struct pl_text *text)
{
    pl_text_append_char(text, '[');
    for (size_t i = 0; i < steps->count; i++) {
        print_text(i > 0 ? ", {\"what\": " : "{\"what\": ", steps->items[i].what, text);
        pl_text_append(text, ", \"argv\": ");
        print_words(&steps->items[i].argv, text);
        if (steps->items[i].additions) {
            pl_text_append(text, ", \"env\": ");
            print_environment(steps->items[i].additions, text);
        }
        pl_text_append_char(text, '}');
    }
    pl_text_append_char(text, ']');
}

static void print_side(const struct pl_sidecar *side, struct pl_text *text)
{
    const char *config = side && side->environment ? pl_environment_get(side->environment, "TF_CONFIG") : NULL;

    if (!side) {
        pl_text_append(text, "null");
        return;
    }
    print_text("{\"name\": ", side->name, text);
    pl_text_append(text, ", \"argv\": ");
    print_words(&side->argv, text);
    if (config) {
        print_text(", \"TF_CONFIG\": ", config, text);
    } else {
        pl_text_append(text, ", \"TF_CONFIG\": null");
    }
    if (side->next) {
        pl_text_append(text, ", \"next\": ");
        print_side(side->next, text);
    }
    pl_text_append_char(text, '}');
}

enum pl_status pl_launch_plan_print_environment(const struct pl_environment *environment, struct pl_text *text,
                                                struct pl_error *reterr)
{
    print_environment(environment, text);
    pl_text_append_char(text, '\n');
    return pl_text_check(text, reterr);
}

enum pl_status pl_launch_plan_print(const struct pl_job *job, const struct pl_launch_plan *plan,
                                    const struct pl_launch_plan_steps *source, struct pl_text *text,
                                    struct pl_error *reterr)
{
    pl_text_printf(text, "{\"version\": %d", PL_LAUNCH_PLAN_VERSION);
    print_text(", \"role\": ", pl_launch_plan_role_text(plan->role), text);
    print_text(", \"launcher\": ", plan->launcher->name, text);
    pl_text_append(text, ", \"hosts\": ");
    print_words(&plan->hosts, text);
    print_text(", \"host\": ", job->current_host, text);
    print_text(", \"cwd\": ", plan->cwd, text);
    pl_text_append(text, ", \"argv\": ");
    print_command(&plan->argv, text);
    pl_text_append(text, ", \"env\": ");
    print_environment(plan->additions, text);
    pl_text_printf(text, ", \"processes\": %d, \"source\": ", plan->processes);
    print_steps(source, text);
    pl_text_append(text, ", \"steps\": ");
    print_steps(&plan->steps, text);
    pl_text_append(text, ", \"side\": ");
    print_side(plan->side, text);
    pl_text_append(text, ", \"sync\": ");
    print_command(&plan->sync, text);
    pl_text_printf(text, ", \"sshd\": %s, \"warnings\": ", plan->link == PL_LAUNCH_PLAN_LINK_NONE ? "false" : "true");
    print_words(&plan->warnings, text);
    if (plan->restarts > 0) {
        pl_text_printf(text, ", \"restarts\": %d", plan->restarts);
    }
    if (plan->shown) {
        pl_text_printf(text, ", \"%s\": ", plan->launcher->name);
        pl_python_json_print(plan->shown, PL_PYTHON_JSON_SPACED, text);
    }
    pl_text_append(text, "}\n");
    return pl_text_check(text, reterr);
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
        } else {
            pl_text_append_quoted(text, word);
        }
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
    if (plan->restarts > 0) {
        pl_text_printf(text, "%-12s at most %d\n", "restarts", plan->restarts);
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
