/* tree.c - hashes of leaves, nodes, sections and the root. */
#include "artifacts/tree.h"
#include "artifacts/hash.h"
#include "artifacts/parallel.h"

#include <string.h>

enum {
	BATCH = 64,           /* leaves hashed together */
	PART_BYTES = 64 << 10, /* copied at a time: they stay in a processor's own cache */
};

static void start(Sha256 *h, uint8_t kind)
{
	sha256_start(h);
	sha256_add(h, &kind, 1);
}

void tree_leaf(const void *bytes, size_t n, uint8_t hash[HASH_BYTES])
{
	Sha256 h;
	start(&h, 0);
	sha256_add(&h, bytes, n);
	sha256_end(&h, hash);
}

bool tree_leaf_of(ByteCopyFn *copy, const void *ctx, const void *bytes, size_t n, uint8_t hash[HASH_BYTES])
{
	uint8_t part[PART_BYTES];
	Sha256 h;
	start(&h, 0);
	for (size_t at = 0; at < n; at += sizeof part) {
		const size_t left = n - at < sizeof part ? n - at : sizeof part;
		if (!copy(ctx, (const uint8_t *)bytes + at, part, left))
			return false;
		sha256_add(&h, part, left);
	}
	sha256_end(&h, hash);
	return true;
}

static void hash_node(const uint8_t *left, const uint8_t *right, uint8_t hash[HASH_BYTES])
{
	Sha256 h;
	start(&h, 1);
	sha256_add(&h, left, HASH_BYTES);
	sha256_add(&h, right, HASH_BYTES);
	sha256_end(&h, hash);
}

static int count_tops(uint64_t n) /* one for each bit: its tree has 2^bit leaves */
{
	return __builtin_popcountll(n);
}

void tree_start(TreeTop *t) { t->n = 0; }

void tree_add(TreeTop *t, const uint8_t hash[HASH_BYTES])
{
	int n = count_tops(t->n);
	memcpy(t->at[n], hash, HASH_BYTES);
	for (uint64_t full = t->n; full & 1; full >>= 1, n--) /* two trees of a size make one */
		hash_node(t->at[n - 1], t->at[n], t->at[n - 1]);
	t->n++;
}

void tree_end(TreeTop *t, uint8_t top[HASH_BYTES])
{
	int n = count_tops(t->n);
	if (n == 0) {
		tree_leaf("", 0, top);
		return;
	}
	for (; n > 1; n--)
		hash_node(t->at[n - 2], t->at[n - 1], t->at[n - 2]);
	memcpy(top, t->at[0], HASH_BYTES);
}

void tree_top(const uint8_t *hashes, int64_t n, uint8_t top[HASH_BYTES])
{
	TreeTop t;
	tree_start(&t);
	for (int64_t i = 0; i < n; i++)
		tree_add(&t, hashes + i * HASH_BYTES);
	tree_end(&t, top);
}

void tree_section(const char *name, int64_t bytes, const uint8_t top[HASH_BYTES], uint8_t hash[HASH_BYTES])
{
	uint8_t length[8];
	Sha256 h;
	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
	start(&h, 2);
	sha256_add(&h, name, strlen(name) + 1);
	sha256_add(&h, length, sizeof length);
	sha256_add(&h, top, HASH_BYTES);
	sha256_end(&h, hash);
}

typedef struct Batch { const uint8_t *bytes; int64_t n; uint8_t leaves[BATCH][HASH_BYTES]; } Batch;

static void hash_leaf(void *ctx, int64_t i)
{
	Batch *b = ctx;
	int64_t at = i * TREE_LEAF_BYTES, left = b->n - at;
	tree_leaf(b->bytes + at, (size_t)(left < TREE_LEAF_BYTES ? left : TREE_LEAF_BYTES), b->leaves[i]);
}

void tree_section_of(const char *name, const uint8_t *bytes, int64_t n, uint8_t hash[HASH_BYTES])
{
	TreeTop t;
	uint8_t top[HASH_BYTES];
	tree_start(&t);
	for (int64_t at = 0; at < n; at += (int64_t)BATCH * TREE_LEAF_BYTES) {
		Batch b = {bytes + at, n - at, {{0}}};
		int64_t leaves = tree_n_leaves(b.n) < BATCH ? tree_n_leaves(b.n) : BATCH;
		parallel_run(leaves, (int)leaves - 1, hash_leaf, &b);
		for (int64_t i = 0; i < leaves; i++)
			tree_add(&t, b.leaves[i]);
	}
	tree_end(&t, top);
	tree_section(name, n, top, hash);
}

void tree_root(const uint8_t head[16], const void *manifest, size_t n, uint8_t root[HASH_BYTES])
{
	Sha256 h;
	start(&h, 3);
	sha256_add(&h, head, 16);
	sha256_add(&h, manifest, n);
	sha256_end(&h, root);
}
