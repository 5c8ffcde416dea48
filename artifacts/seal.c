/* seal.c - what the reader checks of a plan's hash tree and signatures beyond the sections' own hashes.
 *
 * Signatures are outside the root hash, which they sign; so each must hold for its own key, trusted or not, or a
 * byte of them could change unnoticed. Weights hang in the tree by their leaves: the leaves' hashes are compared when a
 * plan is read, the bytes with the leaves before they are used.
 */
#include "artifacts/parallel.h"
#include "artifacts/reader.h"
#include "artifacts/sign.h"
#include "artifacts/tree.h"

#include <stdlib.h>
#include <string.h>

enum {
	END_BYTES = 16,
	WORTH_THREADS = 4 << 20, /* bytes to hash that are worth starting them */
	WORTH_THREADS_NODES = 4096, /* a node takes 0.2 us */
};

_Static_assert(sizeof(PlanSignature) == PUBLIC_KEY_BYTES + SIGNATURE_BYTES, "as in the file");

/* Signatures --------------------------------------------------------------------------------------- */

bool find_signatures(Artifact *a, Why *why)
{
	const uint8_t *end = a->file + a->file_bytes - END_BYTES;
	if (memcmp(end + 8, PLAN_END, 8) != 0)
		return why_not(why, READ_INTEGRITY, "section signatures: the file does not end with %s: it was cut or extended",
			PLAN_END);
	int64_t n = little_endian(end), bytes = END_BYTES + n * (int64_t)sizeof(PlanSignature);
	if (n > PLAN_MAX_SIGNATURES || little_endian(end + 4) != 0 || bytes > a->file_bytes ||
		(a->file_bytes - bytes) % PLAN_ALIGN)
		return why_not(why, READ_INTEGRITY, "section signatures: %lld of them do not fit the file of %lld bytes",
			(long long)n, (long long)a->file_bytes);
	a->signatures = (const PlanSignature *)(const void *)(a->file + a->file_bytes - bytes);
	a->n_signatures = (int)n;
	return true;
}

/* "06e3fd8fda29bb60...": enough to find the key. */
static const char *short_id(const uint8_t *public_key, char text[20])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t id[KEY_ID_BYTES];
	key_id(public_key, id);
	for (int i = 0; i < 16; i++)
		text[i] = digits[id[i / 2] >> (i % 2 ? 0 : 4) & 15];
	memcpy(text + 16, "...", 4);
	return text;
}

static bool is_trusted(const PlanTrust *trust, const uint8_t *public_key)
{
	for (int i = 0; i < trust->n_keys; i++)
		if (memcmp(trust->keys[i], public_key, PUBLIC_KEY_BYTES) == 0)
			return true;
	return false;
}

bool check_signatures(const Artifact *a, const PlanTrust *trust, Why *why)
{
	bool found = !trust;
	char id[20];
	for (int i = 0; i < a->n_signatures; i++) {
		const PlanSignature *s = &a->signatures[i];
		if (i && memcmp(s[-1].public_key, s->public_key, sizeof s->public_key) >= 0)
			return why_not(why, READ_INTEGRITY, "section signatures: the keys are not in order");
		if (!signature_holds(s->public_key, PLAN_DOMAIN, a->root, sizeof a->root, s->signature))
			return why_not(why, READ_INTEGRITY, "section signatures: the signature of key %s is not valid for this "
				"plan",
				short_id(s->public_key, id));
		found |= trust && is_trusted(trust, s->public_key);
	}
	if (!found && !a->n_signatures)
		return why_not(why, READ_UNSIGNED, "section signatures: the plan is not signed, and a signature is asked for");
	return found || why_not(why, READ_UNTRUSTED, "section signatures: signed by key %s%s",
		short_id(a->signatures[0].public_key, id), a->n_signatures > 1 ? " and others, none of them trusted"
		: ", which is not trusted");
}

/* Weights --------------------------------------------------------------------------------------------- */

bool artifact_holds_weight(const Artifact *a, int weight)
{
	const Weight *w = &a->graph.weights[weight];
	return !w->made && (!w->file || artifact_section(a, "weights")->bytes == a->graph.weight_arena_bytes);
}

typedef struct Place { int64_t offset; int weight; } Place;

