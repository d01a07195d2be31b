/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing of one direction of one connection, record by record; for lines (line.c) and lanes (transport/sealed.c).
 * Always holds: a key belongs to one direction of one connection, and a record's number is its nonce, so no pair of the
 * two is used twice. Every RR_RECORD_KEY records the key is replaced by its hash, at both ends alike, so that a key
 * found in memory opens nothing that was before. Records are opened in the order in which they were sealed, each once;
 * one that does not open ends the connection, since nothing behind it can be opened either. */
#include "boot/inside.h"

#include <string.h>

_Static_assert(RR_RECORD_TAG == crypto_aead_aes256gcm_ABYTES &&
                   RR_RECORD_TAG == crypto_aead_chacha20poly1305_IETF_ABYTES,
               "both have one size");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == 12 && crypto_aead_chacha20poly1305_IETF_NPUBBYTES == 12,
               "of tag and nonce");

static void set_key(struct rr_sealing *s)
{
    if (s->cipher == RR_CIPHER_AES256GCM)
        (void)crypto_aead_aes256gcm_beforenm(&s->aes, s->key); /* cannot fail */
}

void rr_sealing_init(struct rr_sealing *s, enum rr_cipher cipher, const unsigned char key[RR_KEY_BYTES])
{
    s->cipher = cipher;
    s->records = 0;
    memcpy(s->key, key, RR_KEY_BYTES);
    set_key(s);
}

/* The nonce of the next record, with whose key it must be: none lasts long, and none tells those before it. */
static void next_nonce(struct rr_sealing *s, unsigned char nonce[12])
{
    static const unsigned char label[] = "ringred next key";
    unsigned char old[RR_KEY_BYTES];

    memset(nonce, 0, 4);
    memcpy(nonce + 4, &s->records, 8);
    if (s->records && s->records % RR_RECORD_KEY == 0) {
        memcpy(old, s->key, sizeof old);
        crypto_generichash(s->key, sizeof s->key, label, sizeof label, old, sizeof old);
        sodium_memzero(old, sizeof old);
        set_key(s);
    }
    s->records++;
}

size_t rr_seal_record(struct rr_sealing *s, const unsigned char *from, size_t length, unsigned char *record)
{
    const uint32_t head = (uint32_t)length;
    unsigned char nonce[12], *to = record + RR_RECORD_HEAD, *tag = to + length;

    memcpy(record, &head, RR_RECORD_HEAD);
    next_nonce(s, nonce);
    if (s->cipher == RR_CIPHER_AES256GCM)
        crypto_aead_aes256gcm_encrypt_detached_afternm(to, tag, NULL, from, length, record, RR_RECORD_HEAD, NULL,
                                                       nonce, &s->aes);
    else
        crypto_aead_chacha20poly1305_ietf_encrypt_detached(to, tag, NULL, from, length, record, RR_RECORD_HEAD, NULL,
                                                           nonce, s->key);
    return length + RR_RECORD_MORE;
}

uint32_t rr_record_length(const unsigned char *record)
{
    uint32_t length;

    memcpy(&length, record, RR_RECORD_HEAD);
    return length;
}

bool rr_unseal_record(struct rr_sealing *s, const unsigned char *record, unsigned char *to)
{
    size_t length = rr_record_length(record);
    const unsigned char *from = record + RR_RECORD_HEAD, *tag = from + length;
    unsigned char nonce[12];

    next_nonce(s, nonce);
    if (s->cipher == RR_CIPHER_AES256GCM)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(to, NULL, from, length, tag, record, RR_RECORD_HEAD,
                                                              nonce, &s->aes) == 0;
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(to, NULL, from, length, tag, record, RR_RECORD_HEAD,
                                                              nonce, s->key) == 0;
}
