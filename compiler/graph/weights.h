/* weights.h - what the files of this room share: checkpoint tensors as weights of the graph, and what is left over. */
#ifndef ATLASC_WEIGHTS_H
#define ATLASC_WEIGHTS_H

#include "compiler/graph/builder.h"

/* builder.c */
bool g_has_type(const StTensor *t, const char *name); /* "F8_E4M3", as its header says; false of NULL */
Weight g_stored(const Compile *c, const StTensor *t, Dtype dtype); /* its bytes, as they lie in its shard */
int g_add_weight(Compile *c, const Weight *w); /* as a tensor */
/* A tensor whose bytes are those of n >= 1 weights of one dtype, one after the other. */
int g_add_weights(Compile *c, const char *name, int n_dims, const int64_t *shape, int n, const Weight *w);
bool g_misfit(Compile *c, const StTensor *t, int n_dims, const int64_t *want); /* A0602; false */
const char *g_shape_text(Compile *c, int n_dims, const int64_t *shape); /* "[64, 128]" */

/* kv_cache.c: notes and errors about scales that were missing and that are left over; A0604, A0607, A0610 */
void check_kv_scales(Compile *c);
/* For an unused tensor: what is expected if it is meant as such a scale, else "". */
const char *kv_scale_hint(Compile *c, const char *name);

#endif
