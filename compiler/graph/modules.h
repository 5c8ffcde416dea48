/* modules.h - modules as the checkpoint holds them (modules.c). */
#ifndef ATLASC_MODULES_H
#define ATLASC_MODULES_H

#include "compiler/graph/weights.h"

/* Its name in messages, and what is made for it: codes, block scales, and a scale a row where it has one. */
typedef struct FormatInfo { const char *name; Dtype codes, scale; bool has_row_scale; } FormatInfo;
extern const FormatInfo format_info[FORMAT_COUNT];

/* Fills format and tensors of s, whose names and sizes are set; is_fused: the module is a tensor of that very name.
 * False after having said what is missing or wrong. With --random-weights there are no tensors and s is plain. */
bool module_see(Compile *c, Module *s, bool is_fused);

/* A module whose format is not known or not right: its tensors count as read, so that one mistake is one error. */
void module_give_up(Compile *c, Module *s);

/* All scales of a tensor as f32, positive numbers, in the scratch arena, or NULL after having said what is wrong. */
float *module_scales(Compile *c, const StTensor *t);
Dtype module_scale_dtype(const StTensor *t); /* a byte where no header has a name for its type */

/* Index of the first of n scales that is not a positive finite number, or -1. */
int64_t first_bad_scale(Dtype dtype, const void *scales, int64_t n);

#endif
