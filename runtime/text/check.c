/* check.c - tok_open: one look at every count, offset and id of a compiled tokenizer.
 *
 * After it, encoding and decoding index these tables without asking again; so nothing here may
 * be skipped. What is not checked is meaning: a table may be wrong (sorted badly, a hash in the
 * wrong slot), and then ids are wrong, but no read leaves the section and every loop ends.
 */
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct Check {
	const unsigned char *base;
	Tok *t;
	char *why;
	size_t why_bytes;
} Check;

static bool bad(const Check *c, const char *what)
{
	snprintf(c->why, c->why_bytes, "compiled tokenizer: %s", what);
	return false;
}

static const struct { const char *name; uint32_t elem_bytes; bool required; } sections[] = {
	[TOK_SEC_STRINGS] = {"strings", 1, false},
	[TOK_SEC_TOKENS] = {"tokens", sizeof(TokToken), true},
	[TOK_SEC_VOCAB_HASH] = {"vocabulary hash", 4, true},
	[TOK_SEC_MERGES] = {"merges", sizeof(TokMerge), false},
	[TOK_SEC_MERGE_HASH] = {"merge hash", 4, true},
	[TOK_SEC_BYTE_IDS] = {"byte ids", 4, true},
	[TOK_SEC_FIRST] = {"first texts", sizeof(TokFirst), false},
	[TOK_SEC_ADDED] = {"added tokens", sizeof(TokAdded), false},
	[TOK_SEC_RAW_NODES] = {"raw nodes", sizeof(TokNode), false},
	[TOK_SEC_RAW_EDGES] = {"raw edges", 4, false},
	[TOK_SEC_NORMAL_NODES] = {"normal nodes", sizeof(TokNode), false},
	[TOK_SEC_NORMAL_EDGES] = {"normal edges", 4, false},
	[TOK_SEC_STEPS] = {"steps", sizeof(TokStep), false},
	[TOK_SEC_CODE] = {"code", sizeof(TokInstr), false},
	[TOK_SEC_SETS] = {"sets", sizeof(TokSet), false},
	[TOK_SEC_RANGES] = {"ranges", 8, false},
	[TOK_SEC_CLASS_INDEX] = {"class index", 2, true},
	[TOK_SEC_CLASS_BLOCKS] = {"class blocks", 256, true},
	[TOK_SEC_NORM_INDEX] = {"normalisation index", 2, false},
	[TOK_SEC_NORM_BLOCKS] = {"normalisation blocks", 256, false},
	[TOK_SEC_NORM_PROPS] = {"normalisation properties", sizeof(TokNormProps), false},
	[TOK_SEC_DECOMPOSITIONS] = {"decompositions", sizeof(TokDecomposition), false},
	[TOK_SEC_POINTS] = {"decomposed points", 4, false},
	[TOK_SEC_COMPOSITIONS] = {"compositions", sizeof(TokComposition), false},
	[TOK_SEC_PREFIX] = {"prefix", 4, false},
	[TOK_SEC_SUFFIX] = {"suffix", 4, false},
	[TOK_SEC_TREE] = {"tree", 4, false},
	[TOK_SEC_TREE_IDS] = {"ids of the tree", 4, false},
	[TOK_SEC_TREE_SAME] = {"equal tokens", sizeof(TokSame), false},
};
static_assert(sizeof sections / sizeof *sections == TOK_SEC_COUNT, "one row a section");

static bool check_layout(Check *c, size_t n_bytes)
{
	const TokHeader *h = c->t->header;
	size_t at = sizeof *h;
	for (int s = 0; s < TOK_SEC_COUNT; s++) {
		TokSpan span = h->sections[s];
		char what[80];
		snprintf(what, sizeof what, "section %s is misplaced", sections[s].name);
		if (!span.bytes && !span.offset && !sections[s].required)
			continue;
		at = (at + 7) & ~(size_t)7;
		if (!span.bytes || span.offset != at || span.bytes > n_bytes - at ||
			span.bytes % sections[s].elem_bytes)
			return bad(c, what);
		at += span.bytes;
		c->t->count[s] = span.bytes / sections[s].elem_bytes;
	}
	return ((at + 7) & ~(size_t)7) == n_bytes || bad(c, "bytes behind the last section");
}

