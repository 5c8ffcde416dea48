/* hash.h - SHA-256 (FIPS 180-4), the only hash of the format. */
#ifndef ATLAS_HASH_H
#define ATLAS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Sha256 { /* private; copyable */
	uint64_t state[16];
} Sha256;

void sha256_start(Sha256 *h);
void sha256_add(Sha256 *h, const void *bytes, size_t n);
void sha256_end(Sha256 *h, uint8_t out[32]);
void sha256_of(const void *bytes, size_t n, uint8_t out[32]);

/* Hexadecimal digits, two a byte: into text [2 n + 1], which is returned; or to a file. */
char *hex_text(const uint8_t *bytes, int n, char *text);
void hex_put(FILE *out, const uint8_t *bytes, int n);

#endif
