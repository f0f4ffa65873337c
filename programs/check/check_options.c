/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of paceline-check: the user's, and those that `paceline` adds. */
#include "base/options.h"
#include "entrypoint/verbs.h"
#include "programs/check/check.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 256, HOSTS, LISTED_EFA, HELP, EXPECT, MBIT, SHM, FILES, JSON };

static enum pl_status take_transport(const char *text, struct pl_check_needs *needs, struct pl_error *reterr)
{
    if (strcmp(text, "efa") != 0 && strcmp(text, "tcp") != 0 && strcmp(text, "any") != 0) {
        return pl_error_set(reterr, PL_INVALID, "--expect is '%.60s', expected efa, tcp or any", text);
    }
    needs->transport = text;
    return PL_OK;
}

static enum pl_status take(int option, const char *text, struct pl_check_needs *needs, struct pl_error *reterr)
{
    uint64_t number = 0;
    enum pl_status status = PL_OK;

    switch (option) {
    case RANKS:
        status = pl_options_whole("ranks", text, 1, 65536, &number, reterr);
        needs->ranks = (int)number;
        return status;
    case HOSTS:
        needs->hosts = text;
        return PL_OK;
    case LISTED_EFA:
        needs->listed_efa = true;
        return PL_OK;
    case EXPECT:
        return take_transport(text, needs, reterr);
    case MBIT:
        return pl_options_real("expect-mbit", text, 0, 1e9, &needs->mbit, reterr);
    case SHM:
        status = pl_options_whole("expect-shm", text, 1, UINT64_C(1) << 30, &number, reterr);
        needs->shm_bytes = (int64_t)number << 20;
        return status;
    case JSON:
        needs->json = true;
        return PL_OK;
    default: /* FILES */
        status = pl_options_whole("expect-files", text, 1, UINT64_C(1) << 40, &number, reterr);
        needs->files = (int64_t)number;
        return status;
    }
}

enum pl_status pl_check_options_read(int argc, char **argv, struct pl_check_needs *ret_needs, struct pl_error *reterr)
{
    static const struct option table[] = {{"ranks", required_argument, NULL, RANKS},
                                          {"hosts", required_argument, NULL, HOSTS},
                                          {"listed-efa", no_argument, NULL, LISTED_EFA},
                                          {"help", no_argument, NULL, HELP},
                                          {"expect", required_argument, NULL, EXPECT},
                                          {"expect-mbit", required_argument, NULL, MBIT},
                                          {"expect-shm", required_argument, NULL, SHM},
                                          {"expect-files", required_argument, NULL, FILES},
                                          {"json", no_argument, NULL, JSON},
                                          {NULL, 0, NULL, 0}};
    enum pl_status status;
    int option;

    *ret_needs = (struct pl_check_needs){.ranks = 1, .transport = "any", .hosts = ""};
    while ((status = pl_options_next(argc, argv, "", table, &option, reterr)) == PL_OK) {
        if (option == HELP) {
            pl_verbs_print_help("check", stdout);
            return PL_END;
        }
        PL_TRY(take(option, optarg, ret_needs, reterr));
    }
    PL_TRY(status == PL_END ? PL_OK : status);
    return optind == argc ? PL_OK : pl_error_set(reterr, PL_INVALID, "expected options, found '%.100s'", argv[optind]);
}
