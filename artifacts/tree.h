/* tree.h - the hash tree that seals a plan. All hashes are SHA-256; the first byte says what a hash is of.
 *
 *   leaf      0x00, the bytes: TREE_LEAF_BYTES from each multiple of it, the last leaf what is left
 *   node      0x01, left, right
 *   top       of n hashes: of one, itself; of more, the node over the tops of the first k and of the others, k being
 *             the largest power of two below n; of none, the leaf of no bytes
 *   section   0x02, name, 0, u64 length in bytes, top of its leaves. Section `weights`: top of the hashes of its
 *             weights, in order of offset; a weight's hash is the top of the leaves of its own bytes.
 *             Weights that are made at open (plan.h) are in neither
 *   root      0x03, bytes 0..15 of the file, manifest: which holds the hashes of all sections
 */
#ifndef ATLAS_TREE_H
#define ATLAS_TREE_H

#include "artifacts/plan.h"

enum { HASH_BYTES = 32, TREE_LEAF_BYTES = 1 << 20 };

typedef struct TreeTop { /* private: tops of the full trees so far, the largest first */
	uint8_t at[64][HASH_BYTES];
	uint64_t n;
} TreeTop;

static inline int64_t tree_n_leaves(int64_t bytes) { return (bytes + TREE_LEAF_BYTES - 1) / TREE_LEAF_BYTES; }
/* Of what is made at open there are none. */
static inline int64_t weight_leaves(const Weight *w) { return w->made ? 0 : tree_n_leaves(w->bytes); }

void tree_leaf(const void *bytes, size_t n, uint8_t hash[HASH_BYTES]);
/* The same of bytes that are got at in parts by `copy` (artifact_check_weights); false when it fails. */
bool tree_leaf_of(ByteCopyFn *copy, const void *ctx, const void *bytes, size_t n, uint8_t hash[HASH_BYTES]);
void tree_start(TreeTop *t);
void tree_add(TreeTop *t, const uint8_t hash[HASH_BYTES]);
void tree_end(TreeTop *t, uint8_t top[HASH_BYTES]);
void tree_top(const uint8_t *hashes, int64_t n, uint8_t top[HASH_BYTES]); /* [n][HASH_BYTES] */
void tree_section(const char *name, int64_t bytes, const uint8_t top[HASH_BYTES], uint8_t hash[HASH_BYTES]);
/* Of a section in memory; long ones are hashed by several threads. */
void tree_section_of(const char *name, const uint8_t *bytes, int64_t n, uint8_t hash[HASH_BYTES]);
void tree_root(const uint8_t head[16], const void *manifest, size_t n, uint8_t root[HASH_BYTES]);

#endif
