/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The parts of `paceline local`, which runs a job on hosts of this machine. main.c reads the command line; each other
 * file has a section here.
 *
 * The folder FOLDER/NAME holds the lock of the run, `algo-N`, which is /opt/ml of host N while the job runs,
 * `algo-N.log`, and at the end model.tar.gz and output.tar.gz.
 *
 * Test  tests/integration/local.sh, local_data.py, local_bodies.py, containers.sh, report.py
 */
#ifndef PL_PROGRAMS_LOCAL_LOCAL_H
#define PL_PROGRAMS_LOCAL_LOCAL_H

#include "base/environment.h"
#include "base/text.h"
#include "entrypoint/job/strv.h"
#include "entrypoint/supervise/process.h"
#include "programs/local/job.h"
#include "programs/local/metric.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

/** The path at which a host finds the secret of the ssh keys. */
#define PL_LOCAL_SECRET_PATH "/run/paceline-secret"

/** The name of the lock's file in FOLDER/NAME. */
#define PL_LOCAL_LOCK "lock"

/** The folder in which hosts see the folders to which a channel's links lead. */
#define PL_LOCAL_SHARDED "/run/paceline-channels"

enum {
    PL_LOCAL_LINE_BYTES = 64 * 1024,
    PL_LOCAL_SECRET_BYTES = 32,
    PL_LOCAL_MOST_FAILURE_BYTES = 1 << 20,
    PL_LOCAL_FOLDER_MODE = 0755,
    PL_LOCAL_FILE_MODE = 0644,
    PL_LOCAL_SECRET_MODE = 0600,
};

enum pl_local_kind { PL_LOCAL_AUTO, PL_LOCAL_PLAIN, PL_LOCAL_NAMESPACES, PL_LOCAL_CONTAINERS };

enum pl_local_end {
    PL_LOCAL_RUNS,
    PL_LOCAL_ENDS,  /* every host ended by itself */
    PL_LOCAL_STOP,  /* Control-C, SIGTERM or --stop */
    PL_LOCAL_LIMIT, /* MaxRuntimeInSeconds */
    PL_LOCAL_SPOT,  /* --spot */
    PL_LOCAL_FAILS, /* a host failed, and the others were stopped */
    PL_LOCAL_UNFED, /* the feeder of a channel in Pipe mode failed, and the hosts were stopped */
};

/* A simulated outage: a host loses its power, or for some time its network. */
struct pl_local_outage {
    unsigned number;          /* N of algo-N; 0: none */
    uint64_t after_ns;        /* time from the start of the job to the outage */
    uint64_t length_ns;       /* length of a cut */
    int64_t begin_ns, end_ns; /* times at which the outage began and ended; 0 before */
};

/* What this program has observed of a simulated spot stop. */
struct pl_local_spot {
    struct timespec begin; /* time of SIGTERM, on the clock of files */
    bool is_second;        /* this is the second run */
    bool was_killed;
    size_t files;   /* files that the first run wrote into the checkpoints after SIGTERM */
    double taken_s; /* time from SIGTERM to the last of these files */
    bool has_saved; /* a checkpoint that the runtime wrote is among them */
    bool knows_last, has_resumed;
    uint64_t saved_step, last_step, resumed_step;
};

struct pl_local_fed {
    const char *channel; /* borrowed */
    size_t host;
};

struct pl_local_host {
    char name[16];                /* algo-N */
    char container[96];           /* name of its container */
    char tree[PATH_MAX];          /* path of its /opt/ml on this machine */
    const char *group, *instance; /* group and type of its instance; borrowed */
    pid_t pid;                    /* its first process; 0 before it starts and after its end */
    int output_fd;                /* -1 after the end of the output */
    FILE *log;
    size_t ready; /* bytes of an unfinished line */
    char line[PL_LOCAL_LINE_BYTES];
    int code; /* the exit code, or 128 + the signal's number */
    bool started, killed;
    bool lost; /* switched off by --lose */
};

/* Sockets in the network between the hosts. The network ends with the sockets and the hosts. -1: there is none. */
struct pl_local_network {
    int link_fd;     /* socket of rtnetlink */
    int flags_fd;    /* socket to set flags of interfaces */
    unsigned bridge; /* number of the bridge's interface */
};

