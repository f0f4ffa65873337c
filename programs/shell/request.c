/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads what a shell's session asks for. */
#include "programs/shell/request.h"

#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/ssh/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_CELLS = 65535 };

static const char what[] = "request for a shell";

static enum pl_status check_term(const char *term, struct pl_error *reterr)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+._";

    if (*term == '\0' || term[strspn(term, allowed)] != '\0' || strlen(term) >= PL_SHELL_REQUEST_TERM_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "%s: TERM: expected letters, digits and -+._, found '%.64s'", what,
                            term);
    }
    return PL_OK;
}

enum pl_status pl_shell_request_print(const struct pl_shell_request *request, struct pl_text *text,
                                      struct pl_error *reterr)
{
    const size_t before = text->length;

    if (request->has_terminal) {
        PL_TRY(check_term(request->term, reterr));
        pl_text_printf(text, PL_RELAY_SHELL_PREFIX "terminal %u %u %s", request->rows, request->columns, request->term);
    } else {
        pl_text_append(text, PL_RELAY_SHELL_PREFIX "plain");
    }
    for (size_t i = 0; i < request->command.count; i++) {
        pl_text_append_char(text, ' ');
        pl_text_append_quoted(text, request->command.items[i]);
    }
    PL_TRY(pl_text_check(text, reterr));
    if (text->length - before > PL_SHELL_REQUEST_MAX_BYTES) {
        return pl_error_set(reterr, PL_LIMIT, "the command has %zu bytes: expected at most %d", text->length - before,
                            PL_SHELL_REQUEST_MAX_BYTES);
    }
    return PL_OK;
}

static enum pl_status read_cells(const char *word, unsigned *ret_cells, struct pl_error *reterr)
{
    char *end = NULL;
    unsigned long number = strtoul(word, &end, 10);

    if (*word < '0' || *word > '9' || *end != '\0' || number > SIZE_MAX_CELLS) {
        return pl_error_set(reterr, PL_INVALID, "%s: expected rows and columns from 0 to %d, found '%.20s'", what,
                            SIZE_MAX_CELLS, word);
    }
    *ret_cells = (unsigned)number;
    return PL_OK;
}

/* The words of the request before those of the command; `*ret_first` is the first of the latter. */
static enum pl_status read_head(const struct pl_strv *words, struct pl_shell_request *request, size_t *ret_first,
                                struct pl_error *reterr)
{
    const char *kind = words->count > 1 ? words->items[1] : "";

    if (words->count > 1 && strcmp(kind, "plain") == 0) {
        *ret_first = 2;
        return PL_OK;
    }
    if (words->count < 5 || strcmp(kind, "terminal") != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: expected plain, or terminal with its size and TERM", what);
    }
    request->has_terminal = true;
    PL_TRY(read_cells(words->items[2], &request->rows, reterr));
    PL_TRY(read_cells(words->items[3], &request->columns, reterr));
    PL_TRY(check_term(words->items[4], reterr));
    snprintf(request->term, sizeof(request->term), "%s", words->items[4]);
    *ret_first = 5;
    return PL_OK;
}

enum pl_status pl_shell_request_parse(const char *text, struct pl_shell_request *request, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text again = PL_TEXT_NONE;
    size_t first = 0;

    if (strlen(text) > PL_SHELL_REQUEST_MAX_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "%s: more than %d bytes", what, PL_SHELL_REQUEST_MAX_BYTES);
    }
    PL_TRY(pl_strv_split(text, what, &words, reterr));
    PL_TRY(read_head(&words, request, &first, reterr));
    for (size_t i = first; i < words.count; i++) {
        PL_TRY(pl_strv_add(&request->command, words.items[i], reterr));
    }
    PL_TRY(pl_shell_request_print(request, &again, reterr));
    if (strcmp(pl_text_string(&again), text) != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: expected one of `paceline shell`'s own", what);
    }
    return PL_OK;
}

void pl_shell_request_done(struct pl_shell_request *request)
{
    pl_strv_done(&request->command);
    *request = PL_SHELL_REQUEST_NONE;
}
