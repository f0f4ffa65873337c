/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/keys/keys.c. */
#include "programs/keys/keys.h"

#include "tests/support/unit.h"

#include <string.h>

TEST(hkdf_is_the_standards)
{
    /* RFC 5869's construction, computed with another implementation: secret 32 x 'k', salt "job-1", info "id_ed25519".
     * */
    const unsigned char wanted[PL_KEYS_SEED_BYTES] = {0x81, 0xd8, 0xf4, 0x63, 0xed, 0x55, 0x52, 0x58, 0xac, 0x7c, 0xd8,
                                                      0x88, 0xd5, 0x8e, 0x95, 0xec, 0x12, 0x00, 0x45, 0x83, 0x79, 0xf4,
                                                      0x93, 0xfb, 0x91, 0xbd, 0xe4, 0x21, 0x90, 0x34, 0x32, 0x59};
    unsigned char seed[PL_KEYS_SEED_BYTES];

    ck_ok(pl_keys_derive, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", 32, "job-1", "id_ed25519", seed);
    ck_assert_mem_eq(seed, wanted, sizeof(seed));
}

TEST(purpose_job_and_secret_each_change_the_key)
{
    unsigned char seeds[4][PL_KEYS_SEED_BYTES];

    ck_ok(pl_keys_derive, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", 32, "job-1", "id_ed25519", seeds[0]);
    ck_ok(pl_keys_derive, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", 32, "job-1", "host_ed25519", seeds[1]);
    ck_ok(pl_keys_derive, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", 32, "job-2", "id_ed25519", seeds[2]);
    ck_ok(pl_keys_derive, "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkj", 32, "job-1", "id_ed25519", seeds[3]);
    for (int i = 0; i < 4; i++) {
        for (int k = i + 1; k < 4; k++) {
            ck_assert_mem_ne(seeds[i], seeds[k], PL_KEYS_SEED_BYTES);
        }
    }
}

TEST(the_public_half_is_rfc_8032s)
{
    /* Test vector 1 of RFC 8032, section 7.1. */
    const unsigned char seed[PL_KEYS_SEED_BYTES] = {0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a,
                                                    0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32,
                                                    0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60};
    const unsigned char wanted[PL_KEYS_PUBLIC_BYTES] = {
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
        0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
    unsigned char public_key[PL_KEYS_PUBLIC_BYTES];

    ck_ok(pl_keys_public, seed, public_key);
    ck_assert_mem_eq(public_key, wanted, sizeof(wanted));
}

TEST(the_files_have_sshs_form)
{
    const unsigned char seed[PL_KEYS_SEED_BYTES] = {1, 2, 3};
    PL_AUTO_TEXT struct pl_text private_file = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text public_file = PL_TEXT_NONE;

    ck_ok(pl_keys_print, seed, "paceline", &private_file, &public_file);
    ck_assert_ptr_eq(strstr(public_file.data, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"), public_file.data);
    ck_has(public_file.data, " paceline\n");
    ck_assert_ptr_eq(strstr(private_file.data, "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA"),
                     private_file.data);
}

UNIT_MAIN("entrypoint/keys")
