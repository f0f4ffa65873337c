/* SPDX-License-Identifier: Apache-2.0 */
/* The words of mpirun: its host list and number of processes, the names of its options in Open MPI 4 and 5, and the
 * user's own options. */
#include "entrypoint/launch/mpi_options.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* "%IF" is replaced by the interface. NULL: that version has no such setting, or does it by itself. */
static const struct {
    const char *const v4[3];
    const char *const v5[3];
} fixed[] = {
    {{"--allow-run-as-root"}, {"--allow-run-as-root"}},
    {{"--display-map"}, {"--display", "map"}},
    {{"--tag-output"}, {"--output", "tag"}},
    {{"-mca", "btl_tcp_if_include", "%IF"}, {"--mca", "btl_tcp_if_include", "%IF"}},
    {{"-mca", "oob_tcp_if_include", "%IF"}, {"--prtemca", "prte_if_include", "%IF"}},
    {{"-mca", "plm_rsh_no_tree_spawn", "1"}, {"--prtemca", "plm_ssh_no_tree_spawn", "1"}},
    {{"-bind-to", "none"}, {"--bind-to", "none"}},
    {{"-map-by", "slot"}, {"--map-by", "slot"}},
    {{"-mca", "pml", "ob1"}, {"--mca", "pml", "ob1"}},
    {{"-mca", "btl", "^openib"}, {NULL}},                     /* version 5 does not have the component any more */
    {{"-mca", "orte_abort_on_non_zero_status", "1"}, {NULL}}, /* the default */
    {{"-mca", "btl_vader_single_copy_mechanism", "none"}, {"--mca", "smsc", "^cma"}},
};

/* Whether the directory of `file` holds `name`. */
static bool has_sibling(const char *file, const char *name)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    const char *slash = strrchr(file, '/');

    pl_text_append_n(&path, file, slash ? (size_t)(slash - file + 1) : 0);
    pl_text_append(&path, name);
    return access(pl_text_string(&path), X_OK) == 0;
}

static int find_major(const struct pl_job *job)
{
    PL_AUTO_FREE char *mpirun = NULL;
    PL_AUTO_FREE char *real = NULL;

    if (pl_file_find_program("mpirun", pl_environment_get(job->process, "PATH"), &mpirun, NULL) != PL_OK) {
        return 4;
    }
    real = realpath(mpirun, NULL);
    if (has_sibling(mpirun, "orted") || (real && has_sibling(real, "orted"))) {
        return 4;
    }
    return has_sibling(mpirun, "prted") || (real && has_sibling(real, "prted")) ? 5 : 4;
}

enum pl_status pl_mpi_options_major(const struct pl_job *job, int *ret_major, struct pl_error *reterr)
{
    const char *named = job->settings.mpi_version;

    if (!named) {
        *ret_major = find_major(job);
        return PL_OK;
    }
    if ((named[0] != '4' && named[0] != '5') || (named[1] != '\0' && named[1] != '.')) {
        return pl_error_set(reterr, PL_INVALID, "PACELINE_MPI_VERSION is '%.60s': expected 4 or 5", named);
    }
    *ret_major = named[0] - '0';
    return PL_OK;
}

/* Returns the option without its dashes; Open MPI takes one dash or two. */
static const char *option_name(const char *word)
{
    return word[0] == '-' ? word + strspn(word, "-") : "";
}

/*
 * Open MPI 4 takes the last of two `--bind-to`, Open MPI 5 refuses them; both refuse a parameter (three words) twice.
 * Open MPI 5 also exits without a message if it is told to use the loopback interface while there is another interface;
 * without the option it uses what there is.
 */
static bool is_left_out(const char *const *option, const char *interface, const struct pl_strv *custom)
{
    if (option[0] && strcmp(option[0], "--prtemca") == 0 && strcmp(option[1], "prte_if_include") == 0) {
        return strcmp(interface, "lo") == 0;
    }
    for (size_t i = 0; option[0] && !option[2] && i < custom->count; i++) {
        if (strcmp(option_name(custom->items[i]), option_name(option[0])) == 0) {
            return true;
        }
    }
    return false;
}

