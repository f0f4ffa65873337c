/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/trial/devices.c, programs/trial/folder.c. */
#include "programs/trial/trial.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/unit/entrypoint/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tree tree;
static const struct pl_strv none;

static void check_hyperparameters(const char *job_values, const char *const *own, int processes, const char *expected)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *job_tree = NULL;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_ok(pl_python_json_parse, job_values, strlen(job_values), "job", &job_tree);
    pl_strv_add_list(&words, own);
    ck_ok(pl_trial_folder_hyperparameters, job_tree, processes, &words, &text);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

TEST(a_trial_has_the_jobs_hyperparameters_and_its_own_as_the_platform_writes_them)
{
    check_hyperparameters(
        "{\"epochs\": \"9\", \"lr\": \"0.1\", \"paceline_sweep\": \"x\", \"paceline_sweep_time_s\": \"5\", "
        "\"sagemaker_program\": \"\\\"a.py\\\"\", \"sagemaker_mpi_enabled\": \"true\"}",
        (const char *const[]){"lr=0.5", "act=\"16\"", "wide=true", "name=a=b", NULL}, 1,
        "{\"epochs\": \"9\", \"lr\": \"0.5\", \"sagemaker_program\": \"\\\"a.py\\\"\", \"act\": "
        "\"\\\"16\\\"\", \"wide\": \"true\", \"name\": \"a=b\"}");
}

TEST(several_processes_are_an_mpi_job_or_torchruns)
{
    check_hyperparameters("{\"sagemaker_mpi_num_of_processes_per_host\": \"8\"}", (const char *const[]){NULL}, 2,
                          "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\"}");
    check_hyperparameters("{\"sagemaker_torch_distributed_enabled\": \"true\"}", (const char *const[]){NULL}, 2,
                          "{\"sagemaker_torch_distributed_enabled\": \"true\", "
                          "\"sagemaker_mpi_num_of_processes_per_host\": \"2\"}");
}

/* Reads a trial as the job that it is, in the same way as `paceline train`. */
static struct pl_job *trial_job(const struct pl_trial_folder *folder)
{
    struct pl_job *job = NULL;

    tree_env(&tree, "SAGEMAKER_BASE_DIR", folder->base);
    tree_env(&tree, "PACELINE_TRIAL", "3");
    tree_env(&tree, "PACELINE_TRIAL_CPUS", "1");
    tree_env(&tree, "PACELINE_TRIAL_GPUS", "2");
    ck_ok(pl_job_new, tree.environment, "/bin/paceline", NULL, &job);
    return job;
}

TEST(a_trial_finds_a_job_of_its_own)
{
    char *own[] = {"lr=0.5", NULL};
    const struct pl_strv words = {.items = own, .count = 1};
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_two_hosts(&tree, "algo-2");
    tree_hyperparameters(&tree, "{\"epochs\": \"9\", \"paceline_sweep\": \"sweep.json\"}");
    tree_write(&tree, "input/config/inputdataconfig.json", "{\"training\": {}}");
    tree_write(&tree, "input/data/training/a", "data");
    ck_ok(tree_job, &tree);
    ck_ok(pl_trial_folder_take, tree.job, NULL, 3, &folder);
    for (int run = 0; run < 2; run++) { /* folders that exist already are not an obstacle */
        ck_ok(pl_trial_folder_make, &folder, 1, &words);
    }
    job = trial_job(&folder);
    ck_assert_str_eq(joined(&job->hosts), "algo-2");
    ck_assert_str_eq(joined(&job->user_args), "--epochs|9|--lr|0.5");
    ck_assert_uint_eq(job->channels_count, 1);
    snprintf(path, sizeof(path), "%s/a", job->channels[0].path);
    ck_assert_int_eq(access(path, R_OK), 0);
    snprintf(path, sizeof(path), "%s/train.py", job->paths.code);
    ck_assert_int_eq(access(path, R_OK), 0);
    snprintf(path, sizeof(path), "%s/checkpoints/trial-0003", tree.base);
    ck_assert_str_eq(job->checkpoint_dir, path);
    ck_assert_int_eq(job->cpus, 1);
    ck_assert_int_eq(job->gpus, 2);
    ck_assert_ptr_null(job->settings.sweep);
    tree_done(&tree);
}

