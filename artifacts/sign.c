/* sign.c - signatures by libsodium.
 *
 * Its functions keep nothing and take no memory. Neither library can do without the other: libcrypto has Ed25519 only
 * in its EVP interface, which adds 3.8 MB to a library; libsodium's SHA-256 does not use the processor's SHA
 * instructions and reads 0.5 GB/s where libcrypto's reads 2.1 (AMD EPYC, one core), and weights are gigabytes.
 */
#include "artifacts/sign.h"
#include "artifacts/hash.h"

#include <sodium/core.h>
#include <sodium/crypto_sign_ed25519.h>
#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = sizeof "atlas.signature.1" + SIGN_MAX_DOMAIN + 1 + 32 };

/* Two functions that the object files of the calls below mention for others of their functions (keys from random bytes,
 * guarded memory), which nothing here calls. Those of libsodium would bring its ciphers, BLAKE2b and Argon2: 115 KB. */
void randombytes_buf(void *const bytes, const size_t n)
{
	(void)bytes;
	(void)n;
	abort();
}

void sodium_misuse(void) { abort(); }

const uint8_t key_public_head[12] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

void key_id(const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t id[KEY_ID_BYTES])
{
	Sha256 h;
	sha256_start(&h);
	sha256_add(&h, key_public_head, sizeof key_public_head);
	sha256_add(&h, public_key, PUBLIC_KEY_BYTES);
	sha256_end(&h, id);
}

/* Its length; 0 for a domain that is too long. */
static size_t make_message(const char *domain, const void *bytes, size_t n, uint8_t message[MESSAGE_BYTES])
{
	static const char head[] = "atlas.signature.1";
	size_t length = strlen(domain);
	if (length > SIGN_MAX_DOMAIN)
		return 0;
	memcpy(message, head, sizeof head);
	memcpy(message + sizeof head, domain, length + 1);
	sha256_of(bytes, n, message + sizeof head + length + 1);
	return sizeof head + length + 1 + 32;
}

bool sign_bytes(const PrivateKey *key, const char *domain, const void *bytes, size_t n,
	uint8_t signature[SIGNATURE_BYTES])
{
	uint8_t message[MESSAGE_BYTES], public_key[PUBLIC_KEY_BYTES], secret[crypto_sign_ed25519_SECRETKEYBYTES];
	size_t length = make_message(domain, bytes, n, message);
	bool ok = length && crypto_sign_ed25519_seed_keypair(public_key, secret, key->seed) == 0 &&
		crypto_sign_ed25519_detached(signature, NULL, message, length, secret) == 0;
	sodium_memzero(secret, sizeof secret);
	return ok;
}

bool signature_holds(const uint8_t public_key[PUBLIC_KEY_BYTES], const char *domain, const void *bytes, size_t n,
	const uint8_t signature[SIGNATURE_BYTES])
{
	uint8_t message[MESSAGE_BYTES];
	size_t length = make_message(domain, bytes, n, message);
	return length && crypto_sign_ed25519_verify_detached(signature, message, length, public_key) == 0;
}

bool key_derive(PrivateKey *key)
{
	uint8_t secret[crypto_sign_ed25519_SECRETKEYBYTES];
	bool ok = crypto_sign_ed25519_seed_keypair(key->public_key, secret, key->seed) == 0;
	sodium_memzero(secret, sizeof secret);
	return ok;
}

void key_forget(PrivateKey *key)
{
	sodium_memzero(key, sizeof *key);
}
