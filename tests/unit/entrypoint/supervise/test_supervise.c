/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/supervise.c, entrypoint/supervise/supervise_failure.c,
 * entrypoint/supervise/supervise_start.c, entrypoint/supervise/host.c, entrypoint/supervise/holding.c,
 * entrypoint/supervise/links.c, entrypoint/supervise/frames.c, entrypoint/supervise/peers.c,
 * entrypoint/supervise/restart.c. */
/* The supervisor executes plans that are made by hand, whose programs are shell scripts. */
#include "base/environment.h"
#include "base/fd.h"
#include "base/kept_head.h"
#include "entrypoint/supervise/supervise.h"
#include "tests/unit/entrypoint/tree.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct rig {
    struct tree tree;
    struct pl_signals signals;
    struct pl_failure failure;
    struct pl_launch_plan plan;
    struct pl_sidecar side;
    struct pl_supervisor supervisor;
};

/* Set up a host of a job on `hosts`, JSON strings with commas between them; this host is the first. Scripts know
 * process 1 as $SUPERVISOR. */
static void rig_setup(struct rig *rig, const char *hosts)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char pid[16], path[PATH_MAX];

    *rig = (struct rig){.signals = PL_SIGNALS_NONE, .failure = PL_FAILURE_NONE};
    tree_setup(&rig->tree);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    tree_env(&rig->tree, "SUPERVISOR", pid);
    tree_env(&rig->tree, "PACELINE_PEER_WAIT_S", "1");
    pl_text_printf(&text, "{\"current_host\": \"localhost\", \"hosts\": [%s], \"network_interface_name\": \"lo\"}",
                   hosts);
    tree_write(&rig->tree, "input/config/resourceconfig.json", pl_text_string(&text));
    ck_ok(tree_job, &rig->tree);
    ck_ok(pl_signals_open, &rig->signals);
    ck_ok(pl_failure_open, &rig->failure, scratch_path(&rig->tree.scratch, "output", path));
    pl_supervise_open(&rig->supervisor, rig->tree.job, &rig->signals, &rig->failure, &pl_host_calls);
    rig->plan = (struct pl_launch_plan){.role = PL_LAUNCH_PLAN_SINGLE,
                                        .cwd = (char *)(uintptr_t)rig->tree.base,
                                        .environment = rig->tree.environment,
                                        .additions = rig->tree.environment};
}

static void take_plan(struct rig *rig)
{
    ck_ok(pl_supervise_set_plan, &rig->supervisor, &rig->plan);
}

static void add_script(struct pl_strv *argv, const char *script)
{
    pl_strv_add(argv, "sh", "-c", script);
}

/* Run a program to its end, with a server as its sidecar. Returns the exit code. */
static int run_with_server(struct rig *rig, bool is_worker, const char *server, const char *program)
{
    rig_setup(rig, "\"localhost\"");
    add_script(&rig->side.argv, server);
    rig->side.environment = rig->tree.environment;
    rig->side.is_worker = is_worker;
    rig->plan.side = &rig->side;
    add_script(&rig->plan.argv, program);
    take_plan(rig);
    return pl_host_execute(&rig->supervisor);
}

static void rig_done(struct rig *rig)
{
    pl_supervise_kill_all(&rig->supervisor, false);
    pl_supervise_close(&rig->supervisor);
    pl_failure_close(&rig->failure);
    pl_signals_restore(&rig->signals);
    close(rig->signals.fd);
    pl_strv_done(&rig->plan.argv);
    pl_strv_done(&rig->plan.sync);
    pl_strv_done(&rig->side.argv);
    tree_done(&rig->tree);
}

static void expect_file(const struct rig *rig, const char *name, const char *beginning)
{
    PL_AUTO_FREE char *data = NULL;
    char path[PATH_MAX];

    ck_ok(pl_file_read, scratch_path(&rig->tree.scratch, name, path), 65536, &data, NULL);
    ck_assert_msg(strncmp(data, beginning, strlen(beginning)) == 0, "%s: '%s'", name, data);
}

