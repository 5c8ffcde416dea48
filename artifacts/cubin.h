/* cubin.h - what a cubin says of one of its kernels. The format is in cubin.c. */
#ifndef ATLAS_CUBIN_H
#define ATLAS_CUBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CubinInfo { /* of one entry, per thread or block as noted */
	int registers;         /* a thread */
	int local_bytes;       /* a thread: spilled registers and arrays in local memory, called functions included */
	int static_smem_bytes; /* a block, without what the system reserves */
	int param_bytes;       /* size of the parameters */
	int max_threads;       /* of __launch_bounds__; 0 = none */
	int sm;                /* of the whole file: 90 for sm_90 and sm_90a; 0 = it does not say so as known here */
	const uint8_t *code; size_t code_bytes; /* its instructions, of the file's bytes */
} CubinInfo;

/* Bounds every offset of the file; false with one sentence when it is no cubin or lacks the entry. */
bool cubin_read(const uint8_t *bytes, size_t n, const char *entry, CubinInfo *out, char *why, size_t why_bytes);

#endif