static const void *section(const Check *c, TokSection s)
{
	return c->base + c->t->header->sections[s].offset;
}

static void set_pointers(Check *c)
{
	Tok *t = c->t;
	t->strings = section(c, TOK_SEC_STRINGS);
	t->tokens = section(c, TOK_SEC_TOKENS);
	t->vocab_hash = section(c, TOK_SEC_VOCAB_HASH);
	t->merges = section(c, TOK_SEC_MERGES);
	t->merge_hash = section(c, TOK_SEC_MERGE_HASH);
	t->byte_ids = section(c, TOK_SEC_BYTE_IDS);
	t->firsts = section(c, TOK_SEC_FIRST);
	t->added = section(c, TOK_SEC_ADDED);
	t->nodes[0] = section(c, TOK_SEC_RAW_NODES);
	t->edges[0] = section(c, TOK_SEC_RAW_EDGES);
	t->nodes[1] = section(c, TOK_SEC_NORMAL_NODES);
	t->edges[1] = section(c, TOK_SEC_NORMAL_EDGES);
	t->steps = section(c, TOK_SEC_STEPS);
	t->code = section(c, TOK_SEC_CODE);
	t->sets = section(c, TOK_SEC_SETS);
	t->ranges = section(c, TOK_SEC_RANGES);
	t->class_index = section(c, TOK_SEC_CLASS_INDEX);
	t->class_blocks = section(c, TOK_SEC_CLASS_BLOCKS);
	t->norm_index = section(c, TOK_SEC_NORM_INDEX);
	t->norm_blocks = section(c, TOK_SEC_NORM_BLOCKS);
	t->props = section(c, TOK_SEC_NORM_PROPS);
	t->decompositions = section(c, TOK_SEC_DECOMPOSITIONS);
	t->points = section(c, TOK_SEC_POINTS);
	t->compositions = section(c, TOK_SEC_COMPOSITIONS);
	t->prefix = section(c, TOK_SEC_PREFIX);
	t->suffix = section(c, TOK_SEC_SUFFIX);
	t->tree = section(c, TOK_SEC_TREE);
	t->tree_ids = section(c, TOK_SEC_TREE_IDS);
	t->tree_same = section(c, TOK_SEC_TREE_SAME);
}

static bool check_header(const Check *c)
{
	const TokHeader *h = c->t->header;
	const int32_t ids[3] = {h->unk_id, h->bos_id, h->eos_id};
	if (!h->n_ids || h->n_ids > TOK_MAX_IDS || h->n_ids != c->t->count[TOK_SEC_TOKENS])
		return bad(c, "a wrong number of tokens");
	for (int i = 0; i < 3; i++)
		if (ids[i] < -1 || ids[i] >= (int32_t)h->n_ids)
			return bad(c, "a special id outside the vocabulary");
	if (h->flags & ~(uint32_t)TOK_FLAGS || h->decode >= TOK_DECODE_COUNT || h->zero ||
		h->strip_point > 0x10FFFF)
		return bad(c, "unknown flags");
	return true;
}

static bool is_string(const Check *c, uint32_t at, uint32_t n)
{
	uint32_t size = c->t->count[TOK_SEC_STRINGS];
	return at <= size && n <= size - at;
}

static bool check_tokens(const Check *c)
{
	const Tok *t = c->t;
	bool ok = true;
	for (uint32_t i = 0; i < t->header->n_ids; i++) {
		const TokToken *o = &t->tokens[i];
		ok &= is_string(c, o->key, o->key_bytes) && is_string(c, o->text, o->text_bytes);
		ok &= !(o->flags & ~(uint32_t)TOK_TOKEN_FLAGS);
		ok &= !(o->flags & TOK_BYTE) || o->text_bytes == 1;
		ok &= !(o->flags & TOK_KEYED) || o->key_bytes > 0;
	}
	for (uint32_t i = 0; i < t->count[TOK_SEC_FIRST]; i++)
		ok &= t->firsts[i].id < t->header->n_ids && is_string(c, t->firsts[i].text, t->firsts[i].text_bytes);
	return ok || bad(c, "a token outside its limits");
}