struct pl_local {
    const struct pl_local_job *job;
    enum pl_local_kind kind;
    bool keep, colour;
    bool has_made_folder;    /* this run made FOLDER/NAME */
    bool has_cleared;        /* what an earlier job of this name left was removed */
    bool has_code;           /* the job names a program; its code is in the caller's directory */
    char folder[PATH_MAX];   /* FOLDER/NAME, absolute */
    char cwd[PATH_MAX];      /* the caller's directory, which is the code of the job */
    char *paceline;          /* the front binary */
    const char *engine_name; /* value of --engine; NULL: podman or docker, whichever is installed */
    char *engine;
    char mark[48]; /* of this call, for its containers: its process number and PID namespace */
    char container_network[64];
    struct pl_strv engine_options;
    char **sources; /* for each channel: the folder with its data on this machine, or the address on S3 */
    struct pl_environment *environment;
    struct pl_signals signals;
    unsigned stops, stops_allowed; /* number of Control-C so far, and how many do not interrupt the ending */
    int lock_fd;
    struct pl_local_network network;             /* network of hosts in namespaces */
    unsigned char secret[PL_LOCAL_SECRET_BYTES]; /* several hosts derive their ssh keys from it */
    struct pl_local_host *hosts;
    pid_t *feeds;
    struct pl_local_fed *fed; /* the channel and the host of each process in `feeds` */
    size_t feed_count;
    int reasons_fd; /* file to which feeders write why they fail; -1: there are no feeders */
    struct pl_local_metrics *metrics;
    uint64_t stop_ns, spot_ns; /* values of options; 0: not given */
    uint64_t stop_time_ns;     /* time from SIGTERM to SIGKILL; 0: not given */
    struct pl_local_outage lose, cut;
    struct pl_local_spot spot;
    enum pl_local_end end;
    char unfed[PL_ERROR_CAUSE_BYTES];    /* for PL_LOCAL_UNFED: the channel, and why it failed; else "" */
    size_t unfed_host;                   /* host of that channel */
    char unpacked[PL_ERROR_CAUSE_BYTES]; /* why the results could not be packed; "" if they could */
    int64_t begin_ns, run_ns, stopped_ns, ended_ns, packed_ns; /* stopped_ns: time of SIGTERM */
};

/* ---- tree.c: the folder FOLDER/NAME and the trees, each as SageMaker lays out /opt/ml (docs/contract.md) ---- */

/** Sets the text to FOLDER/NAME/`format`. */
enum pl_status pl_local_path(const struct pl_local *local, struct pl_text *path, struct pl_error *reterr,
                             const char *format, ...) PL_PRINTF(4, 5) PL_MUST_CHECK;

/**
 * Makes and locks FOLDER/NAME below `folder`.
 *
 * Errors  PL_INVALID: a job of this name runs. PL_LIMIT: the disk is full.
 */
