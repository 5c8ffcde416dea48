/* made_cubin.h - the least that artifacts/cubin.c takes for a cubin: one kernel, no code. */
#ifndef TESTS_MADE_CUBIN_H
#define TESTS_MADE_CUBIN_H

#include <stdint.h>

enum { MADE_CUBIN_BYTES = 1536 };

typedef struct MadeCubin { const char *entry; int param_bytes, registers, static_smem, local_bytes, max_threads, sm; }
	MadeCubin;

/* Writes MADE_CUBIN_BYTES, 0 where nothing is. max_threads 0: no bounds. */
void made_cubin(uint8_t *to, const MadeCubin *of);

#endif
