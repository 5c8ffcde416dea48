/* hash.c - SHA-256 by libcrypto's plain functions.
 *
 * The EVP interface would read OpenSSL's configuration file and the environment and keep global state; the
 * plain one is the same code (with the processor's SHA instructions) and does neither.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "artifacts/hash.h"

#include <openssl/sha.h>

_Static_assert(sizeof(Sha256) >= sizeof(SHA256_CTX), "room for the state");

void sha256_start(Sha256 *h) { SHA256_Init((SHA256_CTX *)(void *)h); }
void sha256_add(Sha256 *h, const void *bytes, size_t n)
{
	SHA256_Update((SHA256_CTX *)(void *)h, bytes, n);
}
void sha256_end(Sha256 *h, uint8_t out[32]) { SHA256_Final(out, (SHA256_CTX *)(void *)h); }

void sha256_of(const void *bytes, size_t n, uint8_t out[32])
{
	Sha256 h;
	sha256_start(&h);
	sha256_add(&h, bytes, n);
	sha256_end(&h, out);
}

char *hex_text(const uint8_t *bytes, int n, char *text)
{
	for (int i = 0; i < n; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
	return text;
}

void hex_put(FILE *out, const uint8_t *bytes, int n)
{
	for (int i = 0; i < n; i++)
		fprintf(out, "%02x", bytes[i]);
}
