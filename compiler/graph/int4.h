/* int4.h - weights in INT4, as other tools store them, for products.c and requant.c.
 *
 * Of a MadeProduct in INT4 `source` has the codes, `scales` the scales and `zeros` the zeros; without has_zeros they
 * are all 8, with is_less_one a word of them has 0x11111111 less than they are.
 */
#ifndef ATLASC_INT4_H
#define ATLASC_INT4_H

#include "compiler/graph/requant.h"

typedef enum Int4Layout { INT4_PACKED /* of compressed-tensors */, INT4_AWQ, INT4_GPTQ } Int4Layout; /* MadeProduct's */

bool int4_is_stored(Compile *c, const char *module);

/* The module's tensors, checked, as *p; those that go with the codes count as read. False after an error. */
bool int4_see(Compile *c, const char *module, int64_t rows, int64_t cols, MadeProduct *p, StTensor **codes);

/* The codes of p, u4 [N,K], or its scales, f32z [N,K/G], whole, in the arena. NULL after having said why not. */
uint8_t *int4_codes(Arena *a, const MadeProduct *p, const SourceReader *source);
uint8_t *int4_scales(Compile *c, Arena *a, const MadeProduct *p, const SourceReader *source);

#endif
