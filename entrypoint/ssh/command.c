/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line by which mpirun's remote agent is to start a launch daemon. */
#include "entrypoint/ssh/command.h"

#include <string.h>

static const char what[] = "launch command";

/* Whether the word is NAME=..., with a shell's rules for NAME. */
static bool is_assignment(const char *word)
{
    size_t length = 0;

    while ((word[length] >= 'A' && word[length] <= 'Z') || (word[length] >= 'a' && word[length] <= 'z') ||
           word[length] == '_' || (length > 0 && word[length] >= '0' && word[length] <= '9')) {
        length++;
    }
    return length > 0 && word[length] == '=';
}

static enum pl_status add_word(struct pl_strv *words, const char *word, struct pl_error *reterr)
{
    if (words->count == PL_COMMAND_MAX_WORDS) {
        return pl_error_set(reterr, PL_LIMIT, "%s: more than %d words", what, PL_COMMAND_MAX_WORDS);
    }
    pl_strv_add(words, word);
    return pl_strv_check(words, reterr);
}

/* Skip the code that mpirun puts before the command for a user whose login shell is sh or ksh. A ')' follows the
 * command then. */
static bool skip_profile(const char **at)
{
    static const char profile[] = "( test ! -r ./.profile || . ./.profile;";

    if (strncmp(*at, profile, strlen(profile)) != 0) {
        return false;
    }
    *at += strlen(profile);
    *at += strspn(*at, PL_STRV_BLANKS);
    return true;
}

static enum pl_status collect(const char *text, struct pl_strv *words, struct pl_error *reterr)
{
    static const char operators[] = ";&|<>()`";
    PL_AUTO_TEXT struct pl_text word = PL_TEXT_NONE;
    const char *at = text + strspn(text, PL_STRV_BLANKS);
    const bool grouped = skip_profile(&at);
    bool finished = false; /* a ';' has followed the command */

    for (; *at != '\0'; at += strspn(at, PL_STRV_BLANKS)) {
        if (grouped && at[0] == ')' && at[1 + strspn(at + 1, PL_STRV_BLANKS)] == '\0') {
            break;
        }
        if (*at == ';') {
            if (words->count > 0 && strcmp(words->items[0], "export") == 0) {
                pl_strv_done(words);
            }
            finished = words->count > 0;
            at++;
            continue;
        }
        if (strchr(operators, *at)) {
            return pl_error_set(reterr, PL_INVALID, "%s: '%c' is not allowed", what, *at);
        }
        pl_text_clear(&word);
        PL_TRY(pl_strv_read_word(text, operators, what, &at, &word, reterr));
        PL_TRY(pl_text_check(&word, reterr));
        if (finished) {
            return pl_error_set(reterr, PL_INVALID, "%s: a second command '%.100s'", what, pl_text_string(&word));
        }
        if (strcmp(pl_text_string(&word), "--daemonize") != 0 &&
            (words->count > 0 || !is_assignment(pl_text_string(&word)))) {
            PL_TRY(add_word(words, pl_text_string(&word), reterr));
        }
    }
    return PL_OK;
}

static enum pl_status check_daemon(const struct pl_strv *words, struct pl_error *reterr)
{
    const char *slash;
    const char *name;

    if (words->count == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: it is empty", what);
    }
    slash = strrchr(words->items[0], '/');
    name = slash ? slash + 1 : words->items[0];
    if (strcmp(name, "orted") != 0 && strcmp(name, "prted") != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: only orted and prted may be started, not '%.100s'", what,
                            words->items[0]);
    }
    return PL_OK;
}

enum pl_status pl_command_split_daemon(const char *text, struct pl_strv *words, struct pl_error *reterr)
{
    enum pl_status status = collect(text, words, reterr);

    if (status == PL_OK) {
        status = check_daemon(words, reterr);
    }
    if (status != PL_OK) {
        pl_strv_done(words);
    }
    return status;
}
