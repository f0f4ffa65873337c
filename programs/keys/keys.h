/* SPDX-License-Identifier: Apache-2.0 */
/**
 * ssh keys from a secret: every host that has the same secret derives the same two key pairs, so that hosts only need
 * to share one file in a channel.
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

/**
 * Derives a seed by HKDF with SHA-256 over `secret`, with the job's name as salt; different values of `purpose` give
 * different keys of one secret.
 */
enum pl_status pl_keys_derive(const void *secret, size_t secret_bytes, const char *job_name, const char *purpose,
                              unsigned char ret_seed[PL_KEYS_SEED_BYTES], struct pl_error *reterr) PL_MUST_CHECK;

/** Computes the public half of the Ed25519 key with this seed. */
enum pl_status pl_keys_public(const unsigned char seed[PL_KEYS_SEED_BYTES],
                              unsigned char ret_public[PL_KEYS_PUBLIC_BYTES], struct pl_error *reterr) PL_MUST_CHECK;

/** Appends the two files that ssh reads: the private key without a passphrase, and the line of the public key. */
enum pl_status pl_keys_print(const unsigned char seed[PL_KEYS_SEED_BYTES], const char *comment,
                             struct pl_text *private_file, struct pl_text *public_file,
                             struct pl_error *reterr) PL_MUST_CHECK;

#endif
