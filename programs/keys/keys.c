/* SPDX-License-Identifier: Apache-2.0 */
/* Derives ssh key pairs from a secret and writes them in OpenSSH's format. */
#include "programs/keys/keys.h"

#include "base/number.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>

static const char key_type[] = "ssh-ed25519";

enum { BASE64_LINE = 70, CIPHER_BLOCK = 8 };

enum pl_status pl_keys_derive(const void *secret, size_t secret_bytes, const char *job_name, const char *purpose,
                              unsigned char ret_seed[PL_KEYS_SEED_BYTES], struct pl_error *reterr)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    const char digest[] = "SHA256";
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t)digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, secret_bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)job_name, strlen(job_name)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)purpose, strlen(purpose)),
        OSSL_PARAM_construct_end(),
    };
    bool derived = context && EVP_KDF_derive(context, ret_seed, PL_KEYS_SEED_BYTES, parameters) > 0;

    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return derived ? PL_OK : pl_error_set(reterr, PL_LIBRARY, "derive a key: libcrypto refused");
}

enum pl_status pl_keys_public(const unsigned char seed[PL_KEYS_SEED_BYTES],
                              unsigned char ret_public[PL_KEYS_PUBLIC_BYTES], struct pl_error *reterr)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, PL_KEYS_SEED_BYTES);
    size_t bytes = PL_KEYS_PUBLIC_BYTES;
    bool made = key && EVP_PKEY_get_raw_public_key(key, ret_public, &bytes) == 1 && bytes == PL_KEYS_PUBLIC_BYTES;

    EVP_PKEY_free(key);
    return made ? PL_OK : pl_error_set(reterr, PL_LIBRARY, "cannot make an Ed25519 key: libcrypto refused");
}

/* Appends a number in ssh's wire format: 32-bit big endian. Byte strings follow their length. */
static void put_number(struct pl_text *text, size_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        pl_text_append_char(text, (char)(unsigned char)(number >> shift));
    }
}

static void put_bytes(struct pl_text *text, const void *bytes, size_t count)
{
    put_number(text, count);
    pl_text_append_n(text, bytes, count);
}

static void put_public(struct pl_text *text, const unsigned char public_key[PL_KEYS_PUBLIC_BYTES])
{
    put_bytes(text, key_type, strlen(key_type));
    put_bytes(text, public_key, PL_KEYS_PUBLIC_BYTES);
}

static enum pl_status put_base64(struct pl_text *text, const struct pl_text *bytes, size_t line_length,
                                 struct pl_error *reterr)
{
    unsigned char *encoded;
    int length;

    PL_TRY(pl_text_check(bytes, reterr));
    encoded = malloc(bytes->length / 3 * 4 + 5);
    if (!encoded) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for a key");
    }
    length = EVP_EncodeBlock(encoded, (const unsigned char *)bytes->data, (int)bytes->length);
    for (size_t at = 0; at < (size_t)length; at += line_length) {
        size_t part = pl_number_min((size_t)length - at, line_length);

        pl_text_append_n(text, (const char *)encoded + at, part);
        if (line_length == BASE64_LINE) {
            pl_text_append_char(text, '\n');
        }
    }
    OPENSSL_cleanse(encoded, (size_t)length);
    free(encoded);
    return PL_OK;
}

static void put_private_section(struct pl_text *text, const unsigned char seed[PL_KEYS_SEED_BYTES],
                                const unsigned char public_key[PL_KEYS_PUBLIC_BYTES], const char *comment)
{
    unsigned char both[PL_KEYS_SEED_BYTES + PL_KEYS_PUBLIC_BYTES];

    memcpy(both, seed, PL_KEYS_SEED_BYTES);
    memcpy(both + PL_KEYS_SEED_BYTES, public_key, PL_KEYS_PUBLIC_BYTES);
    /* Two equal numbers, by which ssh recognises the right passphrase. Without a passphrase any value will do. */
    put_number(text, 0x50414345);
    put_number(text, 0x50414345);
    put_public(text, public_key);
    put_bytes(text, both, sizeof(both));
    put_bytes(text, comment, strlen(comment));
    for (unsigned char pad = 1; text->length % CIPHER_BLOCK != 0 && !text->failed; pad++) {
        pl_text_append_char(text, (char)pad);
    }
    OPENSSL_cleanse(both, sizeof(both));
}

enum pl_status pl_keys_print(const unsigned char seed[PL_KEYS_SEED_BYTES], const char *comment,
                             struct pl_text *private_file, struct pl_text *public_file, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text blob = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text section = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;
    unsigned char public_key[PL_KEYS_PUBLIC_BYTES];

    PL_TRY(pl_keys_public(seed, public_key, reterr));
    put_public(&blob, public_key);
    pl_text_printf(public_file, "%s ", key_type);
    PL_TRY(put_base64(public_file, &blob, SIZE_MAX, reterr));
    pl_text_printf(public_file, " %s\n", comment);

    put_private_section(&section, seed, public_key, comment);
    pl_text_append_n(&whole, "openssh-key-v1", sizeof("openssh-key-v1"));
    put_bytes(&whole, "none", 4); /* cipher */
    put_bytes(&whole, "none", 4); /* function that derives a key from a passphrase */
    put_bytes(&whole, "", 0);     /* options of that function */
    put_number(&whole, 1);        /* number of keys in this file */
    put_bytes(&whole, pl_text_string(&blob), blob.length);
    put_bytes(&whole, pl_text_string(&section), section.length);
    pl_text_append(private_file, "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    PL_TRY(put_base64(private_file, &whole, BASE64_LINE, reterr));
    pl_text_append(private_file, "-----END OPENSSH PRIVATE KEY-----\n");
    PL_TRY(pl_text_check(public_file, reterr));
    return pl_text_check(private_file, reterr);
}