/* A table of indices + 1 with room: a power of two, each below or at n, some slot empty. */
static bool check_hash(const Check *c, const uint32_t *slots, uint32_t n_slots, uint32_t n)
{
	uint32_t empty = 0;
	bool ok = (n_slots & (n_slots - 1)) == 0;
	for (uint32_t i = 0; i < n_slots; i++) {
		ok &= slots[i] <= n;
		empty += !slots[i];
	}
	return (ok && empty) || bad(c, "a damaged hash table");
}

static bool check_merges(const Check *c)
{
	const Tok *t = c->t;
	uint32_t n = t->header->n_ids;
	bool ok = true;
	for (uint32_t i = 0; i < t->count[TOK_SEC_MERGES]; i++)
		ok &= t->merges[i].left < n && t->merges[i].right < n && t->merges[i].result < n;
	return ok || bad(c, "a merge outside the vocabulary");
}

static bool check_ids(const Check *c)
{
	const Tok *t = c->t;
	uint32_t n = t->header->n_ids;
	bool ok = t->count[TOK_SEC_BYTE_IDS] == 256;
	for (uint32_t i = 0; ok && i < 256; i++)
		ok = t->byte_ids[i] <= n;
	for (uint32_t i = 0; i < t->count[TOK_SEC_ADDED]; i++)
		ok &= t->added[i].id < n && !(t->added[i].flags & ~(uint32_t)TOK_ADDED_FLAGS);
	for (uint32_t i = 0; i < t->count[TOK_SEC_PREFIX]; i++)
		ok &= t->prefix[i] < n;
	for (uint32_t i = 0; i < t->count[TOK_SEC_SUFFIX]; i++)
		ok &= t->suffix[i] < n;
	return ok || bad(c, "an id outside the vocabulary");
}

static bool check_tree(const Check *c, int k)
{
	const Tok *t = c->t;
	uint32_t n_nodes = t->count[k ? TOK_SEC_NORMAL_NODES : TOK_SEC_RAW_NODES];
	uint32_t n_edges = t->count[k ? TOK_SEC_NORMAL_EDGES : TOK_SEC_RAW_EDGES];
	bool ok = true;
	for (uint32_t i = 0; i < n_nodes; i++) {
		const TokNode *node = &t->nodes[k][i];
		ok &= node->accept <= t->count[TOK_SEC_ADDED];
		if (node->edge > n_edges || node->n_edges > n_edges - node->edge) {
			ok = false;
			break;
		}
		for (uint32_t e = 0; e < node->n_edges; e++) {
			uint32_t to = t->edges[k][node->edge + e] & 0xFFFFFF;
			ok &= to > i && to < n_nodes;
		}
	}
	return ok || bad(c, "a damaged tree of added tokens");
}

static bool check_code(const Check *c)
{
	const Tok *t = c->t;
	uint32_t n = t->count[TOK_SEC_CODE], n_sets = t->count[TOK_SEC_SETS];
	bool ok = !n || t->code[n - 1].op == TOK_OP_MATCH;
	for (uint32_t i = 0; i < n; i++) {
		const TokInstr *o = &t->code[i];
		bool set = o->op == TOK_OP_SET || o->op == TOK_OP_PEEK || o->op == TOK_OP_NOT_PEEK;
		bool loop = o->op == TOK_OP_LOOP || o->op == TOK_OP_POSSESS;
		bool jump = o->op == TOK_OP_SPLIT || o->op == TOK_OP_JUMP;
		ok &= o->op < TOK_OP_COUNT && (!(set || loop) || o->a < n_sets) && (!jump || o->a < n) &&
			(!loop || o->b <= o->c);
	}
	for (uint32_t i = 0; i < n_sets; i++) {
		const TokSet *s = &t->sets[i];
		uint32_t n_ranges = t->count[TOK_SEC_RANGES];
		ok &= s->range % 2 == 0 && s->range / 2 <= n_ranges && s->n_ranges <= n_ranges - s->range / 2 &&
			!(s->flags & ~(uint32_t)TOK_SET_FLAGS);
	}
	return ok || bad(c, "a damaged program");
}

