/* SPDX-License-Identifier: Apache-2.0 */
#include "entrypoint/settings.h"

#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"

#include <string.h>

/* Without PACELINE_. docs/contract.md and docs/supervision.md say what they do; LIBRARY is for examples/python, and the last two Paceline sets
 * itself. */
static const char *const names[] = {
    "PYTHON",   "INSTALL", "SOURCE_MAX_BYTES", "MPI_VERSION",    "PEER_WAIT_S", "SILENCE_S", "STOP_S",
    "SSH_PORT", "SSH_DIR", "SSH_SECRET",       "INTERMEDIATE_S", "LIBRARY",     "RUN_DIR",   "HOST_NAME",
};

enum { NEAR_EDITS = 2, PREFIX_BYTES = sizeof("PACELINE_") - 1 };

/* How many characters have to be put in, left out or changed to make `a` of `b`; at most `limit` + 1. */
static unsigned edits(const char *a, const char *b, unsigned limit)
{
    unsigned best = limit;

    for (; *a != '\0' && *a == *b; a++, b++) {
    }
    if (*a == '\0' && *b == '\0') {
        return 0;
    }
    if (limit == 0) {
        return 1;
    }
    for (unsigned way = 1; way <= 3; way++) { /* a character of `a` left out, one of `b`, one of each */
        if (((way & 1) == 0 || *a != '\0') && ((way & 2) == 0 || *b != '\0')) {
            unsigned rest = edits(a + (way & 1), b + (way >> 1), limit - 1);

            best = rest < best ? rest : best;
        }
    }
    return best + 1;
}

static const char *name_at(size_t i)
{
    if (i < PL_ARRAY_ITEMS(names)) {
        return names[i];
    }
    i -= PL_ARRAY_ITEMS(names);
    return i < PL_KNOB_COUNT ? pl_knob_info((enum pl_knob)i)->variable + PREFIX_BYTES : NULL;
}

/* The setting that `name` was probably meant to be, without its prefix; NULL when none is near. */
static const char *nearest(const char *name, unsigned *ret_edits)
{
    const char *found = NULL;
    const char *candidate;

    *ret_edits = NEAR_EDITS + 1;
    for (size_t i = 0; (candidate = name_at(i)) != NULL; i++) {
        unsigned count = edits(name + PREFIX_BYTES, candidate, NEAR_EDITS);

        if (count < *ret_edits) {
            *ret_edits = count;
            found = candidate;
        }
    }
    return found;
}

bool pl_settings_have(const char *name)
{
    unsigned count = 1;

    return strncmp(name, "PACELINE_", PREFIX_BYTES) == 0 && nearest(name, &count) != NULL && count == 0;
}

/* `string` is PACELINE_NAME=value. */
static enum pl_status check(const char *string, bool is_variable, struct pl_words *warnings, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text hint = PL_TEXT_NONE;
    const char *meant;
    unsigned count;

    pl_text_append_n(&name, string, strcspn(string, "="));
    PL_TRY(pl_text_check(&name, reterr));
    meant = nearest(pl_text_string(&name), &count);
    if (count == 0 || (meant == NULL && is_variable)) {
        return PL_OK;
    }
    if (meant != NULL) {
        pl_text_printf(&hint, "; PACELINE_%s is one", meant);
        PL_TRY(pl_text_check(&hint, reterr));
    }
    return pl_words_printf(warnings, reterr, "%s%s is no setting of Paceline and has no effect%s", pl_text_string(&name),
                           is_variable ? "" : " (a hyperparameter)", pl_text_string(&hint));
}

enum pl_status pl_settings_check(const struct pl_job *job, struct pl_words *warnings, struct pl_error *reterr)
{
    for (char *const *string = pl_environment_strings(job->process); *string != NULL; string++) {
        if (strncmp(*string, "PACELINE_", PREFIX_BYTES) == 0) {
            PL_TRY(check(*string, true, warnings, reterr));
        }
    }
    for (size_t i = 0; i < job->knobs.count; i++) {
        PL_TRY(check(job->knobs.items[i], false, warnings, reterr));
    }
    return PL_OK;
}