enum pl_status pl_local_tree_open_folder(struct pl_local *local, const char *folder,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/** Fills the names, trees and groups of all hosts. */
enum pl_status pl_local_tree_name_hosts(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Removes what an earlier job of this name left: the trees of the hosts and what was fetched. Errors: PL_SYSTEM if
 * something cannot be removed, which would be taken for a part of this job.
 */
enum pl_status pl_local_tree_clear(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes the results of an earlier job, which might be taken for results of this one, and opens the logs. */
enum pl_status pl_local_tree_open_logs(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the tree of every host. What an earlier run left there is removed; checkpoints stay. */
enum pl_status pl_local_tree_write(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes the trees and the files that only the run needed. */
void pl_local_tree_remove(const struct pl_local *local);

/** Removes FOLDER/NAME; the lock is removed last, so that no other call locks a folder that is being removed. */
void pl_local_tree_remove_folder(const struct pl_local *local);

/**
 * If root runs a job in a folder of another user, gives FOLDER/NAME to that user, who could not remove it otherwise.
 * Only files of root are given, except devices and hard-linked files, whose other name may be elsewhere; links are not
 * followed.
 */
void pl_local_tree_give(const struct pl_local *local);

/**
 * Draws the secret from which several hosts derive their ssh keys. A host in namespaces has it in its own memory only;
 * for containers this function writes FOLDER/NAME/secret, which they mount.
 */
enum pl_status pl_local_tree_make_secret(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes the secrets that killed calls have left in `folder`, which holds the folders of all names. */
void pl_local_tree_remove_secrets(const char *folder);

/* ---- channels.c: what hosts see below /opt/ml ----
 *
 * A folder of this machine is seen as it is, read-only in namespaces and by a link on a plain host; a sharded one as
 * links to every n-th file; a manifest as links to the files that it names; one in Pipe mode is written by
 * `paceline feed`. */

/** Checks, before the first host starts, that every channel's data is there, and fills `local->sources`. */
enum pl_status pl_local_channels_check(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Fetches channels from S3 into FOLDER/NAME/input, once for all hosts; links the data of manifests in Pipe mode. */
enum pl_status pl_local_channels_fetch(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the channels in the trees; on a plain host also the links to all that other hosts have as mounts. */
enum pl_status pl_local_channels_lay_out(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Shows the folder `from` of this machine at `to` on a host. */
typedef enum pl_status pl_local_show(void *context, const char *from, const char *to, bool read_only,
                                     struct pl_error *reterr);

/** Calls `show` for all that the host `index` sees of this machine: its tree at /opt/ml first, then what is in it. */
enum pl_status pl_local_channels_show(const struct pl_local *local, size_t index, pl_local_show *show, void *context,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Starts `paceline feed` for each host and channel in Pipe mode. After a failure a feeder keeps its FIFO open, so that
 * the program does not take the data so far for the whole channel; so the feeders report a failure through
 * `local->reasons_fd`.
 */
enum pl_status pl_local_channels_feed(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Fills `local->unfed` if a feeder has reported a failure. Does not wait. */
void pl_local_channels_read_reasons(struct pl_local *local);

/** Call when the feeder `index` of `local->feeds` has ended: fills `local->unfed` if it failed, forgets the feeder. */
void pl_local_channels_ended(struct pl_local *local, size_t index, int wait_status);

/* ---- host.c: hosts of each kind, and a plain host, which is a process with SAGEMAKER_BASE_DIR ---- */

/**
 * Chooses the kind of the hosts unless an option has chosen it, and makes what they share. For a user other than root
 * this process enters a user namespace in which only this user exists.
 *
 * Errors  PL_UNSUPPORTED: several hosts, and this machine refuses namespaces; it names what refuses them.
 *         PL_INVALID: several hosts, and sshd accepts no login of this user.
 */
enum pl_status pl_local_hosts_choose(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** "one plain host", "2 hosts in namespaces". Valid until the next call with the same `text`. */
const char *pl_local_hosts_describe(const struct pl_local *local, char text[static 64]);

/** Starts the host `index`; its output comes from `output_fd`. */
enum pl_status pl_local_host_start(struct pl_local *local, size_t index, const char *const *argv,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/* ---- host_namespace.c: hosts in namespaces ----
 *
 * Each has its own processes, host name, /opt/ml, /tmp, /run, /dev/shm and /etc/hosts, and ends with its first process,
 * which ends with this program. From two hosts on there is a network: a bridge in a network namespace of its own,
 * which this program's sockets keep, and for each host a cable to the bridge. Host N has the address 10.78.0.N on
 * eth0. The machine's own network is not touched. */

/** Tries in a short-lived process the namespaces of a host, and a mount in them. Returns 0 or an errno. */
int pl_local_namespaces_try(const struct pl_local *local);

/** Starts the host `index`. */
enum pl_status pl_local_namespaces_start(struct pl_local *local, size_t index, const char *const *argv,
                                         char *const *environment, int output_fd,
                                         struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the network with the bridge, which ends when it is closed and the hosts have ended. */
enum pl_status pl_local_network_open(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;
void pl_local_network_close(struct pl_local *local);

/** Pulls the cable of host `number` out of the bridge, or plugs it in again: frames are lost, and nobody is told. */
enum pl_status pl_local_network_set_cable(const struct pl_local *local, unsigned number, bool is_in,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/* ---- host_container.c: hosts as containers of podman or docker, by the engine's own command line ----
 *
 * Each host is a client `ENGINE run` in the foreground, which passes SIGTERM on and ends with the container's exit
 * code. Containers and the network carry a label with the process number of their `paceline local`; the next call
 * removes what a killed one left. */

/**
 * Finds the engine and the image, removes what killed calls left, and makes the network of several hosts.
 *
 * Errors  PL_NOT_FOUND: no engine, or no such image. PL_FAILED: the engine refuses, with its words.
 */
enum pl_status pl_local_containers_prepare(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes the command line of the host `index`, which runs `argv` (its first word only if the job has an entry point of
 * its own) with the variables that `environment` has beside those of this machine.
 */
enum pl_status pl_local_container_words(const struct pl_local *local, size_t index, const char *const *argv,
                                        const struct pl_environment *environment, struct pl_strv *words,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** Kills the container of the host `index`; does not wait for that. */
void pl_local_container_kill(const struct pl_local *local, size_t index);

/** Takes the container of the host `index` off the network, so that its end closes no connection, and kills it. */
enum pl_status pl_local_container_lose(struct pl_local *local, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gives the files that a daemon of root has made in the job's folder to the caller, by a container of the same image:
 * nobody but root could remove them otherwise.
 */
enum pl_status pl_local_containers_give_back(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Removes the containers and the network. Called when no client runs any more. */
void pl_local_containers_remove(struct pl_local *local);

/* ---- run.c: a job on its hosts, from their start to the end of all ---- */

/**
 * Starts every host, prints their log, stops them when asked to, and waits for the end of all. Sets `local->end` and
 * each host's code. After it, also after an error, nothing that it started runs.
 */
enum pl_status pl_local_run(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the first exit code that is not 0, in the order of the hosts, with a host that was switched off as the last;
 * `*ret_host` is that host, or NULL.
 */
int pl_local_run_code(const struct pl_local *local, const struct pl_local_host **ret_host);

/* ---- stop.c: Control-C and the signals that mean the same, in every phase of a job ----
 *
 * The first stop asks for an orderly end; each further one ends at once the action that is under way. */

/** Reads the signals that wait. Returns how many stops have come since this program began. */
unsigned pl_local_stops(struct pl_local *local);

/** Returns how many stops do not interrupt an orderly end: those so far, at least one. */
unsigned pl_local_stops_allowed(struct pl_local *local);

/**
 * Starts a program beside this one, in a process group of its own, since Control-C is for this program; it gets
 * SIGTERM when this program ends. Its output and errors go to `output_fd` and `errors_fd`, -1: to this program's own.
 */
enum pl_status pl_local_spawn(const struct pl_local *local, const char *const *argv, char *const *environment,
                              const char *cwd, int output_fd, int errors_fd, pid_t *ret_pid,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Runs a program; what it prints is appended to `answer`, if there is one. More than `allowed` stops end it: with
 * SIGTERM, and 10 s later or at the next stop with SIGKILL. At the deadline it is killed.
 *
 * Errors  PL_CANCELLED: it was stopped while `what` ("the channel 'a' was fetched"). PL_TIMEOUT. PL_FAILED: it did not
 *         end with 0. Those of pl_process_spawn().
 */
enum pl_status pl_local_run_program(struct pl_local *local, const char *const *argv, struct pl_text *answer,
                                    unsigned allowed, int64_t deadline_ns, const char *what,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/* ---- simulate.c: a host is switched off, or, in namespaces, its cable is out for some time; a spot stop ---- */

/** Reads seconds with or without the unit, 30 or 30s, into a uint64_t of nanoseconds. */
pl_option_reader pl_local_simulate_seconds;

/** Reads the value of --lose, HOST@TIME, or of --cut, HOST@TIME,TIME, into a struct pl_local_outage. */
pl_option_reader pl_local_simulate_read;

/** Checks the hosts of --lose and --cut; called before and after their kind is chosen. Errors: PL_INVALID. */
enum pl_status pl_local_simulate_check(const struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Switches the host off. */
void pl_local_simulate_lose(struct pl_local *local);

/** Pulls the cable out, or plugs it in again. Returns when to call this once more, or PL_DEADLINE_NEVER. */
int64_t pl_local_simulate_cut(struct pl_local *local);

/** Call when the job has ended: tells in a sentence each what it made of the loss and the cut, and forgets both. */
void pl_local_simulate_say(struct pl_local *local);

/* What a job made of a spot stop, as far as it is known: from the checkpoints that it wrote after SIGTERM, and from two
 * lines of its log, "stopped after step N" and, in the second run, "resuming after step N". */

/** Call when SIGTERM is sent. */
void pl_local_spot_begin(struct pl_local *local);

/** Reads a line of the log. */
void pl_local_spot_read(struct pl_local *local, const char *line, size_t bytes);

/** Call when the first run has ended: looks for what it saved. */
void pl_local_spot_look(struct pl_local *local);

/** Call when the second run has ended: tells in one sentence what the job made of the stop. */
void pl_local_spot_say(const struct pl_local *local);

/* ---- result.c: the end of a job as SageMaker shows it ---- */

/** Packs model.tar.gz and output.tar.gz. A name that two hosts wrote is a warning; the first host's file is packed. */
enum pl_status pl_local_result_pack(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** Tells in one sentence how the hosts reacted to a stop; nothing if there was none. */
void pl_local_result_say_stop(const struct pl_local *local);

/** Prints the status, the failure's reason, times, metrics and files. */
void pl_local_result_print(const struct pl_local *local);

/**
 * Writes job.json, which has the members of DescribeTrainingJob that have a meaning here, and lets `paceline report`
 * make report.html of it, the logs and the trees, which are still there. A failure is a warning.
 */
void pl_local_result_write(struct pl_local *local);

#endif
