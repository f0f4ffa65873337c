/* SPDX-License-Identifier: Apache-2.0 */
/* exec_client RUN_DIRECTORY stdio|channel HOST PROGRAM [WORD...]: becomes the client that runs the program on another
 * host of this job. */
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/ssh/relay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum pl_status make_words(char **argv, struct pl_strv *words, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv program = PL_STRV_NONE, hosts = PL_STRV_NONE;
    PL_AUTO_FREE char *current_host = NULL;
    const char *run_dir = argv[1];
    struct pl_sshd sshd = PL_SSHD_NONE;
    enum pl_status status;

    for (char **word = argv + 4; *word; word++) {
        pl_strv_add(&program, *word);
    }
    PL_TRY(pl_sshd_load_hosts(run_dir, &sshd, &current_host, &hosts, reterr));
    status = pl_exec_words(&sshd, run_dir, argv[3], strcmp(argv[2], "stdio") == 0 ? PL_EXEC_STDIO : PL_EXEC_CHANNEL,
                           &program, words, reterr);
    pl_sshd_close(&sshd);
    return status;
}

int main(int argc, char **argv)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (argc < 5 || make_words(argv, &words, &error) != PL_OK) {
        pl_log_error(&error, "exec_client");
        return EXIT_FAILURE;
    }
    execvp(words.items[0], words.items);
    return EXIT_FAILURE;
}
