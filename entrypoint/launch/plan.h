/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A plan: what `paceline train` does on this host for a job. A launcher makes it, a pure function of the job and the
 * code directory; the supervisor executes it; `paceline plan` prints it, once the steps that only look have ended well.
 *
 * Carrying a job out, in order: pl_source_plan()'s steps bring the code into place; then pl_launch_plan_new(); then
 * pl_launch_plan_prepare(), the plan's steps, peers, and the process.
 */
#ifndef PL_ENTRYPOINT_LAUNCH_PLAN_H
#define PL_ENTRYPOINT_LAUNCH_PLAN_H

#include "entrypoint/job/job.h"
#include "entrypoint/job/strv.h"
#include "entrypoint/launch/steps.h"

enum pl_launch_plan_role {
    PL_LAUNCH_PLAN_SINGLE, /* runs its program, depends on no other host for its result */
    PL_LAUNCH_PLAN_MASTER, /* runs the job's first process and tells the others the result */
    /* with a link takes the job's result from the master and stays until it is known; else as SINGLE */
    PL_LAUNCH_PLAN_WORKER,
};

/** The control link between the master and the other hosts of the launch: sshd on these, a session from the master. */
enum pl_launch_plan_link {
    PL_LAUNCH_PLAN_LINK_NONE,   /* one host, or each for itself */
    PL_LAUNCH_PLAN_LINK_NEEDED, /* the program starts when all hosts are there; without the link the job fails */
    PL_LAUNCH_PLAN_LINK_BESIDE, /* opens while the program runs; where it cannot, the program runs without it */
};

/** Who starts the ranks, each through `paceline rank`, which reports to its host's process 1. */
enum pl_launch_plan_ranks {
    PL_LAUNCH_PLAN_RANKS_NONE,     /* the program is the only process that is known here */
    PL_LAUNCH_PLAN_RANKS_MPIRUN,   /* mpirun on the master, and its daemons on the other hosts */
    PL_LAUNCH_PLAN_RANKS_TORCHRUN, /* torchrun, on each host for itself */
};

/**
 * A sidecar, a process next to the main one: started before it, ended when the job is done, and its early death is the
 * job's failure.
 */
struct pl_sidecar {
    const char *name; /* "ps", "worker": the task that it is in TF_CONFIG */
    bool is_worker;   /* it serves in the place of this host's program, which is not started */
    struct pl_strv argv;
    struct pl_environment *environment; /* whole */
    struct pl_sidecar *next;            /* NULL when there is no other */
};

struct pl_launcher;

struct pl_launch_plan {
    enum pl_launch_plan_role role;
    const struct pl_launcher *launcher;
    struct pl_strv hosts; /* the hosts of this launch, the master first; just this host for a direct process */
    int host_index;       /* this host's index in `hosts` */
    /* hosts beside the launch, which the master links when they come: they end when it does */
    struct pl_strv outside_hosts;
    bool is_outside;     /* this host is one of them; `hosts` is the master and this one */
    int processes;       /* ranks in the whole launch */
    int *slots;          /* how many each of `hosts` has room for, 0: it will tell; of mpirun's master, else NULL */
    bool oversubscribes; /* more processes than slots are allowed */

    char *cwd;
    /* empty where only daemons or servers run. mpirun's holds SELF rank PROGRAM... -- ARGUMENTS... itself */
    struct pl_strv argv;
    bool runs_jobs;       /* it runs jobs of their own, of which each has a watch for hangs */
    size_t program_words; /* how many of argv's first words name what runs; those after them may hold secrets */
    enum pl_launch_plan_ranks ranks;

    /* what train adds to the container's environment; `paceline plan` prints this */
    struct pl_environment *additions;
    struct pl_environment *environment; /* the container's with the additions: give this to execve */

    bool needs_names;    /* every name of job->hosts must resolve before the start */
    bool needs_no_peers; /* where hosts are not linked no name has to: each may have ended before another begins */
    enum pl_launch_plan_link link;

