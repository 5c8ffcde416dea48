/* sign.c - signatures by libcrypto, in a context of their own.
 *
 * libcrypto has Ed25519 behind the EVP interface alone, which costs a program 4.5 MB. It is asked not to read its
 * configuration file and not to stay for the end of the process, and works in a library context that lives as long as
 * one call.
 */
#include "artifacts/sign.h"

#include "artifacts/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
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

static OSSL_LIB_CTX *open_library(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
	return OSSL_LIB_CTX_new();
}

bool sign_bytes(const PrivateKey *key, const char *domain, const void *bytes, size_t n,
	uint8_t signature[SIGNATURE_BYTES])
{
	uint8_t message[MESSAGE_BYTES];
	size_t length = make_message(domain, bytes, n, message), made = SIGNATURE_BYTES;
	OSSL_LIB_CTX *library = open_library();
	EVP_PKEY *pkey = EVP_PKEY_new_raw_private_key_ex(library, "ED25519", NULL, key->seed, sizeof key->seed);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool ok = length && library && pkey && md && EVP_DigestSignInit_ex(md, NULL, NULL, library, NULL, pkey, NULL) == 1
		&& EVP_DigestSign(md, signature, &made, message, length) == 1 && made == SIGNATURE_BYTES;
	EVP_MD_CTX_free(md);
	EVP_PKEY_free(pkey);
	OSSL_LIB_CTX_free(library);
	return ok;
}

bool signature_holds(const uint8_t public_key[PUBLIC_KEY_BYTES], const char *domain, const void *bytes, size_t n,
	const uint8_t signature[SIGNATURE_BYTES])
{
	uint8_t message[MESSAGE_BYTES];
	size_t length = make_message(domain, bytes, n, message);
	OSSL_LIB_CTX *library = open_library();
	EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key_ex(library, "ED25519", NULL, public_key, PUBLIC_KEY_BYTES);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool ok = length && library && pkey && md && EVP_DigestVerifyInit_ex(md, NULL, NULL, library, NULL, pkey, NULL) == 1
		&& EVP_DigestVerify(md, signature, SIGNATURE_BYTES, message, length) == 1;
	EVP_MD_CTX_free(md);
	EVP_PKEY_free(pkey);
	OSSL_LIB_CTX_free(library);
	return ok;
}

bool key_derive(PrivateKey *key)
{
	size_t n = PUBLIC_KEY_BYTES;
	OSSL_LIB_CTX *library = open_library();
	EVP_PKEY *pkey = EVP_PKEY_new_raw_private_key_ex(library, "ED25519", NULL, key->seed, sizeof key->seed);
	bool ok = library && pkey && EVP_PKEY_get_raw_public_key(pkey, key->public_key, &n) == 1 && n == PUBLIC_KEY_BYTES;
	EVP_PKEY_free(pkey);
	OSSL_LIB_CTX_free(library);
	return ok;
}

void key_forget(PrivateKey *key) { OPENSSL_cleanse(key, sizeof *key); }