TEST(a_stop_leaves_the_parameter_server_to_the_program_that_saves)
{
    struct rig rig;
    int code;

    code = run_with_server(
        &rig, false, "trap 'echo served >>log; exit 0' TERM; echo >serving; while :; do sleep 0.02; done",
        "until [ -e serving ]; do sleep 0.02; done; trap 'sleep 0.5; echo saved >>log; exit 0' TERM\n"
        "kill -TERM $SUPERVISOR; while :; do sleep 0.02; done");
    ck_assert_int_eq(code, 0);
    expect_file(&rig, "log", "saved\n");
    expect_file(&rig, "output/success", "");
    rig_done(&rig);
}

TEST(a_server_that_dies_fails_the_job_by_its_name)
{
    struct rig rig;

    ck_assert_int_eq(run_with_server(&rig, false, "exit 7", "exec sleep 100"), 1);
    expect_file(&rig, "output/failure", "the parameter server on host localhost exited with code 7\n");
    rig_done(&rig);
    ck_assert_int_eq(run_with_server(&rig, true, "exit 7", "exec sleep 100"), 1);
    expect_file(&rig, "output/failure", "the worker's server on host localhost exited with code 7\n");
    rig_done(&rig);
}

TEST(open_mpi_5_keeps_its_files_in_the_run_directory_and_they_go_with_it)
{
    static const char name[] = "PRTE_MCA_prte_tmpdir_base";
    char run_dir[PATH_MAX], path[PATH_MAX + 64];
    struct rig rig;
    int fd;

    for (int own = 0; own < 2; own++) {
        rig_setup(&rig, "\"localhost\"");
        if (own) {
            tree_env(&rig.tree, name, "/scratch");
            rig.plan.environment = rig.tree.environment;
        }
        rig.plan.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
        take_plan(&rig);
        snprintf(run_dir, sizeof(run_dir), "%s", rig.supervisor.rundir.path);
        ck_assert_str_eq(pl_environment_get(rig.supervisor.environment, name), own ? "/scratch" : run_dir);
        snprintf(path, sizeof(path), "%s/prterun.algo-1.12.0", run_dir);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/prterun.algo-1.12.0/hwloc.sm", run_dir);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
        rig_done(&rig);
        ck_assert_int_ne(access(run_dir, F_OK), 0);
    }
}

/* A name that is too long for DNS does not resolve, and costs no time. */
#define LABEL "a.name.that.is.too.long."
#define LONG_NAME LABEL LABEL LABEL LABEL LABEL LABEL LABEL LABEL LABEL LABEL LABEL "x"

TEST(an_upload_that_dies_while_names_are_resolved_fails_nothing)
{
    struct rig rig;

    rig_setup(&rig, "\"localhost\", \"" LONG_NAME "\"");
    add_script(&rig.plan.sync, "exit 1");
    add_script(&rig.plan.argv, "true");
    rig.plan.needs_names = true;
    take_plan(&rig);
    pl_supervise_start_sync(&rig.supervisor);
    ck_assert_int_eq(pl_host_execute(&rig.supervisor), 1);
    ck_assert(!pl_supervise_runs(&rig.supervisor, PL_PROCESS_SET(SYNC)));
    expect_file(&rig, "output/failure", "host name 'a.name");
    rig_done(&rig);
}

