/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves the settings: PACELINE_NAME, else Horovod's variable, else the default. Checks each by its type. */
#include "base/knob.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct pl_knob_info infos[PL_KNOB_COUNT] = {
#define IS_WORD(type) (PL_KNOB_TYPE_##type == PL_KNOB_TYPE_WORD)
#define PL_KNOB_INFO(id, name, type, unit, fallback, horovod, help)                                                    \
    [PL_KNOB_##id] = {name,                                                                                            \
                      "PACELINE_" #id,                                                                                 \
                      PL_KNOB_TYPE_##type,                                                                             \
                      IS_WORD(type) ? "" : (unit),                                                                     \
                      IS_WORD(type) ? (unit) : "",                                                                     \
                      fallback,                                                                                        \
                      horovod,                                                                                         \
                      help},
    PL_KNOB_LIST(PL_KNOB_INFO)
#undef PL_KNOB_INFO
#undef IS_WORD
};

static const char *const gone[] = {"PACELINE_SHM_STORE"};

bool pl_knob_is_gone(const char *variable, size_t length)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(gone); i++) {
        if (strlen(gone[i]) == length && strncmp(gone[i], variable, length) == 0) {
            return true;
        }
    }
    return false;
}

const struct pl_knob_info *pl_knob_info(enum pl_knob knob)
{
    return &infos[knob];
}

static bool parse_bool(const char *text, int64_t *ret_value)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *ret_value = 1;
            return true;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *ret_value = 0;
            return true;
        }
    }
    return false;
}

static bool parse_whole(const char *text, bool with_unit, int64_t *ret_value)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    long long value;
    char *end;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno) {
        return false;
    }
    for (size_t i = 0; i < (with_unit ? PL_ARRAY_ITEMS(units) : 1); i++) {
        if (strcmp(end, units[i].name) == 0 && value <= INT64_MAX >> units[i].shift) {
            *ret_value = (int64_t)value << units[i].shift;
            return true;
        }
    }
    return false;
}

static bool parse_real(const char *text, double *ret_value)
{
    return (isdigit((unsigned char)text[0]) || text[0] == '.') && pl_text_number(text, ret_value) &&
           isfinite(*ret_value);
}

/*
 * Whether `text` is one of `words`, separated by blanks; an N at the end of a word matches a number of one or two
 * digits.
 */
static bool is_word(const char *text, const char *words)
{
    for (const char *word = words; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " "), stem = word[length - 1] == 'N' ? length - 1 : length;

        if (strncmp(text, word, stem) == 0) {
            size_t digits = strspn(text + stem, "0123456789");

            if (text[stem + digits] == '\0' && (stem < length ? digits == 1 || digits == 2 : digits == 0)) {
                return true;
            }
        }
        word += length;
    }
    return false;
}

static const char *const expected[] = {
    [PL_KNOB_TYPE_BOOL] = "1, 0, true, false, yes, no, on or off",
    [PL_KNOB_TYPE_INT] = "a whole number, at least 0",
    [PL_KNOB_TYPE_SIZE] = "a whole number of bytes, or one followed by KiB, MiB or GiB",
    [PL_KNOB_TYPE_REAL] = "a number, at least 0",
    [PL_KNOB_TYPE_TEXT] = "at most 127 bytes",
    [PL_KNOB_TYPE_WORD] = "one of ",
};

static bool parse(const struct pl_knob_info *info, const char *text, struct pl_knob_value *value)
{
    switch (info->type) {
    case PL_KNOB_TYPE_BOOL:
        return parse_bool(text, &value->whole);
    case PL_KNOB_TYPE_INT:
        return parse_whole(text, false, &value->whole);
    case PL_KNOB_TYPE_SIZE:
        return parse_whole(text, true, &value->whole);
    case PL_KNOB_TYPE_REAL:
        return parse_real(text, &value->real);
    case PL_KNOB_TYPE_TEXT:
        return strlen(text) < PL_KNOB_TEXT_BYTES;
    case PL_KNOB_TYPE_WORD:
        return !*text || is_word(text, info->words);
    }
    return false;
}

