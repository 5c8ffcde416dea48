/* synthetic.h - a model without files, for tests of single passes. */
#ifndef TESTS_SYNTHETIC_H
#define TESTS_SYNTHETIC_H

#include "compiler/read/family.h"

/* A llama-like Compile up to read-text: 2 layers, hidden 64, 4 heads of 64, 2 kv heads, ffn 96, vocab 40,
 * 4 slots of 128 tokens, pages of 16, prefill 32, decode 1 and 4; all tensors bf16, target sm_90a. */
void synthetic_model(Compile *c, const char *model_type);
void synthetic_family(Compile *c, const char *model_type); /* gives it the layers of that family */
void synthetic_layers(Compile *c, int n); /* n layers instead of 2 */
void synthetic_vocab(Compile *c, int n); /* n tokens instead of 40 */
/* Sets the dtype of one checkpoint tensor. */
void synthetic_dtype(Compile *c, const char *tensor, Dtype dtype);
void synthetic_free(Compile *c);

#endif
