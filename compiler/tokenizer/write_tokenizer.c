/* write_tokenizer.c - a TokenizerSpec to the bytes of artifacts/tokenizer_format.h.
 *
 * Each section is built as an array of its own, then all are copied after the header. Order
 * inside every section follows ids, ranks or the file, never addresses or hashes, so that the
 * same tokenizer gives the same bytes.
 */
#include "compiler/tokenizer/tokenizer_spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct Writer {
	Arena *arena;
	const TokenizerSpec *spec;
	char *strings; /* room for all of them */
	size_t n_strings;
	const void *data[TOK_SEC_COUNT];
	size_t bytes[TOK_SEC_COUNT];
} Writer;

static void set_section(Writer *w, TokSection s, const void *data, size_t bytes)
{
	w->data[s] = data;
	w->bytes[s] = bytes;
}

static uint32_t put_string(Writer *w, Str s)
{
	uint32_t at = (uint32_t)w->n_strings;
	if (s.n)
		memcpy(w->strings + at, s.at, s.n);
	w->n_strings += s.n;
	return at;
}

static void put_tokens(Writer *w)
{
	const TokenizerSpec *spec = w->spec;
	TokToken *tokens = ARENA_ARRAY(w->arena, TokToken, spec->n_ids);
	VEC(TokFirst) firsts = {0};
	uint32_t n_keyed = 0, slots = 16;
	for (int id = 0; id < spec->n_ids; id++) {
		const SpecToken *t = &spec->tokens[id];
		if (!t->name.at)
			continue;
		TokToken *o = &tokens[id];
		assert(t->text.n <= TOK_MAX_STRING && t->key.n <= TOK_MAX_STRING);
		o->flags = t->flags | (t->first.at ? TOK_FIRST : 0);
		o->text = put_string(w, t->text);
		o->text_bytes = (uint16_t)t->text.n;
		if (t->flags & TOK_KEYED) {
			bool same = t->key.n == t->text.n && !memcmp(t->key.at, t->text.at, t->key.n);
			o->key = same ? o->text : put_string(w, t->key);
			o->key_bytes = (uint16_t)t->key.n;
			n_keyed++;
		}
		if (t->first.at) {
			TokFirst first = {(uint32_t)id, put_string(w, t->first), (uint32_t)t->first.n};
			*vec_push(w->arena, &firsts) = first;
		}
	}
	while (slots * 3 < n_keyed * 4 + 4)
		slots *= 2;
	uint32_t *hash = ARENA_ARRAY(w->arena, uint32_t, slots);
	for (int id = 0; id < spec->n_ids; id++) {
		if (!(tokens[id].flags & TOK_KEYED))
			continue;
		uint32_t slot = tok_hash_string(spec->tokens[id].key.at, spec->tokens[id].key.n) & (slots - 1);
		while (hash[slot])
			slot = (slot + 1) & (slots - 1);
		hash[slot] = (uint32_t)id + 1;
	}
	set_section(w, TOK_SEC_TOKENS, tokens, sizeof *tokens * (size_t)spec->n_ids);
	set_section(w, TOK_SEC_VOCAB_HASH, hash, sizeof *hash * slots);
	set_section(w, TOK_SEC_FIRST, firsts.at, sizeof *firsts.at * (size_t)firsts.n);
}

/* Tree of added tokens ------------------------------------------------------------------------ */

typedef struct Leaf {
	Str text;
	uint32_t added; /* index */
} Leaf;