TEST(the_time_of_uploads_ends_with_the_stops_also_when_the_stop_comes_later)
{
    char path[PATH_MAX];
    struct rig rig;
    int64_t begun_ns;

    rig_setup(&rig, "\"localhost\"");
    add_script(&rig.plan.sync, "trap '' TERM; echo >uploading; sleep 0.2; kill -TERM $SUPERVISOR; exec sleep 100");
    take_plan(&rig);
    rig.supervisor.stop.budget_ns = 300 * PL_NS_PER_MS;
    pl_supervise_start_sync(&rig.supervisor);
    begun_ns = pl_clock_now_ns();
    while (access(scratch_path(&rig.tree.scratch, "uploading", path), F_OK) != 0) {
        ck_assert_int_lt(pl_clock_now_ns() - begun_ns, 30 * PL_NS_PER_S);
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    pl_supervise_end_sync(&rig.supervisor); /* it may take at most 60 s */
    ck_assert_int_lt(pl_clock_now_ns() - begun_ns, 30 * PL_NS_PER_S);
    ck_assert_int_eq(rig.supervisor.stop.number, SIGTERM);
    rig_done(&rig);
}

TEST(uploads_that_a_stop_leaves_no_time_are_given_up_before_they_are_killed)
{
    char path[PATH_MAX];
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    /* Signals stay pending until they are read, as in paceline-sync: some shells read signals for which they have a
     * trap, others show them in their status. */
    add_script(&rig.plan.sync,
               "trap '' TERM; trap 'echo >cleared; exit 0' INT; echo >uploading; while :; do while read name value; do "
               "case $name$value in "
               "ShdPnd:*2) echo >cleared; exit 0;; esac; done </proc/$$/status; sleep 0.02; done");
    take_plan(&rig);
    pl_supervise_start_sync(&rig.supervisor);
    while (access(scratch_path(&rig.tree.scratch, "uploading", path), F_OK) != 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    rig.supervisor.stop.number = SIGTERM; /* of the 110 s a part is left that is too short for many bytes */
    rig.supervisor.stop.ns = pl_clock_now_ns() - 102 * PL_NS_PER_S;
    pl_supervise_end_sync(&rig.supervisor);
    expect_file(&rig, "cleared", "");
    rig_done(&rig);
}

TEST(another_stop_signal_acts_at_once)
{
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    add_script(
        &rig.plan.argv,
        "trap '' INT; trap 'exit 7' TERM; kill -INT $SUPERVISOR; kill -TERM $SUPERVISOR; while :; do sleep 0.02; done");
    take_plan(&rig);
    ck_assert_int_eq(pl_host_execute(&rig.supervisor), 7);
    rig_done(&rig);
}

static struct pl_link connect_rank(const struct rig *rig, const char *rank)
{
    struct pl_link link = PL_LINK_NONE;
    struct pl_error error = PL_ERROR_NONE;

    ck_ok(pl_rundir_connect, rig->supervisor.rundir.path, &link);
    ck_assert_ok(PL_LINK_SEND(&link, PL_FRAME_HELLO, &error, "shim", "localhost", rank), &error);
    return link;
}

/* Handle events until `count` ranks have connected, and, if `begun` is set, have begun. */
static void await_ranks(struct rig *rig, size_t count, bool begun)
{
    size_t known = 0;

    while (known < count) {
        ck_ok(pl_supervise_poll, &rig->supervisor, pl_deadline_after_ns(10 * PL_NS_PER_S));
        known = 0;
        for (size_t i = 0; i < rig->supervisor.connections_count; i++) {
            known += rig->supervisor.connections[i]->kind == PL_CONNECTION_SHIM &&
                     (rig->supervisor.connections[i]->state == PL_CONNECTION_READY || !begun);
        }
    }
}

static int count_stops(struct pl_link *link)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    int count = 0;

    ck_ok(pl_link_read, link);
    while (pl_link_next(link, &frame, &error) == PL_OK) {
        count += frame.type == PL_FRAME_SIGNAL;
    }
    return count;
}

TEST(a_rank_hears_of_a_stop_once_whether_it_begins_before_or_after)
{
    struct pl_link early, late;
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    rig.plan.link = PL_LAUNCH_PLAN_LINK_NEEDED;
    take_plan(&rig);
    early = connect_rank(&rig, "0");
    await_ranks(&rig, 1, false);
    pl_supervise_stop(&rig.supervisor, SIGTERM, false);
    late = connect_rank(&rig, "1");
    ck_assert_ok(PL_LINK_SEND(&early, PL_FRAME_BEGUN, &rig.tree.error, "1"), &rig.tree.error);
    ck_assert_ok(PL_LINK_SEND(&late, PL_FRAME_BEGUN, &rig.tree.error, "1"), &rig.tree.error);
    await_ranks(&rig, 2, true);
    ck_assert_int_eq(count_stops(&early), 1);
    ck_assert_int_eq(count_stops(&late), 1);
    pl_link_close(&early);
    pl_link_close(&late);
    rig_done(&rig);
}

TEST(mpiruns_end_is_laid_to_a_missing_finalize_only_when_every_rank_has_ended_well)
{
    static const char *const failures[] = {
        "mpirun on host localhost exited with code 1: no rank failed; did one end without MPI_Finalize()",
        "mpirun on host localhost exited with code 1\n"};
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;

    exit_report.kind = PL_PROCESS_RANK;
    exit_report.rank = 0;
    for (int missing = 0; missing < 2; missing++) {
        struct pl_link rank;
        struct rig rig;

        rig_setup(&rig, "\"localhost\"");
        rig.plan.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
        rig.plan.processes = 1 + missing;
        add_script(&rig.plan.argv, "exit 1");
        take_plan(&rig);
        rank = connect_rank(&rig, "0");
        ck_assert_ok(PL_LINK_SEND(&rank, PL_FRAME_BEGUN, &rig.tree.error, "1"), &rig.tree.error);
        await_ranks(&rig, 1, true);
        ck_ok(pl_exit_report_send, &exit_report, &rank);
        ck_assert_int_eq(pl_host_execute(&rig.supervisor), 1);
        expect_file(&rig, "output/failure", failures[missing]);
        pl_link_close(&rank);
        rig_done(&rig);
    }
}

TEST(a_rank_whose_shim_is_killed_before_it_begins_is_named_by_its_number)
{
    struct pl_link rank;
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    rig.plan.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
    rig.plan.processes = 4;
    add_script(&rig.plan.argv, "exit 137");
    take_plan(&rig);
    rank = connect_rank(&rig, "3");
    await_ranks(&rig, 1, false);
    pl_link_close(&rank);
    ck_assert_int_eq(pl_host_execute(&rig.supervisor), 1);
    expect_file(&rig, "output/failure", "rank 3 on host localhost was killed by signal 9 (SIGKILL)");
    rig_done(&rig);
}

TEST(who_ended_because_of_another_does_not_hide_it)
{
    const struct pl_exit_report killed_first[] = {
        {.kind = PL_PROCESS_RANK, .rank = 0, .signalled = true, .code = SIGTERM, .program = "train"},
        {.kind = PL_PROCESS_RANK, .rank = 0, .signalled = true, .code = SIGKILL}, /* the shim was killed too */
    };
    /* by Open MPI 5, because its peer has ended */
    const struct pl_exit_report aborted = {.kind = PL_PROCESS_RANK, .rank = 2, .code = 14, .program = "train"};
    const struct pl_exit_report cause = {.kind = PL_PROCESS_RANK, .rank = 3, .code = 3, .program = "train"};
    const struct pl_exit_report killed_alone = {
        .kind = PL_PROCESS_RANK, .rank = 1, .signalled = true, .code = SIGKILL, .program = "train"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(killed_first); i++) {
        struct rig rig;

        rig_setup(&rig, "\"localhost\"");
        pl_supervise_fail_exit(&rig.supervisor, &killed_first[i]);
        /* however slow the machine is, the next report is not too late */
        rig.supervisor.outcome.failed_ns = pl_deadline_after_ns(100 * PL_NS_PER_S);
        pl_supervise_fail_exit(&rig.supervisor, &killed_first[1 - i]);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.code, killed_first[i].code);
        pl_supervise_fail_exit(&rig.supervisor, &aborted);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.rank, 2);
        pl_supervise_fail_exit(&rig.supervisor, i == 0 ? &cause : &killed_alone);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.rank, i == 0 ? 3 : 1);
        pl_supervise_fail_exit(&rig.supervisor, i == 0 ? &killed_alone : &cause);
        pl_supervise_fail_exit(&rig.supervisor, &aborted);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.rank, i == 0 ? 3 : 1);
        rig_done(&rig);
    }
}

