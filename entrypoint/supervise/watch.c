/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether nothing happens any more on a host. */
#include "entrypoint/supervise/watch.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/proc/proc.h"
#include "entrypoint/ssh/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A host counts as quiet only after this many looks. A look reads a few files of /proc for each process. */
#define LOOKS 10
#define SHORTEST_LOOK_NS (PL_NS_PER_S / 4)
#define LONGEST_LOOK_NS (10 * PL_NS_PER_S)

/* Idle hosts exchange heartbeats, less than this in the whole time. More traffic counts as activity. */
enum { NETWORK_BYTES = 1 << 20 };

enum pl_status pl_watch_hook_python(struct pl_environment *environment, const char *self_path, struct pl_error *reterr)
{
    const char *before = pl_environment_get_or(environment, "PYTHONPATH", NULL);
    PL_AUTO_FREE char *module = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_companion_find(self_path, "python/sitecustomize.py", &module, reterr));
    pl_text_append_n(&path, module, (size_t)(strrchr(module, '/') - module));
    if (before) {
        pl_text_printf(&path, ":%s", before);
    }
    PL_TRY(pl_text_check(&path, reterr));
    return pl_environment_set(environment, "PYTHONPATH", pl_text_string(&path), reterr);
}

enum pl_status pl_watch_prepare(struct pl_watch *watch, const struct pl_job *job, const struct pl_rundir *rundir,
                                bool python, struct pl_environment *environment, struct pl_error *reterr)
{
    char path[PL_RUNDIR_PATH_BYTES + 32];

    if (watch->hang_ns == 0) {
        return PL_OK;
    }
    snprintf(path, sizeof(path), "%s/activity", rundir->path);
    watch->is_trial = job->settings.trial;
    PL_TRY(pl_activity_new(path, &watch->activity, reterr));
    PL_TRY(pl_environment_set(environment, PL_ACTIVITY_VARIABLE, path, reterr));
    snprintf(path, sizeof(path), "%s/python", rundir->path);
    if (mkdir(path, 0700) != 0) {
        return pl_error_errno(reterr, "make the directory '%s'", path);
    }
    PL_TRY(pl_environment_set(environment, PL_WATCH_PYTHON_VARIABLE, path, reterr));
    return python ? pl_watch_hook_python(environment, job->self_path, reterr) : PL_OK;
}

/* Whether there was any activity since the last activity that was seen. */
static bool is_active(struct pl_watch *watch)
{
    uint64_t seen = 0, network_bytes = watch->is_trial ? 0 : pl_proc_network_bytes();
    struct stat paceline;
    bool active;

    if (stat("/proc/self/exe", &paceline) != 0 || pl_proc_activity(&paceline, &seen, NULL) != PL_OK) {
        return true; /* a host that cannot be observed does not count as quiet */
    }
    seen += pl_activity_sum(&watch->activity);
    active = seen != watch->seen || network_bytes - watch->network_bytes > NETWORK_BYTES;
    if (active) {
        watch->seen = seen;
        watch->network_bytes = network_bytes;
    }
    if (watch->rebase) {
        watch->rebase = false;
        return false;
    }
    return active;
}

void pl_watch_look(struct pl_watch *watch, bool paused, int64_t *next_ns)
{
    int64_t period_ns = watch->hang_ns / LOOKS;

    if (!watch->begun) {
        watch->begun = true;
        watch->active_ns = pl_clock_now_ns();
    }
    if (paused || watch->answer_pid != 0) {
        return;
    }
    if (pl_deadline_passed(watch->next_look_ns)) {
        period_ns = period_ns < SHORTEST_LOOK_NS ? SHORTEST_LOOK_NS : period_ns;
        period_ns = period_ns > LONGEST_LOOK_NS ? LONGEST_LOOK_NS : period_ns;
        watch->next_look_ns = pl_deadline_after_ns(period_ns);
        if (is_active(watch)) {
            watch->active_ns = pl_clock_now_ns();
        }
    }
    watch->quiet = pl_clock_now_ns() - watch->active_ns >= watch->hang_ns;
    if (!watch->quiet && watch->active_ns + watch->hang_ns < *next_ns) {
        *next_ns = watch->active_ns + watch->hang_ns;
    }
    *next_ns = watch->next_look_ns < *next_ns ? watch->next_look_ns : *next_ns;
}

void pl_watch_note_exec(struct pl_watch *watch, const char *path, pid_t pid)
{
    if (strcmp(basename(path), PL_WATCH_REPORTER) == 0) {
        watch->answer_pid = pid;
        watch->rebase = true;
    }
}

bool pl_watch_note_child_end(struct pl_watch *watch, pid_t pid)
{
    const bool is_answer = pid == watch->answer_pid;

    watch->answer_pid = is_answer ? 0 : watch->answer_pid;
    return is_answer;
}

void pl_watch_done(struct pl_watch *watch)
{
    pl_activity_done(&watch->activity);
}
