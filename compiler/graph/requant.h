/* requant.h - bytes of weights that are made while they are written (requant.c). */
#ifndef ATLASC_REQUANT_H
#define ATLASC_REQUANT_H

#include "compiler/ir.h"

typedef struct SourceReader {
	bool (*read)(void *ctx, const Weight *source, int64_t at, void *dst, size_t n);
	void *ctx;
} SourceReader;

/* Keeps what it read last; one thread at a time. */
typedef struct Requant Requant;
Requant *requant_new(Arena *a);
void requant_release(Requant *r); /* its buffers; r can be used on */

/* Bytes [at, at + n) of weight w, a part of p, made from p->source. False after having said why not. */
bool requant_bytes(Compile *c, Requant *r, const MadeProduct *p, int w, int64_t at, void *dst, size_t n,
	const SourceReader *source);

#endif
