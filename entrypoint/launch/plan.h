/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A plan: what `paceline train` does on this host for a job. A launcher makes it from the job and the code directory
 * alone; the supervisor executes it; `paceline plan` prints it after the steps that only look have succeeded.
 *
 * The order in which a job is executed: pl_launch_plan_begin() chooses launcher and hosts, which are linked; the steps
 * of pl_source_plan() fetch the code; pl_launch_plan_fill() completes the plan; pl_launch_plan_prepare() makes
 * directories; then come the plan's steps, its probe, its sidecars and its process.
 */
#ifndef PL_ENTRYPOINT_LAUNCH_PLAN_H
#define PL_ENTRYPOINT_LAUNCH_PLAN_H

#include "entrypoint/job/job.h"
#include "entrypoint/job/strv.h"

enum pl_launch_plan_role {
    PL_LAUNCH_PLAN_SINGLE, /* runs its program; its result depends on no other host */
    PL_LAUNCH_PLAN_MASTER, /* runs the job's first process and sends the result to the other hosts */
    /* with a link: stays until the master has sent the job's result, and takes it over; without one: like SINGLE */
    PL_LAUNCH_PLAN_WORKER,
};

/**
 * The control link between the master and the other hosts of the launch: sshd on the others, an ssh session from the
 * master.
 */
enum pl_launch_plan_link {
    PL_LAUNCH_PLAN_LINK_NONE,   /* there is only one host, or each host works for itself */
    PL_LAUNCH_PLAN_LINK_NEEDED, /* the program starts when all hosts are linked; without the link the job fails */
    PL_LAUNCH_PLAN_LINK_BESIDE, /* opens while the program runs; if it cannot be opened, the program runs without it */
};

/** The program that starts the ranks. Each rank runs under `paceline rank`, which reports to process 1 of its host. */
enum pl_launch_plan_ranks {
    PL_LAUNCH_PLAN_RANKS_NONE,     /* only the program itself is known to process 1 */
    PL_LAUNCH_PLAN_RANKS_MPIRUN,   /* mpirun on the master, and its daemons on the other hosts */
    PL_LAUNCH_PLAN_RANKS_TORCHRUN, /* torchrun on each host starts the ranks of that host */
};

/**
 * A program that must exit with 0 before the next step starts (unpack, pip). Its last stderr lines go into the failure
 * file.
 */
struct pl_launch_plan_step {
    const char *what;    /* "installing requirements.txt" */
    struct pl_strv argv; /* argv[0] is an absolute path, or is searched on PATH */
    const char *cwd;     /* NULL: the base directory */
    bool is_probe;       /* a probe: its exit code is an answer and no failure */
    bool is_long;        /* the step may take minutes: its beginning is logged */
    bool only_looks;     /* the step changes nothing: `paceline plan` runs it too, if all steps before it only look */

    struct pl_environment *additions; /* further variables of the step, besides those of its phase; may be NULL */
};

enum { PL_LAUNCH_PLAN_STEPS_MAX = 8 };

/** Steps: programs that run one after the other before the job's own program. Do not copy it. */
struct pl_launch_plan_steps {
    struct pl_pool pool;
    struct pl_launch_plan_step items[PL_LAUNCH_PLAN_STEPS_MAX];
    size_t count;
};

/**
 * Add a step without words; `cwd` may be NULL. Returns the step's list of words, to which the caller adds. If memory is
 * out, steps->pool remembers that. This function and the next two are in launcher.c, because plan.c depends on that
 * file.
 */
struct pl_strv *pl_launch_plan_add_step(struct pl_launch_plan_steps *steps, const char *what, const char *cwd);

/** Add a step in the base directory that only looks. */
struct pl_strv *pl_launch_plan_add_look(struct pl_launch_plan_steps *steps, const char *what);

/** Set a variable for the step that was added last. */
void pl_launch_plan_set_for_step(struct pl_launch_plan_steps *steps, const char *name, const char *value);

void pl_launch_plan_steps_done(struct pl_launch_plan_steps *steps);

#define PL_AUTO_STEPS __attribute__((cleanup(pl_launch_plan_steps_done)))

/**
 * A sidecar: a process next to the main one. It is started before the main process and stopped when the job is done. If
 * it ends earlier, the job has failed.
 */
struct pl_sidecar {
    const char *name; /* "ps", "worker": its task in TF_CONFIG; or the channel that it divides */
    bool is_worker;   /* serves instead of this host's program, which is not started */
    bool is_split;    /* divides a channel in Pipe Mode among the ranks of this host */
    struct pl_strv argv;
    struct pl_environment *environment; /* its whole environment; NULL: the environment of the plan's process */
    struct pl_sidecar *next;            /* the next sidecar; NULL after the last */
};

struct pl_launcher;

