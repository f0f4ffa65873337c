/* SPDX-License-Identifier: Apache-2.0 */
/* The launch command that a master sends: the splitter accepts only orted or prted, whatever the command is. */
#include "entrypoint/ssh/relay.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

static bool is_daemon(const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *name = slash ? slash + 1 : word;

    return strcmp(name, "orted") == 0 || strcmp(name, "prted") == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;

    if (!text) {
        return 0;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (pl_command_split_daemon(text, &command, NULL) == PL_OK) {
        PL_BUG_IF(command.count == 0 || !is_daemon(command.items[0]) || command.items[command.count]);
        for (size_t i = 0; i < command.count; i++) {
            PL_BUG_IF(strcmp(command.items[i], "--daemonize") == 0);
        }
    }
    free(text);
    return 0;
}
