/* formats.h - number formats of weights and caches, once: the names that MODEL.toml, atlas info and atlas audit use.
 *
 * A weight's format is what its codes are and how their scales are laid out (ops.h, "Weights of products may be
 * quantised"). As text: "bf16", "e4m3 128x128" (a scale for each block of 128 rows by 128 columns), "e4m3 row" (one a
 * row; one for the whole tensor is stored so too), "e2m1 1x16", "u4 1x128".
 */
#ifndef ATLAS_FORMATS_H
#define ATLAS_FORMATS_H

#include "artifacts/plan.h"

#include <stdio.h>

typedef enum FormatName {
	NAME_F32, NAME_F16, NAME_BF16, NAME_FP8_BLOCK, NAME_FP8_CHANNEL, NAME_FP8_TENSOR, NAME_NVFP4, NAME_MXFP4, NAME_INT4,
	FORMAT_NAMES
} FormatName;
extern const char *const format_names[FORMAT_NAMES]; /* "fp8-block" */

typedef struct WeightFormatOf { /* of one weight as it is stored in a plan */
	FormatName name;
	Dtype codes;
	int block_n, block_k; /* rows and columns that share a scale; 0, 0 = there are no such blocks */
} WeightFormatOf;
enum { FORMAT_TEXT = 40, MAX_LAUNCH_WEIGHTS = 8 };
const char *format_text(const WeightFormatOf *f, char text[FORMAT_TEXT]);

/* Formats of the matrices among a launch's weights, each once, in the order of its operands; returns how many.
 * slot: the launch's own in the ledger. */
int launch_weights(const Phase *p, const Launch *l, const Slot *slot, WeightFormatOf out[MAX_LAUNCH_WEIGHTS]);
/* What the launch keeps between steps: "bf16", "fp8", "nvfp4" of keys and values, "state f32" of Gated DeltaNet; "" =
 * nothing of the kind. */
const char *launch_cache(const Phase *p, const Launch *l);

/* Products of the model by format, weights that several ops share once: the most frequent format first,
 * equally frequent ones in the order of the graph. Returns how many formats; those beyond MAX_PRODUCTS are left out. */
enum { MAX_PRODUCTS = 32 };
typedef struct ProductCount { WeightFormatOf format; int n; } ProductCount;
int graph_products(const Graph *g, ProductCount out[MAX_PRODUCTS]);

/* What each layer keeps of a sequence: "bf16 3, 7; state f32 0-2, 4-6". `rotated`: keys are multiplied by the Hadamard
 * matrix before they are rounded; `head`: the one that drafts. "none" where no layer keeps anything. */
void print_caches(const Graph *g, FILE *out);

/* [kv] dtype: "bf16", "fp8", "nvfp4" and what kv is then; NULL, false = no cache is kept so. */
const char *cache_name(Dtype kv);
bool cache_from_name(const char *name, Dtype *kv);

#endif
