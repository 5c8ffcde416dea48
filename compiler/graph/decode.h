/* decode.h - quantised weights as bf16, where [quant] asks for it (decode.c). */
#ifndef ATLASC_DECODE_H
#define ATLASC_DECODE_H

#include "compiler/graph/requant.h"
#include "compiler/graph/modules.h"

/* Rows of a module that follow each other in a product decoded to bf16. */
typedef struct DecodedPiece {
	WeightFormat format;      /* FORMAT_PLAIN: BF16, F16 or F32 */
	int64_t first, n;         /* rows of the module: the first, how many */
	int64_t rows, cols;       /* of the module, of all its experts where it is one tensor of theirs */
	int block_n, block_k;     /* of FP8 in blocks */
	Weight codes, scale;      /* scale: of blocks, or of rows; file NULL = there is none */
	float second;             /* of the tensor: multiplies, or divides in NVFP4_OVER; 1 = there is none */
	const MadeProduct *int4;  /* of INT4, else NULL */
} DecodedPiece;

/* Of rows [first, first + n) of a module; its tensors count as read. False after having said what is wrong. */
bool decode_see(Compile *c, const Module *s, int64_t first, int64_t n, DecodedPiece *piece);

typedef struct Decoder Decoder; /* keeps what it read last; one thread at a time */
Decoder *decoder_new(Arena *a);
void decoder_release(Decoder *d); /* its buffers; d can be used on */

/* Bytes [at, at + n) of p, which has pieces: bf16 [rows, cols]. False after having said why not. */
bool decode_bytes(Compile *c, Decoder *d, const MadeProduct *p, int64_t at, void *dst, size_t n,
	const SourceReader *source);

#endif
