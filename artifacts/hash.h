/* hash.h - SHA-256 (FIPS 180-4), the only hash of the format. */
#ifndef ATLAS_HASH_H
#define ATLAS_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct Sha256 { /* private; copyable */
	uint64_t state[16];
} Sha256;

void sha256_start(Sha256 *h);
void sha256_add(Sha256 *h, const void *bytes, size_t n);
void sha256_end(Sha256 *h, uint8_t out[32]);
void sha256_of(const void *bytes, size_t n, uint8_t out[32]);

#endif
