/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline-keys SECRET_FILE JOB_NAME DIRECTORY
 *
 * Writes id_ed25519, host_ed25519 and their .pub files to DIRECTORY, mode 0600. A program of its own, so that the front
 * binary does not link libcrypto and the secret is in the memory of a process that ends at once.
 */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "programs/keys/keys.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum pl_status write_file(const char *directory, const char *name, const char *suffix,
                                 const struct pl_text *text, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/%s%s", directory, name, suffix));
    return pl_file_write_atomic(pl_text_string(&path), text->data, text->length, 0600, reterr);
}

static enum pl_status make_pair(const char *secret, size_t secret_bytes, const char *job_name, const char *directory,
                                const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text private_file = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text public_file = PL_TEXT_NONE;
    unsigned char seed[PL_KEYS_SEED_BYTES];
    enum pl_status status;

    PL_TRY(pl_keys_derive(secret, secret_bytes, job_name, name, seed, reterr));
    status = pl_keys_print(seed, "paceline", &private_file, &public_file, reterr);
    explicit_bzero(seed, sizeof(seed));
    PL_TRY(status);
    status = write_file(directory, name, "", &private_file, reterr);
    explicit_bzero(private_file.data, private_file.length);
    PL_TRY(status);
    return write_file(directory, name, ".pub", &public_file, reterr);
}

static enum pl_status make_all(const char *secret_file, const char *job_name, const char *directory,
                               struct pl_error *reterr)
{
    PL_AUTO_FREE char *secret = NULL;
    enum pl_status status;
    struct stat info;
    size_t bytes;

    if (stat(secret_file, &info) != 0 || !S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "PACELINE_SSH_SECRET: '%.300s' is not a file; use a channel in File mode", secret_file);
    }
    PL_TRY(pl_file_read(secret_file, PL_KEYS_SECRET_MAX_BYTES, &secret, &bytes, reterr));
    if (bytes < PL_KEYS_SECRET_MIN_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "PACELINE_SSH_SECRET: '%.300s' holds %zu bytes, at least %d are needed",
                            secret_file, bytes, PL_KEYS_SECRET_MIN_BYTES);
    }
    status = make_pair(secret, bytes, job_name, directory, "id_ed25519", reterr);
    if (status == PL_OK) {
        status = make_pair(secret, bytes, job_name, directory, "host_ed25519", reterr);
    }
    explicit_bzero(secret, bytes);
    return status;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_log_open("paceline-keys");
    if (argc != 4) {
        pl_log(PL_LOG_ERROR, "usage: paceline-keys SECRET_FILE JOB_NAME DIRECTORY");
        return PL_EXIT_USAGE;
    }
    if (make_all(argv[1], argv[2], argv[3], &error) != PL_OK) {
        pl_log_error(&error, "cannot make ssh keys");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