/* Has the token this text, and is one of those that a text is made of, or added? */
static bool has_text(const Check *c, uint32_t id, const void *text, uint32_t n)
{
	const TokToken *o = &c->t->tokens[id];
	return o->flags & TOK_EXISTS && !(o->flags & TOK_SPECIAL) && o->text_bytes == n &&
		memcmp(c->t->strings + o->text, text, n) == 0;
}

/* Places inside each other, in the order of their bytes, which are those of the tokens. */
static bool check_places(const Check *c, uint32_t *n_tokens)
{
	const Tok *t = c->t;
	const uint32_t n = t->count[TOK_SEC_TREE];
	uint32_t depth = 0, end[TOK_MAX_DEPTH];
	uint8_t way[TOK_MAX_DEPTH];
	int last[TOK_MAX_DEPTH + 1] = {-1}; /* byte of the place before on each level */
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t size = t->tree[i] & TOK_MAX_PLACES, byte = t->tree[i] >> 24, id = t->tree_ids[i];
		while (depth > 0 && i >= end[depth - 1])
			depth--;
		if (depth == TOK_MAX_DEPTH || size == 0 || size > (depth ? end[depth - 1] : n) - i || (int)byte <= last[depth])
			return false;
		last[depth] = (int)byte;
		way[depth] = (uint8_t)byte;
		end[depth++] = i + size;
		last[depth] = -1;
		if (id > t->header->n_ids || (id ? !has_text(c, id - 1, way, depth) : size == 1))
			return false;
		*n_tokens += id != 0;
	}
	return true;
}

static bool check_vocab_tree(const Check *c)
{
	const Tok *t = c->t;
	const uint32_t n_same = t->count[TOK_SEC_TREE_SAME];
	uint32_t n_tokens = n_same, n_wanted = 0;
	bool ok = t->count[TOK_SEC_TREE] == t->count[TOK_SEC_TREE_IDS] && t->count[TOK_SEC_TREE] <= TOK_MAX_PLACES &&
		check_places(c, &n_tokens);
	for (uint32_t i = 0; ok && i < n_same; i++) {
		const TokSame s = t->tree_same[i];
		ok = s.id < s.next && s.next < t->header->n_ids &&
			has_text(c, s.id, t->strings + t->tokens[s.next].text, t->tokens[s.next].text_bytes) &&
			!(t->tokens[s.next].flags & TOK_SPECIAL);
	}
	for (uint32_t id = 0; id < t->header->n_ids; id++)
		n_wanted += tok_is_in_tree(&t->tokens[id]);
	for (uint32_t i = 0; i < t->count[TOK_SEC_ADDED]; i++)
		n_wanted -= tok_is_in_tree(&t->tokens[t->added[i].id]);
	return (ok && (n_tokens == n_wanted || !t->count[TOK_SEC_TREE])) || bad(c, "a damaged tree of the vocabulary");
}

static bool is_utf8(const unsigned char *s, size_t n)
{
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		int len = utf8_read(s + at, n - at, &cp);
		if (len <= 0)
			return false;
		at += (size_t)len;
	}
	return true;
}

static bool check_step(const Check *c, const TokStep *s, bool normalizer)
{
	const Tok *t = c->t;
	bool matches = s->kind == TOK_STEP_REPLACE || s->kind == TOK_STEP_SPLIT;
	if (!is_string(c, s->string, s->string_bytes) || !is_utf8(t->strings + s->string, s->string_bytes) ||
		s->zero || (matches && s->code >= t->count[TOK_SEC_CODE]))
		return false;
	switch ((TokStepKind)s->kind) {
	case TOK_STEP_NORMALIZE: return normalizer && s->flags < TOK_FORM_COUNT && t->count[TOK_SEC_NORM_INDEX];
	case TOK_STEP_REPLACE: case TOK_STEP_PREPEND: return normalizer && !s->flags;
	case TOK_STEP_SPLIT:
		return !normalizer && (s->flags & ~(uint32_t)TOK_SPLIT_INVERT) < TOK_BEHAVIOUR_COUNT;
	case TOK_STEP_SPACE: return !normalizer && !s->flags;
	case TOK_STEP_METASPACE: return !normalizer && s->flags < TOK_SCHEME_COUNT && s->string_bytes;
	case TOK_STEP_COUNT: break;
	}
	return false;
}