    struct pl_launch_plan_steps steps;
    /* at most one probe: if it fails, `optional_count` words of argv from `optional_from` on are left out */
    struct pl_launch_plan_steps probes;
    size_t optional_from;
    size_t optional_count;
    struct pl_sidecar *side;      /* the first; NULL when there is none */
    struct pl_strv daemon_prefix; /* words in front of mpirun's daemon where a worker starts it; mostly empty */
    /* uploads intermediate output while the job runs; empty when nothing is to be uploaded */
    struct pl_strv sync;
    struct pl_strv show;          /* prints an object that `paceline plan` shows under the launcher's name; or empty */
    struct pl_python_json *shown; /* that object; NULL: none */
    char *chmod_path;             /* file to make executable first; NULL when it is already or there is none */
    struct pl_strv warnings;      /* sentences to log once */
};

/** The steps that fetch the code into the code directory: none when something is there already or there is nothing to
 * fetch. */
enum pl_status pl_source_plan(const struct pl_job *job, struct pl_launch_plan_steps *steps,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A launcher: one file each, one table in launchers.c. `plan` fills role, hosts, argv, side and adds to
 * plan->additions. `describe` appends what runs on how many hosts, for the line that `paceline train` logs at the
 * start; where it appends nothing or is NULL, each host runs one program.
 */
struct pl_launcher {
    const char *name;
    bool needs_link; /* the job runs only where its hosts are linked: PL_LAUNCH_PLAN_LINK_NEEDED, else _BESIDE */
    bool (*matches)(const struct pl_job *job);
    /* fills role, hosts and link alone; NULL: those of the distribution, see pl_launcher_use_hosts() */
    enum pl_status (*use_hosts)(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr);
    enum pl_status (*plan)(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr);
    void (*describe)(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text);
};

/**
 * Make the plan by `launcher`, which pl_launchers_choose() gives. Looks at files (does the program exist, is it a
 * script) but changes nothing. Where it fails and the job's hosts are to be linked, `*ret_plan` is all the same a plan
 * that runs nothing, with which the other hosts can be notified; else NULL.
 *
 * Errors  PL_NOT_FOUND (program or interpreter), PL_INVALID (options), PL_UNSUPPORTED (launcher), PL_MEMORY.
 */
enum pl_status pl_launch_plan_new(const struct pl_job *job, const struct pl_launcher *launcher,
                                  struct pl_launch_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * A plan that runs nothing, of a job that is not prepared yet, or of one from pl_job_new_partial() and the launcher
 * that it would have had: with it the hosts are linked. It has no link where the job's hosts have none, as far as that
 * is known.
 */
enum pl_status pl_launch_plan_new_notify(const struct pl_job *job, const struct pl_launcher *launcher,
                                         struct pl_launch_plan **ret_plan, struct pl_error *reterr) PL_MUST_CHECK;

void pl_launch_plan_free(struct pl_launch_plan *plan);
void pl_launch_plan_free_at(struct pl_launch_plan **plan_at);

#define PL_AUTO_LAUNCH_PLAN __attribute__((cleanup(pl_launch_plan_free_at)))

/**
 * Make the directories that a program may rely on (model, output/data, code, intermediate) and set the program's
 * execute bits.
 */
enum pl_status pl_launch_plan_prepare(const struct pl_job *job, const struct pl_launch_plan *plan,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Take the optional words out of argv. */
void pl_launch_plan_drop_optional(struct pl_launch_plan *plan);

/** "single", "master", "worker". */
const char *pl_launch_plan_role_text(enum pl_launch_plan_role role);

enum { PL_LAUNCH_PLAN_VERSION = 1 }; /* of the JSON; docs/plan.schema.json */

/**
 * Append the plan, with the source steps before it, as one line of JSON: docs/plan.schema.json has its members. Mask
 * the job first: pl_secrets_mask().
 */
enum pl_status pl_launch_plan_print(const struct pl_job *job, const struct pl_launch_plan *plan,
                                    const struct pl_launch_plan_steps *source, struct pl_text *text,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The same for people: a line for each step, command and variable, without control characters. */
enum pl_status pl_launch_plan_print_lines(const struct pl_job *job, const struct pl_launch_plan *plan,
                                          const struct pl_launch_plan_steps *source, struct pl_text *text,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Append the variables as one line of JSON: an object. */
enum pl_status pl_launch_plan_print_environment(const struct pl_environment *environment, struct pl_text *text,
                                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