static int compare_places(const void *a, const void *b)
{
	const Place *x = a, *y = b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The weights in section weights, in order; free it. NULL: no memory. */
static Place *list_held(const Artifact *a, int *n)
{
	Place *places = malloc(sizeof *places * (size_t)(a->graph.n_weights + 1));
	*n = 0;
	for (int i = 0; places && i < a->graph.n_weights; i++)
		if (artifact_holds_weight(a, i))
			places[(*n)++] = (Place){a->graph.weights[i].offset, i};
	if (places)
		qsort(places, (size_t)*n, sizeof *places, compare_places);
	return places;
}

typedef struct Leaves {
	const Artifact *a;
	const uint8_t *const *bytes; /* of weights; NULL = those in section weights */
	ByteCopyFn *copy;            /* NULL = they are memory */
	const void *ctx;
	_Atomic int64_t wrong;       /* the first item that is, INT64_MAX = none */
} Leaves;

static void note_wrong(Leaves *l, int64_t item)
{
	int64_t seen = atomic_load(&l->wrong);
	while (item < seen && !atomic_compare_exchange_weak(&l->wrong, &seen, item)) {
	}
}

static void compare_top(void *ctx, int64_t weight)
{
	Leaves *l = ctx;
	const Artifact *a = l->a;
	uint8_t top[HASH_BYTES];
	if (a->graph.weights[weight].made)
		return;
	tree_top(a->leaves + a->first_leaf[weight] * HASH_BYTES, a->first_leaf[weight + 1] - a->first_leaf[weight], top);
	if (memcmp(top, a->graph.weights[weight].hash, HASH_BYTES) != 0)
		note_wrong(l, weight);
}

static bool check_weights_hash(const Artifact *a, Why *why)
{
	TreeTop t;
	uint8_t top[HASH_BYTES], hash[HASH_BYTES];
	int n;
	const Section *section = artifact_section(a, "weights");
	Place *held = list_held(a, &n);
	if (!held)
		return why_not(why, READ_NO_MEMORY, "no memory for %d weights", a->graph.n_weights);
	tree_start(&t);
	for (int i = 0; i < n; i++)
		tree_add(&t, a->graph.weights[held[i].weight].hash);
	free(held);
	tree_end(&t, top);
	tree_section("weights", section->bytes, top, hash);
	return memcmp(hash, section->hash, sizeof hash) == 0 ||
		why_not(why, READ_INTEGRITY, "section weights does not match its hash");
}

bool check_leaves(Artifact *a, bool check_hashes, Why *why)
{
	const Graph *g = &a->graph;
	const Section *section = artifact_section(a, "leaves");
	Leaves l = {.a = a, .wrong = INT64_MAX};
	a->first_leaf = malloc(sizeof *a->first_leaf * (size_t)(g->n_weights + 1));
	if (!a->first_leaf)
		return why_not(why, READ_NO_MEMORY, "no memory for %d weights", g->n_weights);
	a->first_leaf[0] = 0;
	for (int i = 0; i < g->n_weights; i++)
		a->first_leaf[i + 1] = a->first_leaf[i] + weight_leaves(&g->weights[i]);
	int64_t n = a->first_leaf[g->n_weights];
	if ((section ? section->bytes : 0) != n * HASH_BYTES)
		return why_not(why, READ_MALFORMED, "section leaves: %lld bytes, the weights have %lld leaves",
			section ? (long long)section->bytes : 0LL, (long long)n);
	a->leaves = a->file + (section ? section->offset : 0);
	if (!check_hashes)
		return true;
	parallel_run(g->n_weights, n < WORTH_THREADS_NODES ? 0 : PARALLEL_MOST, compare_top, &l);
	if (l.wrong != INT64_MAX)
		return why_not(why, READ_INTEGRITY, "section leaves: not those of weight %s", g->weights[l.wrong].name);
	return check_weights_hash(a, why);
}

/* The weight whose leaf it is: the last one that begins at or before it. */
static int weight_of(const Artifact *a, int64_t leaf)
{
	int low = 0, high = a->graph.n_weights - 1;
	while (low < high) {
		int middle = low + (high - low + 1) / 2;
		if (a->first_leaf[middle] <= leaf)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static int64_t leaf_bytes(const Artifact *a, int weight, int64_t at)
{
	int64_t left = a->graph.weights[weight].bytes - at;
	return left < TREE_LEAF_BYTES ? left : TREE_LEAF_BYTES;
}

bool artifact_leaves_hold(const Artifact *a, int weight, int64_t at, const uint8_t *bytes, int64_t n)
{
	uint8_t hash[HASH_BYTES];
	const uint8_t *leaf = a->leaves + (a->first_leaf[weight] + at / TREE_LEAF_BYTES) * HASH_BYTES;
	for (int64_t i = 0; i < n; i += TREE_LEAF_BYTES, leaf += HASH_BYTES) {
		tree_leaf(bytes + i, (size_t)leaf_bytes(a, weight, at + i), hash);
		if (memcmp(hash, leaf, HASH_BYTES) != 0)
			return false;
	}
	return true;
}

static const uint8_t *bytes_of(const Leaves *l, int weight)
{
	if (l->bytes)
		return l->bytes[weight];
	return artifact_holds_weight(l->a, weight)
		? l->a->file + artifact_section(l->a, "weights")->offset + l->a->graph.weights[weight].offset : NULL;
}

static void compare_leaf(void *ctx, int64_t leaf)
{
	Leaves *l = ctx;
	int w = weight_of(l->a, leaf);
	int64_t at = (leaf - l->a->first_leaf[w]) * TREE_LEAF_BYTES;
	const uint8_t *bytes = bytes_of(l, w);
	if (leaf >= atomic_load(&l->wrong) || !bytes)
		return;
	uint8_t hash[HASH_BYTES];
	const size_t n = (size_t)leaf_bytes(l->a, w, at);
	if (!l->copy)
		tree_leaf(bytes + at, n, hash);
	if ((l->copy && !tree_leaf_of(l->copy, l->ctx, bytes + at, n, hash)) ||
		memcmp(hash, l->a->leaves + leaf * HASH_BYTES, HASH_BYTES) != 0)
		note_wrong(l, leaf);
}

static bool refuse_leaf(const Artifact *a, int64_t leaf, Why *why)
{
	int w = weight_of(a, leaf);
	int64_t at = (leaf - a->first_leaf[w]) * TREE_LEAF_BYTES;
	const Weight *x = &a->graph.weights[w];
	if (!artifact_holds_weight(a, w))
		return why_not(why, READ_INTEGRITY, "%.200s: %.200s differs from the one that was compiled", x->file, x->name);
	return why_not(why, READ_INTEGRITY, "section weights: bytes %lld to %lld of weight %.200s do not match their hash",
		(long long)at, (long long)(at + leaf_bytes(a, w, at)), x->name);
}

/* What lies between the weights of the section is zero. */
static bool check_gaps(const Leaves *l, Why *why)
{
	const Artifact *a = l->a;
	const Section *section = artifact_section(a, "weights");
	const uint8_t *bytes = a->file + section->offset;
	int n;
	Place *held = list_held(a, &n);
	if (!held)
		return why_not(why, READ_NO_MEMORY, "no memory for %d weights", a->graph.n_weights);
	int64_t at = 0;
	bool good = true;
	for (int i = 0; i <= n && good; i++) {
		int64_t to = i < n ? held[i].offset : section->bytes;
		while (at < to && good) {
			uint8_t part[256] = {0};
			const int64_t n_part = to - at < (int64_t)sizeof part ? to - at : (int64_t)sizeof part;
			good = l->copy ? l->copy(l->ctx, bytes + at, part, (size_t)n_part)
				: memcpy(part, bytes + at, (size_t)n_part) != NULL;
			int64_t zeros = 0;
			while (zeros < n_part && part[zeros] == 0)
				zeros++;
			at += zeros;
			good = (good && zeros == n_part) || why_not(why, READ_INTEGRITY, "section weights: byte %lld lies between "
				"weights and is not zero", (long long)at);
		}
		at = i < n ? to + a->graph.weights[held[i].weight].bytes : to;
	}
	free(held);
	return good;
}

ReadStatus artifact_check_weights(const Artifact *a, const uint8_t *const *bytes, ByteCopyFn *copy, const void *ctx,
	char *text, size_t text_bytes)
{
	Why why = {.text = text, .bytes = text_bytes};
	Leaves l = {.a = a, .bytes = bytes, .copy = copy, .ctx = ctx, .wrong = INT64_MAX};
	int64_t n = a->first_leaf[a->graph.n_weights];
	bool is_worth = a->graph.weight_arena_bytes >= WORTH_THREADS;
	parallel_run(n, is_worth ? PARALLEL_MOST : 0, compare_leaf, &l);
	bool good = l.wrong == INT64_MAX ? check_gaps(&l, &why) : refuse_leaf(a, l.wrong, &why);
	return good ? READ_OK : why.status;
}