static bool check_steps(const Check *c)
{
	const Tok *t = c->t;
	uint32_t n = t->count[TOK_SEC_STEPS];
	bool ok = n <= TOK_MAX_STEPS && t->header->n_normalizers <= n;
	for (uint32_t i = 0; ok && i < n; i++)
		ok = check_step(c, &t->steps[i], i < t->header->n_normalizers);
	return ok || bad(c, "a step that is not known");
}

static bool check_index(const Check *c, TokSection index, const uint16_t *blocks, TokSection values)
{
	bool ok = c->t->count[index] == TOK_CHAR_BLOCKS;
	for (uint32_t i = 0; ok && i < TOK_CHAR_BLOCKS; i++)
		ok = blocks[i] < c->t->count[values];
	return ok || bad(c, "a damaged character table");
}

static bool check_normalisation(const Check *c)
{
	const Tok *t = c->t;
	uint32_t n_points = t->count[TOK_SEC_POINTS];
	bool ok = true;
	if (!t->count[TOK_SEC_NORM_INDEX])
		return true;
	if (!check_index(c, TOK_SEC_NORM_INDEX, t->norm_index, TOK_SEC_NORM_BLOCKS))
		return false;
	for (uint32_t i = 0; i < t->count[TOK_SEC_NORM_BLOCKS] * 256; i++)
		ok &= t->norm_blocks[i] < t->count[TOK_SEC_NORM_PROPS];
	for (uint32_t i = 0; i < t->count[TOK_SEC_DECOMPOSITIONS]; i++) {
		const TokDecomposition *d = &t->decompositions[i];
		ok &= d->n > 0 && d->first < n_points && d->n <= n_points - d->first;
	}
	for (uint32_t i = 0; i < n_points; i++)
		ok &= t->points[i] < 0xD800 || (t->points[i] >= 0xE000 && t->points[i] <= 0x10FFFF);
	for (uint32_t i = 0; i < t->count[TOK_SEC_COMPOSITIONS]; i++) {
		uint32_t cp = t->compositions[i].composite;
		ok &= cp && (cp < 0xD800 || (cp >= 0xE000 && cp <= 0x10FFFF));
	}
	return ok || bad(c, "damaged normalisation tables");
}

int tok_open(Tok *t, const void *bytes, size_t n_bytes, char *why, size_t why_bytes)
{
	Check c = {bytes, t, why, why_bytes};
	const TokHeader *h = bytes;
	*t = (Tok){.header = h};
	if ((uintptr_t)bytes % 8)
		return bad(&c, "not aligned to 8 bytes"), TOK_E_FORMAT;
	if (n_bytes < sizeof *h || memcmp(h->magic, TOK_MAGIC, sizeof h->magic))
		return bad(&c, "not one"), TOK_E_FORMAT;
	if (h->version != TOK_VERSION) {
		snprintf(why, why_bytes, "compiled tokenizer: version %u, expected %d", h->version, TOK_VERSION);
		return TOK_E_FORMAT;
	}
	if (h->total_bytes != n_bytes || n_bytes > TOK_MAX_BYTES)
		return bad(&c, "cut off, or too long"), TOK_E_FORMAT;
	if (!check_layout(&c, n_bytes))
		return TOK_E_FORMAT;
	set_pointers(&c);
	bool ok = check_header(&c) && check_tokens(&c) && check_merges(&c) && check_ids(&c) &&
		check_hash(&c, t->vocab_hash, t->count[TOK_SEC_VOCAB_HASH], h->n_ids) &&
		check_hash(&c, t->merge_hash, t->count[TOK_SEC_MERGE_HASH], t->count[TOK_SEC_MERGES]) &&
		check_tree(&c, 0) && check_tree(&c, 1) && check_vocab_tree(&c) && check_code(&c) && check_steps(&c) &&
		check_index(&c, TOK_SEC_CLASS_INDEX, t->class_index, TOK_SEC_CLASS_BLOCKS) &&
		check_normalisation(&c);
	return ok ? 0 : TOK_E_FORMAT;
}
