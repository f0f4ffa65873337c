/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-info: what is in this container, for reports of bugs, and then what the runtime finds (paceline-world). It
 * links neither MPI nor anything else that an image may lack.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/verbs.h"
#include "entrypoint/version.h"
#include "programs/info/ask.h"
#include "programs/info/sections.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORLD_NS (60 * PL_NS_PER_S)

/* What the runtime finds, or why it cannot run here. */
static enum pl_status add_world(struct pl_info_report *report, const char *world, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text answer = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status =
        pl_info_ask((const char *const[]){world, NULL}, pl_deadline_after_ns(WORLD_NS), &answer, &error);

    pl_info_begin(report, "runtime");
    pl_info_bool(report, "works", status == PL_OK);
    if (status != PL_OK) {
        pl_info_text(report, "why_not", error.cause);
    }
    pl_info_lines(report, "lines", pl_text_string(&answer));
    pl_info_end(report);
    return pl_text_check(&answer, reterr);
}

static enum pl_status show(bool is_json, const char *self_path, const char *world, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_info_place place = {.self_path = self_path, .front_version = pl_version};
    __attribute__((cleanup(pl_info_report_done))) struct pl_info_report report;

    pl_info_report_init(&report, is_json);
    PL_TRY(pl_environment_new(&environment, reterr));
    place.environment = environment;
    pl_info_add_paceline(&report, &place);
    pl_info_add_system(&report);
    pl_info_add_openmpi(&report, &place);
    pl_info_add_python(&report, &place);
    pl_info_add_ssh(&report, &place);
    pl_info_add_devices(&report);
    pl_info_add_settings(&report, &place);
    if (world) {
        PL_TRY(add_world(&report, world, reterr));
    }
    return pl_info_print(&report, reterr);
}

int main(int argc, char **argv)
{
    static const struct option table[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_FREE char *world = NULL;
    bool is_json = false, is_rank;
    char self_path[PATH_MAX];
    enum pl_status status;
    ssize_t length;
    int option;

    pl_log_open("paceline info");
    while ((status = pl_options_next(argc, argv, "h", table, &option, &error)) == PL_OK) {
        if (option == 'h') {
            pl_verbs_print_help("info", stdout);
            return 0;
        }
        is_json = true;
    }
    if (status != PL_END) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return PL_EXIT_USAGE;
    }
    if (optind < argc) {
        pl_log(PL_LOG_ERROR, "expected nothing, found '%s'; --help tells more", argv[optind]);
        return PL_EXIT_USAGE;
    }
    length = readlink("/proc/self/exe", self_path, sizeof(self_path) - 1);
    self_path[length > 0 ? length : 0] = '\0';
    if (pl_companion_find(self_path, "paceline-world", &world, &error) != PL_OK) {
        pl_log_error(&error, "looking for the runtime's part");
        return 1;
    }
    is_rank = pl_environment_own("OMPI_COMM_WORLD_SIZE");
    if (is_rank && is_json) {
        pl_log(PL_LOG_ERROR, "--json is for one process: run it without mpirun");
        return PL_EXIT_USAGE;
    }
    if (is_rank) { /* a world of all ranks cannot be asked by a process between them and mpirun */
        execv(world, (char *const[]){world, NULL});
        pl_log(PL_LOG_ERROR, "'%s' cannot be started", world);
        return 1;
    }
    if (show(is_json, self_path, world, &error) != PL_OK) {
        pl_log(PL_LOG_ERROR, "%s", error.cause);
        return 1;
    }
    return 0;
}
