/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the system's OpenBLAS and the program's Python which kernels they use. */
#include "entrypoint/supervise/blas.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "entrypoint/supervise/process.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_NS (20 * PL_NS_PER_S)

/* Runs in a child process, so that the library starts no threads here for one answer. */
static int report_core(void *context)
{
    const char *(*name_of)(void) = NULL;
    const char *core;
    void *library;

    (void)context;
    library = pl_environment_export("OPENBLAS_NUM_THREADS", "1", NULL) == PL_OK
                  ? dlopen("libblas.so.3", RTLD_LAZY | RTLD_LOCAL)
                  : NULL;
    *(void **)&name_of = library ? dlsym(library, "openblas_get_corename") : NULL;
    core = name_of ? name_of() : NULL;
    return core && write(STDOUT_FILENO, core, strlen(core)) > 0 ? 0 : 1;
}

static void ask_library(char core[PL_BLAS_CORE_BYTES])
{
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    setup.argv = (const char *const[]){"the look at OpenBLAS", NULL};
    setup.run = report_core;
    setup.stdout_fd = PL_PROCESS_ANSWER;
    core[0] = '\0';
    if (pl_process_run(&setup, pl_deadline_after_ns(ANSWER_NS), &answer, NULL) == PL_OK) {
        snprintf(core, PL_BLAS_CORE_BYTES, "%s", pl_text_string(&answer));
    }
}

const char *pl_blas_better_core(char core[PL_BLAS_CORE_BYTES])
{
    ask_library(core);
#ifdef __x86_64__
    if (strcmp(core, "Prescott") == 0 || strcmp(core, "Barcelona") == 0) {
        return __builtin_cpu_supports("avx512vl") ? "SkylakeX" : __builtin_cpu_supports("avx2") ? "Haswell" : NULL;
    }
#endif
    return NULL;
}

/* Whether there are Debian's packages for an interpreter. If not, no process is started to ask the library. */
static bool may_have_debians(void)
{
    return access("/usr/lib/python3/dist-packages/numpy", F_OK) == 0 ||
           access("/usr/lib/python3/dist-packages/torch", F_OK) == 0;
}

/* Whether this interpreter would import Debian's numpy or, without any numpy, Debian's torch. */
static bool has_debians(const char *python, const struct pl_environment *environment)
{
    static const char probe[] = "import importlib.util as u, sys\n"
                                "found = u.find_spec('numpy') or u.find_spec('torch')\n"
                                "sys.exit(not found or not str(found.origin).startswith('/usr/lib/python3/'))\n";
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    setup.argv = (const char *const[]){python, "-c", probe, NULL};
    setup.environment = pl_environment_strings(environment);
    return pl_process_run(&setup, pl_deadline_after_ns(ANSWER_NS), NULL, NULL) == PL_OK;
}

enum pl_status pl_blas_set_core(const char *const *argv, struct pl_environment *environment, struct pl_error *reterr)
{
    const char *core;
    char found[PL_BLAS_CORE_BYTES];

    if (!pl_text_begins_with(basename(argv[0]), "python") ||
        pl_environment_get_or(environment, PL_BLAS_VARIABLE, NULL) || !may_have_debians() ||
        !(core = pl_blas_better_core(found)) || !has_debians(argv[0], environment)) {
        return PL_OK;
    }
    pl_log(PL_LOG_DEBUG,
           "the system's OpenBLAS takes this processor for a %s: the program gets " PL_BLAS_VARIABLE "=%s", found,
           core);
    return pl_environment_set(environment, PL_BLAS_VARIABLE, core, reterr);
}