/* Ranks that end because their launcher or daemon was killed are not the cause of its end. */
TEST(a_launcher_or_daemon_that_was_killed_explains_the_ranks_that_fell_with_it)
{
    const struct pl_exit_report fallen = {.kind = PL_PROCESS_RANK, .rank = 0, .signalled = true, .code = SIGKILL};
    const struct pl_exit_report ended = {
        .kind = PL_PROCESS_RANK, .rank = 1, .signalled = true, .code = SIGTERM, .program = "train"};
    const struct pl_exit_report cause = {.kind = PL_PROCESS_RANK, .rank = 2, .code = 3, .program = "train"};
    const enum pl_process_kind kinds[] = {PL_PROCESS_LAUNCHER, PL_PROCESS_DAEMON, PL_PROCESS_TORCHRUN};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(kinds); i++) {
        const struct pl_exit_report launcher = {
            .kind = kinds[i], .rank = -1, .signalled = true, .code = SIGKILL, .program = "launcher"};
        struct rig rig;

        rig_setup(&rig, "\"localhost\"");
        pl_supervise_fail_exit(&rig.supervisor, i == 0 ? &fallen : &ended);
        rig.supervisor.outcome.failed_ns = pl_deadline_after_ns(100 * PL_NS_PER_S);
        pl_supervise_fail_exit(&rig.supervisor, &launcher);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.kind, kinds[i]);
        pl_supervise_fail_exit(&rig.supervisor, i == 0 ? &ended : &fallen);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.kind, kinds[i]);
        pl_supervise_fail_exit(&rig.supervisor, &cause);
        ck_assert_int_eq(rig.supervisor.outcome.exit_report.rank, 2);
        rig_done(&rig);
    }
}