static enum pl_status refuse(enum pl_knob_type type, const char *words, const char *text, const char *what,
                             struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "%s is '%.200s': expected %s%s", what, text, expected[type], words);
}

enum pl_status pl_knob_read_word(const char *text, const char *words, const char *what, struct pl_error *reterr)
{
    return is_word(text, words) ? PL_OK : refuse(PL_KNOB_TYPE_WORD, words, text, what, reterr);
}

enum pl_status pl_knob_read_bool(const char *text, const char *what, bool *ret_value, struct pl_error *reterr)
{
    int64_t value;

    if (!parse_bool(text, &value)) {
        return refuse(PL_KNOB_TYPE_BOOL, "", text, what, reterr);
    }
    *ret_value = value != 0;
    return PL_OK;
}

/* Returns the current name of a backend. Old names are accepted for one release. */
static const char *present_name(enum pl_knob knob, const char *text)
{
    static const char *const former[][2] = {{"exchange", "p2p"}, {"hierarchy", "hier"}};

    for (size_t i = 0; knob == PL_KNOB_BACKEND && i < PL_ARRAY_ITEMS(former); i++) {
        if (strcmp(text, former[i][0]) == 0) {
            return former[i][1];
        }
    }
    return text;
}

enum pl_status pl_knob_set(struct pl_knobs *knobs, enum pl_knob knob, const char *text, const char *what,
                           struct pl_error *reterr)
{
    struct pl_knob_value value = {.source = knobs->values[knob].source};
    size_t length;

    text = present_name(knob, text);
    length = strlen(text);

    if (!parse(&infos[knob], text, &value)) {
        return refuse(infos[knob].type, infos[knob].words, text, what, reterr);
    }
    if (infos[knob].type != PL_KNOB_TYPE_REAL) {
        value.real = (double)value.whole;
    }
    if (length >= sizeof(value.text)) {
        length = sizeof(value.text) - 1;
    }
    memcpy(value.text, text, length);
    knobs->values[knob] = value;
    return PL_OK;
}

void pl_knobs_default(struct pl_knobs *ret_knobs)
{
    memset(ret_knobs, 0, sizeof(*ret_knobs));
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        PL_BUG_IF(pl_knob_set(ret_knobs, (enum pl_knob)i, infos[i].fallback, infos[i].name, NULL) != PL_OK);
    }
}

enum pl_status pl_knobs_resolve(const struct pl_environment *environment, struct pl_knobs *ret_knobs,
                                struct pl_error *reterr)
{
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        const char *own = pl_environment_get(environment, infos[i].variable);
        const char *horovod = infos[i].horovod ? pl_environment_get(environment, infos[i].horovod) : NULL;

        if (own && *own) {
            PL_TRY(pl_knob_set(&knobs, (enum pl_knob)i, own, infos[i].variable, reterr));
            knobs.values[i].source = PL_KNOB_FROM_PACELINE;
        } else if (horovod && *horovod && !(i == PL_KNOB_TRACE && strcmp(horovod, "DYNAMIC") == 0)) {
            PL_TRY(pl_knob_set(&knobs, (enum pl_knob)i, horovod, infos[i].horovod, reterr));
            knobs.values[i].source = PL_KNOB_FROM_HOROVOD;
        }
    }
    *ret_knobs = knobs;
    return PL_OK;
}

bool pl_knob_bool(const struct pl_knobs *knobs, enum pl_knob knob)
{
    return knobs->values[knob].whole != 0;
}

int64_t pl_knob_int(const struct pl_knobs *knobs, enum pl_knob knob)
{
    return knobs->values[knob].whole;
}

double pl_knob_real(const struct pl_knobs *knobs, enum pl_knob knob)
{
    return knobs->values[knob].real;
}

int64_t pl_knob_ns(const struct pl_knobs *knobs, enum pl_knob knob, int64_t unit_ns)
{
    const int64_t century_ns = PL_NS_PER_S * 86400 * 36500;
    double ns = pl_knob_real(knobs, knob) * (double)unit_ns;

    return ns < (double)century_ns ? (int64_t)ns : century_ns;
}

const char *pl_knob_text(const struct pl_knobs *knobs, enum pl_knob knob)
{
    return knobs->values[knob].text;
}
