/* sign.h - Ed25519 signatures (RFC 8032) of bytes for a purpose, and their key files.
 *
 * What is signed names its purpose, so that no signature serves for another one:
 *
 *   message    "atlas.signature.1", 0, the domain (text), 0, SHA-256 of the bytes (32 bytes)
 *   domains    "plan": the bytes are the 32 of a plan's root hash
 *
 * Key files are PEM as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them: PRIVATE KEY
 * (PKCS #8, unencrypted) and PUBLIC KEY (SubjectPublicKeyInfo). A key's id is the SHA-256 of the DER form of the
 * latter: `openssl pkey -pubin -in pub.pem -outform DER | sha256sum`.
 */
#ifndef ATLAS_SIGN_H
#define ATLAS_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PUBLIC_KEY_BYTES = 32, KEY_ID_BYTES = 32, SIGNATURE_BYTES = 64, SIGN_MAX_DOMAIN = 64 };

/* How a SubjectPublicKeyInfo of Ed25519 begins; the key follows (RFC 8410). */
extern const uint8_t key_public_head[12];

typedef struct PrivateKey { /* key_forget when done with it */
	uint8_t seed[32], public_key[PUBLIC_KEY_BYTES];
} PrivateKey;

/* False: why says what is wrong with the file, without its name. */
bool key_read_private(const char *path, PrivateKey *key, char *why, size_t why_bytes);
bool key_read_public(const char *path, uint8_t public_key[PUBLIC_KEY_BYTES], char *why, size_t why_bytes);
/* The same of a file's text. */
bool key_parse_private(const char *text, size_t n, PrivateKey *key, char *why, size_t why_bytes);
bool key_parse_public(const char *text, size_t n, uint8_t public_key[PUBLIC_KEY_BYTES], char *why, size_t why_bytes);
bool key_derive(PrivateKey *key); /* public_key from seed */
void key_forget(PrivateKey *key);
void key_id(const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t id[KEY_ID_BYTES]);

/* The same key, domain and bytes give the same signature. False: the domain is too long. */
bool sign_bytes(const PrivateKey *key, const char *domain, const void *bytes, size_t n,
	uint8_t signature[SIGNATURE_BYTES]);
bool signature_holds(const uint8_t public_key[PUBLIC_KEY_BYTES], const char *domain, const void *bytes, size_t n,
	const uint8_t signature[SIGNATURE_BYTES]);

#endif