TEST(what_is_to_be_kept_lies_outside)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_write(&tree, "input/config/checkpointconfig.json", "{\"LocalPath\": \"/nowhere\"}");
    snprintf(path, sizeof(path), "%s/kept", tree.base);
    tree_env(&tree, "PACELINE_CHECKPOINT_DIR", path);
    ck_ok(tree_job, &tree);
    ck_ok(pl_trial_folder_take, tree.job, NULL, 12, &folder);
    ck_ok(pl_trial_folder_make, &folder, 1, &none);
    tree_write(&tree, "sweep/trial-0012/model/weights", "w");
    tree_write(&tree, "sweep/trial-0012/output/failure",
               "the program on host algo-1 exited with code 1\nProgram: train.py\nLast lines of its stderr:\n  x\n"
               "ValueError: no\n\n");
    pl_trial_folder_reason(&folder, &reason);
    ck_assert_str_eq(pl_text_string(&reason), "the program on host algo-1 exited with code 1: ValueError: no");
    snprintf(path, sizeof(path), "%s/kept/trial-0012.model/weights", tree.base);
    ck_assert_int_eq(access(path, R_OK), 0);
    snprintf(path, sizeof(path), "%s/code/train.py", tree.base);
    ck_assert_int_eq(access(path, R_OK), 0);
    tree_done(&tree);
}

TEST(a_trial_with_a_tree_of_its_own_has_files_where_links_would_lead_into_it)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_FREE char *text = NULL;
    struct stat info;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_write(&tree, "input/config/inputdataconfig.json", "{\"training\": {}}");
    ck_ok(tree_job, &tree);
    ck_ok(pl_trial_folder_take, tree.job, NULL, 12, &folder);
    folder.own_tree = true;
    ck_ok(pl_trial_folder_make, &folder, 1, &none);
    snprintf(path, sizeof(path), "%s/sweep/trial-0012/input/config/inputdataconfig.json", tree.base);
    ck_assert_int_eq(lstat(path, &info), 0);
    ck_assert(S_ISREG(info.st_mode));
    snprintf(path, sizeof(path), "%s/sweep/trial-0012/input/config/checkpointconfig.json", tree.base);
    ck_ok(pl_file_read, path, 4096, &text, NULL);
    snprintf(path, sizeof(path), "{\"LocalPath\": \"%s/checkpoints\"}", tree.base);
    ck_assert_str_eq(text, path);
    tree_done(&tree);
}

TEST(a_folder_belongs_to_one_trial_at_a_time)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE, other = PL_TRIAL_FOLDER_NONE;

    tree_setup(&tree);
    tree_write(&tree, "checkpoints/trial-0000.model/w", "w");
    ck_ok(tree_job, &tree);
    ck_ok(pl_trial_folder_take, tree.job, NULL, 1, &folder);
    ck_fails(PL_LIMIT, "/sweep/trial-0001' belongs to a trial that is running", pl_trial_folder_take, tree.job, NULL, 1,
             &other);
    ck_ok(pl_trial_folder_take, tree.job, NULL, -1, &other);
    ck_assert_int_eq(other.number, 2); /* 0 has files, and 1 runs */
    pl_trial_folder_done(&folder);
    ck_ok(pl_trial_folder_take, tree.job, NULL, 1, &folder);
    tree_done(&tree);
}

static void check_gpus(int gpus, int slot, const char *expected)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    ck_ok(pl_trial_devices_take, tree.job, gpus, slot, &text);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

static void open_host(int gpus, const char *visible)
{
    char path[PATH_MAX];

    tree_setup(&tree);
    if (visible) {
        tree_env(&tree, "CUDA_VISIBLE_DEVICES", visible);
    }
    ck_ok(tree_job, &tree);
    tree.job->gpus = gpus;
    snprintf(path, sizeof(path), "%s/sweep", tree.base);
    ck_ok(pl_file_make_dirs, path, 0755);
}

