/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the request for a shell's session. */
#include "programs/shell/request.h"

#include "entrypoint/ssh/relay.h"

#include <string.h>

static const char what[] = "request for a shell";

enum pl_status pl_shell_request_print(const struct pl_strv *command, struct pl_text *text, struct pl_error *reterr)
{
    pl_text_append(text, PL_RELAY_SHELL_PREFIX);
    for (size_t i = 0; i < command->count; i++) {
        pl_text_append(text, i > 0 ? " " : "");
        pl_text_append_quoted(text, command->items[i]);
    }
    PL_TRY(pl_text_check(text, reterr));
    return text->length <= PL_SHELL_REQUEST_MAX_BYTES
               ? PL_OK
               : pl_error_set(reterr, PL_LIMIT, "the command has %zu bytes: expected at most %d", text->length,
                              PL_SHELL_REQUEST_MAX_BYTES);
}

enum pl_status pl_shell_request_parse(const char *text, struct pl_strv *command, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text again = PL_TEXT_NONE;

    if (strlen(text) > PL_SHELL_REQUEST_MAX_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "%s: more than %d bytes", what, PL_SHELL_REQUEST_MAX_BYTES);
    }
    PL_TRY(pl_strv_split(text, what, command, reterr));
    if (command->count > 0) {
        pl_strv_remove(command, 0, 1);
    }
    PL_TRY(pl_shell_request_print(command, &again, reterr));
    if (strcmp(pl_text_string(&again), text) != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: expected one of `paceline shell`'s own", what);
    }
    return PL_OK;
}