TEST(mpirun_that_ends_ranks_because_one_left_early_is_not_laid_to_those)
{
    static const struct {
        const char *mpirun;
        int first_code; /* the code of rank 0, which ends first; -1: the same as rank 1's */
        const char *failure;
    } cases[] = {
        {"exit 1", 0, "rank 0 on host localhost exited with code 0: it left without MPI_Finalize()"},
        {"exit 143", 0, "rank 1 on host localhost was killed by signal 15 (SIGTERM)"},
        {"exit 1", 5, "rank 0 on host localhost exited with code 5"},
        {"exit 1", -1, "mpirun on host localhost exited with code 1: it ended its ranks, none of which had failed"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_exit_report exit_report = {.kind = PL_PROCESS_RANK, .host = "localhost", .program = "train"};
        struct pl_link ranks[2];
        struct rig rig;

        rig_setup(&rig, "\"localhost\"");
        rig.plan.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
        rig.plan.processes = 2;
        add_script(&rig.plan.argv, cases[i].mpirun);
        take_plan(&rig);
        ranks[0] = connect_rank(&rig, "0");
        ranks[1] = connect_rank(&rig, "1");
        await_ranks(&rig, 2, false);
        exit_report.signalled = cases[i].first_code < 0;
        exit_report.code = cases[i].first_code < 0 ? SIGTERM : cases[i].first_code;
        ck_ok(pl_exit_report_send, &exit_report, &ranks[0]);
        exit_report.rank = 1;
        exit_report.signalled = true;
        exit_report.code = SIGTERM;
        ck_ok(pl_exit_report_send, &exit_report, &ranks[1]);
        ck_assert_int_eq(pl_host_execute(&rig.supervisor), 1);
        expect_file(&rig, "output/failure", cases[i].failure);
        pl_link_close(&ranks[0]);
        pl_link_close(&ranks[1]);
        rig_done(&rig);
    }
}

/* Run the plan as the master, whose exit code must be `code`, and return the text of the log. */
static void run_and_read_log(struct rig *rig, int code, char *text, size_t text_bytes)
{
    char path[PATH_MAX];
    int log_fd, kept_fd = dup(STDERR_FILENO);
    ssize_t bytes;

    log_fd = open(scratch_path(&rig->tree.scratch, "stderr", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(log_fd, 0);
    ck_assert_int_ge(dup2(log_fd, STDERR_FILENO), 0);
    ck_assert_int_eq(pl_host_execute(&rig->supervisor), code);
    ck_assert_int_ge(dup2(kept_fd, STDERR_FILENO), 0);
    bytes = pread(log_fd, text, text_bytes - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    close(kept_fd);
    close(log_fd);
}

TEST(ranks_that_run_on_after_one_has_ended_with_0_are_logged)
{
    struct pl_exit_report exit_report = {.kind = PL_PROCESS_RANK, .host = "localhost", .program = "train"};
    struct pl_link ranks[2];
    char text[4096];
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    rig.plan.ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
    rig.plan.processes = 2;
    /* until the log has the line */
    add_script(&rig.plan.argv, "until grep -q 'still run' stderr; do sleep 0.02; done");
    take_plan(&rig);
    rig.supervisor.main.early_end_ns = 50 * PL_NS_PER_MS;
    ranks[0] = connect_rank(&rig, "0");
    ranks[1] = connect_rank(&rig, "1");
    await_ranks(&rig, 2, false);
    ck_ok(pl_exit_report_send, &exit_report, &ranks[0]);
    run_and_read_log(&rig, 0, text, sizeof(text));
    ck_has(text, "rank 0 on host localhost ended with 0 0 s ago, and 1 of 2 ranks still run");
    pl_link_close(&ranks[0]);
    pl_link_close(&ranks[1]);
    rig_done(&rig);
}

TEST(a_host_that_went_away_explains_late_why_a_rank_was_killed)
{
    static const struct {
        struct pl_exit_report exit_report;
        bool stopped;
        const char *failure;
    } cases[] = {
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .signalled = true, .code = SIGTERM, .program = "train"},
         false,
         "host algo-2 went away: late\n"},
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .signalled = true, .code = SIGKILL},
         false,
         "host algo-2 went away: late\n"},
        {{.kind = PL_PROCESS_LAUNCHER, .host = "algo-1", .code = 1, .program = "mpirun"},
         false,
         "host algo-2 went away: late\n"},
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .code = 14, .program = "train"},
         false,
         "host algo-2 went away: late\n"},
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .code = 3, .program = "train"},
         false,
         "rank 0 on host algo-1 exited with code 3"},
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .signalled = true, .code = SIGKILL, .program = "train"},
         false,
         "rank 0 on host algo-1 was killed"},
        {{.kind = PL_PROCESS_RANK, .rank = 0, .host = "algo-1", .signalled = true, .code = SIGTERM, .program = "train"},
         true,
         "the job was stopped by SIGTERM; rank 0"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct rig rig;

        rig_setup(&rig, "\"localhost\"");
        rig.supervisor.stop.number = cases[i].stopped ? SIGTERM : 0;
        pl_supervise_fail_exit(&rig.supervisor, &cases[i].exit_report);
        rig.supervisor.outcome.failed_ns -= 3 * PL_NS_PER_S;
        pl_supervise_fail_lost(&rig.supervisor, "host", "algo-2", "late");
        ck_assert_int_eq(pl_supervise_write_result(&rig.supervisor), cases[i].stopped ? 128 + SIGTERM : 1);
        expect_file(&rig, "output/failure", cases[i].failure);
        rig_done(&rig);
    }
}

