/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/trial/folder.c. */
#include "programs/trial/folder.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/unit/entrypoint/tree.h"

#include <sys/stat.h>
#include <unistd.h>

static const struct pl_strv none;

static void check_hyperparameters(const char *job_values, const char *const *own, int processes, const char *expected)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *job_tree = NULL;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    const struct pl_trial_kind kind = {.processes = processes, .hyperparameters = &words};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_python_json_parse(job_values, strlen(job_values), "job", &job_tree, &error), &error);
    pl_strv_add_list(&words, own);
    ck_assert_ok(pl_trial_folder_hyperparameters(job_tree, &kind, &text, &error), &error);
    ck_assert_str_eq(pl_text_string(&text), expected);
}

START_TEST(a_trial_has_the_jobs_hyperparameters_and_its_own_as_the_platform_writes_them)
{
    check_hyperparameters(
        "{\"epochs\": \"9\", \"lr\": \"0.1\", \"paceline_sweep\": \"x\", \"paceline_sweep_time_s\": \"5\", "
        "\"sagemaker_program\": \"\\\"a.py\\\"\", \"sagemaker_mpi_enabled\": \"true\"}",
        (const char *const[]){"lr=0.5", "act=\"16\"", "wide=true", "name=a=b", NULL}, 1,
        "{\"epochs\": \"9\", \"lr\": \"0.5\", \"sagemaker_program\": \"\\\"a.py\\\"\", \"act\": "
        "\"\\\"16\\\"\", \"wide\": \"true\", \"name\": \"a=b\"}");
}
END_TEST

START_TEST(several_processes_are_an_mpi_job_or_torchruns)
{
    check_hyperparameters("{\"sagemaker_mpi_num_of_processes_per_host\": \"8\"}", (const char *const[]){NULL}, 2,
                          "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"2\"}");
    check_hyperparameters("{\"sagemaker_torch_distributed_enabled\": \"true\"}", (const char *const[]){NULL}, 2,
                          "{\"sagemaker_torch_distributed_enabled\": \"true\", "
                          "\"sagemaker_mpi_num_of_processes_per_host\": \"2\"}");
}
END_TEST

static const char *root(const struct tree *tree)
{
    static char path[PATH_MAX];
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_job_checkpoints(tree->job, &text);
    snprintf(path, sizeof(path), "%s", pl_text_string(&text));
    return path;
}

/* Reads a trial as the job that it is, in the same way as `paceline train`. */
static struct pl_job *trial_job(struct tree *tree, const struct pl_trial_folder *folder)
{
    struct pl_job *job = NULL;

    tree_env(tree, "SAGEMAKER_BASE_DIR", folder->base);
    tree_env(tree, "PACELINE_TRIAL", "3");
    tree_env(tree, "PACELINE_TRIAL_CPUS", "1");
    tree_env(tree, "PACELINE_TRIAL_GPUS", "2");
    ck_assert_ok(pl_job_new(tree->environment, "/bin/paceline", NULL, &job, &tree->error), &tree->error);
    return job;
}

START_TEST(a_trial_finds_a_job_of_its_own)
{
    char *own[] = {"lr=0.5", NULL};
    const struct pl_strv words = {.items = own, .count = 1};
    const struct pl_trial_kind kind = {.processes = 1, .hyperparameters = &words};
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_JOB struct pl_job *job = NULL;
    struct tree tree;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_two_hosts(&tree, "algo-2");
    tree_hyperparameters(&tree, "{\"epochs\": \"9\", \"paceline_sweep\": \"sweep.json\"}");
    tree_write(&tree, "input/config/inputdataconfig.json", "{\"training\": {}}");
    tree_write(&tree, "input/data/training/a", "data");
    ck_assert_ok(tree_job(&tree), &tree.error);
    ck_assert_ok(pl_trial_folder_name(tree.job, root(&tree), 3, &folder, &tree.error), &tree.error);
    for (int run = 0; run < 2; run++) { /* folders that exist already are no obstacle */
        ck_assert_ok(pl_trial_folder_make(tree.job, &folder, &kind, &tree.error), &tree.error);
    }
    job = trial_job(&tree, &folder);
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
END_TEST

START_TEST(what_is_to_be_kept_lies_outside)
{
    const struct pl_trial_kind kind = {.processes = 1, .hyperparameters = &none};
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;
    struct tree tree;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_write(&tree, "input/config/checkpointconfig.json", "{\"LocalPath\": \"/nowhere\"}");
    snprintf(path, sizeof(path), "%s/kept", tree.base);
    tree_env(&tree, "PACELINE_CHECKPOINT_DIR", path);
    ck_assert_ok(tree_job(&tree), &tree.error);
    ck_assert_ok(pl_trial_folder_name(tree.job, root(&tree), 12, &folder, &tree.error), &tree.error);
    ck_assert_ok(pl_trial_folder_make(tree.job, &folder, &kind, &tree.error), &tree.error);
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
END_TEST

START_TEST(a_trial_with_a_tree_of_its_own_has_files_where_links_would_lead_into_it)
{
    const struct pl_trial_kind kind = {.processes = 1, .own_tree = true, .hyperparameters = &none};
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_FREE char *text = NULL;
    struct tree tree;
    struct stat info;
    char path[PATH_MAX];

    tree_setup(&tree);
    tree_write(&tree, "input/config/inputdataconfig.json", "{\"training\": {}}");
    ck_assert_ok(tree_job(&tree), &tree.error);
    ck_assert_ok(pl_trial_folder_name(tree.job, root(&tree), 12, &folder, &tree.error), &tree.error);
    ck_assert_ok(pl_trial_folder_make(tree.job, &folder, &kind, &tree.error), &tree.error);
    snprintf(path, sizeof(path), "%s/sweep/trial-0012/input/config/inputdataconfig.json", tree.base);
    ck_assert_int_eq(lstat(path, &info), 0);
    ck_assert(S_ISREG(info.st_mode));
    snprintf(path, sizeof(path), "%s/sweep/trial-0012/input/config/checkpointconfig.json", tree.base);
    ck_assert_ok(pl_file_read(path, 4096, &text, NULL, &tree.error), &tree.error);
    snprintf(path, sizeof(path), "{\"LocalPath\": \"%s/checkpoints\"}", tree.base);
    ck_assert_str_eq(text, path);
    tree_done(&tree);
}
END_TEST

START_TEST(a_folder_belongs_to_one_trial_at_a_time)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_CLOSE int fd = -1;
    struct tree tree;
    int other_fd = -1;

    tree_setup(&tree);
    ck_assert_ok(tree_job(&tree), &tree.error);
    ck_assert_ok(pl_trial_folder_name(tree.job, root(&tree), 1, &folder, &tree.error), &tree.error);
    ck_assert_ok(pl_trial_folder_lock(&folder, &fd, &tree.error), &tree.error);
    ck_assert_int_eq(pl_trial_folder_lock(&folder, &other_fd, &tree.error), PL_LIMIT);
    ck_assert_int_eq(other_fd, -1);
    pl_file_close_at(&fd);
    ck_assert_ok(pl_trial_folder_lock(&folder, &fd, &tree.error), &tree.error);
    tree_done(&tree);
}
END_TEST

UNIT_MAIN("programs/trial/folder", a_trial_has_the_jobs_hyperparameters_and_its_own_as_the_platform_writes_them,
          several_processes_are_an_mpi_job_or_torchruns, a_trial_finds_a_job_of_its_own,
          what_is_to_be_kept_lies_outside, a_folder_belongs_to_one_trial_at_a_time,
          a_trial_with_a_tree_of_its_own_has_files_where_links_would_lead_into_it)