struct pl_launch_plan {
    struct pl_pool pool; /* owns the texts and lists of the plan */
    enum pl_launch_plan_role role;
    const struct pl_launcher *launcher;
    struct pl_strv hosts; /* the hosts of this launch, the master first; only this host for a single process */
    int host_index;       /* this host's index in `hosts` */
    /* hosts outside the launch, which the master links when they connect: they end when the launch ends */
    struct pl_strv outside_hosts;
    bool is_outside; /* this host is outside the launch; `hosts` are then the master and this host */
    int processes;   /* ranks in the whole launch */
    /* how many ranks each of `hosts` has room for, 0 if the host will report it; only for the master of mpirun, else
     * NULL */
    int *slots;
    bool oversubscribes; /* more processes than slots are allowed */

    const char *cwd;
    /* empty if only daemons or servers run; mpirun's argv contains SELF rank PROGRAM... -- ARGUMENTS... */
    struct pl_strv argv;
    bool runs_jobs;       /* the program starts jobs, and each of these watches for hangs itself */
    size_t program_words; /* how many first words of argv name the program; the words after them may contain secrets */
    enum pl_launch_plan_ranks ranks;

    /* the variables that train adds to the container's environment; `paceline plan` prints them */
    struct pl_environment *additions;
    struct pl_environment *environment; /* the container's environment with the additions, for execve */

    bool needs_names;    /* every name of job->hosts must resolve before the program starts */
    bool needs_no_peers; /* hosts without a link need not resolve: one host may end before another begins */
    enum pl_launch_plan_link link;

    struct pl_launch_plan_steps steps;
    /* at most one probe: if it fails, `optional_count` words of argv from `optional_from` on are removed */
    struct pl_launch_plan_steps probes;
    size_t optional_from;
    size_t optional_count;
    struct pl_sidecar *side; /* the first sidecar; NULL if there is none */
    /* uploads intermediate output while the job runs; empty if nothing is to be uploaded */
    struct pl_strv sync;
    /* the command of a program that prints an object, which `paceline plan` shows under the launcher's name; may be
     * empty */
    struct pl_strv show;
    struct pl_python_json *shown; /* the object that `show` printed; NULL if there is none */
    /* file to make executable first; NULL if there is none, or it is executable already */
    const char *chmod_path;
    struct pl_strv warnings; /* sentences to log once */
    int restarts;            /* how often the job may be started again; 0 if it cannot be */
};

/**
 * Make the steps that fetch the code into the code directory. There are no steps if the directory has code already, or
 * if there is nothing to fetch.
 */
enum pl_status pl_source_plan(const struct pl_job *job, struct pl_launch_plan_steps *steps,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Choose the launcher, which is the first in the table that matches the job. It determines the hosts of the launch,
 * this host's role and the link. The plan runs nothing yet, but the hosts can be linked. The job may be one whose code
 * is not there yet, or one from pl_job_new_partial() with the launcher that it would have had.
 */
enum pl_status pl_launch_plan_begin(const struct pl_job *job, struct pl_launch_plan **ret_plan,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Complete such a plan. Looks at files (whether the program exists, whether it is a script) but changes nothing. A plan
 * whose program survives the loss of hosts by itself has no link afterwards.
 *
 * Errors  PL_NOT_FOUND (program or interpreter), PL_INVALID (options), PL_UNSUPPORTED (launcher), PL_MEMORY.
 */
enum pl_status pl_launch_plan_fill(const struct pl_job *job, struct pl_launch_plan *plan,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Calls pl_launch_plan_begin() and pl_launch_plan_fill(), for a job whose code is there. */
enum pl_status pl_launch_plan_new(const struct pl_job *job, struct pl_launch_plan **ret_plan,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_launch_plan_free(struct pl_launch_plan *plan);

PL_CLEANUP(pl_launch_plan_free_at, struct pl_launch_plan, pl_launch_plan_free)
#define PL_AUTO_LAUNCH_PLAN __attribute__((cleanup(pl_launch_plan_free_at)))

/**
 * Make the directories that a program may use (model, output/data, code, intermediate), and set the program's execute
 * bits.
 */
enum pl_status pl_launch_plan_prepare(const struct pl_job *job, const struct pl_launch_plan *plan,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Remove the optional words from argv. */
void pl_launch_plan_drop_optional(struct pl_launch_plan *plan);

/** Returns "single", "master" or "worker". */
const char *pl_launch_plan_role_text(enum pl_launch_plan_role role);

enum { PL_LAUNCH_PLAN_VERSION = 1 }; /* the version of the JSON: docs/plan.schema.json */

/**
 * Append the plan, with the source steps before it, as one line of JSON: docs/plan.schema.json describes its members.
 * Mask the job's secrets first with pl_secrets_mask().
 */
enum pl_status pl_launch_plan_print(const struct pl_job *job, const struct pl_launch_plan *plan,
                                    const struct pl_launch_plan_steps *source, struct pl_text *text,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Append the plan for people: a line for each step, command and variable, without control characters. */
enum pl_status pl_launch_plan_print_lines(const struct pl_job *job, const struct pl_launch_plan *plan,
                                          const struct pl_launch_plan_steps *source, struct pl_text *text,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** Append the variables as one line of JSON: an object. */
enum pl_status pl_launch_plan_print_environment(const struct pl_environment *environment, struct pl_text *text,
                                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