/* Sets up a job that may be started again, whose program runs and exits with code 3. */
static void rig_setup_failed(struct rig *rig, struct pl_restarts *restarts)
{
    static const struct pl_exit_report failed = {
        .kind = PL_PROCESS_PROGRAM, .rank = -1, .host = "localhost", .code = 3, .program = "train"};

    rig_setup(rig, "\"localhost\"");
    rig->plan.restarts = 3;
    take_plan(rig);
    pl_restart_enter(&rig->supervisor, restarts);
    pl_host_go(&rig->supervisor.state, PL_HOST_LINKING);
    pl_host_go(&rig->supervisor.state, PL_HOST_RUNNING);
    pl_supervise_fail_exit(&rig->supervisor, &failed);
}

TEST(a_stop_in_the_half_second_after_a_failure_ends_the_job_as_stopped)
{
    struct pl_restarts restarts = {.number = 0};
    struct rig rig;

    rig_setup_failed(&rig, &restarts);
    pl_supervise_stop(&rig.supervisor, SIGTERM, false);
    pl_restart_decide(&rig.supervisor, "the program on host localhost exited with code 3\n", false);
    ck_assert(!restarts.again);
    ck_assert_int_eq(pl_supervise_write_result(&rig.supervisor), 128 + SIGTERM);
    expect_file(&rig, "output/failure",
                "the job was stopped by SIGTERM; the program on host localhost exited with code 3\n");
    rig_done(&rig);
}