TEST(each_slot_has_gpus_of_its_own_or_shares_them)
{
    open_host(8, NULL);
    check_gpus(2, 0, "0,1");
    check_gpus(2, 3, "6,7");
    check_gpus(1, 9, "1");
    check_gpus(0, 1, "");
    tree_done(&tree);
    open_host(8, "5,GPU-ab");
    check_gpus(1, 1, "GPU-ab");
    check_gpus(2, 0, "5,GPU-ab");
    tree_done(&tree);
}

TEST(trials_without_a_slot_take_what_is_free)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int status;

    open_host(4, "3,2,1,0");
    check_gpus(1, -1, "3");
    check_gpus(2, -1, "2,1");
    ck_fails_as(PL_LIMIT,
                "the trial asks for 2 GPUs, and of the 4 of host algo-1 1 are free: expected fewer "
                "trials at once",
                pl_trial_devices_take, tree.job, 2, -1, &text);
    pl_text_clear(&text);
    ck_assert_int_eq(pl_trial_devices_take(tree.job, 5, -1, &text, &tree.error), PL_INVALID);
    tree_done(&tree);
    open_host(1, NULL); /* what a process had is free when it has ended */
    if (fork() == 0) {
        _exit(pl_trial_devices_take(tree.job, 1, -1, &text, &tree.error));
    }
    ck_assert(wait(&status) > 0 && WEXITSTATUS(status) == PL_OK);
    check_gpus(1, -1, "0");
    tree_done(&tree);
}

static struct scratch scratch;

static void run_script(const char *script)
{
    char command[8192], root[PATH_MAX];

    snprintf(command, sizeof(command), "cd '%s' && %s", scratch_path(&scratch, "", root), script);
    ck_assert_msg(system(command) == 0, "%s", command);
}

TEST(a_link_may_lead_to_what_is_in_the_model_and_nowhere_else)
{
    static const struct {
        const char *name, *target;
        bool inside;
    } cases[] = {{"a", "b", true},           {"a", "./b/../c", true},       {"a", "..", false},
                 {"a", "b/../../c", false},  {"sub/a", "../b", true},       {"sub/a", "../../m/b", false},
                 {"a", "$PWD/m/b", true},    {"a", "$PWD/m/../n", false},   {"sub/a", "$PWD/m", true},
                 {"a", "$PWD/model", false}, {"sub/a", "/etc/hosts", false}};
    char path[PATH_MAX], script[256];
    const struct pl_trial_folder folder = {.model = path};

    scratch = scratch_new();
    scratch_path(&scratch, "m", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct pl_error error = PL_ERROR_NONE;
        bool empty = true;

        snprintf(script, sizeof(script), "rm -rf m n && mkdir -p m/sub m/b && touch m/c && ln -s \"%s\" 'm/%s'",
                 cases[i].target, cases[i].name);
        run_script(script);
        ck_assert_msg((pl_trial_model_check(&folder, &empty, &error) == PL_OK) == cases[i].inside, "%s -> %s: %s",
                      cases[i].name, cases[i].target, error.cause);
        ck_assert(cases[i].inside ? !empty
                                  : strstr(error.cause, cases[i].target + strspn(cases[i].target, "$PWD")) != 0);
        snprintf(script, sizeof(script), "mv m n && test -e 'n/%s'", cases[i].name);
        run_script(cases[i].inside ? script : "true");
    }
    scratch_done(&scratch);
}

TEST(an_empty_model_and_none_are_no_model)
{
    char path[PATH_MAX];
    const struct pl_trial_folder folder = {.model = path};
    bool empty = false;

    scratch = scratch_new();
    scratch_path(&scratch, "m", path);
    ck_ok(pl_trial_model_check, &folder, &empty);
    ck_assert(empty);
    run_script("mkdir m");
    ck_ok(pl_trial_model_check, &folder, &empty);
    ck_assert(empty);
    run_script("mkfifo m/fifo");
    ck_fails_as(PL_INVALID, "'fifo' is a FIFO", pl_trial_model_check, &folder, &empty);
    scratch_done(&scratch);
}

UNIT_MAIN("programs/trial/trial")