void pl_mpi_options_add_fixed(int major, const char *interface, const struct pl_strv *custom, struct pl_strv *words)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(fixed); i++) {
        const char *const *option = major >= 5 ? fixed[i].v5 : fixed[i].v4;

        if (major >= 5 && is_left_out(option, interface, custom)) {
            continue;
        }
        for (size_t word = 0; word < 3 && option[word]; word++) {
            pl_strv_add(words, strcmp(option[word], "%IF") == 0 ? interface : option[word]);
        }
    }
}

/* Remove a fixed option: one word of Open MPI 4, or two of 5. The user's own options come after the first -x. */
static void remove_fixed(struct pl_strv *argv, const char *v4, const char *const v5[2])
{
    for (size_t i = 0; i + 1 < argv->count && strcmp(argv->items[i], "-x") != 0; i++) {
        const bool is_v5 = strcmp(argv->items[i], v5[0]) == 0 && strcmp(argv->items[i + 1], v5[1]) == 0;

        if (is_v5 || strcmp(argv->items[i], v4) == 0) {
            pl_strv_remove(argv, i, is_v5 ? 2 : 1);
            return;
        }
    }
}

void pl_mpi_options_remove_map(struct pl_strv *argv)
{
    remove_fixed(argv, "--display-map", (const char *const[]){"--display", "map"});
}

void pl_mpi_options_remove_tags(struct pl_strv *argv)
{
    remove_fixed(argv, "--tag-output", (const char *const[]){"--output", "tag"});
}

/* Returns the level in "--NCCL_DEBUG=LEVEL", "" for "--NCCL_DEBUG", and NULL if `word` is another option. */
static const char *nccl_debug_level(const char *word)
{
    static const char name[] = "NCCL_DEBUG";
    size_t length;

    if (strncmp(word, "--", 2) != 0) {
        return NULL;
    }
    word += 2;
    length = strcspn(word, "=");
    if (length == 0 || length > sizeof(name) - 1 || strncmp(word, name, length) != 0) {
        return NULL;
    }
    return word[length] == '=' ? word + length + 1 : "";
}

/* Whether the word allows oversubscription: --oversubscribe, slot:OVERSUBSCRIBE or rmaps_base_oversubscribe. */
static bool is_oversubscribe(const char *word)
{
    const char *at = strcasestr(word, "oversubscribe");

    return at && !(at - word >= 2 && strncasecmp(at - 2, "no", 2) == 0);
}

/* Returns the number after the last -np, -n or -c, or -1 if there is none. */
static long processes_of(const struct pl_strv *words)
{
    long processes = -1;

    for (size_t i = 0; i + 1 < words->count; i++) {
        const char *name = option_name(words->items[i]), *value = words->items[i + 1];

        if ((strcmp(name, "np") == 0 || strcmp(name, "n") == 0 || strcmp(name, "c") == 0) && *value != '\0' &&
            value[strspn(value, "0123456789")] == '\0') {
            processes = strtol(value, NULL, 10);
        }
    }
    return processes;
}

enum pl_status pl_mpi_options_sort(const struct pl_strv *all, const char *what, struct pl_mpi_options_custom *custom,
                                   struct pl_error *reterr)
{
    custom->nccl_debug = "INFO";
    for (size_t i = 0; i < all->count; i++) {
        const char *word = all->items[i];
        const char *level = nccl_debug_level(word);

        if (!level) {
            custom->oversubscribe = custom->oversubscribe || is_oversubscribe(word);
            pl_strv_add(&custom->words, word);
            continue;
        }
        if (*level == '\0' && !strchr(word, '=')) {
            if (i + 1 >= all->count || all->items[i + 1][0] == '-') {
                return pl_error_set(reterr, PL_INVALID, "%s: expected a level after %s, such as INFO or WARN", what,
                                    word);
            }
            level = all->items[++i];
        }
        custom->nccl_debug = pl_pool_string(custom->words.pool, level);
    }
    custom->processes = processes_of(&custom->words);
    if (custom->words.count > 0 && strcmp(custom->words.items[custom->words.count - 1], "-x") == 0) {
        /* Open MPI would take the option that Paceline adds next for the variable, and the word after that for the
         * program. */
        return pl_error_set(reterr, PL_INVALID, "%s: expected a variable after the last -x, such as NAME or NAME=VALUE",
                            what);
    }
    return PL_OK;
}

