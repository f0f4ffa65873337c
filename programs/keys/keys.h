/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ssh keys from a secret: every host that has the same secret derives the same two key pairs, so that only a file
 * in a channel has to be shared.
 *
 * Source  RFC 5869 (HKDF), RFC 8032 (Ed25519), OpenSSH's PROTOCOL.key (the private key file)
 * Test    tests/unit/programs/keys/test_keys.c
 */
#ifndef PL_PROGRAMS_KEYS_KEYS_H
#define PL_PROGRAMS_KEYS_KEYS_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

enum {
    PL_KEYS_SEED_BYTES = 32,
    PL_KEYS_PUBLIC_BYTES = 32,
    PL_KEYS_SECRET_MIN_BYTES = 32,
    PL_KEYS_SECRET_MAX_BYTES = 64 * 1024,
};

/** HKDF with SHA-256 over `secret`, salted with the job's name; `purpose` separates the keys of one secret. */
enum pl_status pl_keys_derive(const void *secret, size_t secret_bytes, const char *job_name, const char *purpose,
                              unsigned char ret_seed[PL_KEYS_SEED_BYTES], struct pl_error *reterr) PL_MUST_CHECK;

/** The public half of the Ed25519 key with this seed. */
enum pl_status pl_keys_public(const unsigned char seed[PL_KEYS_SEED_BYTES],
                              unsigned char ret_public[PL_KEYS_PUBLIC_BYTES], struct pl_error *reterr) PL_MUST_CHECK;

/** Append the two files that ssh reads: the private key without a passphrase, and the public line. */
enum pl_status pl_keys_print(const unsigned char seed[PL_KEYS_SEED_BYTES], const char *comment,
                             struct pl_text *private_file, struct pl_text *public_file,
                             struct pl_error *reterr) PL_MUST_CHECK;

#endif