TEST(line_of_a_restart_says_which_step_is_kept_and_how_many_are_repeated)
{
    static const struct {
        uint64_t reached;
        const char *words;
    } cases[] = {{0, "code 3; step 480 is kept in memory\n"},
                 {480, "code 3; step 480 is kept in memory\n"},
                 {481, "code 3; step 480 is kept in memory, 1 step is repeated\n"},
                 {487, "code 3; step 480 is kept in memory, 7 steps are repeated\n"}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_kept_page page = {.heads = {{.sequence = 1, .step = 480}}, .reached = cases[i].reached};
        struct pl_restarts restarts = {.kept_fd = pl_fd_new_memory("kept", 0)};
        const int log_fd = pl_fd_new_memory("log", 0);
        char text[4096] = "";
        struct rig rig;

        page.heads[0].mark = pl_kept_head_mark(&page.heads[0]);
        ck_assert_int_eq(pwrite(restarts.kept_fd, &page, sizeof(page), 0), sizeof(page));
        rig_setup_failed(&rig, &restarts);
        pl_log_set_fd(log_fd);
        pl_restart_decide(&rig.supervisor, "the program on host localhost exited with code 3\n", true);
        pl_log_set_fd(STDERR_FILENO);
        ck_assert(restarts.again);
        ck_assert_int_gt(pread(log_fd, text, sizeof(text) - 1, 0), 0);
        ck_assert_msg(strstr(text, cases[i].words), "%s", text);
        close(log_fd);
        close(restarts.kept_fd);
        rig_done(&rig);
    }
}

TEST(only_the_first_host_of_a_job_that_may_be_started_again_gives_its_programs_memory)
{
    struct pl_restarts restarts = {.number = 0};
    struct rig rig;

    rig_setup(&rig, "\"localhost\"");
    ck_ok(pl_restart_give_memory, &restarts, &rig.plan);
    ck_assert_ptr_null(pl_environment_get(rig.plan.environment, "PACELINE_KEPT"));
    rig.plan.restarts = 3;
    rig.plan.role = PL_LAUNCH_PLAN_WORKER;
    ck_ok(pl_restart_give_memory, &restarts, &rig.plan);
    ck_assert_ptr_null(pl_environment_get(rig.plan.environment, "PACELINE_KEPT"));
    ck_assert_int_eq(restarts.kept_fd, 0);
    rig.plan.role = PL_LAUNCH_PLAN_MASTER;
    ck_ok(pl_restart_give_memory, &restarts, &rig.plan);
    ck_assert_ptr_nonnull(pl_environment_get(rig.plan.environment, "PACELINE_KEPT"));
    close(restarts.kept_fd);
    rig_done(&rig);
}

/* Write an executable script to the file `name` below the base directory. */
static void write_program(struct rig *rig, const char *name, const char *script)
{
    char path[PATH_MAX];

    tree_write(&rig->tree, name, script);
    ck_assert_int_eq(chmod(scratch_path(&rig->tree.scratch, name, path), 0755), 0);
}

TEST(a_job_of_many_hosts_gets_its_descriptors_and_programs_the_former_limit)
{
    enum { FORMER = 64, HOSTS = 300, HARD = 800 };
    const struct rlimit former = {.rlim_cur = FORMER, .rlim_max = HARD};
    struct pl_launch_plan_step step = {.what = "a step", .argv = PL_STRV_NONE};
    struct rlimit limit;
    struct rig rig;

    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &former), 0);
    rig_setup(&rig, "\"localhost\"");
    rig.tree.job->cpus = 1;
    for (int i = 0; i < HOSTS; i++) {
        pl_strv_printf(&rig.plan.hosts, "algo-%d", i);
    }
    rig.plan.link = PL_LAUNCH_PLAN_LINK_NEEDED;
    take_plan(&rig);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_eq(limit.rlim_cur, HARD); /* the soft limit is raised as far as possible */
    add_script(&step.argv, "[ $(ulimit -n) = 64 ]");
    ck_ok(pl_supervise_step, &rig.supervisor, &step, pl_environment_strings(rig.tree.environment));
    pl_strv_done(&step.argv);
    pl_strv_done(&rig.plan.hosts);
    rig_done(&rig);
}

