/* sign.c - signatures by libsodium.
 *
 * Its functions keep nothing and take no memory. (libcrypto has Ed25519 behind its EVP interface alone, which costs a
 * program 4.5 MB.)
 */
#include "artifacts/sign.h"

#include "artifacts/hash.h"

#include <sodium/crypto_sign_ed25519.h>
#include <sodium/utils.h>
#include <string.h>

enum { MESSAGE_BYTES = sizeof "atlas.signature.1" + SIGN_MAX_DOMAIN + 1 + 32 };

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
	bool ok = length && crypto_sign_ed25519_seed_keypair(public_key, secret, key->seed) == 0
		&& crypto_sign_ed25519_detached(signature, NULL, message, length, secret) == 0;
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
