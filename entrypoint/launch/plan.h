/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A plan: what `paceline train` does on this host for a job. A launcher makes it, a pure function of the job and the
 * code directory; the supervisor executes it; `paceline plan` prints it and starts nothing.
 *
 * Executing a job, in order: pl_source_plan()'s steps fetch the code; then pl_plan_new(); then
 * pl_plan_prepare(), the plan's steps, peers, and the process.
 */
#ifndef PL_ENTRYPOINT_LAUNCH_PLAN_H
#define PL_ENTRYPOINT_LAUNCH_PLAN_H

#include "entrypoint/job/job.h"
#include "entrypoint/job/words.h"

enum pl_plan_role {
    PL_PLAN_SINGLE, /* runs its program, depends on no other host for its result */
    PL_PLAN_MASTER, /* runs the job's first process and sends the others the result */
    /* with needs_link takes the job's result from the master and stays until it is known; else as SINGLE */
    PL_PLAN_WORKER,
};

/**
 * A program that has to end with 0 before the next thing starts (unpack, pip). Its last stderr lines belong in the
 * failure file.
 */
struct pl_plan_step {
    char *what;           /* "installing requirements.txt" */
    struct pl_words argv; /* argv[0] is an absolute path, or searched on PATH */
    char *cwd;            /* NULL: the base directory */
    bool is_question;     /* a probe: its exit code is an answer, not a failure */

    struct pl_environment *additions; /* what it gets besides the variables of its phase; NULL: nothing */
};

struct pl_plan_steps {
    struct pl_plan_step *items;
    size_t count;
    size_t capacity;
};

/**
 * A sidecar, a process next to the main one: started before it, ended when the job is done, and its early death is the
 * job's failure.
 */
struct pl_plan_side {
    const char *name; /* "ps" */
    struct pl_words argv;
    struct pl_environment *environment; /* whole */
};

struct pl_plan {
    enum pl_plan_role role;
    const char *launcher;
    struct pl_words hosts; /* the hosts of this launch, the master first; just this host for a direct process */
    int host_index;        /* this host's index in `hosts` */
    int processes;         /* ranks in the whole launch */

    char *cwd;
    /* empty for an MPI worker. With `spawns_ranks` it holds SELF rank PROGRAM... -- ARGUMENTS... itself */
    struct pl_words argv;
    size_t program_words; /* how many of argv's first words name what runs; those after them may hold secrets */
    /* argv is mpirun: ranks are its children and the remote daemons', each through `paceline rank` */
    bool spawns_ranks;

    /* what train adds to the container's environment; `paceline plan` prints this */
    struct pl_environment *additions;
    struct pl_environment *environment; /* the container's with the additions: give this to execve */

    bool needs_names; /* every name of job->hosts must resolve before the start */
    /* more than one host and one result: sshd here, a control link between the master and the others */
    bool needs_link;

    struct pl_plan_steps steps;
    /* at most one probe: if it fails, `optional_count` words of argv from `optional_at` on are left out */
    struct pl_plan_steps questions;
    size_t optional_at;
    size_t optional_count;
    struct pl_plan_side *side; /* NULL when there is none */
    /* uploads intermediate output while the job runs; empty when nothing is to be uploaded */
    struct pl_words sync;
    char *chmod_path;         /* file to make executable first; NULL when it is already or there is none */
    struct pl_words warnings; /* sentences to log once */
};

/** The steps that fetch the code into the code directory: none when something is there already or there is nothing to
 * fetch. */
enum pl_status pl_source_plan(const struct pl_job *job, struct pl_plan_steps *steps,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Choose the launcher and make the plan. Looks at files (does the program exist, is it a script) but changes nothing.
 *
 * Errors  PL_NOT_FOUND (program or interpreter), PL_INVALID (options), PL_UNSUPPORTED (launcher), PL_MEMORY.
 */
enum pl_status pl_plan_new(const struct pl_job *job, struct pl_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

void pl_plan_free(struct pl_plan *plan);
void pl_plan_free_at(struct pl_plan **plan_at);
void pl_plan_steps_done(struct pl_plan_steps *steps);

#define PL_AUTO_PLAN __attribute__((cleanup(pl_plan_free_at)))
#define PL_AUTO_STEPS __attribute__((cleanup(pl_plan_steps_done)))

/**
 * Make the directories that a program may rely on (model, output/data, code, intermediate) and set the program's
 * execute bits.
 */
enum pl_status pl_plan_prepare(const struct pl_job *job, const struct pl_plan *plan,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Take the optional words out of argv. */
void pl_plan_drop_optional(struct pl_plan *plan);

/** "single", "master", "worker". */
const char *pl_plan_role_text(enum pl_plan_role role);

/**
 * Append the plan, with the source steps before it, as one line of JSON: role, launcher, hosts, host, cwd, argv (null
 * where nothing is started), env, processes, source, steps, side, sync, sshd, warnings. Mask the job first:
 * pl_secrets_mask().
 */
enum pl_status pl_plan_print(const struct pl_job *job, const struct pl_plan *plan, const struct pl_plan_steps *source,
                             struct pl_text *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Append the variables as one line of JSON: an object. */
enum pl_status pl_plan_print_environment(const struct pl_environment *environment, struct pl_text *text,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A launcher: one file each, one table in plan.c. `plan` fills role, launcher, hosts, argv, side and adds to
 * plan->additions.
 */
struct pl_launcher {
    const char *name;
    bool (*matches)(const struct pl_job *job);
    enum pl_status (*plan)(const struct pl_job *job, struct pl_plan *plan, struct pl_error *reterr);
};

#endif