TEST(a_stop_that_comes_while_keys_are_made_reaches_the_other_hosts)
{
    static const char frame[] = "PL\006\007\003\000\000\00015"; /* SIGNAL, SIGTERM */
    enum { HELLO_BYTES = 27, RECEIVED_BYTES = 38 };
    PL_AUTO_FREE char *received = NULL;
    char path[PATH_MAX], self[PATH_MAX];
    struct rig rig;
    size_t bytes;

    rig_setup(&rig, "\"localhost\", \"other\"");
    write_program(&rig, "bin/paceline-keys",
                  "#!/bin/sh\n[ -e asked ] || { : >asked; kill -TERM $SUPERVISOR; exec sleep 100; }\n"
                  "for name in id_ed25519 host_ed25519; do echo key >$3/$name; echo key >$3/$name.pub; done\n");
    /* The other host sends READY, and DONE once it has received the stop. */
    write_program(&rig, "bin/ssh",
                  "#!/bin/sh\nprintf 'PL\\006\\001\\006\\000\\000\\000other\\000'\nhead -c 38 >$HOME/received\n"
                  "printf 'PL\\006\\011\\000\\000\\000\\000'\nexec cat >/dev/null\n");
    snprintf(path, sizeof(path), "%s/bin:/usr/bin:/bin", rig.tree.base);
    tree_env(&rig.tree, "PATH", path);
    tree_env(&rig.tree, "PACELINE_SSH_SECRET", "secret");
    pl_job_free(rig.tree.job);
    scratch_path(&rig.tree.scratch, "bin/paceline", self);
    ck_ok(pl_job_new, rig.tree.environment, self, NULL, &rig.tree.job);
    rig.supervisor.job = rig.tree.job;
    rig.plan.link = PL_LAUNCH_PLAN_LINK_NEEDED;
    pl_strv_add(&rig.plan.hosts, "localhost", "other");
    rig.supervisor.stop.budget_ns = 600 * PL_NS_PER_S;
    rig.supervisor.stop.join_ns = 50 * PL_NS_PER_S;
    ck_assert_ok(pl_supervise_link(&rig.supervisor, &rig.plan, &rig.tree.error), &rig.tree.error);
    ck_assert_int_eq(pl_host_execute(&rig.supervisor), 128 + SIGTERM);
    expect_file(&rig, "output/failure", "the job was stopped by SIGTERM");
    ck_ok(pl_file_read, scratch_path(&rig.tree.scratch, "received", path), 65536, &received, &bytes);
    ck_assert_uint_eq(bytes, RECEIVED_BYTES);
    ck_assert_mem_eq(received + HELLO_BYTES, frame, sizeof(frame));
    pl_strv_done(&rig.plan.hosts);
    rig_done(&rig);
}

TEST(whoever_connects_during_a_step_is_passed_over)
{
    static const char *const kinds[] = {"shim", "agent", "master", "nobody"};
    struct rig rig;
    struct pl_link links[PL_ARRAY_ITEMS(kinds)];
    struct pl_launch_plan_step step = {.what = "a step", .argv = PL_STRV_NONE};

    rig_setup(&rig, "\"localhost\"");
    add_script(&step.argv, "sleep 0.5");
    rig.plan.link = PL_LAUNCH_PLAN_LINK_NEEDED;
    rig.plan.additions = rig.tree.environment;
    take_plan(&rig);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(kinds); i++) {
        links[i] = PL_LINK_NONE;
        ck_ok(pl_rundir_connect, rig.supervisor.rundir.path, &links[i]);
        ck_assert_ok(PL_LINK_SEND(&links[i], PL_FRAME_HELLO, &rig.tree.error, kinds[i], "localhost", "0"),
                     &rig.tree.error);
        ck_assert_ok(PL_LINK_SEND(&links[i], PL_FRAME_BEGUN, &rig.tree.error, "1"), &rig.tree.error);
        pl_link_close(&links[i]);
    }
    ck_ok(pl_supervise_step, &rig.supervisor, &step, pl_environment_strings(rig.tree.environment));
    ck_assert(!rig.supervisor.outcome.failed);
    pl_strv_done(&step.argv);
    rig_done(&rig);
}

UNIT_MAIN("entrypoint/supervise")