static int by_text(const void *x, const void *y)
{
	const Str *a = &((const Leaf *)x)->text, *b = &((const Leaf *)y)->text;
	int order = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
	return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Breadth first: a node is a range of sorted leaves that agree in `depth` bytes. */
static void put_tree(Writer *w, bool normalized, TokSection node_section, TokSection edge_section)
{
	typedef struct Range { int from, to; size_t depth; } Range;
	const TokenizerSpec *spec = w->spec;
	Leaf *leaves = ARENA_ARRAY(w->arena, Leaf, spec->added.n + 1);
	VEC(TokNode) nodes = {0};
	VEC(uint32_t) edges = {0};
	VEC(Range) ranges = {0};
	int n = 0;
	for (int i = 0; i < spec->added.n; i++)
		if (spec->added.at[i].normalized == normalized)
			leaves[n++] = (Leaf){spec->added.at[i].matched, (uint32_t)i};
	if (!n)
		return;
	qsort(leaves, (size_t)n, sizeof *leaves, by_text);
	*vec_push(w->arena, &ranges) = (Range){0, n, 0};
	for (int k = 0; k < ranges.n; k++) {
		Range r = ranges.at[k];
		TokNode node = {.edge = (uint32_t)edges.n};
		if (leaves[r.from].text.n == r.depth)
			node.accept = leaves[r.from++].added + 1;
		for (int i = r.from, end; i < r.to; i = end) {
			unsigned char byte = (unsigned char)leaves[i].text.at[r.depth];
			for (end = i + 1; end < r.to && (unsigned char)leaves[end].text.at[r.depth] == byte;)
				end++;
			*vec_push(w->arena, &edges) = (uint32_t)byte << 24 | (uint32_t)ranges.n;
			*vec_push(w->arena, &ranges) = (Range){i, end, r.depth + 1};
			node.n_edges++;
		}
		*vec_push(w->arena, &nodes) = node;
	}
	set_section(w, node_section, nodes.at, sizeof *nodes.at * (size_t)nodes.n);
	set_section(w, edge_section, edges.at, sizeof *edges.at * (size_t)edges.n);
}

static void put_added(Writer *w)
{
	const TokenizerSpec *spec = w->spec;
	TokAdded *added = ARENA_ARRAY(w->arena, TokAdded, spec->added.n);
	for (int i = 0; i < spec->added.n; i++)
		added[i] = (TokAdded){spec->added.at[i].id, spec->added.at[i].flags};
	set_section(w, TOK_SEC_ADDED, added, sizeof *added * (size_t)spec->added.n);
	put_tree(w, false, TOK_SEC_RAW_NODES, TOK_SEC_RAW_EDGES);
	put_tree(w, true, TOK_SEC_NORMAL_NODES, TOK_SEC_NORMAL_EDGES);
}

static void put_vocab_tree(Writer *w)
{
	const VocabTree t = vocab_tree(w->arena, w->spec);
	set_section(w, TOK_SEC_TREE, t.words, sizeof *t.words * t.n);
	set_section(w, TOK_SEC_TREE_IDS, t.ids, sizeof *t.ids * t.n);
	set_section(w, TOK_SEC_TREE_SAME, t.same, sizeof *t.same * t.n_same);
}

static void put_steps(Writer *w)
{
	const TokenizerSpec *spec = w->spec;
	TokStep *steps = ARENA_ARRAY(w->arena, TokStep, spec->steps.n);
	for (int i = 0; i < spec->steps.n; i++) {
		const SpecStep *s = &spec->steps.at[i];
		steps[i] = (TokStep){.kind = s->kind, .flags = s->flags, .code = s->code < 0 ? 0 : (uint32_t)s->code,
			.string = put_string(w, s->string), .string_bytes = (uint32_t)s->string.n};
	}
	set_section(w, TOK_SEC_STEPS, steps, sizeof *steps * (size_t)spec->steps.n);
	set_section(w, TOK_SEC_CODE, spec->code.at, sizeof *spec->code.at * (size_t)spec->code.n);
	set_section(w, TOK_SEC_SETS, spec->sets.at, sizeof *spec->sets.at * (size_t)spec->sets.n);
	set_section(w, TOK_SEC_RANGES, spec->ranges.at, sizeof *spec->ranges.at * (size_t)spec->ranges.n);
}

static void put_unicode(Writer *w)
{
	const NormTables *t = w->spec->norm;
	CharTable classes = unicode_classes(w->arena);
	const size_t index_bytes = TOK_CHAR_BLOCKS * sizeof *classes.index;
	set_section(w, TOK_SEC_CLASS_INDEX, classes.index, index_bytes);
	set_section(w, TOK_SEC_CLASS_BLOCKS, classes.blocks, 256 * (size_t)classes.n_blocks);
	if (!t)
		return;
	set_section(w, TOK_SEC_NORM_INDEX, t->props.index, index_bytes);
	set_section(w, TOK_SEC_NORM_BLOCKS, t->props.blocks, 256 * (size_t)t->props.n_blocks);
	set_section(w, TOK_SEC_NORM_PROPS, t->props_list, sizeof *t->props_list * (size_t)t->n_props);
	set_section(w, TOK_SEC_DECOMPOSITIONS, t->decompositions,
		sizeof *t->decompositions * (size_t)t->n_decompositions);
	set_section(w, TOK_SEC_POINTS, t->points, sizeof *t->points * (size_t)t->n_points);
	set_section(w, TOK_SEC_COMPOSITIONS, t->compositions,
		sizeof *t->compositions * (size_t)t->n_compositions);
}

static void *assemble(Writer *w, TokHeader h, size_t *n_bytes)
{
	size_t total = sizeof h;
	for (int s = 0; s < TOK_SEC_COUNT; s++) {
		if (!w->bytes[s])
			continue;
		if (w->bytes[s] > TOK_MAX_BYTES - total)
			return NULL;
		h.sections[s] = (TokSpan){(uint32_t)total, (uint32_t)w->bytes[s]};
		total = (total + w->bytes[s] + 7) & ~(size_t)7;
	}
	if (total > TOK_MAX_BYTES)
		return NULL;
	h.total_bytes = (uint32_t)total;
	char *out = arena_alloc(w->arena, total);
	memcpy(out, &h, sizeof h);
	for (int s = 0; s < TOK_SEC_COUNT; s++)
		if (w->bytes[s])
			memcpy(out + h.sections[s].offset, w->data[s], w->bytes[s]);
	*n_bytes = total;
	return out;
}

void *write_tokenizer(Arena *a, const TokenizerSpec *spec, size_t *n_bytes)
{
	Writer w = {.arena = a, .spec = spec};
	size_t room = 0;
	for (int id = 0; id < spec->n_ids; id++)
		room += spec->tokens[id].text.n + spec->tokens[id].key.n + spec->tokens[id].first.n;
	for (int i = 0; i < spec->steps.n; i++)
		room += spec->steps.at[i].string.n;
	if (room > TOK_MAX_BYTES)
		return NULL;
	w.strings = arena_alloc(a, room);
	TokHeader h = {.version = TOK_VERSION, .n_ids = (uint32_t)spec->n_ids, .flags = spec->flags,
		.unk_id = spec->unk_id, .bos_id = spec->bos_id, .eos_id = spec->eos_id, .decode = spec->decode,
		.strip_count = spec->strip_count, .strip_point = spec->strip_point,
		.n_normalizers = (uint32_t)spec->n_normalizers};
	memcpy(h.magic, TOK_MAGIC, sizeof h.magic);
	put_tokens(&w);
	put_added(&w);
	put_vocab_tree(&w);
	put_steps(&w);
	put_unicode(&w);
	set_section(&w, TOK_SEC_MERGES, spec->merges.at, sizeof *spec->merges.at * (size_t)spec->merges.n);
	set_section(&w, TOK_SEC_MERGE_HASH, spec->merge_hash, sizeof *spec->merge_hash * spec->merge_slots);
	set_section(&w, TOK_SEC_BYTE_IDS, spec->byte_ids, sizeof spec->byte_ids);
	set_section(&w, TOK_SEC_PREFIX, spec->prefix.at, sizeof *spec->prefix.at * (size_t)spec->prefix.n);
	set_section(&w, TOK_SEC_SUFFIX, spec->suffix.at, sizeof *spec->suffix.at * (size_t)spec->suffix.n);
	set_section(&w, TOK_SEC_STRINGS, w.strings, w.n_strings);
	return assemble(&w, h, n_bytes);
}