enum pl_status pl_mpi_options_split(const char *text, struct pl_mpi_options_custom *custom, struct pl_error *reterr)
{
    static const char name[] = "sagemaker_mpi_custom_mpi_options";
    struct pl_strv all = {.pool = custom->words.pool};

    PL_TRY(pl_strv_split(text, name, &all, reterr));
    return pl_mpi_options_sort(&all, name, custom, reterr);
}

/* Whether the word is any number of backslashes and then a ":". */
static bool is_separator(const char *word)
{
    return strcmp(word + strspn(word, "\\"), ":") == 0;
}

void pl_mpi_options_guard(struct pl_strv *words, size_t first)
{
    for (size_t i = first; i < words->count; i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        if (is_separator(words->items[i])) {
            pl_text_printf(&text, "\\%s", words->items[i]);
            pl_strv_set(words, i, pl_text_string(&text));
        }
    }
}

const char *pl_mpi_options_unguard(const char *word)
{
    return *word == '\\' && is_separator(word) ? word + 1 : word;
}

void pl_mpi_options_remove_mapping(struct pl_mpi_options_custom *custom)
{
    static const char *const with_value[] = {"np",         "n",      "c",       "N",  "npernode",
                                             "npersocket", "map-by", "rank-by", "rf", "rankfile"};
    static const char *const alone[] = {"pernode", "bynode", "byslot"};
    struct pl_strv *words = &custom->words;

    for (size_t i = 0; i < words->count;) {
        const char *name = option_name(words->items[i]);
        size_t remove = 0;

        for (size_t k = 0; k < PL_ARRAY_ITEMS(with_value); k++) {
            remove = strcmp(name, with_value[k]) == 0 ? 2 : remove;
        }
        for (size_t k = 0; k < PL_ARRAY_ITEMS(alone); k++) {
            remove = strcmp(name, alone[k]) == 0 ? 1 : remove;
        }
        if (remove > 0) {
            pl_strv_remove(words, i, remove < words->count - i ? remove : words->count - i);
        } else {
            /* the words after -x and the like are not options */
            i += strcmp(name, "x") == 0 ? 2 : strcmp(name, "mca") == 0 || strcmp(name, "prtemca") == 0 ? 3 : 1;
        }
    }
    custom->processes = -1;
}

/* the indexes of LIST and NUMBER in `mpirun --host LIST -np NUMBER` */
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
static void print_list(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *list)
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
    plan->slots = pl_pool_new(&plan->pool, plan->hosts.count, sizeof(*plan->slots));
    PL_TRY(pl_pool_check(&plan->pool, reterr));
    memcpy(plan->slots, job->host_processes, plan->hosts.count * sizeof(*plan->slots));
    PL_TRY(count(job, plan, reterr));
    print_list(job, plan, &list);
    pl_strv_add(&plan->argv, "mpirun", "--host");
    pl_strv_add_text(&plan->argv, &list);
    pl_strv_add(&plan->argv, "-np");
    pl_strv_printf(&plan->argv, "%d", plan->processes);
    return PL_OK;
}

enum pl_status pl_mpi_hosts_apply(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    PL_TRY(count(job, plan, reterr));
    print_list(job, plan, &list);
    PL_TRY(pl_text_check(&list, reterr));
    pl_strv_set(&plan->argv, LIST_WORD, pl_text_string(&list));
    pl_strv_set(&plan->argv, NUMBER_WORD, pl_pool_printf(&plan->pool, "%d", plan->processes));
    return pl_pool_check(&plan->pool, reterr);
}
