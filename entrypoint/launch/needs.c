/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what a launch needs of the image: programs on PATH, and modules of Python. */
#include "entrypoint/launch/needs.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum pl_status pl_needs_tool(const struct pl_job *job, const struct pl_program *program, const char *name,
                             const char *remedy, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    if (pl_job_has_program(job, name)) {
        return PL_OK;
    }
    if (program->may_install) {
        pl_strv_printf(&plan->warnings,
                       "%s starts the job's program and is not on PATH: the packages that pip installs for the code "
                       "must contain it",
                       name);
        return PL_OK;
    }
    return pl_error_set(reterr, PL_NOT_FOUND, "%s starts the job's program and is not on PATH in this image: %s", name,
                        remedy);
}

enum pl_status pl_needs_keys_missing(const char *path, struct pl_error *reterr)
{
    return pl_error_set(
        reterr, PL_NOT_FOUND,
        "the training image that this job names has no ssh keys ('%.100s' is missing); the hosts of a job reach each "
        "other by ssh. Next: the Dockerfile that builds this training image needs `RUN /opt/paceline/install "
        "--keys=yes` (Paceline's own Dockerfile makes keys unless it gets SSH_KEYS=no). Or, without a build: give the "
        "job 32 random bytes as a file in a channel \"secret\" (File mode, FullyReplicated), and "
        "environment={\"PACELINE_SSH_SECRET\": \"/opt/ml/input/data/secret/FILE\"}",
        path);
}

/* A key file that exists but cannot be read is reported later, with its owner, when the keys are opened. */
static enum pl_status need_keys(const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (job->settings.ssh_secret) {
        return PL_OK;
    }
    PL_TRY(
        pl_text_set(&path, reterr, "%s/id_ed25519", job->settings.ssh_dir ? job->settings.ssh_dir : PL_NEEDS_KEYS_DIR));
    return access(pl_text_string(&path), F_OK) == 0 || errno != ENOENT
               ? PL_OK
               : pl_needs_keys_missing(pl_text_string(&path), reterr);
}

/* A torchrun of Debian's package python3-torch that never works: texts in its script, and why it fails. */
static const struct broken_torchrun {
    const char *python, *torch, *why;
} broken_torchruns[] = {
    {"python3.11\n", "'torch==1.13.", "1.13 and does not work with Python 3.11"},                /* Debian 12 */
    {"python3.13\n", "'torch==2.6.0+debian'", "2.6 and does not work: that torch has no libuv"}, /* Debian 13 */
};

/* Returns what is wrong with the torchrun `path`, or NULL. */
static const char *broken_torchrun(const char *path)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[256] = "";
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (bytes <= 0) {
        return NULL;
    }
    text[bytes] = '\0';
    for (size_t i = 0; i < PL_ARRAY_ITEMS(broken_torchruns); i++) {
        const struct broken_torchrun *broken = &broken_torchruns[i];

        if (strncmp(text, "#!", 2) == 0 && strstr(text, broken->python) && strstr(text, broken->torch)) {
            return broken->why;
        }
    }
    return NULL;
}

enum pl_status pl_needs_torchrun(const struct pl_job *job, const struct pl_program *program,
                                 struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char format[] = "%s is of Debian's package python3-torch %s: install torch 2 from PyPI (pip3 install "
                                 "--upgrade torch)";
    PL_AUTO_FREE char *path = NULL;
    const char *why;

    PL_TRY(pl_needs_tool(job, program, "torchrun", "build it with PyTorch, or name torch in requirements.txt", plan,
                         reterr));
    if (pl_file_find_program("torchrun", pl_environment_get(job->process, "PATH"), &path, NULL) != PL_OK ||
        !(why = broken_torchrun(path))) {
        return PL_OK;
    }
    if (!program->may_install) {
        return pl_error_set(reterr, PL_UNSUPPORTED, format, path, why);
    }
    pl_strv_printf(&plan->warnings, format, path, why);
    return PL_OK;
}

enum pl_status pl_needs_link(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const bool is_master = plan->role == PL_LAUNCH_PLAN_MASTER;
    PL_AUTO_FREE char *path = NULL;

    if (plan->link != PL_LAUNCH_PLAN_LINK_NEEDED) {
        return PL_OK;
    }
    if (pl_file_find_program(is_master ? "ssh" : "sshd",
                             is_master ? pl_environment_get(job->process, "PATH") : PL_NEEDS_SSHD_PATH, &path,
                             NULL) == PL_OK) {
        return need_keys(job, reterr);
    }
    return pl_error_set(reterr, PL_NOT_FOUND,
                        "the job's hosts are linked by ssh, and this image has no %s: build it with openssh-%s",
                        is_master ? "ssh" : "sshd", is_master ? "client" : "server");
}

void pl_needs_module(const struct pl_program *program, const char *module, const char *sentence,
                     struct pl_launch_plan *plan)
{
    static const char code[] = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None and "
                               "sys.argv[2])";
    const char *what = pl_pool_printf(&plan->pool, "looking for %s", module);

    pl_strv_add(pl_launch_plan_add_look(&plan->steps, what), program->python, "-c", code, module, sentence);
}
